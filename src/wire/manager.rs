//! Opens connections for the pools and the listener.

use std::fmt;
use std::time::Duration;

use redis::{ProtocolVersion, RedisError, Value};

use crate::base::sync::Arc;
use crate::base::sync::contended::Mutex;
use crate::base::time::{Clock, Moment};
use crate::observe::Reconnected;
use crate::observe::observers::Observers;
use crate::wire::connect_attempts::ConnectAttempts;
use crate::wire::connection::{Connection, Reply, Session as _};
use crate::wire::endpoint::{self, Endpoint};
use crate::wire::epoch::Epoch;
use crate::wire::error_context::{Awaited, Limit};
use crate::wire::failure::Failure;
use crate::wire::health::{ConnectionHealth, Incidents};
use crate::wire::locator::{HandshakeCommand, Locator};
use crate::wire::raw_connection::RawConnection;
use crate::wire::script::Call;
use crate::wire::server_clock::{self, ServerClock, ServerClocks};
use crate::wire::server_version;
use crate::wire::subscription::Subscription;

/// Opens all connections of a client to one server, and keeps what they share.
pub(crate) struct Manager {
    source: Arc<dyn Locator>,
    clock: Arc<dyn Clock>,
    server_clock: Arc<ServerClock>,
    timeouts: Timeouts,
    common: Arc<ConnectionHealth>,
    attempts: ConnectAttempts,
    observers: Observers,
    /// The epoch, and what had happened to the connections, when the last one was made; `None` before the first.
    incidents: Mutex<Option<(u64, Incidents)>>,
    /// The server that a connection is being made to, once it is known.
    connecting: Mutex<Option<String>>,
    /// The epoch and the incidents at which a server that hides its version was last shown to be new enough.
    proven: Mutex<Option<(u64, Incidents)>>,
}

/// How long to wait for a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// For a connection.
    pub(crate) connect: Duration,
    /// For a reply.
    pub(crate) command: Duration,
    /// The names of the two settings, for errors.
    pub(crate) settings: [&'static str; 2],
}

#[cfg(test)]
impl Timeouts {
    pub(crate) fn both(span: Duration) -> Timeouts {
        let settings = ["connect_timeout", "command_timeout"];
        Timeouts { connect: span, command: span, settings }
    }
}

impl Manager {
    pub(crate) fn new(
        source: Arc<dyn Locator>,
        clock: Arc<dyn Clock>,
        timeouts: Timeouts,
    ) -> Manager {
        Manager {
            source,
            clock,
            server_clock: Arc::default(),
            common: Arc::new(ConnectionHealth::new(timeouts.command, timeouts.settings[1])),
            timeouts,
            attempts: ConnectAttempts::new(),
            observers: Observers::default(),
            incidents: Mutex::new(None),
            connecting: Mutex::new(None),
            proven: Mutex::new(None),
        }
    }

    /// The same with these observers.
    pub(crate) fn observed(self, observers: Observers) -> Manager {
        Manager { observers, ..self }
    }

    /// The same for a server whose clock is one of these.
    pub(crate) fn timed(self, clocks: &Arc<ServerClocks>) -> Manager {
        Manager { server_clock: clocks.add(), ..self }
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(crate) fn attempts(&self) -> &ConnectAttempts {
        &self.attempts
    }

    /// The server's clock, and its epochs.
    pub(crate) fn server_clock(&self) -> &Arc<ServerClock> {
        &self.server_clock
    }

    /// What has happened to the connections until now.
    pub(crate) fn incidents(&self) -> Incidents {
        self.common.incidents()
    }

    /// Outdates all connections made so far.
    pub(crate) fn outdate_all(&self) {
        _ = self.common.outdate(self.common.generation());
    }

    /// Begins another epoch, which outdates all connections and subscriptions: the master has
    /// moved.
    pub(crate) fn move_on(&self) {
        // Not `outdate_all`: the pool's generation outdates neither a subscription nor a reading of
        // the server's clock. The new master has another clock.
        self.server_clock.epochs().advance();
    }

    /// The target of the next connection, and the epoch that it belongs to.
    fn locate(&self, most: Duration, asks_all: bool) -> Result<(Endpoint, Epoch), RedisError> {
        let epochs = self.server_clock.epochs();
        // Read before the look-up. If the master moves during it, the connection may lead to the
        // old one: it must be outdated from the start, and not count as one of the new epoch.
        let before = epochs.current();
        let (endpoint, moved) = self.source.locate(self.timeouts.connect, most, asks_all)?;
        if !moved {
            return Ok((endpoint, before));
        }
        self.move_on();
        Ok((endpoint, epochs.current()))
    }

    /// Opens a connection that subscribes to a channel, on the caller's thread.
    pub(crate) fn subscribe(&self, channel: &[u8]) -> Result<Subscription, Failure> {
        let located = self.locate(self.timeouts.connect, false);
        let (endpoint, epoch) = located.map_err(Failure::connect)?;
        self.subscribe_at(&endpoint, channel, Some(epoch)).inspect_err(|_| self.suspect())
    }

    /// Opens a subscription at a given server. With an `epoch` the server must be a master, and the
    /// subscription ends with the epoch.
    pub(crate) fn subscribe_at(
        &self,
        info: &Endpoint,
        channel: &[u8],
        epoch: Option<Epoch>,
    ) -> Result<Subscription, Failure> {
        // In RESP2 a message that comes between a command and its reply cannot be told from the
        // reply, and a subscribed connection may not send the `HELLO` by which the subscription
        // looks for a fail-over.
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        // A channel belongs to no database, and `SELECT` is one more command that a busy server
        // refuses.
        let info = info.clone().set_redis_settings(settings.set_db(0));
        self.connect(&info)
            .map_err(Failure::connect)
            .and_then(|line| Subscription::new(line, self.timeouts.command, channel, epoch))
            .map_err(|failure| failure.at(&endpoint::address(&info), self.reply_limit()))
    }

    /// How long a request that is sent now waits for its reply.
    pub(crate) fn reply_by(&self, deadline: Moment) -> Moment {
        deadline.min(self.clock.now().after(self.timeouts.command))
    }

    /// How long a caller waits for an attempt to connect.
    pub(crate) fn longest_attempt(&self) -> Duration {
        // An attempt may take longer: the look-up of the master takes time of its own, and so
        // does each of the first replies. With the sum as the limit, each caller of a dead server
        // would wait that long.
        self.timeouts.connect
    }

    fn connect(&self, to: &Endpoint) -> Result<RawConnection, RedisError> {
        let Timeouts { connect, settings: [setting, _], .. } = self.timeouts;
        RawConnection::connect(to, Limit { span: connect, setting: Some(setting) })
    }

    /// The server that connections lead to, as errors name it.
    pub(crate) fn address(&self) -> String {
        self.source.address()
    }

    /// What the current attempt to connect waits for.
    pub(crate) fn awaited(&self) -> Awaited {
        match &*self.connecting.lock() {
            Some(server) => Awaited::Server(server.clone()),
            None => match self.source.awaited() {
                Some(others) => Awaited::Others(others),
                None => Awaited::Server(self.address()),
            },
        }
    }

    /// How long no connection of this manager has received a reply.
    pub(crate) fn silence(&self) -> Duration {
        self.common.silence(self.clock.now())
    }

    /// How long a reply may take.
    pub(crate) fn reply_limit(&self) -> Limit {
        self.common.limit
    }

    /// Looks up the master, and outdates all connections if it has moved.
    pub(crate) fn look(&self, asks_all: bool) -> Result<(), RedisError> {
        self.locate(self.timeouts.connect, asks_all).map(drop)
    }

    /// Notes that no connection could be made to the place that was found.
    pub(crate) fn suspect(&self) {
        self.source.suspect();
    }

    /// Opens a connection, on the caller's thread. The look-up, the connecting and each first reply
    /// have the time-outs of the settings.
    pub(crate) fn open(&self) -> Result<Connection, RedisError> {
        // No limit for the look-up as a whole: this runs on the connecting thread, and callers give
        // up by their own limits. A limit would only leave the last of many sentinels unasked.
        *self.connecting.lock() = None;
        let (endpoint, epoch) = self.locate(Duration::MAX, false)?;
        *self.connecting.lock() = Some(endpoint::address(&endpoint));
        // Before its own replies.
        let is_silent = self.common.is_silent();
        let connection = self.open_at(&endpoint, epoch).inspect_err(|_| self.suspect())?;
        self.note_made(&connection, is_silent);
        Ok(connection)
    }

    /// Notes a connection that was made. Before it, no other connection of the server may have had a reply since a request
    /// that `is_silent`.
    fn note_made(&self, connection: &Connection, is_silent: bool) {
        let epoch = self.server_clock.epochs().number();
        let incidents = self.common.incidents();
        let Some(before) = self.incidents.lock().replace((epoch, incidents)) else { return };
        let (epoch_before, (generation_before, _)) = before;
        let (generation, _) = incidents;
        // This manager has a reference, and each connection.
        let is_alone = Arc::strong_count(&self.common) <= 2;
        // No connection is left that was there before. The server may be another one, or have lost its memory: a machine
        // that lost its power closes nothing.
        if (epoch, generation) != (epoch_before, generation_before)
            || is_silent && before.1 != incidents
            || is_alone
        {
            self.server_clock.note_break(connection.times().0);
        }
        // The first one after an incident stands for all. This thread connects for everybody, so it is not held up.
        if before.1 != incidents {
            let server = self.address();
            self.observers
                .tell_aside(move |observer| observer.reconnected(&Reconnected { server: &server }));
        }
    }

    fn open_at(&self, to: &Endpoint, epoch: Epoch) -> Result<Connection, RedisError> {
        let mut line = self.connect(to)?;
        let greeting = std::mem::replace(&mut line.greeting, Value::Nil);
        // As soon as it is connected, whatever the handshake brings: the count makes the listener
        // look for a fail-over, and an address that has begun to lead elsewhere may refuse the
        // handshake.
        epoch.count_connection();
        let (clock, common) = (Arc::clone(&self.clock), Arc::clone(&self.common));
        let address: Arc<str> = endpoint::address(to).into();
        self.server_clock.set_address(Arc::clone(&address));
        let mut connection =
            Connection::new(line, clock, common, address, epoch).timed_by(&self.server_clock);

        // The first command shows that the server serves this user, and reads its time. A user who
        // may not run TIME gets a connection all the same: the error of the first script names what
        // is missing. A quorum needs the time of each server before it can propose a token.
        let needed = self.source.needs_time();
        // `HELLO` is sent with it, unless the log-in was a `HELLO`: every user may run it, and its reply has
        // the version.
        let (time, hello) = (server_clock::time(), Call::plain(&[b"HELLO"]));
        let is_greeted = matches!(greeting, Value::Map(_));
        let calls = if is_greeted { vec![time] } else { vec![time, hello] };
        let mut replies = connection.call_all(&calls, self.reply_by(Moment::FAR)).into_iter();
        if let Some(reply) = replies.next().map_or(Ok(None), |it| first_reply(it, needed))? {
            server_clock::micros_of(&reply.value).into_iter().for_each(|it| reply.note_time(it));
        }
        let version = match replies.next() {
            None => server_version::reported(&greeting),
            Some(Ok(reply)) => server_version::reported(&reply.value),
            // A proxy may not know `HELLO`.
            Some(Err(Failure::Refused(_))) => None,
            Some(Err(failure)) => return Err(failure.into_error()),
        };
        self.check_version(&mut connection, version.as_deref())?;
        if let Some(HandshakeCommand { command, needed }) = self.source.handshake_command() {
            let reply = self.ask_first(&mut connection, command, needed)?;
            self.source.check_handshake(&mut connection, reply.as_ref())?;
        }

        // Only from here on does a lost connection outdate the others. A server that is full closes
        // each newcomer during its first commands, and serves its old connections well.
        connection.hand_out();
        Ok(connection)
    }

    /// Whether the worker may use a connection.
    pub(crate) fn may_lend(&self, connection: &Connection) -> bool {
        // A connection that is doubted only because another was silent is better than none. A renewal that
        // gets no reply is repeated.
        connection.is_usable()
            || connection.is_only_suspected() && self.attempts.counts().is_failing
    }

    /// Tests with a `PING` whether a connection is alive.
    pub(crate) fn test(&self, connection: &mut Connection) -> Result<(), RedisError> {
        match connection.call(&Call::plain(&[b"PING"]), self.reply_by(Moment::FAR)) {
            // A server that denies `PING` to the user has replied, so the connection is alive.
            Err(failure) if !failure.is_denied() => Err(failure.into_error()),
            _ => Ok(()),
        }
    }

    /// Sends a command on a new connection. `None` if its user may not run it, unless it is needed.
    fn ask_first(
        &self,
        connection: &mut Connection,
        command: &[&[u8]],
        needed: bool,
    ) -> Result<Option<Reply>, RedisError> {
        first_reply(connection.call(&Call::plain(command), self.reply_by(Moment::FAR)), needed)
    }

    /// Fails if the server is too old. If the reported version is missing or too old, a script tests the
    /// server, because the version may be that of a proxy.
    fn check_version(
        &self,
        connection: &mut Connection,
        version: Option<&str>,
    ) -> Result<(), RedisError> {
        let run = (self.server_clock.epochs().number(), self.common.incidents());
        if version.is_some_and(server_version::is_enough) || *self.proven.lock() == Some(run) {
            return Ok(());
        }
        match connection.call(&server_version::capability(), self.reply_by(Moment::FAR)) {
            Ok(reply) if reply.value == Value::Int(0) => {
                Err(server_version::too_old(connection.address(), version))
            }
            Ok(_) => {
                *self.proven.lock() = Some(run);
                Ok(())
            }
            // A user that may not run scripts gets no lock, and the first script fails for this reason.
            Err(failure) if failure.is_denied() => Ok(()),
            Err(failure) => Err(failure.into_error()),
        }
    }
}

/// The reply to one of the first commands of a connection. `None` if the user may not run a command that is
/// not `needed`.
fn first_reply(outcome: Result<Reply, Failure>, needed: bool) -> Result<Option<Reply>, RedisError> {
    match outcome {
        // `NOPERM` alone. `NOAUTH` and `WRONGPASS` mean that the user is not logged in, and the
        // connection would fail at every later command.
        Err(failure) if !needed && failure.code() == Some("NOPERM") => Ok(None),
        outcome => outcome.map(Some).map_err(Failure::into_error),
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client has the user and the password.
        f.debug_struct("Manager").field("attempts", &self.attempts.counts()).finish_non_exhaustive()
    }
}

//! Makes connections for the pool.

use std::fmt;
use std::time::Duration;

use redis::{ProtocolVersion, RedisError};

use crate::base::sync::Arc;
use crate::base::time::{Clock, Moment};
use crate::wire::connect_attempts::ConnectAttempts;
use crate::wire::connection::{Connection, Reply, Session as _};
use crate::wire::endpoint::{self, Endpoint};
use crate::wire::epoch::Epoch;
use crate::wire::error_context::{Limit, locate};
use crate::wire::failure::Failure;
use crate::wire::health::ConnectionHealth;
use crate::wire::locator::{HandshakeCommand, Locator};
use crate::wire::raw_connection::RawConnection;
use crate::wire::script::Call;
use crate::wire::server_clock::ServerClock;
use crate::wire::subscription::Subscription;

/// What all connections of a client have in common.
pub(crate) struct Manager {
    source: Arc<dyn Locator>,
    clock: Arc<dyn Clock>,
    server_clock: ServerClock,
    timeouts: Timeouts,
    common: Arc<ConnectionHealth>,
    attempts: ConnectAttempts,
}

/// How long a server may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// To be connected to.
    pub(crate) connect: Duration,
    /// To answer.
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
            server_clock: ServerClock::default(),
            common: Arc::new(ConnectionHealth::new(timeouts.command, timeouts.settings[1])),
            timeouts,
            attempts: ConnectAttempts::new(),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(crate) fn attempts(&self) -> &ConnectAttempts {
        &self.attempts
    }

    /// The server's clock, and where the server is.
    pub(crate) fn server_clock(&self) -> &ServerClock {
        &self.server_clock
    }

    /// Outdates all connections made so far.
    pub(crate) fn outdate_all(&self) {
        self.common.outdate(self.common.generation());
    }

    /// Outdates all connections, and what listens: the master is elsewhere.
    pub(crate) fn move_on(&self) {
        self.server_clock.epochs().advance();
    }

    /// Where the next connection goes to, and the epoch that it belongs to. That is read before the source is
    /// asked: if the master moves meanwhile, the connection is outdated from the start.
    fn locate(&self, most: Duration, asks_all: bool) -> Result<(Endpoint, Epoch), RedisError> {
        let epochs = self.server_clock.epochs();
        let before = epochs.current();
        let (endpoint, moved) = self.source.locate(self.timeouts.connect, most, asks_all)?;
        if !moved {
            return Ok((endpoint, before));
        }
        self.move_on();
        Ok((endpoint, epochs.current()))
    }

    /// Makes a connection that listens to a channel, on the caller's thread.
    pub(crate) fn subscribe(&self, channel: &[u8]) -> Result<Subscription, Failure> {
        let located = self.locate(self.timeouts.connect, false);
        let (endpoint, epoch) = located.map_err(Failure::connect)?;
        self.subscribe_at(&endpoint, channel, Some(epoch)).inspect_err(|_| self.suspect())
    }

    /// Makes a connection that listens at a certain server, whatever its role unless it is the master of an
    /// epoch.
    pub(crate) fn subscribe_at(
        &self,
        info: &Endpoint,
        channel: &[u8],
        epoch: Option<Epoch>,
    ) -> Result<Subscription, Failure> {
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        // Channels are of no database, and a busy server lets nobody choose one.
        let info = info.clone().set_redis_settings(settings.set_db(0));
        self.connect(&info)
            .map_err(Failure::connect)
            .and_then(|line| Subscription::new(line, self.timeouts.command, channel, epoch))
            .map_err(|failure| failure.at(&endpoint::address(&info), self.reply_limit()))
    }

    /// Until when the reply to a request that is sent now is waited for.
    pub(crate) fn reply_by(&self, deadline: Moment) -> Moment {
        deadline.min(self.clock.now().after(self.timeouts.command))
    }

    /// How long it takes to find out whether a connection can be made, as a rule.
    pub(crate) fn longest_attempt(&self) -> Duration {
        self.timeouts.connect
    }

    fn connect(&self, to: &Endpoint) -> Result<RawConnection, RedisError> {
        let Timeouts { connect, settings: [setting, _], .. } = self.timeouts;
        let limit = Limit { span: connect, setting: Some(setting) };
        RawConnection::connect(to, connect)
            .map_err(|error| locate(error, &endpoint::address(to), limit))
    }

    /// The server that connections lead to, as errors name it.
    pub(crate) fn address(&self) -> String {
        self.source.address()
    }

    /// For how long no connection of this manager received a reply.
    pub(crate) fn silence(&self) -> Duration {
        self.common.silence(self.clock.now())
    }

    /// How long a reply may take.
    pub(crate) fn reply_limit(&self) -> Limit {
        self.common.limit
    }

    /// Looks where the master is, and outdates all connections if it is elsewhere than before.
    pub(crate) fn look(&self, asks_all: bool) -> Result<(), RedisError> {
        self.locate(self.timeouts.connect, asks_all).map(drop)
    }

    /// Notes that the server could not be spoken to where it was found.
    pub(crate) fn suspect(&self) {
        self.source.suspect();
    }

    /// Makes a connection, on the caller's thread. Asking for the server, connecting and each first reply may
    /// take as long as the time-outs say.
    pub(crate) fn open(&self) -> Result<Connection, RedisError> {
        let (endpoint, epoch) = self.locate(Duration::MAX, false)?;
        self.open_at(&endpoint, epoch).inspect_err(|_| self.suspect())
    }

    fn open_at(&self, to: &Endpoint, epoch: Epoch) -> Result<Connection, RedisError> {
        let line = self.connect(to)?;
        epoch.count_connection();
        let (clock, common) = (Arc::clone(&self.clock), Arc::clone(&self.common));
        let address = endpoint::address(to).into();
        let mut connection = Connection::new(line, clock, common, address, epoch);
        // A first command shows that the server serves this user, and tells its time. A user may be
        // without TIME; the scripts will say what is missing. One of several servers is sent none
        // before its time is known.
        let needed = self.source.needs_time();
        if let Some(reply) = self.ask_first(&mut connection, &[b"TIME"], needed)? {
            self.note_time(&reply);
        }
        if let Some(HandshakeCommand { command, needed }) = self.source.handshake_command() {
            let reply = self.ask_first(&mut connection, command, needed)?;
            self.source.check_handshake(&mut connection, reply.as_ref())?;
        }
        connection.hand_out();
        Ok(connection)
    }

    /// Tests with a `PING` whether a connection is alive.
    pub(crate) fn test(&self, connection: &mut Connection) -> Result<(), RedisError> {
        match connection.call(&Call::plain(&[b"PING"]), self.reply_by(Moment::FAR)) {
            // A server that denies it is there.
            Err(failure) if !failure.is_denied() => Err(failure.into_error()),
            _ => Ok(()),
        }
    }

    /// Asks a new connection something; `None` if its user may not, which is an error if it is needed.
    fn ask_first(
        &self,
        connection: &mut Connection,
        command: &[&[u8]],
        needed: bool,
    ) -> Result<Option<Reply>, RedisError> {
        match connection.call(&Call::plain(command), self.reply_by(Moment::FAR)) {
            Err(failure) if !needed && failure.code() == Some("NOPERM") => Ok(None),
            outcome => outcome.map(Some).map_err(Failure::into_error),
        }
    }

    fn note_time(&self, reply: &Reply) {
        if let Ok((seconds, micros)) = redis::from_redis_value_ref::<(u64, u64)>(&reply.value) {
            let micros = seconds.saturating_mul(1_000_000).saturating_add(micros);
            self.server_clock.note(reply.epoch, micros, reply.sent, reply.received);
        }
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client has the user and the password.
        f.debug_struct("Manager").field("attempts", &self.attempts.counts()).finish_non_exhaustive()
    }
}

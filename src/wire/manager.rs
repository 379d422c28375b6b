//! Makes connections for the pool.

use std::fmt;
use std::time::Duration;

use redis::{ProtocolVersion, RedisError, Value};

use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::base::time::{Clock, Moment};
use crate::wire::attempt::Attempts;
use crate::wire::connection::{Connection, Reply};
use crate::wire::endpoint::{self, Endpoint};
use crate::wire::epoch::Epoch;
use crate::wire::failure::{Failure, Hindrance};
use crate::wire::fault::{Limit, locate, silence};
use crate::wire::greeting;
use crate::wire::line::Line;
use crate::wire::script::Call;
use crate::wire::server_clock::ServerClock;
use crate::wire::silence::Common;
use crate::wire::source::{Question, Source};
use crate::wire::subscription::Subscription;

/// What all connections of a client have in common.
pub(crate) struct Manager {
    source: Arc<dyn Source>,
    clock: Arc<dyn Clock>,
    /// Managers that share it know of the same moves.
    server_clock: Arc<ServerClock>,
    timeouts: Timeouts,
    common: Arc<Common>,
    generation: AtomicU64,
    attempts: Attempts,
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

/// Where a connection goes to, and what it belongs to.
struct Goal {
    info: Endpoint,
    generation: u64,
    epoch: Epoch,
}

impl Manager {
    pub(crate) fn new(
        source: Arc<dyn Source>,
        clock: Arc<dyn Clock>,
        server_clock: Arc<ServerClock>,
        timeouts: Timeouts,
    ) -> Manager {
        Manager {
            source,
            clock,
            server_clock,
            common: Arc::new(Common::new(timeouts.command, timeouts.settings[1])),
            timeouts,
            generation: AtomicU64::new(0),
            attempts: Attempts::new(),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(crate) fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    /// Whether a connection was made before the server was last seen to hang up, or to be elsewhere, or was
    /// idle while another was silent.
    pub(crate) fn is_outdated(&self, connection: &Connection) -> bool {
        connection.generation != self.generation.load(Ordering::Relaxed)
            || connection.epoch().is_over()
            || connection.is_silent()
    }

    /// Whether a connection may be used again.
    pub(crate) fn is_usable(&self, connection: &Connection) -> bool {
        !connection.is_poisoned() && !self.is_outdated(connection)
    }

    /// Outdates all connections made so far: where the server hung up on one, the idle others are
    /// likely dead too, and each would cost somebody an unknown outcome.
    pub(crate) fn outdate(&self, connection: &Connection) {
        let _ = self.generation.compare_exchange(
            connection.generation,
            connection.generation + 1,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Outdates all connections made so far.
    pub(crate) fn outdate_all(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Outdates all connections, and what listens: the master is elsewhere.
    pub(crate) fn move_on(&self) {
        self.server_clock.epochs().advance();
    }

    /// Where the next connection goes to. What it belongs to is read before that is asked: if the
    /// master moves meanwhile, the connection is outdated from the start.
    fn locate(&self, most: Duration, asks_all: bool) -> Result<Goal, RedisError> {
        let epochs = self.server_clock.epochs();
        let here = || (self.generation.load(Ordering::SeqCst), epochs.current());
        let (mut generation, mut epoch) = here();
        let (info, moved) = self.source.locate(self.timeouts.connect, most, asks_all)?;
        if moved {
            self.move_on();
            (generation, epoch) = here();
        }
        Ok(Goal { info, generation, epoch })
    }

    /// Makes a connection that listens to a channel, on the caller's thread.
    pub(crate) fn subscribe(&self, channel: &[u8]) -> Result<Subscription, Failure> {
        let connect = |error| Failure::NotSent(Hindrance::Connect(error));
        let goal = self.locate(self.timeouts.connect, false).map_err(connect)?;
        self.subscribe_at(&goal.info, channel, Some(goal.epoch)).inspect_err(|_| self.doubt())
    }

    /// Makes a connection that listens at a certain server, whatever its role unless it is the master of an
    /// epoch.
    pub(crate) fn subscribe_at(
        &self,
        info: &Endpoint,
        channel: &[u8],
        epoch: Option<Epoch>,
    ) -> Result<Subscription, Failure> {
        let connect = |error| Failure::NotSent(Hindrance::Connect(error));
        let opened = self.open_resp3(info).map_err(connect);
        opened
            .and_then(|inner| Subscription::new(inner, self.timeouts.command, channel, epoch))
            .map_err(|failure| failure.at(&endpoint::address(info), self.reply_limit()))
    }

    /// Until when the reply to a request that is sent now is waited for.
    pub(crate) fn reply_by(&self, deadline: Moment) -> Moment {
        deadline.min(self.clock.now().after(self.timeouts.command))
    }

    /// How long it takes to find out whether a connection can be made, as a rule.
    pub(crate) fn longest_attempt(&self) -> Duration {
        self.timeouts.connect
    }

    fn open_resp3(&self, info: &Endpoint) -> Result<Line, RedisError> {
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        // Channels are of no database, and a busy server lets nobody choose one.
        let info = info.clone().set_redis_settings(settings.set_db(0));
        let connect = self.timeouts.connect;
        greeting::connect(&info, &*self.clock, connect)
            .map_err(|error| locate(error, &endpoint::address(&info), self.connect_limit(connect)))
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
        Limit { span: self.timeouts.command, setting: Some(self.timeouts.settings[1]) }
    }

    /// How long it may take to connect where there is so much time.
    fn connect_limit(&self, left: Duration) -> Limit {
        let whole = left >= self.timeouts.connect;
        Limit { span: left, setting: whole.then_some(self.timeouts.settings[0]) }
    }

    /// Looks where the master is, and outdates all connections if it is elsewhere than before.
    pub(crate) fn look(&self, asks_all: bool) -> Result<(), RedisError> {
        self.locate(self.timeouts.connect, asks_all).map(drop)
    }

    /// Notes that the server could not be spoken to where it was found.
    pub(crate) fn doubt(&self) {
        self.source.doubt();
    }

    /// Makes a connection, on the caller's thread. Finding the server, connecting and each first
    /// answer may take as long as the time-outs say, and all of it no longer than this.
    pub(crate) fn open(&self, most: Duration) -> Result<Connection, RedisError> {
        let deadline = self.clock.now().after(most);
        let goal = self.locate(most, false)?;
        self.open_at(&goal, deadline).inspect_err(|_| self.doubt())
    }

    fn open_at(&self, goal: &Goal, deadline: Moment) -> Result<Connection, RedisError> {
        let left = deadline.since(self.clock.now()).min(self.timeouts.connect);
        let address: Arc<str> = endpoint::address(&goal.info).into();
        let inner = greeting::connect(&goal.info, &*self.clock, left)
            .map_err(|error| locate(error, &address, self.connect_limit(left)))?;
        goal.epoch.count_connection();
        let (clock, common) = (Arc::clone(&self.clock), Arc::clone(&self.common));
        let belongs = (goal.generation, goal.epoch.clone());
        let mut connection = Connection::new(inner, clock, common, address, belongs)?;
        // A first command shows that the server serves this user, and tells its time. A user may be
        // without TIME; the scripts will say what is missing. One of several servers is sent none
        // before its time is known.
        let needed = self.source.needs_time();
        if let Some(reply) = self.ask_first(&mut connection, &[b"TIME"], needed, deadline)? {
            self.note_time(&reply);
        }
        if let Some(Question { command, needed }) = self.source.question() {
            let reply = self.ask_first(&mut connection, command, needed, deadline)?;
            self.source.judge(&mut connection, reply.as_ref())?;
        }
        Ok(connection)
    }

    /// Tests with a `PING` whether a connection is alive.
    pub(crate) fn test(&self, connection: &mut Connection) -> Result<(), RedisError> {
        match connection.call(&Call::plain(&[b"PING"]), self.reply_by(Moment::FAR)) {
            Ok(_) => Ok(()),
            // A server that denies it is there.
            Err(failure) if failure.is_denied() => Ok(()),
            Err(Failure::Refused(error)) => Err(error),
            // Where it was silent, that outdates the others too.
            Err(failure) => {
                if failure.is_disconnect() {
                    self.outdate(connection);
                }
                Err(silence())
            }
        }
    }

    /// Asks a new connection something; `None` if its user may not, which is an error if it is needed.
    fn ask_first(
        &self,
        connection: &mut Connection,
        command: &[&[u8]],
        needed: bool,
        deadline: Moment,
    ) -> Result<Option<Reply>, RedisError> {
        let deadline = deadline.min(self.clock.now().after(self.timeouts.command));
        match connection.call(&Call::plain(command), deadline) {
            Ok(reply) => Ok(Some(reply)),
            Err(Failure::Refused(error)) if needed || error.code() != Some("NOPERM") => Err(error),
            Err(Failure::Refused(_)) => Ok(None),
            Err(
                Failure::NotSent(Hindrance::Connect(error) | Hindrance::Closed(error))
                | Failure::Unknown(error),
            ) => Err(error),
            Err(Failure::NotSent(_)) => Err(silence()),
        }
    }

    fn note_time(&self, reply: &Reply) {
        if let Value::Array(parts) = &reply.value
            && let [seconds, micros] = parts.as_slice()
            && let (Ok(seconds), Ok(micros)) =
                (redis::from_redis_value_ref::<u64>(seconds), redis::from_redis_value_ref(micros))
        {
            let micros: u64 = micros;
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

//! One connection: commands out, replies in, each by its deadline.

use std::io;
use std::time::Duration;

use redis::{RedisError, ServerErrorKind, Value};

use crate::base::sync::{Arc, Weak};
use crate::base::time::{Clock, Moment};
use crate::wire::epoch::Epoch;
use crate::wire::error_context::{Limit, io_kind, locate};
use crate::wire::failure::{Failure, NotSentReason, is_of_replica};
use crate::wire::health::ConnectionHealth;
use crate::wire::raw_connection::RawConnection;
use crate::wire::script::Call;
use crate::wire::server_clock::{Reading, ServerClock};

/// A socket may wait this much longer than until the deadline, which saves most system calls.
pub(crate) const SLACK: Duration = Duration::from_millis(10);

/// The shortest wait for a reply. A reply that has arrived is read even after its deadline: the
/// thread may not have run meanwhile, and that says nothing about the server.
const GRACE: Duration = Duration::from_millis(2);

/// One part in so many of the time for a reply is for the way there and back.
const MARGIN: u32 = 10;

/// After so long without a reply a connection is looked at before it is used.
const IDLE: Duration = Duration::from_secs(1);

/// The size up to which a socket takes a write whole or not at all.
const ONE_WRITE: usize = 4096;

/// A reply, with the moments of sending and receipt on the holder's clock.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) value: Value,
    pub(crate) sent: Moment,
    pub(crate) received: Moment,
    /// The clock of the server that sent it, in the epoch of the connection; `None` where nobody reads it.
    pub(crate) clock: Option<(Arc<ServerClock>, u64)>,
}

impl Reply {
    /// The reading of the server's clock if the reply tells this time, with that clock.
    pub(crate) fn reading(&self, micros: u64) -> Option<(&ServerClock, Reading)> {
        let (clock, epoch) = self.clock.as_ref()?;
        let Reply { sent, received, .. } = *self;
        Some((clock, Reading { epoch: *epoch, micros, sent, received }))
    }

    /// Notes that it tells this time of the server, in microseconds.
    pub(crate) fn note_time(&self, micros: u64) {
        if let Some((clock, reading)) = self.reading(micros) {
            clock.note(reading);
        }
    }
}

/// One connection for as long as an operation needs it.
pub(crate) trait Session {
    /// Sends one command and waits for its reply.
    fn call(&mut self, call: &Call, deadline: Moment) -> Result<Reply, Failure>;

    /// Sends several commands at once and waits for their replies.
    fn call_all(&mut self, calls: &[Call], deadline: Moment) -> Vec<Result<Reply, Failure>>;

    /// As [`call`](Session::call), for a command to which the server replies only after `within`.
    fn call_slow(
        &mut self,
        call: &Call,
        within: Duration,
        deadline: Moment,
    ) -> Result<Reply, Failure>;

    /// How long the server may take for a command whose reply must arrive by the deadline.
    fn longest_wait(&self, deadline: Moment) -> Duration;

    /// Keeps the connection from being used again: it may still watch a key, or be within a
    /// transaction.
    fn poison(&mut self);
}

/// A connection with its time-outs, and whether it may be used again.
pub(crate) struct Connection {
    /// Counts this connection for its pool until it is dropped. Declared first, so that it is
    /// dropped first.
    pub(crate) counted: Weak<()>,
    inner: RawConnection,
    clock: Arc<dyn Clock>,
    common: Arc<ConnectionHealth>,
    /// The server, as errors name it.
    address: Arc<str>,
    /// The time-out that the socket has.
    timeout: Duration,
    /// The time-out that it had when the last request was sent, for errors.
    allowed: Duration,
    /// Set by every error that did not come from the server: a late reply must not be read as
    /// the reply to the next command.
    poisoned: bool,
    /// Whether the handshake is over, and callers use it.
    is_in_use: bool,
    /// The server may be silent: the command waits there.
    is_excused: bool,
    /// How many replies are still due. A panic between a command and its reply leaves some.
    unanswered: usize,
    /// The generation of the manager's connections that this one belongs to.
    generation: u64,
    epoch: Epoch,
    server_clock: Option<Arc<ServerClock>>,
    made: Moment,
    /// When the last request was sent, and when the last reply was received.
    sent: Moment,
    replied: Moment,
    /// What is known about the server process.
    pub(crate) server_run: ServerRun,
}

/// The run of a server process, as one of several servers reported it on connecting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerRun {
    /// Identifies the run of the process; 0 if it is not known.
    pub(crate) run: u64,
    /// From when on its replies count as votes: a server that lost its data in a restart must not
    /// vote before all leases that it may have forgotten have ended.
    pub(crate) counts_from: Moment,
}

impl Connection {
    /// Wraps a new connection.
    pub(crate) fn new(
        inner: RawConnection,
        clock: Arc<dyn Clock>,
        common: Arc<ConnectionHealth>,
        address: Arc<str>,
        epoch: Epoch,
    ) -> Connection {
        let now = clock.now();
        Connection {
            counted: Weak::new(),
            inner,
            clock,
            address,
            // No time-out that a request could have, so that the first one sets its own.
            timeout: Duration::MAX,
            allowed: Duration::MAX,
            poisoned: false,
            is_in_use: false,
            is_excused: false,
            unanswered: 0,
            generation: common.generation(),
            common,
            epoch,
            server_clock: None,
            made: now,
            sent: now,
            replied: now,
            server_run: ServerRun { run: 0, counts_from: Moment::PAST },
        }
    }

    /// The same, to a server with this clock.
    pub(crate) fn timed_by(self, clock: &Arc<ServerClock>) -> Connection {
        Connection { server_clock: Some(Arc::clone(clock)), ..self }
    }

    /// The address of its server, as errors name it.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// When it was opened, and when its last reply was received.
    pub(crate) fn times(&self) -> (Moment, Moment) {
        (self.made, self.replied)
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned || self.unanswered > 0
    }

    /// Whether the server has closed another connection or moved since this one was made, or this
    /// one is likely dead because another was silent.
    pub(crate) fn is_outdated(&self) -> bool {
        self.generation != self.common.generation()
            || self.epoch.is_over()
            || self.common.covers(self.replied)
    }

    /// Whether the silence of another connection is the only reason to doubt it.
    pub(crate) fn is_only_suspected(&self) -> bool {
        !self.is_poisoned() && self.generation == self.common.generation() && !self.epoch.is_over()
    }

    /// Whether the server has closed it while it was idle: a time-out of the server or of a balancer, a
    /// restart, `CLIENT KILL`. Costs no round trip; a connection that was used lately is not looked at.
    pub(crate) fn has_died(&mut self, now: Moment) -> bool {
        if now.since(self.replied) < IDLE {
            return false;
        }
        self.look(now)
    }

    /// The same however lately it was used.
    pub(crate) fn look(&mut self, now: Moment) -> bool {
        // Nothing is due on it, so whatever has arrived is its end, or an announcement of that. Over
        // TLS too: there the end begins with a record.
        if !self.inner.is_readable(Duration::ZERO) {
            return false;
        }
        self.poisoned = true;
        self.note_end(now);
        true
    }

    /// The server has closed it: the others have likely ended with it, and what the server had in its memory, too.
    fn note_end(&self, now: Moment) {
        if self.common.outdate(self.generation)
            && let Some(clock) = &self.server_clock
        {
            clock.note_break(now);
        }
    }

    /// Ends the handshake. From now on a failure of this connection says something about the
    /// others.
    pub(crate) fn hand_out(&mut self) {
        self.is_in_use = true;
    }

    /// Whether it may be used again.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_poisoned() && !self.is_outdated()
    }

    /// Sends a command to a cluster node that is importing the slot, with `ASKING` before it.
    pub(crate) fn call_asking(&mut self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        // With the script's source: `ASKING` permits one command. If that were an `EVALSHA` that
        // the node does not know, the `EVAL` after it would have no permission.
        let whole = call.with_source().unwrap_or_else(|| call.clone());
        let mut replies = self.call_all(&[Call::asking(), whole], deadline);
        let (reply, asked) = (replies.swap_remove(1), replies.swap_remove(0));
        match (asked, reply) {
            // If `ASKING` was refused, the second refusal is only a `MOVED` that follows from it.
            (Err(denied), Err(Failure::Refused(_))) => Err(denied),
            // Otherwise the outcome of the command counts. Once the import has ended it runs
            // without `ASKING`.
            (_, reply) => reply,
        }
    }

    /// Waits for the replies to these commands, which were sent. Sends scripts that the server does
    /// not know once more, with their source.
    pub(crate) fn receive_for(
        &mut self,
        calls: &[Call],
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        let mut replies = self.receive_all(deadline);
        // The first call of each script brings the source along, and the server then knows the script
        // for the others: with thousands of calls, each with its source, the sources would be nearly
        // all that is sent.
        let mut scripts = Vec::new();
        let (missing, again): (Vec<usize>, Vec<Call>) = (0..replies.len())
            .filter(|&index| is_missing(&replies[index]))
            .filter_map(|index| Some((index, calls[index].again(&mut scripts)?)))
            .unzip();
        if missing.is_empty() {
            return replies;
        }
        // After a time-out a reply may still be on its way. It would be read as the reply to the
        // first of these, and each reply after it as that of the command before. So they did nothing, and
        // the reason is the silence: the caller can do nothing about a script.
        if self.unanswered > 0 {
            let silence = replies.iter().find(|it| matches!(it, Err(Failure::Unknown(_)))).cloned();
            if let Some(Err(failure)) = silence {
                let unsent = failure.before_sending();
                missing.into_iter().for_each(|index| replies[index] = Err(unsent.clone()));
            }
            return replies;
        }
        let outcomes = match self.send_all(&again, deadline) {
            Ok(_) => self.receive_all(deadline),
            Err(failure) => vec![Err(failure); again.len()],
        };
        // What is unknown to the server once more follows a source that it refused. That refusal is
        // the reason for all of them.
        let refusal = outcomes.iter().find(|reply| reply.is_err() && !is_missing(reply)).cloned();
        let mut forgotten = Vec::new();
        for (index, reply) in missing.into_iter().zip(outcomes) {
            let is_missing = is_missing(&reply);
            forgotten.extend((is_missing && refusal.is_none()).then_some(index));
            replies[index] = refusal.clone().filter(|_| is_missing).unwrap_or(reply);
        }
        // The server has forgotten its scripts once more, in the midst of these.
        if !forgotten.is_empty() && self.unanswered == 0 {
            let whole: Vec<Call> =
                forgotten.iter().filter_map(|&index| calls[index].with_source()).collect();
            let outcomes = match self.send_all(&whole, deadline) {
                Ok(_) => self.receive_all(deadline),
                Err(failure) => vec![Err(failure); whole.len()],
            };
            for (index, reply) in forgotten.into_iter().zip(outcomes) {
                replies[index] = reply;
            }
        }
        replies
    }

    /// Sends commands together, and returns when that began. [`receive_all`](Self::receive_all)
    /// must follow.
    pub(crate) fn send_all(&mut self, calls: &[Call], deadline: Moment) -> Result<Moment, Failure> {
        self.is_excused = calls.iter().all(|call| call.is_excused);
        if let [call] = calls {
            return self.send(call.packed(), 1, deadline);
        }
        let packed: Vec<&[u8]> = calls.iter().map(Call::packed).collect();
        self.send(&packed.concat(), packed.len(), deadline)
    }

    /// Waits for the replies to all that was sent until `deadline`.
    pub(crate) fn receive_all(&mut self, deadline: Moment) -> Vec<Result<Reply, Failure>> {
        let count = self.unanswered;
        let mut replies = Vec::with_capacity(count);
        if let Err(failure) = self.receive_each(deadline, |reply| replies.push(reply)) {
            // The replies before the failure stay as they are: those commands did run.
            replies.resize_with(count, || Err(failure.clone()));
        }
        replies
    }

    /// Waits for the replies to all that was sent, and passes each on as it comes. The first
    /// missing reply makes its own and all later outcomes unknown.
    pub(crate) fn receive_each(
        &mut self,
        deadline: Moment,
        mut on_reply: impl FnMut(Result<Reply, Failure>),
    ) -> Result<(), Failure> {
        while self.unanswered > 0 {
            match self.receive(deadline) {
                // Not `Refused`, which is a reply, and is in step with its command.
                Err(failure @ Failure::Unknown(_)) => return Err(failure),
                reply => on_reply(reply.map(|value| Reply {
                    value,
                    // The same for all of a batch. For the later ones it is earlier than necessary,
                    // and so is the end of their validity: a lease counts from before its sending.
                    sent: self.sent,
                    received: self.replied,
                    clock: self.server_clock.clone().map(|clock| (clock, self.epoch.number())),
                })),
            }
        }
        Ok(())
    }

    /// Sends `count` packed commands, and returns when that began.
    pub(crate) fn send(
        &mut self,
        packed: &[u8],
        count: usize,
        deadline: Moment,
    ) -> Result<Moment, Failure> {
        let now = self.clock.now();
        let left = deadline.since(now);
        if left.is_zero() {
            return Err(Failure::NotSent(NotSentReason::DeadlinePassed));
        }
        // The socket may have either time-out now, so no later wait on it would be bounded for
        // certain. Nothing was written, and so another connection may be tried.
        if let Err(error) = self.allow(left) {
            self.poisoned = true;
            return Err(Failure::NotSent(NotSentReason::Closed(error)));
        }

        self.allowed = self.timeout;
        // Before the write: the server may run the command, and the lease may begin, during it.
        self.sent = now;
        match self.inner.send_packed_command(packed) {
            Ok(()) => {
                self.unanswered += count;
                Ok(now)
            }
            Err(error) => {
                // `EPIPE` means that the peer has closed the connection, and that this write was
                // dropped as a whole. Of a longer command an earlier write may have arrived, and a
                // server could run the commands in it. A reset proves nothing: it may come after
                // the write.
                let nothing =
                    packed.len() <= ONE_WRITE && io_kind(&error) == Some(io::ErrorKind::BrokenPipe);
                let error = self.broken(error);
                Err(if nothing {
                    Failure::NotSent(NotSentReason::Closed(error))
                } else {
                    Failure::Unknown(error)
                })
            }
        }
    }

    /// Waits for the next reply until `deadline`. Reads the socket in any case.
    fn receive(&mut self, deadline: Moment) -> Result<Value, Failure> {
        let left = deadline.since(self.clock.now());
        // Without a deadline check: a thread that was held up still takes a reply that came in
        // time. To fail here would make known outcomes unknown, and poison a healthy connection
        // each time the machine is busy.
        let left = left.max(GRACE);
        let read = self.allow(left).and_then(|()| self.inner.recv_reply(left.min(self.timeout)));
        // Only an error at the top. Errors inside an array are those of single commands of a
        // transaction, and `extract_error` would drop the values beside them.
        let reply = match read {
            Ok(Value::ServerError(error)) => Err(Failure::Refused(self.locate(error.into()))),
            Ok(value) => Ok(value),
            Err(error) => return Err(Failure::Unknown(self.broken(error))),
        };

        // After the error returns above: a reply that did not come stays due, and keeps the
        // connection from being used again even if nobody looks at the error.
        self.unanswered -= 1;
        self.replied = self.clock.now();
        self.common.note_reply(self.replied);

        // A demoted master keeps its connections open and refuses each write. The address, or the
        // sentinels, may name another server by now, but only a new connection gets there. So all
        // of the client's connections must go, the idle ones too.
        if is_of_a_replica(&reply) {
            self.poisoned = true;
            self.epoch.end();
        }
        reply
    }

    /// Sets the socket's time-outs to what is left, unless they are near enough.
    fn allow(&mut self, left: Duration) -> Result<(), RedisError> {
        let wanted = left.min(self.common.limit.span);
        // Exact time-outs would cost two system calls for each sending and two for each reply,
        // because the time left shrinks with each step. So a socket with up to `SLACK` too much is
        // left alone. One with too little never is: it would call a server silent that still has
        // time.
        if self.timeout < wanted || self.timeout > wanted + SLACK {
            self.inner.set_read_timeout(Some(wanted))?;
            self.inner.set_write_timeout(Some(wanted))?;
            self.timeout = wanted;
        }
        Ok(())
    }

    /// Poisons the connection after an error that did not come from the server, and notes what the
    /// error says about the other connections.
    #[cold]
    fn broken(&mut self, error: RedisError) -> RedisError {
        self.poisoned = true;
        if !error.is_timeout() {
            // A server that closes a newcomer's connection may be full, and serve the others well.
            if self.is_in_use {
                self.note_end(self.clock.now());
            }
        } else if !self.is_excused {
            // A time-out is the server's silence however late this thread is, because `receive` has
            // read the socket and found nothing.
            self.common.note_silence(self.sent, self.clock.now());
        }
        self.locate(error)
    }

    fn locate(&self, error: RedisError) -> RedisError {
        let limit = self.common.limit;
        // The error names the setting only if that ended the wait, or users would raise a time-out
        // that does not matter. With less time it was the caller's deadline.
        let is_whole = self.allowed + SLACK >= limit.span;
        let limit = if is_whole { limit } else { Limit::from(self.allowed) };
        locate(error, &self.address, limit)
    }
}

impl Session for Connection {
    fn call(&mut self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        self.call_all(std::slice::from_ref(call), deadline).swap_remove(0)
    }

    /// The first reply that does not come makes its own and all later outcomes unknown.
    fn call_all(&mut self, calls: &[Call], deadline: Moment) -> Vec<Result<Reply, Failure>> {
        match self.send_all(calls, deadline) {
            Ok(_) => self.receive_for(calls, deadline),
            Err(failure) => vec![Err(failure); calls.len()],
        }
    }

    /// A missing reply says nothing about the other connections.
    fn call_slow(
        &mut self,
        call: &Call,
        _within: Duration,
        deadline: Moment,
    ) -> Result<Reply, Failure> {
        // Twice: the first keeps a time-out here from outdating other connections, the second keeps
        // other callers from taking this quiet time for an outage.
        let _excuse = self.common.excuse();
        self.call(&call.clone().excused(), deadline)
    }

    fn longest_wait(&self, deadline: Moment) -> Duration {
        let left = deadline.since(self.clock.now()).min(self.common.limit.span);
        // The server's own time-out must end first. If both ended together, whether there is a
        // reply would depend on the network, and half of all waits would be unknown outcomes.
        left - left / MARGIN
    }

    fn poison(&mut self) {
        self.poisoned = true;
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("poisoned", &self.poisoned).finish_non_exhaustive()
    }
}

/// Whether only a replica gives this reply.
fn is_of_a_replica(reply: &Result<Value, Failure>) -> bool {
    fn is_refusal(value: &Value) -> bool {
        match value {
            Value::ServerError(error) => is_of_replica(error.code(), error.details()),
            // The replies of a transaction. A replica refuses a plain write when it is queued, but
            // a script only when that runs and writes.
            Value::Array(parts) => parts.iter().any(is_refusal),
            _ => false,
        }
    }
    match reply {
        Ok(value) => is_refusal(value),
        Err(failure) => failure.is_of_replica(),
    }
}

/// Whether the server did not know the script of the call.
fn is_missing(reply: &Result<Reply, Failure>) -> bool {
    matches!(reply, Err(Failure::Refused(error)) if is_no_script(error))
}

pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
}

#[cfg(test)]
mod tests;

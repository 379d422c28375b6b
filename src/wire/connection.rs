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

/// A socket may wait this much longer than the deadline says, which saves most system calls.
pub(crate) const SLACK: Duration = Duration::from_millis(10);

/// A reply that has arrived is read even where its deadline has passed: the thread may have been kept from the
/// processor meanwhile, and that says nothing about the server. A socket is told to wait for no less than this.
const GRACE: Duration = Duration::from_millis(2);

/// This part of the time that a reply may take is for the way there and back.
const MARGIN: u32 = 10;

/// What a socket takes whole or not at all.
const ONE_WRITE: usize = 4096;

/// A reply, and when the command was sent and answered on the holder's clock.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) value: Value,
    pub(crate) sent: Moment,
    pub(crate) received: Moment,
    /// In which epoch of the server it was given.
    pub(crate) epoch: u64,
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

    /// How long the server may take over a command so that its reply still arrives by the deadline.
    fn longest_wait(&self, deadline: Moment) -> Duration;

    /// Keeps the connection from being used again: it may be left watching, or within a transaction.
    fn poison(&mut self);
}

/// A connection with its time-outs, and whether it may be used again.
pub(crate) struct Connection {
    /// Counts it among those of its pool, until it begins to be dropped.
    pub(crate) counted: Weak<()>,
    inner: RawConnection,
    clock: Arc<dyn Clock>,
    common: Arc<ConnectionHealth>,
    /// The server, as errors name it.
    address: Arc<str>,
    /// What is set on the socket.
    timeout: Duration,
    /// What was set on it when the last request was sent, as errors tell it.
    allowed: Duration,
    /// Set by every error that did not come from the server: a late reply must not be read as
    /// the reply to the next command.
    poisoned: bool,
    /// Whether it has been opened, and serves others than the thread that opened it.
    is_in_use: bool,
    /// The server has leave to be silent: the command waits there.
    is_excused: bool,
    /// How many replies were not read. A panic between a command and its reply leaves some.
    unanswered: usize,
    /// Which generation of the pool's connections this one belongs to.
    generation: u64,
    epoch: Epoch,
    /// When the last request was sent, and when the last reply came.
    sent: Moment,
    replied: Moment,
    /// What is known of the server behind it.
    pub(crate) server_run: ServerRun,
}

/// What a server that is one of several told when it was connected to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerRun {
    /// Stands for the run of its process; 0 where that was not told.
    pub(crate) run: u64,
    /// From when on its word counts: a server that lost its memory in a restart must not vote
    /// before all has ended that it may have forgotten.
    pub(crate) counts_from: Moment,
}

impl Connection {
    /// Takes over a fresh connection.
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
            // Set when the first request is sent.
            timeout: Duration::MAX,
            allowed: Duration::MAX,
            poisoned: false,
            is_in_use: false,
            is_excused: false,
            unanswered: 0,
            generation: common.generation(),
            common,
            epoch,
            sent: now,
            replied: now,
            server_run: ServerRun { run: 0, counts_from: Moment::PAST },
        }
    }

    /// The address of its server, as errors name it.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned || self.unanswered > 0
    }

    /// Whether it was made before the server was last seen to hang up, or to be elsewhere, or is likely dead, as
    /// another is that was used since.
    pub(crate) fn is_outdated(&self) -> bool {
        self.generation != self.common.generation()
            || self.epoch.is_over()
            || self.common.covers(self.replied)
    }

    /// Hands it out: what becomes of it says something about the others.
    pub(crate) fn hand_out(&mut self) {
        self.is_in_use = true;
    }

    /// Whether it may be used again.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_poisoned() && !self.is_outdated()
    }

    /// Asks a node of a cluster for something that it is only about to take over. The script goes with
    /// it, because the permission is for the next command alone.
    pub(crate) fn call_asking(&mut self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        let whole = call.with_source().unwrap_or_else(|| call.clone());
        let mut replies = self.call_all(&[Call::asking(), whole], deadline);
        let (reply, asked) = (replies.swap_remove(1), replies.swap_remove(0));
        match (asked, reply) {
            // Why it had no leave says more than that it was sent away.
            (Err(denied), Err(Failure::Refused(_))) => Err(denied),
            // What has been taken over by now needs no leave.
            (_, reply) => reply,
        }
    }

    /// Waits for the replies to these commands, which were sent. Scripts that the server did not know are sent
    /// once more, whole.
    pub(crate) fn receive_for(
        &mut self,
        calls: &[Call],
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        let mut replies = self.receive_all(deadline);
        let (missing, whole): (Vec<usize>, Vec<Call>) = (0..replies.len())
            .filter(|&index| matches!(&replies[index], Err(Failure::Refused(e)) if is_no_script(e)))
            .filter_map(|index| Some((index, calls[index].with_source()?)))
            .unzip();
        // Where a reply is still due, it would be taken for the reply to one of these.
        if !missing.is_empty() && self.unanswered == 0 {
            for (index, reply) in missing.into_iter().zip(self.call_all(&whole, deadline)) {
                replies[index] = reply;
            }
        }
        replies
    }

    /// Sends commands together; returns when that began. [`receive_all`](Self::receive_all) is owed.
    pub(crate) fn send_all(&mut self, calls: &[Call], deadline: Moment) -> Result<Moment, Failure> {
        let packed: Vec<Vec<u8>> = calls.iter().map(Call::pack).collect();
        self.send(&packed.concat(), packed.len(), deadline)
    }

    /// Waits for the replies to all that was sent until `deadline`.
    pub(crate) fn receive_all(&mut self, deadline: Moment) -> Vec<Result<Reply, Failure>> {
        let count = self.unanswered;
        let mut replies = Vec::with_capacity(count);
        if let Err(failure) = self.receive_each(deadline, |reply| replies.push(reply)) {
            replies.resize_with(count, || Err(failure.clone()));
        }
        replies
    }

    /// Waits for the replies to all that was sent, and hands each on as it comes. One that does not come makes
    /// its own and all later outcomes unknown.
    pub(crate) fn receive_each(
        &mut self,
        deadline: Moment,
        mut on_reply: impl FnMut(Result<Reply, Failure>),
    ) -> Result<(), Failure> {
        while self.unanswered > 0 {
            match self.receive(deadline) {
                Err(failure @ Failure::Unknown(_)) => return Err(failure),
                reply => on_reply(reply.map(|value| Reply {
                    value,
                    sent: self.sent,
                    received: self.replied,
                    epoch: self.epoch.number(),
                })),
            }
        }
        Ok(())
    }

    /// Sends so many packed commands; returns when that began.
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
        // How long the next caller's reply would be waited for is not known.
        if let Err(error) = self.allow(left) {
            self.poisoned = true;
            return Err(Failure::NotSent(NotSentReason::Closed(error)));
        }
        self.allowed = self.timeout;
        self.sent = now;
        match self.inner.send_packed_command(packed) {
            Ok(()) => {
                self.unanswered += count;
                Ok(now)
            }
            Err(error) => {
                // A peer that is gone took nothing of a command that fits into one write.
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

    /// Waits for the next reply, for what is left until `deadline`. The socket is read in any case.
    fn receive(&mut self, deadline: Moment) -> Result<Value, Failure> {
        let left = deadline.since(self.clock.now());
        let left = left.max(GRACE);
        let read = self.allow(left).and_then(|()| self.inner.recv_reply(left.min(self.timeout)));
        // Errors inside a reply are those of single commands of a transaction.
        let reply = match read {
            Ok(Value::ServerError(error)) => Err(Failure::Refused(self.locate(error.into()))),
            Ok(value) => Ok(value),
            Err(error) => return Err(Failure::Unknown(self.broken(error))),
        };
        self.unanswered -= 1;
        self.replied = self.clock.now();
        self.common.note_reply(self.replied);
        // The address may lead to another server by now, which only new connections reach. All of the
        // client's leave this one, whatever was asked here.
        if is_of_a_replica(&reply) {
            self.poisoned = true;
            self.epoch.end();
        }
        reply
    }

    /// Sets the socket's time-outs to what is left, where they differ enough to be worth it.
    fn allow(&mut self, left: Duration) -> Result<(), RedisError> {
        let wanted = left.min(self.common.limit.span);
        if self.timeout < wanted || self.timeout > wanted + SLACK {
            self.inner.set_read_timeout(Some(wanted))?;
            self.inner.set_write_timeout(Some(wanted))?;
            self.timeout = wanted;
        }
        Ok(())
    }

    /// A time-out is the server's silence: it found nothing, however late the thread itself was. Any other error
    /// means that the server hung up.
    #[cold]
    fn broken(&mut self, error: RedisError) -> RedisError {
        self.poisoned = true;
        if !error.is_timeout() {
            // A server that hangs up on a newcomer says nothing about those that it serves.
            if self.is_in_use {
                self.common.outdate(self.generation);
            }
        } else if !self.is_excused {
            self.common.note_silence(self.sent, self.clock.now());
        }
        self.locate(error)
    }

    fn locate(&self, error: RedisError) -> RedisError {
        let Limit { span, setting } = self.common.limit;
        let whole = self.allowed + SLACK >= span;
        let limit = Limit { span: self.allowed, setting: setting.filter(|_| whole) };
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

    /// If no reply comes, that says nothing about the other connections.
    fn call_slow(
        &mut self,
        call: &Call,
        _within: Duration,
        deadline: Moment,
    ) -> Result<Reply, Failure> {
        self.is_excused = true;
        self.common.excuse(true);
        let outcome = self.call(call, deadline);
        self.common.excuse(false);
        self.is_excused = false;
        outcome
    }

    fn longest_wait(&self, deadline: Moment) -> Duration {
        let left = deadline.since(self.clock.now()).min(self.common.limit.span);
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

/// Whether only a replica gives this reply. In an array are the replies of a transaction.
fn is_of_a_replica(reply: &Result<Value, Failure>) -> bool {
    fn is_refusal(value: &Value) -> bool {
        match value {
            Value::ServerError(error) => is_of_replica(error.code(), error.details()),
            Value::Array(parts) => parts.iter().any(is_refusal),
            _ => false,
        }
    }
    match reply {
        Ok(value) => is_refusal(value),
        Err(failure) => failure.is_of_replica(),
    }
}

pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
}

#[cfg(test)]
mod tests;

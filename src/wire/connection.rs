//! One connection: commands out, answers in, each by its deadline.

use std::io;
use std::time::Duration;

use redis::{RedisError, ServerErrorKind, Value};

use crate::base::sync::Arc;
use crate::base::time::{Clock, Moment};
use crate::wire::epoch::Epoch;
use crate::wire::failure::{Failure, Hindrance, is_of_replica};
use crate::wire::fault::{Limit, io_kind, locate, silence};
use crate::wire::line::Line;
use crate::wire::script::Call;
use crate::wire::silence::Common;

/// A socket may wait this much longer than the deadline says, which saves most system calls.
pub(crate) const SLACK: Duration = Duration::from_millis(10);

/// A reply that has arrived is read even where its deadline has passed: the thread may have been kept from the
/// processor meanwhile, and that says nothing about the server. A socket is told to wait for no less than this.
const GRACE: Duration = Duration::from_millis(2);

/// This part of the time that a reply may take is for the way there and back.
const MARGIN: u32 = 10;

/// What a socket takes whole or not at all.
const ONE_WRITE: usize = 4096;

/// An answer, and when the command was sent and answered on the holder's clock.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) value: Value,
    pub(crate) sent: Moment,
    pub(crate) received: Moment,
    /// In which epoch of the server it was given.
    pub(crate) epoch: u64,
}

/// A connection with its time-outs, and whether it may be used again.
pub(crate) struct Connection {
    inner: Line,
    clock: Arc<dyn Clock>,
    common: Arc<Common>,
    /// The server, as errors name it.
    address: Arc<str>,
    /// What is set on the socket.
    timeout: Duration,
    /// What was set on it when the last request was sent, as errors tell it.
    allowed: Duration,
    /// Set by every error that did not come from the server: a late answer must not be read as
    /// the answer to the next command.
    poisoned: bool,
    /// The server has leave to be silent: the command waits there.
    is_excused: bool,
    /// How many answers were not read. Who panics between a command and its answer leaves some.
    unanswered: usize,
    /// Which generation of the pool's connections this one belongs to.
    pub(crate) generation: u64,
    epoch: Epoch,
    /// When the last request was sent, and when the last reply came.
    sent: Moment,
    replied: Moment,
    /// What is known of the server behind it.
    pub(crate) standing: ServerRun,
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
    /// Takes over a fresh connection and gives it its time-outs.
    pub(crate) fn new(
        inner: Line,
        clock: Arc<dyn Clock>,
        common: Arc<Common>,
        address: Arc<str>,
        (generation, epoch): (u64, Epoch),
    ) -> Result<Connection, RedisError> {
        let patience = common.patience;
        inner.set_read_timeout(Some(patience))?;
        inner.set_write_timeout(Some(patience))?;
        let now = clock.now();
        Ok(Connection {
            inner,
            clock,
            common,
            address,
            timeout: patience,
            allowed: patience,
            poisoned: false,
            is_excused: false,
            unanswered: 0,
            generation,
            epoch,
            sent: now,
            replied: now,
            standing: ServerRun { run: 0, counts_from: Moment::PAST },
        })
    }

    /// The address of its server, as errors name it.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        (self.poisoned || self.unanswered > 0) && !mutated!("poisoned-connection-kept")
    }

    /// The time during which its server is where it was when this was made.
    pub(crate) fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Whether it is likely dead, as another is that was used since.
    pub(crate) fn is_silent(&self) -> bool {
        self.common.covers(self.replied)
    }

    /// Marks the connection as not to be used again.
    pub(crate) fn poison(&mut self) {
        self.poisoned = true;
    }

    /// How long the server may wait before it replies to a command that is sent now, so that the reply comes
    /// before the read times out.
    pub(crate) fn longest_wait(&self, deadline: Moment) -> Duration {
        let left = deadline.since(self.clock.now()).min(self.common.patience);
        left - left / MARGIN
    }

    /// Sends a command that may keep the server silent for so long, as `WAIT` does. If no reply comes, that says
    /// nothing about the other connections.
    pub(crate) fn call_slow(
        &mut self,
        call: &Call,
        within: Duration,
        deadline: Moment,
    ) -> Result<Reply, Failure> {
        let now = self.clock.now();
        let until = now.after(within);
        let before = self.common.excuse(now, until);
        self.is_excused = true;
        let outcome = self.call(call, deadline);
        self.is_excused = false;
        self.common.end_excuse(until, before);
        outcome
    }

    /// Sends one command and waits for its answer until `deadline`.
    pub(crate) fn call(&mut self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        let sent = self.send(&call.pack(), 1, deadline)?;
        match self.receive() {
            Err(Failure::Refused(error)) if is_no_script(&error) => match call.with_source() {
                Some(whole) => self.call(&whole, deadline),
                None => Err(Failure::Refused(error)),
            },
            answer => answer.map(|value| self.reply(value, sent)),
        }
    }

    /// Asks a node of a cluster for something that it is only about to take over. The script goes with
    /// it, because the permission is for the next command alone.
    pub(crate) fn call_asking(&mut self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        let (asking, whole) = (Call::asking(), call.with_source());
        let sent = self.send_all([&asking, whole.as_ref().unwrap_or(call)], deadline)?;
        let mut replies = self.receive_all(2, sent, deadline).into_iter();
        match (replies.next(), replies.next()) {
            // Why it had no leave says more than that it was sent away.
            (Some(Err(denied)), Some(Err(Failure::Refused(_)))) => Err(denied),
            // What has been taken over by now needs no leave.
            (_, Some(answer)) => answer,
            _ => Err(Failure::Unknown(self.locate(silence()))),
        }
    }

    /// Waits for so many answers, and hands each on as it comes. For the first, the time-outs have just been
    /// set. One that does not come makes its own and all later outcomes unknown.
    pub(crate) fn receive_each(
        &mut self,
        count: usize,
        sent: Moment,
        deadline: Moment,
        mut tell: impl FnMut(Result<Reply, Failure>),
    ) -> Result<(), Failure> {
        for number in 0..count {
            let answer = if number == 0 { self.receive() } else { self.receive_by(deadline) };
            if let Err(failure @ Failure::Unknown(_)) = answer {
                return Err(failure);
            }
            tell(answer.map(|value| self.reply(value, sent)));
        }
        Ok(())
    }

    /// Sends commands together and waits for all their answers until `deadline`.
    ///
    /// The first answer that does not come makes its own and all later outcomes unknown.
    pub(crate) fn call_all(
        &mut self,
        calls: &[Call],
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        match self.send_all(calls, deadline) {
            Ok(sent) => self.receive_for(calls, sent, deadline),
            Err(failure) => vec![Err(failure); calls.len()],
        }
    }

    /// Waits for the answers to these commands, which were sent. Scripts that the server did not know are sent
    /// once more, whole.
    pub(crate) fn receive_for(
        &mut self,
        calls: &[Call],
        sent: Moment,
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        let mut replies = self.receive_all(calls.len(), sent, deadline);
        let missing: Vec<usize> = (0..replies.len())
            .filter(|&index| matches!(&replies[index], Err(Failure::Refused(e)) if is_no_script(e)))
            .collect();
        let whole: Vec<Call> =
            missing.iter().filter_map(|&index| calls[index].with_source()).collect();
        // Scripts only are answered so, and each of them has a source.
        if !whole.is_empty() && whole.len() == missing.len() {
            let again = match self.send_all(&whole, deadline) {
                Ok(sent) => self.receive_all(whole.len(), sent, deadline),
                Err(failure) => vec![Err(failure); whole.len()],
            };
            for (index, reply) in missing.into_iter().zip(again) {
                replies[index] = reply;
            }
        }
        replies
    }

    /// Sends commands together; answers when that began. [`receive_all`](Self::receive_all) is owed.
    pub(crate) fn send_all<'a>(
        &mut self,
        calls: impl IntoIterator<Item = &'a Call>,
        deadline: Moment,
    ) -> Result<Moment, Failure> {
        let mut packed = Vec::new();
        let mut count = 0;
        for call in calls {
            packed.extend_from_slice(&call.pack());
            count += 1;
        }
        self.send(&packed, count, deadline)
    }

    /// Waits for the answers to so many commands until `deadline`.
    pub(crate) fn receive_all(
        &mut self,
        count: usize,
        sent: Moment,
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        let mut replies = Vec::with_capacity(count);
        while replies.len() < count {
            match self.receive_by(deadline) {
                Err(failure @ Failure::Unknown(_)) => {
                    replies.resize_with(count, || Err(failure.clone()));
                }
                answer => replies.push(answer.map(|value| self.reply(value, sent))),
            }
        }
        replies
    }

    /// What was answered just now.
    fn reply(&self, value: Value, sent: Moment) -> Reply {
        self.common.note_reply(self.replied);
        Reply { value, sent, received: self.replied, epoch: self.epoch.number() }
    }

    /// Sends so many packed commands; answers when that began.
    pub(crate) fn send(
        &mut self,
        packed: &[u8],
        count: usize,
        deadline: Moment,
    ) -> Result<Moment, Failure> {
        let now = self.clock.now();
        let left = deadline.since(now);
        if left.is_zero() {
            return Err(Failure::NotSent(Hindrance::Overdue));
        }
        // How long the next caller's reply would be waited for is not known.
        if let Err(error) = self.allow(left) {
            self.poisoned = !mutated!("connection-without-time-outs-kept");
            return Err(Failure::NotSent(Hindrance::Closed(error)));
        }
        self.allowed = self.timeout;
        self.sent = now;
        match self.inner.send_packed_command(packed) {
            Ok(()) => {
                self.unanswered += count;
                Ok(now)
            }
            // A peer that is gone took nothing of a command that fits into one write.
            Err(error)
                if packed.len() <= ONE_WRITE
                    && io_kind(&error) == Some(io::ErrorKind::BrokenPipe) =>
            {
                self.poisoned = true;
                Err(Failure::NotSent(Hindrance::Closed(self.locate(error))))
            }
            Err(error) => Err(self.broken(error)),
        }
    }

    /// Waits for one answer, for as long as the socket's time-out says.
    fn receive(&mut self) -> Result<Value, Failure> {
        let answer = loop {
            break match self.inner.recv_response() {
                Ok(Value::Push { .. }) => continue,
                Ok(Value::ServerError(error)) => Err(Failure::Refused(self.refusal(error.into()))),
                // Errors inside an answer are those of single commands of a transaction.
                Ok(value) => Ok(value),
                Err(error) if error.is_io_error() || error.code().is_none() => {
                    return Err(self.broken(error));
                }
                Err(error) => Err(Failure::Refused(self.refusal(error))),
            };
        };
        self.unanswered = self.unanswered.saturating_sub(1);
        self.replied = self.clock.now();
        // The address may lead to another server by now, which only new connections reach. All of the
        // client's leave this one, whatever was asked here.
        if is_of_a_replica(&answer) {
            self.poisoned = true;
            self.epoch.end();
        }
        answer
    }

    /// Waits for one of several answers, for what is left until `deadline`. The socket is read in any case.
    fn receive_by(&mut self, deadline: Moment) -> Result<Value, Failure> {
        let left = deadline.since(self.clock.now());
        if left.is_zero() && mutated!("reply-that-arrived-not-read") {
            return Err(self.broken(silence()));
        }
        self.allow(left.max(GRACE)).map_err(|error| self.broken(error))?;
        self.receive()
    }

    /// Sets the socket's time-outs to what is left, where they differ enough to be worth it.
    fn allow(&mut self, left: Duration) -> Result<(), RedisError> {
        let wanted = left.min(self.common.patience);
        if self.timeout < wanted || self.timeout > wanted + SLACK {
            self.inner.set_read_timeout(Some(wanted))?;
            self.inner.set_write_timeout(Some(wanted))?;
            self.timeout = wanted;
        }
        Ok(())
    }

    /// Only a read or a write that timed out is the server's silence: it found nothing, however late the thread
    /// itself was.
    fn broken(&mut self, error: RedisError) -> Failure {
        self.poisoned = true;
        let excused = self.is_excused && !mutated!("excused-silence-counts");
        if error.is_timeout() && !excused {
            self.common.note_silence(self.sent, self.clock.now());
        }
        Failure::Unknown(self.locate(error))
    }

    /// The server replied, and refuses what it was asked.
    #[cold]
    fn refusal(&self, error: RedisError) -> RedisError {
        self.common.note_reply(self.clock.now());
        self.locate(error)
    }

    fn locate(&self, error: RedisError) -> RedisError {
        let Common { patience, setting, .. } = *self.common;
        let whole = self.allowed + SLACK >= patience;
        let limit = Limit { span: self.allowed, setting: whole.then_some(setting) };
        locate(error, &self.address, limit)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("poisoned", &self.poisoned).finish_non_exhaustive()
    }
}

/// Whether only a replica gives this reply. In an array are the replies of a transaction.
fn is_of_a_replica(answer: &Result<Value, Failure>) -> bool {
    fn is_refusal(value: &Value) -> bool {
        match value {
            Value::ServerError(error) => is_of_replica(error.code(), error.details()),
            Value::Array(parts) => parts.iter().any(is_refusal),
            _ => false,
        }
    }
    match answer {
        Ok(value) => is_refusal(value),
        Err(failure) => failure.is_of_replica(),
    }
}

pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
}

#[cfg(test)]
mod tests;

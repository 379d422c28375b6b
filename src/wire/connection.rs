//! One connection: commands out, answers in, each by its deadline.

use std::io;
use std::time::Duration;

use redis::{RedisError, ServerErrorKind, Value};

use crate::base::sync::{Arc, Weak};
use crate::base::time::{Clock, Moment};
use crate::wire::combine::Batch;
use crate::wire::failure::{Failure, Hindrance, io_kind, is_of_replica};
use crate::wire::script::Call;

/// A socket may wait this much longer than the deadline says, which saves most system calls.
pub(crate) const SLACK: Duration = Duration::from_millis(10);

/// What a socket takes whole or not at all.
const ONE_WRITE: usize = 4096;

/// An answer, and when the command was sent and answered on the holder's clock.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) value: Value,
    pub(crate) sent: Moment,
    pub(crate) received: Moment,
}

/// A connection with its time-outs, and whether it may be used again.
pub(crate) struct Connection {
    /// Counts it among those of its pool, until it begins to be dropped.
    pub(crate) counted: Weak<Counter>,
    inner: redis::Connection,
    clock: Arc<dyn Clock>,
    /// The longest wait for an answer.
    patience: Duration,
    /// What is set on the socket.
    timeout: Duration,
    /// Set by every error that did not come from the server: a late answer must not be read as
    /// the answer to the next command.
    poisoned: bool,
    /// The server said that it is a replica. Its address may lead to another by now, which only a new
    /// connection would reach.
    is_demoted: bool,
    /// How many answers were not read. Who panics between a command and its answer leaves some.
    unanswered: usize,
    /// Which generation of the pool's connections this one belongs to.
    pub(crate) generation: u64,
    /// What is known of the server behind it.
    pub(crate) standing: Standing,
}

/// What the connections of a pool point to, so that it can be told how many live.
#[derive(Debug, Default)]
pub(crate) struct Counter;

/// What a server that is one of several told when it was connected to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Stands for the run of its process; 0 where that was not told.
    pub(crate) run: u64,
    /// From when on its word counts: a server that lost its memory in a restart must not vote
    /// before all has ended that it may have forgotten.
    pub(crate) counts_from: Moment,
}

impl Connection {
    /// Takes over a fresh connection and gives it its time-outs.
    pub(crate) fn new(
        inner: redis::Connection,
        clock: Arc<dyn Clock>,
        patience: Duration,
        generation: u64,
    ) -> Result<Connection, RedisError> {
        inner.set_read_timeout(Some(patience))?;
        inner.set_write_timeout(Some(patience))?;
        Ok(Connection {
            counted: Weak::new(),
            inner,
            clock,
            patience,
            timeout: patience,
            poisoned: false,
            is_demoted: false,
            unanswered: 0,
            generation,
            standing: Standing { run: 0, counts_from: Moment::PAST },
        })
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        (self.poisoned || self.unanswered > 0) && !mutated!("poisoned-connection-kept")
    }

    /// Whether the server behind it was found to be no master.
    pub(crate) fn is_demoted(&self) -> bool {
        self.is_demoted
    }

    /// Marks the connection as not to be used again.
    pub(crate) fn poison(&mut self) {
        self.poisoned = true;
    }

    /// Sends one command and waits for its answer until `deadline`.
    pub(crate) fn call(&mut self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        let sent = self.send(&call.pack(), 1, deadline)?;
        match self.receive() {
            Err(Failure::Refused(error)) if is_no_script(&error) => match call.with_source() {
                Some(whole) => self.call(&whole, deadline),
                None => Err(Failure::Refused(error)),
            },
            answer => answer.map(|value| Reply { value, sent, received: self.clock.now() }),
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
            _ => Err(Failure::silent()),
        }
    }

    /// Takes a batch to the server and back. A failure befalls all in it that were told nothing.
    pub(crate) fn carry(&mut self, batch: &mut Batch<'_>) -> Result<(), Failure> {
        let (packed, count, deadline) = batch.board();
        let sent = self.send(packed, count, deadline)?;
        for number in 0..count {
            // For the first, the time-outs have just been set.
            let answer = if number == 0 { self.receive() } else { self.receive_by(deadline) };
            if let Err(failure @ Failure::Unknown(_)) = answer {
                return Err(failure);
            }
            let received = self.clock.now();
            batch.tell(answer.map(|value| Reply { value, sent, received }));
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
        let mut replies = self.call_all_once(calls, deadline);
        let missing: Vec<usize> = (0..replies.len())
            .filter(|&index| matches!(&replies[index], Err(Failure::Refused(e)) if is_no_script(e)))
            .collect();
        let whole: Vec<Call> =
            missing.iter().filter_map(|&index| calls[index].with_source()).collect();
        // Scripts only are answered so, and each of them has a source.
        if !whole.is_empty() && whole.len() == missing.len() {
            for (index, reply) in missing.into_iter().zip(self.call_all_once(&whole, deadline)) {
                replies[index] = reply;
            }
        }
        replies
    }

    fn call_all_once(&mut self, calls: &[Call], deadline: Moment) -> Vec<Result<Reply, Failure>> {
        match self.send_all(calls, deadline) {
            Ok(sent) => self.receive_all(calls.len(), sent, deadline),
            Err(failure) => calls.iter().map(|_| Err(failure.clone())).collect(),
        }
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
                answer => replies.push(answer.map(|value| Reply {
                    value,
                    sent,
                    received: self.clock.now(),
                })),
            }
        }
        replies
    }

    /// Sends so many packed commands; answers when that began.
    fn send(&mut self, packed: &[u8], count: usize, deadline: Moment) -> Result<Moment, Failure> {
        let now = self.clock.now();
        self.allow(deadline, now).map_err(|_| Failure::NotSent(Hindrance::Overdue))?;
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
                Err(Failure::NotSent(Hindrance::Closed(error)))
            }
            Err(error) => Err(self.broken(error)),
        }
    }

    /// Waits for one answer, for as long as the socket's time-out says.
    fn receive(&mut self) -> Result<Value, Failure> {
        let answer = loop {
            break match self.inner.recv_response() {
                Ok(Value::Push { .. }) => continue,
                Ok(Value::ServerError(error)) => Err(Failure::Refused(error.into())),
                // Errors inside an answer are those of single commands of a transaction.
                Ok(value) => Ok(value),
                Err(error) if error.is_io_error() || error.code().is_none() => {
                    return Err(self.broken(error));
                }
                Err(error) => Err(Failure::Refused(error)),
            };
        };
        self.unanswered = self.unanswered.saturating_sub(1);
        if is_of_a_replica(&answer) {
            (self.is_demoted, self.poisoned) = (true, true);
        }
        answer
    }

    /// Waits for one of several answers, for what is left until `deadline`.
    fn receive_by(&mut self, deadline: Moment) -> Result<Value, Failure> {
        match self.allow(deadline, self.clock.now()) {
            Ok(()) => self.receive(),
            Err(error) => Err(self.broken(error)),
        }
    }

    /// Sets the socket's time-outs to what is left, where they differ enough to be worth it.
    fn allow(&mut self, deadline: Moment, now: Moment) -> Result<(), RedisError> {
        let left = deadline.since(now);
        if left.is_zero() {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        let wanted = left.min(self.patience);
        if self.timeout < wanted || self.timeout > wanted + SLACK {
            self.inner.set_read_timeout(Some(wanted))?;
            self.inner.set_write_timeout(Some(wanted))?;
            self.timeout = wanted;
        }
        Ok(())
    }

    fn broken(&mut self, error: RedisError) -> Failure {
        self.poisoned = true;
        Failure::Unknown(error)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("poisoned", &self.poisoned).finish_non_exhaustive()
    }
}

/// Whether a server answers so that is a replica; in an array are the answers of a transaction.
fn is_of_a_replica(answer: &Result<Value, Failure>) -> bool {
    let is_refused =
        |part: &Value| matches!(part, Value::ServerError(error) if is_of_replica(error.code()));
    match answer {
        Ok(Value::Array(parts)) => parts.iter().any(is_refused),
        Ok(_) => false,
        Err(failure) => failure.is_of_replica(),
    }
}

pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
}

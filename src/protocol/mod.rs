//! One exchange with Redis per call, and what its answer means. Nothing here sleeps or waits for
//! a lock.
//!
//! | module | what it has |
//! | --- | --- |
//! | `kind` | the recipe of a kind of lock: its keys, its scripts, its owner's value |
//! | `mutex`, `reentrant` | the kinds |
//! | `answer` | what scripts answer |
//! | `wake` | the messages that wake waiters, and listening for them |
//! | `transaction` | commands that apply only if a lock is still held, release among them |
//! | `session` | several round trips on one connection, for `transaction` and `replica` |
//! | `replica` | making sure that replicas or disks have a lock |
//! | `single` | the protocol over one server |
//! | `cluster` | the protocol over the one server of a cluster that has the lock |
//! | `quorum` | the protocol over several servers, a majority of which decides |
//! | `memory` | the protocol over a server in memory, for tests |
//!
//! The engine sees [`Protocol`] and nothing behind it.
//!
//! # The rules
//!
//! What makes the queue safe, by the numbers that comments and tests refer to. An *attempt* is one
//! owner's value, from its first request to its end; the *window* is the lease that a hand-over writes.
//!
//! | rule | what must hold |
//! | --- | --- |
//! | 1 | Only a join enqueues or takes. A beat of an attempt that is neither in the queue nor the owner is told so, and the waiter begins another attempt. To leave as the owner is to hand over. |
//! | 2 | An attempt has one request under way. The next follows its answer, or its deadline by the server's clock, after which it does nothing. |
//! | 3 | A repeated join of the owner never shortens its lease and answers the same token; it is valid from before that sending. |
//! | 4 | A free lock goes to the first live waiter: newcomers never barge, and `try_lock` never joins. |
//! | 5 | Once a release or a leave was sent, the attempt is over, whatever the answer. |
//! | 6 | A leave is repeated until one ran after the deadline of the last join without an answer: no ghost owns or waits. |
//! | 7 | The window is by the next owner's lease, and the grant says all that its waiter may believe. |
//! | 8 | A waiter shows itself each heartbeat; the window outlasts two of them and a time-out; after three, or at its own deadline, a waiter counts as dead. |
//! | 9 | The first renewal makes a window a whole lease. A fixed lease is made whole before the guard is answered. |
//! | 10 | The server's time is told from the latest answer of the same epoch, less an allowance for drift; where that is too old, or the server is elsewhere by now, a beat asks. A grant that is heard before the answer to its join is kept. |
//! | 11 | A waiter that was skipped keeps its place for as long again, and is told to ask. A newcomer stands behind it. |
//! | 12 | A message is published last. How many heard it is never used: a grant that was published is never withdrawn, and each has a token of its own. A waiter is skipped only before its grant: as dead, or because one server, which may be asked, counts no subscriber of its channel. A listener leaves a server that is a replica. A waiter joins once it is sure to be heard; after a reconnect all ask again. |
//! | 13 | Without any message a waiter has a free lock within a heartbeat, a window and a time-out. |
//! | 14 | No script shortens a lease; bounds of a hold are kept in its process. |
//! | 15 | A hold is over here before its release is sent. Where the first answer was lost, "not the owner" is success while it was valid, else unknown. |
//! | 16 | A release works where the server is out of memory: it begins with a `ZREM`. |
//! | 17 | A lease with a command under way is neither passed on nor lingers. Bounds of a hold count for each hold. |
//! | 18 | Grants and answers say how many wait; that somebody waits is remembered until the attempt ends. Nothing lingers then. |
//! | 19 | A token is never ahead of the server's clock, unless the counter is: then it is minted. A hold that Redis does not hear of takes the next token once that clock has come so far, and waits for it if that is a few microseconds away. The last that was used is written back. |
//! | 20 | Numbers reach Redis in full: no exponent, and below 2⁵³. |
//! | 21 | Two tokens are alike only if they were minted in one tick of the clock around a `FLUSHALL`, or the clock was set back by more than an outage that lost the data. |
//! | 22 | The hold count in Redis is for people; no reentry waits for it. |
//! | 30 | A hold whose validity is over is lost for good: no later reply revives it, and its attempt is taken out once its last request is dead. |
//! | 31 | Nothing below the engine runs a request twice that the engine takes for one: a repetition is a request of its own. |
//!
//! Rule 12 is of the queue. The release of a reentrant lock does return how many heard it, and that decides
//! on nothing but a pause of the process that released it.
//!
//! Of rule 19 the model allows blocks: tokens reserved ahead of the clock. None are, as they would not let
//! a lease be passed on or taken again more often: tokens may run ahead by one block at most, so in the
//! long run a lease has one token a microsecond either way. What is not reserved cannot be lost in a
//! crash, and nothing is stored for it.
//!
//! Of rule 17 more is kept than must be: a fixed lease is never passed on, as its holder asked for a
//! length and would get a rest.
//!
//! Of rule 2 less is kept: a join whose connection broke is repeated before its deadline. Rules 6, 17 and 30
//! make that safe; the head of `engine::acquire` says how. Of rule 31, a quorum's server may be sent a
//! proposal, a renewal or a release once more where a connection had died: the first proposal then stays
//! open until its deadline, and the others do no harm twice.

pub(crate) mod answer;
pub(crate) mod cluster;
pub(crate) mod kind;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod memory;
pub(crate) mod mutex;
pub(crate) mod quorum;
pub(crate) mod reentrant;
mod replica;
mod session;
pub(crate) mod single;
pub(crate) mod transaction;
pub(crate) mod wake;

use std::fmt;
use std::time::Duration;

use crate::base::id::{Holder, Identity};
use crate::base::option::{Copies, Least, ReleaseKind};
use crate::base::time::Moment;
use crate::protocol::answer::{released, renewed};
use crate::wire::Pipeline;
use crate::wire::connection::Reply;
use crate::wire::failure::Failure;
use crate::wire::script::Call;

pub(crate) use answer::{Answer, Released, Told, Verdict};
pub(crate) use kind::Target;
pub(crate) use transaction::{Applied, out_of_place};
pub(crate) use wake::{GrantMessage, Listener, Wake};

/// What the worker has to say about one lease.
#[derive(Debug)]
pub(crate) struct Errand<'a> {
    pub(crate) target: &'a Target,
    pub(crate) owner: &'a [u8],
    pub(crate) task: Task,
}

impl Errand<'_> {
    /// Reads the answer. A renewal is not answered like a release, so that no reply to another command is
    /// taken for one.
    fn read(&self, reply: &Reply) -> Result<Told, Failure> {
        match self.task {
            Task::Renew { .. } => renewed(reply),
            Task::Release { .. } => {
                let verdict = released(&reply.value)?.verdict;
                Ok(Told { verdict, sent: reply.sent })
            }
        }
    }

    /// The command that does it.
    fn call(&self) -> Call {
        match self.task {
            Task::Renew { ttl, count } => self.target.renew(self.owner, ttl, count),
            Task::Release { ttl, last_token } => self.target.release(self.owner, ttl, last_token),
        }
    }
}

/// What an errand is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    /// Make it live this long from now on, and show its hold count where its kind does.
    Renew { ttl: Duration, count: u32 },
    /// Give it back, or take it out of the queue.
    Release { ttl: Duration, last_token: Option<u64> },
}

/// One request to become the owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) ttl: Duration,
    pub(crate) mode: Mode,
    /// A waiter that is not heard of for this long is taken for dead (rule 8).
    pub(crate) dies_after: Duration,
}

/// One request to be the owner no longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Return<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) ttl: Duration,
    /// The last token used where that is not the one minted.
    pub(crate) last_token: Option<u64>,
    pub(crate) how: ReleaseKind,
}

/// What to do where another has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// Nothing.
    Try,
    /// Queue up.
    Join,
    /// Stay in the queue (rule 1: only if it is there).
    Beat,
}

/// The engine's view of where locks live.
///
/// Every call is one exchange, bounded by its deadline. A repeated call for the same owner does
/// no harm, whatever became of the first.
pub(crate) trait Protocol: Send + Sync + fmt::Debug {
    /// Who asks.
    fn identity(&self) -> &Identity;

    /// Whether locks are on several servers by their names, so that all keys of one must be together,
    /// and who publishes does not know who hears it.
    fn is_sharded(&self) -> bool {
        false
    }

    /// Tries to take the lock, or to queue up for it.
    fn acquire(
        &self,
        target: &Target,
        attempt: &Attempt<'_>,
        deadline: Moment,
    ) -> Result<Answer, Failure>;

    /// Gives the lock to the next, or back, if it is the owner's.
    fn release(
        &self,
        target: &Target,
        returned: &Return<'_>,
        deadline: Moment,
    ) -> Result<Released, Failure>;

    /// Makes the lease last at least `ttl` from now, if it is the owner's.
    fn extend(
        &self,
        target: &Target,
        owner: &[u8],
        ttl: Duration,
        count: u32,
        deadline: Moment,
    ) -> Result<Told, Failure>;

    /// Waits until there are as many copies of what was written for this lock so far. Answers how many
    /// there are, or why it is not the owner's. Where there is nobody to ask, there are none.
    fn replicate(
        &self,
        _target: &Target,
        _owner: &[u8],
        copies: Copies,
        _deadline: Moment,
    ) -> Result<Result<Least, Verdict>, Failure> {
        Ok(Ok(copies.least.none()))
    }

    /// Runs errands for many leases at once.
    fn run(&self, errands: &[Errand<'_>], deadline: Moment) -> Vec<Result<Told, Failure>>;

    /// Who holds the lock.
    fn holder(&self, target: &Target, deadline: Moment) -> Result<Option<Holder>, Failure>;

    /// Takes the lock from an owner, who need not be one of ours, and tells its client to ask. Does
    /// nothing to any other owner, and nothing once the deadline has passed. Returns whether that owner
    /// had it.
    fn force_release(
        &self,
        target: &Target,
        owner: &[u8],
        deadline: Moment,
    ) -> Result<bool, Failure>;

    /// Runs the commands of a pipeline if the lock is the owner's.
    fn apply(
        &self,
        target: &Target,
        owner: &[u8],
        pipeline: &Pipeline,
        deadline: Moment,
    ) -> Result<Applied, Failure>;

    /// Asks the holder to let go; whether anybody heard it.
    fn request_release(&self, target: &Target, deadline: Moment) -> Result<bool, Failure>;

    /// Whether something of an attempt may be left on a server that could not be asked, although the
    /// answer to it was final. Then it is to be given back once more, by the worker.
    fn remains(&self, _owner: &[u8]) -> bool {
        false
    }

    /// Whether an attempt that was not granted is given back by the same call. Then it is dead: what gives
    /// it back may come late (rule 5).
    fn withdraws(&self) -> bool {
        false
    }

    /// Begins to listen for what wakes this client's waiters. May take as long as connecting does.
    fn listen(&self) -> Result<Box<dyn Listener>, Failure>;

    /// Makes the listener ask for one more channel, which somebody wishes to be heard.
    fn listen_to(&self, _channel: &[u8], deadline: Moment) -> Result<(), Failure> {
        self.nudge_listener(deadline)
    }

    /// Makes the listener return from [`Listener::next`].
    fn nudge_listener(&self, deadline: Moment) -> Result<(), Failure>;

    /// The local moment of which the server's time of a grant is surely not before, so that a span
    /// counted from it ends no later here than there. `None` if that cannot be told (rule 10), which is
    /// always so where there are several servers, each with a clock of its own.
    fn not_before(&self, grant: &GrantMessage, now: Moment) -> Option<Moment>;
}

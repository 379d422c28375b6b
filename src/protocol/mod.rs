//! One exchange with Redis per call, and what its answer means. Nothing here sleeps or waits for
//! a lock.
//!
//! | module | what it has |
//! | --- | --- |
//! | `recipe` | what a kind of lock is made of: its keys, its scripts, its owner's value |
//! | `target` | one lock: its kind, its name, its keys, and the calls for it |
//! | `request` | what a client asks |
//! | `errand` | what the worker does for many leases at once |
//! | `answer` | what scripts answer |
//! | `wake` | the messages that wake waiters, and the servers that publish them |
//! | `transaction` | commands that apply only if a lock is still held, release among them |
//! | `replica` | making sure that replicas or disks have a lock |
//! | `backend` | how calls reach the server that has a lock |
//! | `scripted` | the protocol where one server at a time has a lock, over any backend |
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
//! | 23 | A weighted lock is one sorted set with its limit, the sum of the weights, and its holders with their slots and leases' ends. A script that adds a holder writes it and the sum by one `ZADD`; one that takes it out subtracts its weight, and only if it is there. |
//! | 24 | A script takes out holders whose leases have ended before it looks at what fits, and then grants; so does a beat. Renewals do neither. A sum that is too high is safe, so what fits anyway need not look. |
//! | 25 | A renewal changes the end of a lease that has not ended, and makes none. |
//! | 26 | No time to live of a key is shortened by a shorter lease while others hold. |
//! | 27 | All who fit are granted from the head of the line on, up to the first living one who does not; each has its own token, window and message. |
//! | 28 | A published grant is never withdrawn, whatever was counted. |
//! | 29 | Slots are the lowest free numbers. A repeated request gets the same. |
//! | 30 | A hold whose validity is over is lost for good: no later reply revives it, and its attempt is taken out once its last request is dead. |
//! | 31 | Nothing below the engine runs a request twice that the engine takes for one: a repetition is a request of its own. |
//! | 32 | The token of a write or an upgrade is above every earlier one; those of a semaphore grow for each slot. A repeated request has a later token than the first. |
//! | 33 | Requests are compared with the limit that was declared first; the one in force may be another. A resize never touches the sum. A waiter that is above the limit is told, and does not stay in the line. |
//! | 34 | More held than the limit counts as somebody waits. |
//! | 35 | Each change of a hold's weight has a number that grows; a number that is not the latest does nothing. An upgrade is given up by the next change. |
//! | 36 | A hold is the lesser in its process before its downgrade is sent. |
//! | 37 | Only an upgradable reader upgrades. It waits before everybody, and nobody is granted meanwhile; an upgrade that is dead is passed over, and none outlives its holder. |
//! | 40 | A dead waiter at the head blocks for its dead time, a window and a heartbeat at most. |
//! | 41 | Where memory is full, the first write of an acquire is refused; every other script begins with one that is not. |
//! | 42 | What must apply only while held is run by a script that looks at the lease: to watch the key would fail with each renewal, and not with the lease's end. |
//! | 43 | Each kind finds the key of another one to be of the wrong type, or of another limit. |
//! | 45 | At each moment the weights of valid holds add up to no more than the limit at the latest grant or upgrade among them, by the time it was given. |
//!
//! Rules 23 to 45 are of the weighted lock, whose scripts are in `kind/weighted`. Of rule 35, the number is noted when
//! the upgrade begins to wait, so that the line need not keep it. An attempt that waits and asks without waiting, late, is
//! taken for one that beats: it must not hold and wait at a time.
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
pub(crate) mod backend;
pub(crate) mod errand;
pub(crate) mod recipe;
mod replica;
pub(crate) mod request;
pub(crate) mod scripted;
pub(crate) mod target;
pub(crate) mod transaction;
pub(crate) mod wake;

use std::fmt;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::id::{Holder, Identity};
use crate::base::name::Name;
use crate::base::option::Durability;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::protocol::answer::{Acquired, Released, Told, Verdict};
use crate::protocol::errand::Errand;
use crate::protocol::recipe::Kind;
use crate::protocol::request::{Attempt, Return};
use crate::protocol::target::Target;
use crate::protocol::transaction::Applied;
use crate::protocol::wake::{GrantMessage, Publishers};
use crate::wire::Pipeline;
use crate::wire::failure::Failure;

/// The engine's view of where locks live.
///
/// Every call is one exchange, bounded by its deadline. A repeated call for the same owner does
/// no harm, whatever became of the first.
pub(crate) trait Protocol: Send + Sync + fmt::Debug {
    /// The client on whose behalf this asks.
    fn identity(&self) -> &Identity;

    /// A lock with the keys that its scripts are given here.
    fn target(&self, kind: &'static dyn Kind, name: Name) -> Arc<Target> {
        Target::new(kind, name)
    }

    /// Rejects keys that the servers cannot have together.
    fn check_keys(&self, _name: &Name, _keys: &[Vec<u8>]) -> Result<(), Error> {
        Ok(())
    }

    /// Tries to take the lock, or to queue up for it.
    fn acquire(&self, target: &Target, attempt: &Attempt<'_>, deadline: Moment) -> Acquired;

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
        wanted: Durability,
        _deadline: Moment,
    ) -> Result<Result<Durability, Verdict>, Failure> {
        Ok(Ok(Durability { local: false, replicas: 0, ..wanted }))
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

    /// Whether a server that could not be asked may still have this owner's value, although the last reply
    /// was final. Then the worker gives it back once more.
    ///
    /// Also asked while a hold lives, after a renewal that failed: then some servers may have renewed it. So
    /// this must be known as long as the hold lives.
    fn remains(&self, _owner: &[u8]) -> bool {
        false
    }

    /// The servers that publish what wakes this client's waiters.
    fn publishers(&self) -> Arc<dyn Publishers>;

    /// Makes the threads that listen look for what is wished for, since there is one more channel.
    fn listen_to(&self, channel: &[u8], deadline: Moment) -> Result<(), Failure>;

    /// A moment after which the server made this grant, so that its window counted from that moment ends no
    /// later here than there. `None` if there is none that is certain (rule 10).
    ///
    /// The message was received at `received`. At `queued` the last request was sent whose reply found the
    /// attempt still in the queue.
    fn granted_after(
        &self,
        grant: &GrantMessage,
        received: Moment,
        queued: Option<Moment>,
    ) -> Option<Moment>;
}

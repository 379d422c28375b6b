//! One exchange with Redis for each call, and what the reply means. Nothing here sleeps, or waits
//! for a lock.
//!
//! | module | what it has |
//! | --- | --- |
//! | `lock_kind` | what defines a kind of lock: its keys, its scripts, its owner's value |
//! | `target` | one lock: its kind, its name, its keys, and the calls for it |
//! | `request` | the requests to become the owner and to stop being it |
//! | `lease_request` | the requests of the worker, many leases at once |
//! | `reply` | the replies of the scripts, parsed |
//! | `holder` | a holder as a server reports it |
//! | `inspection` | what a server tells of who has a lock and who waits |
//! | `index` | the index of the locks in use, and the scan for others |
//! | `wake_message` | the messages that wake waiters, and the servers that publish them |
//! | `transaction` | commands that apply only if a lock is still held, release among them |
//! | `durability` | waiting until replicas or disks have a lock |
//! | `backend` | how calls reach the server of a lock |
//! | `server_protocol` | what only the one server that has a lock can do |
//! | `script_protocol` | the protocol for one server at a time, over any backend |
//!
//! The engine sees [`Protocol`], which every topology has, and [`ServerProtocol`], which a quorum has not; and nothing
//! behind them.
//!
//! # The rules
//!
//! These rules make the queue safe; comments and tests refer to them by number. An *attempt* is one
//! owner's value, from its first request to its end. The *window* is the lease that a hand-over
//! writes.
//!
//! | rule | what must hold |
//! | --- | --- |
//! | 1 | A heartbeat never enqueues an attempt, and never takes the lock for one outside the queue: it returns *not in the queue*, and the waiter begins another attempt. A leave by the owner is a hand-over. |
//! | 2 | An attempt has one request under way. The next one follows the reply, or the request's deadline on the server's clock, after which the request does nothing. |
//! | 3 | A repeated join of the owner never shortens its lease and returns the same token; the lease counts from before that join was sent. |
//! | 4 | A free lock goes to the first live waiter: newcomers never barge, and `try_lock` never joins. |
//! | 5 | An attempt is over once its release or its leave was sent, whatever the reply. |
//! | 6 | A leave is repeated until one has run after the deadline of the last join without a reply: no ghost owns or waits. |
//! | 7 | The window comes from the next owner's lease, not from the releaser's. A waiter believes no more than its grant says. |
//! | 8 | A waiter sends a heartbeat at each interval. The window is two intervals, one command time-out and the difference of clocks in force (rule 54). A waiter counts as dead after three intervals, or at its own deadline. |
//! | 9 | The first renewal extends a window to a whole lease. A fixed lease is made whole before the caller gets the guard. |
//! | 10 | The server's time is computed from the latest reply of the same run of the same server's clock, less an allowance for drift. A run ends where the server moves and where its clock has a fault (rule 57). Where that reply is too old or of another run than the message, a heartbeat asks. A grant that arrives before the reply to its join is kept. |
//! | 11 | A skipped waiter keeps its place for as long again, and gets a message to ask. A newcomer stands behind it. |
//! | 12 | A message is published last. The number of its receivers is never used: a published grant is never withdrawn, and each grant has a token of its own. A waiter is skipped only before its grant: because it counts as dead, or because one server, which the user may ask, counts no subscriber of its channel. A listener leaves a server that is a replica. A waiter joins once its channel is confirmed; after a reconnect all waiters ask again. |
//! | 13 | Without any message a waiter gets a free lock within a heartbeat, a window and a time-out. |
//! | 14 | No script shortens a lease; the limits of a hold are kept in its process. |
//! | 15 | A hold ends here before its release is sent. Where the first reply was lost, "not the owner" is unknown: released, or lost before. |
//! | 16 | A release works while the server is out of memory: it begins with a `ZREM`. |
//! | 17 | A lease with a command under way is neither passed on nor lingers. Limits of a hold count for each hold. |
//! | 18 | Grants and replies report how many wait. An attempt that has had a waiter never lingers. A waiter tells the holders if all who wait before it are clients that hold, and a waiter's own holders know those that wait before it. |
//! | 19 | A token is never ahead of the server's clock, unless the counter is: then the server mints it. A hold that begins without Redis takes the next token once that clock has reached it, and waits for that if it is a few microseconds away. The last token used is written back. |
//! | 20 | Numbers reach Redis with all their digits: no exponent, and below 2⁵³. |
//! | 21 | Two tokens are equal only if they were minted in one tick of the clock around a `FLUSHALL`, or by two servers that both granted the lock, or the clock was set back by more than an outage that lost the data. |
//! | 22 | The hold count in Redis is for people; no reentry waits for it. |
//! | 23 | A weighted lock is one sorted set with its limit, the sum of the weights, and its holders with their slots and leases' ends. A script that adds a holder writes it and the sum by one `ZADD`; one that takes it out subtracts its weight, and only if it is there. |
//! | 24 | A script takes out holders whose leases have ended before it looks at what fits, and then grants; so does a heartbeat. Renewals do neither. A sum that is too high is safe, so what fits anyway need not look. A request counts the holders again before it is refused for the sum, where at most 64 hold: a holder that was taken out by hand has left its weight. |
//! | 25 | A renewal changes the end of a lease that has not ended, and makes none. |
//! | 26 | No time to live of a key is shortened by a shorter lease while others hold. |
//! | 27 | All who fit are granted from the head of the line on, up to the first living one who does not; each has its own token, window and message. |
//! | 28 | A published grant is never withdrawn, whatever was counted. |
//! | 29 | Slots are the lowest free numbers. A repeated request gets the same. |
//! | 30 | A hold whose validity is over stays lost: no later reply revives it, and its attempt is taken out of Redis once its last request is dead. |
//! | 31 | Nothing below the engine sends a request twice that the engine counts as one: a repetition is a request of its own. |
//! | 32 | The token of a write or an upgrade is above every earlier one; those of a semaphore grow for each slot. A repeated request has a later token than the first. |
//! | 33 | Requests are compared with the limit that was declared first; the one in force may be another. A resize never touches the sum, and is kept for its own time after the last use; a request that is refused is a use. A waiter that is above the limit is told, and does not stay in the line. |
//! | 34 | More held than the limit counts as somebody waits. A message about either reaches each client once, and is for all that the client holds of the lock. |
//! | 35 | Each change of a hold's weight has a number that grows; a number that is not the latest does nothing. An upgrade is given up by the next change. |
//! | 36 | A hold is the lesser in its process before its downgrade is sent. A hold that was changed is neither passed on nor kept for the next thread. |
//! | 37 | Only an upgradable reader upgrades. It waits before everybody, and nobody is granted meanwhile; an upgrade that is dead is passed over, and none outlives its holder. |
//! | 38 | What would wait for its own thread is an error at once: to write or to be upgradable while it reads, and to upgrade while it reads by another guard. So is a wait without an end, while the thread holds the lock, by a call that enters no hold: for an owned lease, or where reentry is turned off. With an end it is over at once. |
//! | 39 | Threads of a process share a reader's entry until a heartbeat after the sending of the last request whose reply counted nobody; then one renewal asks. A known waiter, here or elsewhere, shuts it for good. |
//! | 40 | A dead waiter at the head blocks for its dead time, a window and a heartbeat at most. |
//! | 41 | Where memory is full, the first write of an acquire is refused; every other script begins with one that is not. |
//! | 42 | What must apply only while held is run by a script that looks at the lease: to watch the key would fail with each renewal, and not with the lease's end. It applies all commands or none: what Redis would refuse is found before the first of them. |
//! | 43 | Each script is told its kind, and never guesses it from the key. A key of another type, a lock of another kind, and a sorted set that no script of a lock can have left are left unchanged, and the script returns an error that says which it is. The latter has no marks of a lock, or a sum above zero and no holder, or a sum of zero and no time to live. |
//! | 44 | Several locks are tried in one exchange and never queued for in one: what comes after the first refusal is given back, and the refused one is joined with those before it held, in the order of names. A claim joins none: it has what was granted, as many as it asked for. |
//! | 45 | At each moment the weights of valid holds add up to no more than the limit at the latest grant or upgrade among them, by the time it was given. |
//! | 46 | The key of a lease with a tail lives for both. Its owner's value tells the tail; to a client that does not know tails the lock is held until the key ends. |
//! | 47 | An owner whose key has less than its tail to live is nobody to the requests of other attempts: the first living waiter gets the lock, or the one that asks. Nothing ends a tail by itself but the end of the key. |
//! | 48 | A reply that refuses the lock tells when the holder's lease ends, so that waiters ask then and not when its key does. |
//! | 49 | The window in an owner's value has the tail in it. Each client that hands over, also one of a later version, writes the key for so long, and the next owner takes its tail off what it is granted. |
//! | 50 | In its tail an owner is the owner to its own requests. Its hold is valid again from the sending of a request that was confirmed, if no request for the lock of its attempt was left when its validity ended. A renewal by the worker yields to those who stand in the line and lived when it was last renewed, until they would count as dead; other calls of the holder do not. In a cluster, one that was sent before the end of the lease and is late yields in any case, because it names no key that may be missing while the slot is being moved; the next one looks for a line. |
//! | 51 | In its tail a lease is neither passed on nor lingers, and is not entered again before Redis has been asked. The limits of a hold end it. If another has taken the lock, that is the cause of the loss, also if it has released it since: the last token is above those of the lease then. |
//! | 52 | Nothing but a confirmed request makes a hold valid that was not; a pause of the process is a silence like any other. |
//! | 53 | Margins and the difference of clocks shorten the lease and never the tail. |
//! | 54 | The client ends a hold before any server ends its lease, as long as the clocks of the servers differ by at most `max_clock_skew` and at most a tenth of the requested lease. |
//! | 55 | A forced release deletes only a lock, never data: the script that deletes the key checks its form, unless the user has said that it is a lock. |
//! | 56 | A script that the server refuses half-way, because the user may not run a command or use a key, takes back what it has written, so that it leaves no holder and no waiter that no client knows of. After such a refusal the engine removes the attempt, too. |
//! | 57 | Each reply to a request for a lock and to a renewal tells the server's time. One that lies outside of what the last reading lets expect, for the time between its sending and its receipt, by more than the bound is a fault of that server's clock. The bound is `max_clock_skew`, and 100 ms at least. The reading is dropped; the leases that end by the clock are doubted, as after a message of eviction, and the request about each makes it as long there as its holder believes; its waiters ask at once. It is told once. Connections and subscriptions stay. |
//! | 58 | The same holds where the clock of a server that takes over differs from that of the one before it, and where the clocks of two servers of a client differ between which a lock can move. |
//! | 59 | The word of an election counts while its term is the lock's, and of one term the word with the greatest number stays. Only the script that finds the leader in place writes one. Each script that makes a leader notes its term there. |
//! | 60 | Each script that changes the leader of an election or its word publishes that, also where nobody leads any more. A message only makes an observer look; its looks follow one another, and it looks without a message, too, once in a heartbeat and at the end of the lease. |
//! | 61 | A server whose connections have all ended may come back without its memory. So the leases there that it has not confirmed since are doubted, as after a step of its clock: when the end is noticed, and again when the first connection after it is made. A lease whose grant was sent before is doubted when it arrives. They are asked about in the order of their ends, a thousand at a time, and after the renewals that are due; and looked through for this once in a second at most. In a quorum, a lease is doubted when fewer servers than a majority were there since it was confirmed. |
//! | 62 | A call by which a thread takes a lock once more has what it asks for: a lease that ends no earlier, by one request at most, which it awaits; renewals, while its guard lasts; the copies that the hold does not have. The earliest limit of all guards ends the hold. A failure leaves the hold as it was. |
//!
//! These rules hold across a fail-over or a slot migration as long as no write is lost, and the clocks of any two
//! servers that may have the lock differ by no more than rule 54 says. The next server reads the end of a lease, which
//! is an absolute time, by its own clock: Redis replicates the end of a key as an absolute time, an atomic migration of
//! a slot carries it as one, and the weighted locks store their holders' ends as such.
//!
//! Rules 46 to 53 are of the mutex and the election on one server or in a cluster, whose leases may have a tail. In a
//! cluster a renewal has no key of the line, and yields to nobody.
//!
//! Rule 39: the threads that stand behind a reader's acquirer when it is granted come in with it, also if others wait by
//! then. Its process has one place for all of them, and without that one thread would come in for each writer. It is one
//! round, so it starves nobody. Only reads that ask for the same share an entry, so a longer lease need not extend it
//! first. Where a renewal does not count those who wait, as in a cluster, an entry is shared for one heartbeat.
//!
//! Rules 23 to 43 and 45 are of the weighted lock, whose scripts are in `kind/weighted`. Of rule 35, the number is noted when
//! the upgrade begins to wait, so that the line need not keep it. An attempt that waits and asks without waiting, late, is
//! treated like a heartbeat: it must not hold and wait at a time.
//!
//! Rule 43: the keys beside a lock have reserved, documented names. Data that a user keeps there may be changed: a
//! fence of another type is overwritten, and the members of a set count as waiters.
//!
//! Rule 12 is about the queue. The release of a reentrant lock does return the number of receivers;
//! it decides nothing but a pause of the process that released the lock.
//!
//! Rule 19: the model would allow blocks of tokens that are reserved ahead of the clock. None are
//! reserved. Tokens could run ahead by one block at most, so in the long run a lease gets one token
//! a microsecond either way. Without blocks a crash loses no tokens, and nothing is stored for
//! them.
//!
//! Rule 17: the code is stricter. A fixed lease is never passed on, because the next holder asked
//! for a whole length and would get the rest of one.
//!
//! Rule 2: the code is less strict. A join whose connection broke is repeated before its deadline.
//! Rules 6, 17 and 30 make that safe; the head of `engine::acquire` says how.
//!
//! Rule 31: a server of a quorum may get a proposal, a renewal or a release once more after its
//! connection had died. The first proposal then stays open until its deadline, and the others are
//! harmless when repeated.

pub(crate) mod backend;
mod durability;
pub(crate) mod holder;
pub(crate) mod index;
pub(crate) mod inspection;
pub(crate) mod lease_request;
pub(crate) mod lock_kind;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod script_protocol;
pub(crate) mod server_protocol;
pub(crate) mod target;
pub(crate) mod transaction;
pub(crate) mod wake_message;

use std::fmt;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::id::Identity;
use crate::base::inspection::Inspection;
use crate::base::name::Name;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::protocol::holder::ReportedHolder;
use crate::protocol::inspection::View;
use crate::protocol::lease_request::LeaseRequest;
use crate::protocol::lock_kind::LockKind;
use crate::protocol::reply::{AcquireOutcome, OwnershipReply, Released};
use crate::protocol::request::{AcquireRequest, ForceRequest, ReleaseRequest};
use crate::protocol::server_protocol::ServerProtocol;
use crate::protocol::target::Target;
use crate::protocol::transaction::Applied;
use crate::protocol::wake_message::{GrantMessage, Publishers};
use crate::wire::Pipeline;
use crate::wire::failure::Failure;

/// The engine's view of the servers.
///
/// Every call is one exchange, bounded by its deadline. A call for the same owner may be repeated,
/// whatever happened to the first.
pub(crate) trait Protocol: Send + Sync + fmt::Debug {
    /// The client that uses this protocol.
    fn identity(&self) -> &Identity;

    /// The lock of this name, with the keys that its scripts get on these servers.
    fn target(&self, kind: &'static dyn LockKind, name: Name) -> Arc<Target> {
        Target::new(kind, name)
    }

    /// Rejects keys that cannot be used together with the lock's on these servers.
    fn check_keys(&self, _name: &Name, _keys: &[Vec<u8>]) -> Result<(), Error> {
        Ok(())
    }

    /// Keeps the worker's connections until this moment, because it may need them until then. Returns
    /// whether all are there.
    fn keep_worker_connections(&self, until: Moment) -> bool;

    /// Orders the worker's missing connections, without waiting for them.
    fn connect_worker(&self);

    /// What only the one server that has a lock can do. A quorum refuses it.
    fn server(&self) -> Result<&dyn ServerProtocol, Failure>;

    /// Tries to take the lock, or to join its queue.
    fn acquire(
        &self,
        target: &Target,
        request: &AcquireRequest<'_>,
        deadline: Moment,
    ) -> AcquireOutcome;

    /// The same for many locks at once; the outcomes are in the order of the requests.
    fn acquire_all(
        &self,
        requests: &[(&Target, AcquireRequest<'_>)],
        deadline: Moment,
    ) -> Vec<AcquireOutcome> {
        requests.iter().map(|(target, request)| self.acquire(target, request, deadline)).collect()
    }

    /// Hands the lock to the next waiter, or frees it, if this owner has it.
    fn release(
        &self,
        target: &Target,
        request: &ReleaseRequest<'_>,
        deadline: Moment,
    ) -> Result<Released, Failure>;

    /// The same for many locks at once; the outcomes are in the order of the requests.
    fn release_all(
        &self,
        requests: &[(&Target, ReleaseRequest<'_>)],
        deadline: Moment,
    ) -> Vec<Result<Released, Failure>> {
        requests.iter().map(|(target, request)| self.release(target, request, deadline)).collect()
    }

    /// Makes the lease last at least `ttl` from now, if this owner has the lock.
    fn extend(
        &self,
        target: &Target,
        owner: &[u8],
        ttl: Duration,
        count: u32,
        deadline: Moment,
    ) -> Result<OwnershipReply, Failure>;

    /// Runs requests for many leases at once.
    fn run(
        &self,
        requests: &[LeaseRequest<'_>],
        deadline: Moment,
    ) -> Vec<Result<OwnershipReply, Failure>>;

    /// Who has the lock.
    fn holders(
        &self,
        target: &Target,
        view: View,
        deadline: Moment,
    ) -> Result<Vec<ReportedHolder>, Failure>;

    /// Who has the lock, and who waits for it, for people to read: by a view that shows who waits.
    fn inspect(&self, target: &Target, view: View, deadline: Moment)
    -> Result<Inspection, Failure>;

    /// The same for many locks at once.
    fn inspect_all(
        &self,
        targets: &[Arc<Target>],
        view: View,
        deadline: Moment,
    ) -> Vec<Result<Inspection, Failure>> {
        targets.iter().map(|target| self.inspect(target, view, deadline)).collect()
    }

    /// Takes the lock from its owner, and sends the owner's client a message. Another owner keeps the lock, data
    /// stays unchanged, and nothing happens once the deadline has passed. Returns whether this owner had it.
    fn force_release(
        &self,
        target: &Target,
        request: &ForceRequest<'_>,
        deadline: Moment,
    ) -> Result<bool, Failure>;

    /// Runs the commands of a pipeline if these owners have all of their locks.
    fn apply(
        &self,
        locks: &[(&Target, &[u8])],
        pipeline: &Pipeline,
        deadline: Moment,
    ) -> Result<Applied, Failure>;

    /// Asks the holder to release the lock. Returns whether a client received the request.
    fn request_release(&self, target: &Target, deadline: Moment) -> Result<bool, Failure>;

    /// Whether a server that did not reply may still have this owner's value, although the last
    /// outcome was final. Then the worker releases it once more.
    ///
    /// The engine also calls this during a hold, after a failed renewal, which some servers may
    /// have run. So the protocol must remember it for as long as the hold lives.
    fn may_still_own(&self, _owner: &[u8]) -> bool {
        // Only a quorum has a final outcome from some of its servers while others are silent.
        false
    }

    /// The servers that publish what wakes this client's waiters.
    fn publishers(&self) -> Arc<dyn Publishers>;

    /// Makes the listener's threads subscribe to this channel, which was just added to their list.
    fn listen_to(&self, channel: &[u8], deadline: Moment) -> Result<(), Failure>;

    /// Whether the leases of a lock end by the clock of this number, as far as is known.
    fn is_timed_by(&self, _target: &Target, _clock: u64) -> bool {
        true
    }

    /// Since when the servers of a lock were reached without a break, as far as is known: they have the memory with which
    /// they replied to what was sent since.
    fn unbroken_since(&self, target: &Target) -> Moment;

    /// A moment before which the server cannot have made this grant. Its window, counted from that
    /// moment, ends no later here than on the server. `None` if no such moment is certain (rule
    /// 10).
    ///
    /// `received` is when the message arrived. `queued` is when the last request was sent whose
    /// reply found the attempt still in the queue.
    fn granted_after(
        &self,
        target: &Target,
        grant: &GrantMessage,
        received: Moment,
        queued: Option<Moment>,
    ) -> Option<Moment>;
}

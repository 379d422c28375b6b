//! What defines a kind of lock.

use std::fmt;
use std::time::Duration;

use crate::base::id::Identity;
use crate::base::inspection::Origin;
use crate::base::kind::Kind;
use crate::base::name::Name;
use crate::base::option::Wait;
use crate::base::share::Share;
use crate::wire::Value;
use crate::wire::failure::Failure;
use crate::wire::script::{Call, Script};

/// Everything that differs between kinds of lock.
pub(crate) trait LockKind: Send + Sync + fmt::Debug {
    /// What users call it.
    fn kind(&self) -> Kind;

    /// The kind's name, in errors, logs and the index.
    fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// The keys of the kind's scripts after the lock's own and its fence.
    fn extra_keys(&self, _name: &Name) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// The owner's value of one attempt, which asks for `share`. `hands_over` says that its holder hands
    /// the lock to the queue. `window` is what a hand-over gives it before its first renewal.
    fn owner(
        &self,
        identity: &Identity,
        number: u64,
        window: Window,
        hands_over: bool,
        share: Share,
    ) -> Vec<u8>;

    /// Why a hold of it cannot come back after its lease; `None` if it can.
    fn refuses_tail(&self) -> Option<&'static str> {
        Some("whose key has several holders, each with a lease of its own")
    }

    /// For how long the key of this owner outlives its lease.
    fn tail(&self, _owner: &[u8]) -> Duration {
        Duration::ZERO
    }

    /// Whether several holds of one process may exist at the same time.
    fn overlaps(&self) -> bool {
        false
    }

    /// The part of a lock that each holder has.
    fn parts(&self) -> Parts {
        Parts::Whole
    }

    /// How many of the first keys exist for as long as the lock is held: its own, its fence, and the kind's own.
    fn lease_keys(&self) -> usize {
        2
    }

    /// How many of the first keys its script for a renewal gets. In a cluster it gets the
    /// [`lease_keys`](LockKind::lease_keys).
    fn renewal_keys(&self) -> usize {
        self.lease_keys()
    }

    /// How to wait for it if the options do not say.
    fn usual_wait(&self) -> Wait {
        Wait::notify()
    }

    /// Whether a release only deletes the key, so that `Release::watch` can do it.
    fn can_be_watched(&self) -> bool {
        false
    }

    /// Whether the hold count is shown in Redis.
    fn shows_count(&self) -> bool {
        false
    }

    /// The channel on which releases of one name are published, if the kind has one.
    fn channel(&self, _name: &Name) -> Option<Vec<u8>> {
        None
    }

    /// Whether a client that listens there receives the releases that it sent itself.
    fn hears_own_releases(&self) -> bool {
        true
    }

    /// The scripts.
    fn scripts(&self) -> &'static Scripts;

    /// Asks for the owners, with the lock's own key alone. It is a plain command for kinds that can be released without
    /// scripts, which needs it too.
    fn look(&self, key: &[u8]) -> Call;

    /// Whether any key of the right type is a lock, so that `look` is enough to tell whether it is held. Otherwise only
    /// the kind's scripts tell a lock from data.
    fn look_tells_locks(&self) -> bool {
        true
    }

    /// Reads the reply to that.
    fn owners(&self, value: Value) -> Result<Vec<Vec<u8>>, Failure>;

    /// The key in which others see who waits, if there is one.
    fn waiters_key(&self, _name: &Name) -> Option<Vec<u8>> {
        None
    }

    /// Where an owner or a waiter is, as far as its value tells; `None` if this version of this library did not
    /// write it. Whatever the bytes are, it is read or not, and what is read is clean.
    fn origin(&self, owner: &[u8], identity: &Identity) -> Option<Origin>;

    /// How many tokens a grant reserves besides its own: the fence has the last of them.
    fn reserved_tokens(&self) -> u64 {
        0
    }
}

/// What a hand-over gives an attempt before its first renewal: a lease, and a tail after it, for both of which the key
/// lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) lease: Duration,
    pub(crate) tail: Duration,
}

impl From<Duration> for Window {
    fn from(lease: Duration) -> Window {
        Window { lease, tail: Duration::ZERO }
    }
}

/// The part of a lock that a holder has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// The whole lock.
    Whole,
    /// Permits of a semaphore, each with a number.
    Permits,
    /// A read-write lock, with one kind of access.
    Access,
    /// The lead of an election, and a word.
    Lead,
}

/// The scripts of a kind.
///
/// The scripts of all kinds take the same keys and arguments. Key 1 is the lock and key 2 its
/// fence, which keeps the last token. [`LockKind::extra_keys`] follow, and in a cluster a key that
/// never exists. `renew` gets the first [`LockKind::renewal_keys`], `touch` and `proclaim` the first
/// [`LockKind::lease_keys`], and `inspect` those, or those and [`LockKind::waiters_key`].
///
/// | script | arguments | returns |
/// | --- | --- | --- |
/// | `acquire` | owner, lease, deadline, fence's time to live, `try` `join` or `beat`, waiter's death after (µs), queue's time to live | token, or `{1, token, lease, now, waiters}`; `{0, holder's lease or -1, now, waiters ahead, whether the holder hands over, holder, last token or -1}`; `{2, now}` too late; `{3, now}` not in the queue |
/// | `acquire` of a quorum | owner, lease, deadline, fence's time to live, token, last token reserved | `{1, token, now}`; `{0, holder's lease or -1, now, holder, last token or -1}`; `{2, now}` too late; `{4, last token, now}` token too low |
/// | `acquire` of a weighted lock | those of the first line, and the limit that the user declares | as there, with the slots behind `waiters`; `{4, limit declared, limit in force, now}` for another limit than was declared, or too great a weight |
/// | `release` | owner, fence's time to live, last token used or 0, and `quiet` to wake nobody | 1, or `{1, listeners}`; `{0, 0, last token or 0}` gone, of a weighted lock 0; -1 another's |
/// | `renew` | owner, lease, hold count or 0, fence's time to live, and the tail of a lease that yields in it | `{1, now}`; `{0, now, -1, last token or 0}` gone; `{-1, now}` another's; of a weighted lock `{1, now, n}`, where n wait, or -1: that is not known; `{0, now}` gone |
/// | `touch` | owner | 1; 0 gone; -1 another's |
/// | `force` | owner, deadline, fence's time to live, and `any` | 1 evicted; 0 not its owner; `{2, now}` too late; the error `WRONGTYPE not a lock: …` |
/// | `request` | none | how many clients received it |
/// | `inspect` | how many waiters to list, and `found` | `{now, {{owner, lease or -1, last token or -1}, …}, how many wait or -1, {{owner, place or -1}, …}}`; of a weighted lock each holder has its slots besides, and `{limit declared, limit in force, sum of the weights}` follows; of an election `{the word}` or `{}` follows |
/// | `change` | owner, number, `r` `u` `w` or `beat`, fence's time to live, waiter's death after (µs), queue's time to live | `{1, token or 0, now, waiters}`; `{0, …}` as `acquire`: it waits; `{3, now}` a later change was made, or it does not wait; `{4, now}` not held |
/// | `resize` | limit, deadline, fence's time to live, limit declared, how long the limit is kept after the last use | 1; `{2, now}` too late; `{4, limit declared, limit in force, now}` |
/// | `look` of a weighted lock, which gets the lock's key alone | none | the owners |
/// | `proclaim` of an election | owner, term, number of the word, fence's time to live, word | 1 said; 0 gone; -1 another's |
/// | `transaction` | owner, and for each command `memory`, `write` or `nothing`, the number of its words, and its words | the replies; 0 not held; an error if Redis refuses one of them |
///
/// A script returns an error with the code `WRONGTYPE` if the key has another type. A script of a weighted lock also
/// does so if the sorted set is a user's, or a lock of the other kind (rule 43).
///
/// A string may be data or the lock of another program, and its form does not always tell which. `force` with
/// `any` and `inspect` without `found` say that the user calls it a mutex. The other two do not say so, and return an error
/// if the string does not look like a lock. The form of a hash alone distinguishes it from data.
///
/// A lease and a time to live are in milliseconds. A deadline is in the server's time, in
/// microseconds; after it the script does nothing, and 0 is none.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) release: Script,
    pub(crate) renew: Script,
    /// Changes nothing, but counts as a write that `WAIT` can wait for.
    pub(crate) touch: Script,
    pub(crate) force: Script,
    /// Tells who has it and who waits. It writes nothing.
    pub(crate) inspect: Script,
    /// Asks the holder to release the lock, where the kind supports that.
    pub(crate) request: Option<Script>,
    /// Says a word, if the owner leads an election.
    pub(crate) proclaim: Option<Script>,
    /// What only a weighted lock has.
    pub(crate) weighted: Option<WeightedScripts>,
}

/// The scripts that only a weighted lock has.
#[derive(Debug)]
pub(crate) struct WeightedScripts {
    /// Makes a holder's weight another.
    pub(crate) change: Script,
    /// Sets the limit that is in force.
    pub(crate) resize: Script,
    /// Runs commands if the owner holds the lock. Its key is not watched: a renewal of another holder
    /// would change it (rule 42).
    pub(crate) transaction: Script,
}

//! One lock: the keys and the requests of its kind for one name.

use std::fmt;
use std::time::Duration;

use crate::base::name::Name;
use crate::base::reserved::{self, Word};
use crate::base::sync::Arc;
use crate::base::time::millis;
use crate::protocol::inspection::{MOST_WAITERS, Report, View, report};
use crate::protocol::lock_kind::{LockKind, WeightedScripts};
use crate::protocol::reply::{Released, released};
use crate::protocol::request::{
    AcquireMode, AcquireRequest, ChangeRequest, ChangeTo, ForceRequest, ProclaimRequest,
    ResizeRequest,
};
use crate::wire::Value;
use crate::wire::failure::Failure;
use crate::wire::script::Argument::{self, Bytes, Number};
use crate::wire::script::Call;

/// The fence, which keeps the last token, lives at least this long, however short the lease is.
const SHORTEST_FENCE: Duration = Duration::from_secs(1);
/// The queue of a lock lives at least this long after the last join or heartbeat, so that it
/// survives a pause of the server.
const SHORTEST_LINE: Duration = Duration::from_secs(6);

/// One lock: its kind, its name, its keys.
pub(crate) struct Target {
    kind: &'static dyn LockKind,
    name: Name,
    keys: Box<[Box<[u8]>]>,
    channel: Option<Box<[u8]>>,
    is_in_cluster: bool,
}

impl Target {
    pub(crate) fn new(kind: &'static dyn LockKind, name: Name) -> Arc<Target> {
        Target::with_last(kind, name, None)
    }

    /// A lock in a cluster. Its last key never exists. It tells the scripts that they run in a
    /// cluster, and makes a node that is moving the slot refuse them as a whole.
    pub(crate) fn in_cluster(kind: &'static dyn LockKind, name: Name) -> Arc<Target> {
        // A node that is migrating or importing a slot refuses a script with `TRYAGAIN` if some of
        // its keys are there and others are not. Without a key that is always missing, a lock whose
        // queue has moved and whose key has not would be served from half of its data.
        Target::with_last(kind, name, Some(reserved::NEVER))
    }

    fn with_last(kind: &'static dyn LockKind, name: Name, last: Option<Word>) -> Arc<Target> {
        let last_key = last.map(|last| name.side_key(last));
        let keys =
            keys(kind, &name).into_iter().chain(last_key).map(Vec::into_boxed_slice).collect();
        let channel = kind.channel(&name).map(Vec::into_boxed_slice);
        Arc::new(Target { kind, name, keys, channel, is_in_cluster: last.is_some() })
    }

    pub(crate) fn kind(&self) -> &'static dyn LockKind {
        self.kind
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    /// All keys of the lock.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> &[Box<[u8]>] {
        &self.keys
    }

    /// The keys that exist for as long as the lock is held: its own, its fence, and those of its kind.
    pub(crate) fn lease_keys(&self) -> &[Box<[u8]>] {
        // Without the key that never exists. A renewal would meet `TRYAGAIN` for as long as its
        // slot is being moved, which may take longer than a lease lasts.
        self.keys.get(..self.kind.lease_keys()).unwrap_or(&self.keys)
    }

    /// The key that never exists, if it is a lock in a cluster.
    pub(crate) fn key_in_cluster(&self) -> Option<&[u8]> {
        self.keys.last().filter(|_| self.is_in_cluster).map(|key| &**key)
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.name.as_bytes()
    }

    /// The channel on which releases of this lock are published, if its kind has one.
    pub(crate) fn channel(&self) -> Option<&[u8]> {
        self.channel.as_deref()
    }

    /// Whether each release is published on that channel. In a cluster, Redisson publishes on a
    /// sharded channel (`SPUBLISH`), to which this client does not listen.
    pub(crate) fn hears_every_release(&self) -> bool {
        !self.is_in_cluster
    }

    pub(crate) fn acquire(&self, request: &AcquireRequest<'_>, deadline_micros: u64) -> Call {
        let mode: &[u8] = match request.mode {
            AcquireMode::Try => b"try",
            AcquireMode::Join => b"join",
            AcquireMode::Heartbeat => b"beat",
        };
        // In microseconds, while time to live goes in milliseconds: the script adds it to the
        // server's time.
        let dies_after = u64::try_from(request.dies_after.as_micros()).unwrap_or(u64::MAX);
        let line = line_ttl(request.ttl + request.tail, request.dies_after);
        let rest = [Bytes(mode), Number(dies_after), Number(line)];
        let limit = request.share.limit().map(Number);
        let rest = rest.into_iter().chain(limit);
        self.acquire_with(request, deadline_micros, rest)
    }

    /// The request of an attempt that proposes `token`, and reserves the tokens up to `reserved`.
    pub(crate) fn propose(
        &self,
        request: &AcquireRequest<'_>,
        deadline_micros: u64,
        token: u64,
        reserved: u64,
    ) -> Call {
        self.acquire_with(request, deadline_micros, [Number(token), Number(reserved)])
    }

    /// A request to acquire. The first arguments are the same for all kinds.
    fn acquire_with<'a>(
        &self,
        request: &AcquireRequest<'a>,
        deadline_micros: u64,
        rest: impl IntoIterator<Item = Argument<'a>>,
    ) -> Call {
        let (owner, ttl) = (request.owner, request.ttl + request.tail);
        let keep = fence(ttl);
        let first = [Bytes(owner), Number(millis(ttl)), Number(deadline_micros), Number(keep)];
        self.kind.scripts().acquire.call(&self.keys, first.into_iter().chain(rest))
    }

    /// Releases the lock, or leaves its queue. `last_token` is the last token used, if that is not
    /// the one that Redis minted.
    pub(crate) fn release(&self, owner: &[u8], ttl: Duration, last_token: Option<u64>) -> Call {
        self.release_with(owner, ttl, last_token, [])
    }

    /// The same for a lock for which somebody is known to wait, which spares the scripts of a mutex a look. They release
    /// it as well if nobody does.
    pub(crate) fn hand_over(&self, owner: &[u8], ttl: Duration, last_token: Option<u64>) -> Call {
        self.release_with(owner, ttl, last_token, [Bytes(b"wanted")])
    }

    fn release_with<'a>(
        &self,
        owner: &'a [u8],
        ttl: Duration,
        last_token: Option<u64>,
        rest: impl IntoIterator<Item = Argument<'a>>,
    ) -> Call {
        // 0 is no token: the first one is a time of the server in microseconds.
        let first = [Bytes(owner), Number(fence(ttl)), Number(last_token.unwrap_or(0))];
        self.kind.scripts().release.call(&self.keys, first.into_iter().chain(rest))
    }

    /// As [`release`](Target::release), but wakes no waiters, where the kind supports that.
    pub(crate) fn withdraw(&self, owner: &[u8], ttl: Duration) -> Call {
        // An attempt that failed to win a majority releases the votes that it did win. If that woke
        // the other contenders, each failed round would start the next one, without end.
        self.release_with(owner, ttl, None, [Bytes(b"quiet")])
    }

    /// Reads the reply to a release. Only a kind with a channel reports how many listen: from another kind, that is the reply
    /// to another command.
    pub(crate) fn released(&self, value: &Value) -> Result<Released, Failure> {
        released(value, self.channel.is_some())
    }

    /// Lengthens the life of this owner's key to `ttl` from now, and never shortens it (rule 14).
    /// `count` is the hold count, which some kinds show in Redis.
    pub(crate) fn renew(&self, owner: &[u8], ttl: Duration, count: u32) -> Call {
        // 0 tells the script that there is no hash to write the count into. With a count,
        // `renew.lua` would try an `HSET` on the string of a mutex.
        let count = if self.kind.shows_count() { count } else { 0 };
        let (ttl, count, keep) = (Number(millis(ttl)), Number(count.into()), Number(fence(ttl)));
        // In a cluster without a key that may be missing, for the reason in `lease_keys`.
        let kind = self.kind;
        let most = if self.is_in_cluster { kind.lease_keys() } else { kind.renewal_keys() };
        let keys = self.keys.get(..most).unwrap_or(&self.keys);
        self.kind.scripts().renew.call(keys, [Bytes(owner), ttl, count, keep])
    }

    /// The same for a lease with a tail, which yields in it to those who stand in the queue (rule 50). `is_silent` says
    /// whether its holder knows that the lease is over.
    pub(crate) fn renew_or_yield(
        &self,
        owner: &[u8],
        ttl: Duration,
        tail: Duration,
        is_silent: bool,
    ) -> Call {
        let numbers = [millis(ttl), 0, fence(ttl), millis(tail)].map(Number);
        let arguments = [Bytes(owner)].into_iter().chain(numbers);
        let script = &self.kind.scripts().renew;
        let most = self.kind.lease_keys();
        if self.is_in_cluster && !is_silent {
            // The queue may be missing, as above, and this lease must be renewed while its slot is being moved. With the lock
            // itself in the place of the queue, a renewal that was stuck until the lease was over yields in any case, and the
            // next one looks for a queue.
            let lease_keys = self.lease_keys().iter().chain(self.keys.first());
            return script.call(&lease_keys.cloned().collect::<Vec<_>>(), arguments);
        }
        // The queue and the signs of life stand behind the keys that exist for as long as the lock is held.
        script.call(self.keys.get(..most + 2).unwrap_or(&self.keys), arguments)
    }

    /// Makes a write that `WAIT` can wait for, if this owner has the lock.
    pub(crate) fn touch(&self, owner: &[u8]) -> Call {
        self.kind.scripts().touch.call(self.lease_keys(), [Bytes(owner)])
    }

    /// Reads the reply to an inspection.
    pub(crate) fn report(&self, view: View, value: Value) -> Result<Report, Failure> {
        match view {
            View::Owners => self.kind.owners(value).map(Report::of_owners),
            View::Holders | View::Waiters | View::Found => {
                report(self.kind.parts(), value).map(|report| report.with_tails(self.kind))
            }
        }
    }

    /// The request that inspects the lock. `view` says how much the reply contains.
    pub(crate) fn inspect(&self, view: View) -> Call {
        let inspect = &self.kind.scripts().inspect;
        match view {
            View::Owners => self.kind.look(self.key()),
            View::Holders => inspect.call(self.lease_keys(), [Number(0)]),
            View::Waiters | View::Found => {
                let word: Option<&[u8]> = (view == View::Found).then_some(b"found");
                let mut keys = self.lease_keys().to_vec();
                keys.extend(self.kind.waiters_key(&self.name).map(Vec::into_boxed_slice));
                inspect.call(&keys, [Number(MOST_WAITERS)].into_iter().chain(word.map(Bytes)))
            }
        }
    }

    /// Takes the lock from this owner. After the deadline, in the server's time, the script does
    /// nothing.
    pub(crate) fn force(&self, request: &ForceRequest<'_>, deadline_micros: u64) -> Call {
        // The caller does not know the holder's lease. The script lengthens the fence to the window
        // of the next owner where that is longer.
        let fence = Number(fence(SHORTEST_FENCE));
        let word: Option<&[u8]> = request.takes_any.then_some(b"any");
        let arguments = [Bytes(request.owner), Number(deadline_micros), fence];
        let arguments = arguments.into_iter().chain(word.map(Bytes));
        self.kind.scripts().force.call(&self.keys, arguments)
    }

    /// The scripts that only a weighted lock has, if it is one.
    pub(crate) fn weighted(&self) -> Option<&'static WeightedScripts> {
        self.kind.scripts().weighted.as_ref()
    }

    /// Makes the weight of a hold another.
    pub(crate) fn change(
        &self,
        scripts: &'static WeightedScripts,
        request: &ChangeRequest<'_>,
    ) -> Call {
        let ChangeRequest { owner, ttl, number, to, dies_after } = *request;
        let letter = match to {
            ChangeTo::Access(access) => [access.letter()],
            ChangeTo::Heartbeat => [0],
        };
        let to: &[u8] = if to == ChangeTo::Heartbeat { b"beat" } else { &letter };
        let dies_after_micros = u64::try_from(dies_after.as_micros()).unwrap_or(u64::MAX);
        let line = Number(line_ttl(ttl, dies_after));
        let rest = [Number(fence(ttl)), Number(dies_after_micros), line];
        let arguments = [Bytes(owner), Number(number), Bytes(to)].into_iter().chain(rest);
        scripts.change.call(&self.keys, arguments)
    }

    /// Sets the limit in force.
    pub(crate) fn resize(
        &self,
        scripts: &'static WeightedScripts,
        request: ResizeRequest,
        deadline_micros: u64,
    ) -> Call {
        let ResizeRequest { limit, declared, keep } = request;
        let (fence, keep) = (fence(SHORTEST_FENCE), millis(keep));
        let numbers = [limit.into(), deadline_micros, fence, declared.into(), keep];
        scripts.resize.call(&self.keys, numbers.map(Number))
    }

    /// Says a word for the leader of an election. `None` if the kind has no word.
    pub(crate) fn proclaim(&self, request: &ProclaimRequest<'_>) -> Option<Call> {
        let ProclaimRequest { owner, ttl, term, number, word } = *request;
        // In a cluster without the key that is never there: what the script touches exists while somebody leads.
        let arguments =
            [Bytes(owner), Number(term), Number(number), Number(fence(ttl)), Bytes(word)];
        let script = self.kind.scripts().proclaim.as_ref();
        script.map(|script| script.call(self.lease_keys(), arguments))
    }

    /// Asks the holder to release the lock. `None` if the kind does not support that.
    pub(crate) fn request(&self) -> Option<Call> {
        self.kind.scripts().request.as_ref().map(|script| script.call(&self.keys, []))
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.kind.name(), self.name)
    }
}

/// The keys of every script of a kind: the lock's own, its fence, and the kind's own.
pub(crate) fn keys(kind: &dyn LockKind, name: &Name) -> Vec<Vec<u8>> {
    // This order is the scripts' `KEYS`, so a key can only be added at the end. `lease_keys` relies
    // on the first two.
    let mut keys = vec![name.as_bytes().to_vec(), name.side_key(reserved::FENCE)];
    keys.extend(kind.extra_keys(name));
    keys
}

/// The time to live that an attempt gives the queue, in milliseconds.
fn line_ttl(ttl: Duration, dies_after: Duration) -> u64 {
    // Twice `dies_after`, because a skipped waiter keeps its place for as long again (rule 11).
    millis(ttl.max(dies_after * 2).max(SHORTEST_LINE))
}

/// The time to live of the fence of a lease, in milliseconds.
pub(crate) fn fence(ttl: Duration) -> u64 {
    // Without the fence the next token comes from the server's clock alone. A fence that ended with
    // a lease of a few milliseconds would leave the order of tokens to a clock that may be set
    // back.
    millis(ttl.max(SHORTEST_FENCE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::election::ElectionKind;
    use crate::kind::mutex::MutexKind;

    /// The keys of a renewal, without the name.
    fn keys(target: &Target, is_silent: bool) -> Vec<String> {
        let span = Duration::from_secs(3);
        let call = target.renew_or_yield(b"me", span * 10, span * 9, is_silent);
        let words = call.words();
        let count: usize = std::str::from_utf8(&words[2]).unwrap().parse().unwrap();
        let text = |word: &[u8]| String::from_utf8(word.to_vec()).unwrap();
        words[3..3 + count].iter().map(|word| text(word)).collect()
    }

    /// While its slot is being moved, a node refuses a renewal with a key that is missing (rule 50).
    #[test]
    fn renewal_of_a_valid_lease_names_no_key_of_a_cluster_that_may_be_missing() {
        let name = || Name::new(b"", b"x").unwrap();
        let kinds: [(&'static dyn LockKind, &[&'static str], &[&'static str]); 2] = [
            (&MutexKind, &["x", "{x}:fence"], &["{x}:queue", "{x}:beats"]),
            (&ElectionKind, &["x", "{x}:fence", "{x}:word"], &["{x}:candidates", "{x}:pulses"]),
        ];
        for (kind, lease_keys, line) in kinds {
            let with = |rest: &[&'static str]| [lease_keys, rest].concat();
            let (alone, clustered) = (Target::new(kind, name()), Target::in_cluster(kind, name()));
            for is_silent in [false, true] {
                assert_eq!(keys(&alone, is_silent), with(line));
            }
            assert_eq!(keys(&clustered, true), with(line));
            // The lock is there: such a renewal yields in its tail in any case.
            assert_eq!(keys(&clustered, false), with(&["x"]));
        }
    }
}

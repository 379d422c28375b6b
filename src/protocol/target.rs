//! One lock: the keys and the requests of its kind for one name.

use std::fmt;
use std::time::Duration;

use crate::base::name::Name;
use crate::base::reserved::{self, Word};
use crate::base::sync::Arc;
use crate::base::time::millis;
use crate::protocol::inspection::{MOST_WAITERS, Report, View, report};
use crate::protocol::lock_kind::LockKind;
use crate::protocol::request::{AcquireMode, AcquireRequest};
use crate::wire::Value;
use crate::wire::failure::Failure;
use crate::wire::script::Argument::{self, Bytes, Number};
use crate::wire::script::Call;

/// The tokens of a lock outlive its lease at least this long.
const SHORTEST_FENCE: Duration = Duration::from_secs(1);
/// The queue of a lock outlives its last sign of life at least this long, so that a pause of the
/// server does not empty it.
const SHORTEST_QUEUE: Duration = Duration::from_secs(6);

/// One lock: its kind, its name, its keys.
pub(crate) struct Target {
    kind: &'static dyn LockKind,
    name: Name,
    keys: Vec<Vec<u8>>,
    channel: Option<Vec<u8>>,
    hears_every_release: bool,
}

impl Target {
    pub(crate) fn new(kind: &'static dyn LockKind, name: Name) -> Arc<Target> {
        Target::with_last(kind, name, None)
    }

    /// A lock in a cluster. Its last key is never there: the scripts see by it that they are in a
    /// cluster, and a node that has not all of a slot refuses them as a whole.
    pub(crate) fn in_cluster(kind: &'static dyn LockKind, name: Name) -> Arc<Target> {
        Target::with_last(kind, name, Some(reserved::NEVER))
    }

    fn with_last(kind: &'static dyn LockKind, name: Name, last: Option<Word>) -> Arc<Target> {
        let mut keys = keys(kind, &name);
        keys.extend(last.map(|last| name.side_key(last)));
        let channel = kind.channel(&name);
        Arc::new(Target { kind, name, keys, channel, hears_every_release: last.is_none() })
    }

    pub(crate) fn kind(&self) -> &'static dyn LockKind {
        self.kind
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    /// All its keys.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// The keys that are there for as long as it is held: the lock's own and its fence.
    pub(crate) fn lease_keys(&self) -> &[Vec<u8>] {
        self.keys.get(..2).unwrap_or(&self.keys)
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.name.as_bytes()
    }

    /// The channel on which releases of this lock are told, if its kind has one.
    pub(crate) fn channel(&self) -> Option<&[u8]> {
        self.channel.as_deref()
    }

    /// Whether a listener to its channel hears every release. In a cluster, Redisson publishes on a channel
    /// of the slot, to which this client does not listen.
    pub(crate) fn hears_every_release(&self) -> bool {
        self.hears_every_release
    }

    pub(crate) fn acquire(&self, request: &AcquireRequest<'_>, deadline_micros: u64) -> Call {
        let mode: &[u8] = match request.mode {
            AcquireMode::Try => b"try",
            AcquireMode::Join => b"join",
            AcquireMode::Heartbeat => b"beat",
        };
        let dies_after = u64::try_from(request.dies_after.as_micros()).unwrap_or(u64::MAX);
        let rest = [Bytes(mode), Number(dies_after), Number(queue(request))];
        self.acquire_with(request, deadline_micros, rest)
    }

    /// The request of an attempt that proposes its own token, and reserves those up to another.
    pub(crate) fn propose(
        &self,
        request: &AcquireRequest<'_>,
        deadline_micros: u64,
        token: u64,
        reserved: u64,
    ) -> Call {
        self.acquire_with(request, deadline_micros, [Number(token), Number(reserved)])
    }

    /// The first arguments are the same for all kinds.
    fn acquire_with<const N: usize>(
        &self,
        request: &AcquireRequest<'_>,
        deadline_micros: u64,
        rest: [Argument<'_>; N],
    ) -> Call {
        let (owner, ttl, keep) = (request.owner, millis(request.ttl), fence(request.ttl));
        let first = [Bytes(owner), Number(ttl), Number(deadline_micros), Number(keep)];
        self.kind.scripts().acquire.call(&self.keys, first.into_iter().chain(rest))
    }

    /// `last_token` is the last one used where that is not the one minted.
    pub(crate) fn release(&self, owner: &[u8], ttl: Duration, last_token: Option<u64>) -> Call {
        let arguments = [Bytes(owner), Number(fence(ttl)), Number(last_token.unwrap_or(0))];
        self.kind.scripts().release.call(&self.keys, arguments)
    }

    /// As [`release`](Target::release), without a word to those who wait, where the kind can.
    pub(crate) fn withdraw(&self, owner: &[u8], ttl: Duration) -> Call {
        let arguments = [Bytes(owner), Number(fence(ttl)), Number(0), Bytes(b"quiet")];
        self.kind.scripts().release.call(&self.keys, arguments)
    }

    pub(crate) fn renew(&self, owner: &[u8], ttl: Duration, count: u32) -> Call {
        let count = if self.kind.shows_count() { count } else { 0 };
        let (ttl, count, keep) = (Number(millis(ttl)), Number(count.into()), Number(fence(ttl)));
        self.kind.scripts().renew.call(self.lease_keys(), [Bytes(owner), ttl, count, keep])
    }

    /// Gives `WAIT` a write of this lock to wait for, if it is the owner's.
    pub(crate) fn touch(&self, owner: &[u8]) -> Call {
        self.kind.scripts().touch.call(self.lease_keys(), [Bytes(owner)])
    }

    /// Reads the reply to an inspection.
    pub(crate) fn report(&self, view: View, value: Value) -> Result<Report, Failure> {
        match view {
            View::Owners => self.kind.owners(value).map(Report::of_owners),
            View::Holders | View::Waiters => report(value),
        }
    }

    /// Asks who has it, and as much more as is to be seen.
    pub(crate) fn inspect(&self, view: View) -> Call {
        let inspect = &self.kind.scripts().inspect;
        match view {
            View::Owners => self.kind.look(self.key()),
            View::Holders => inspect.call(self.lease_keys(), [Number(0)]),
            View::Waiters => {
                let mut keys = self.lease_keys().to_vec();
                keys.extend(self.kind.waiters_key(&self.name));
                inspect.call(&keys, [Number(MOST_WAITERS)])
            }
        }
    }

    /// Takes it from an owner, by a deadline of the server's clock.
    pub(crate) fn force(&self, owner: &[u8], deadline_micros: u64) -> Call {
        let fence = Number(fence(SHORTEST_FENCE));
        let arguments = [Bytes(owner), Number(deadline_micros), fence, Bytes(b"force")];
        self.kind.scripts().force.call(&self.keys, arguments)
    }

    pub(crate) fn request(&self) -> Option<Call> {
        self.kind.scripts().request.as_ref().map(|script| script.call(&self.keys, []))
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.kind.name(), self.name)
    }
}

/// The keys that every script of a kind is given: the lock's own, its fence, and the kind's own.
pub(crate) fn keys(kind: &dyn LockKind, name: &Name) -> Vec<Vec<u8>> {
    let mut keys = vec![name.as_bytes().to_vec(), name.side_key(reserved::FENCE)];
    keys.extend(kind.extra_keys(name));
    keys
}

/// The time to live of the queue for which an attempt keeps it, in milliseconds.
fn queue(request: &AcquireRequest<'_>) -> u64 {
    millis(request.ttl.max(request.dies_after * 2).max(SHORTEST_QUEUE))
}

/// The time to live of the fence beside a lease, in milliseconds.
pub(crate) fn fence(ttl: Duration) -> u64 {
    millis(ttl.max(SHORTEST_FENCE))
}

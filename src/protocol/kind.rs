//! The recipe of a kind of lock, and a lock of some kind.

use std::fmt;
use std::time::Duration;

use crate::base::id::{Holder, Identity};
use crate::base::name::Name;
use crate::base::reserved;
use crate::base::sync::Arc;
use crate::base::time::millis;
use crate::protocol::{Attempt, Mode};
use crate::wire::Value;
use crate::wire::failure::Failure;
use crate::wire::script::Argument::{Bytes, Number};
use crate::wire::script::{Call, Script};

/// Everything that differs between kinds of lock.
pub(crate) trait Kind: Send + Sync + fmt::Debug {
    /// What the kind is called.
    fn name(&self) -> &'static str;

    /// The keys that every script of the kind is given, the lock's own first.
    fn keys(&self, name: &Name) -> Vec<Vec<u8>>;

    /// The owner's value of one attempt. `hands_over` tells that its holder serves the queue, and
    /// `window` for how long the lock may be kept for it until it is heard of.
    fn owner(
        &self,
        identity: &Identity,
        number: u64,
        window: Duration,
        hands_over: bool,
    ) -> Vec<u8>;

    /// Whether the hold count is shown in Redis.
    fn shows_count(&self) -> bool;

    /// The channel of one name on which releases are told, if the kind has one.
    fn channel(&self, name: &Name) -> Option<Vec<u8>>;

    /// The scripts, whose keys, arguments and answers are told in their own headers.
    fn scripts(&self) -> &'static Scripts;

    /// Asks who holds it.
    fn inspect(&self, key: &[u8]) -> Call;

    /// Reads the answer to that.
    fn inspected(&self, value: Value) -> Result<Option<Holder>, Failure>;
}

/// The scripts of a kind; those of all kinds take the same arguments.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) release: Script,
    pub(crate) renew: Script,
    pub(crate) force: Script,
    /// Asks the holder to let go, where the kind can.
    pub(crate) request: Option<Script>,
}

/// The tokens of a lock outlive its lease at least this long.
const SHORTEST_FENCE: Duration = Duration::from_secs(1);
/// The queue of a lock outlives its last sign of life at least this long, so that a pause of the
/// server does not empty it.
const SHORTEST_QUEUE: Duration = Duration::from_secs(6);

/// One lock: its kind, its name, its keys.
pub(crate) struct Target {
    kind: &'static dyn Kind,
    name: Name,
    keys: Vec<Vec<u8>>,
    channel: Option<Vec<u8>>,
}

impl Target {
    pub(crate) fn new(kind: &'static dyn Kind, name: Name) -> Arc<Target> {
        let keys = kind.keys(&name);
        Target::with_keys(kind, name, keys)
    }

    /// A lock in a cluster. Its last key is never there: the scripts see by it that they are in a
    /// cluster, and a node that has not all of a slot refuses them as a whole.
    pub(crate) fn in_cluster(kind: &'static dyn Kind, name: Name) -> Arc<Target> {
        let mut keys = kind.keys(&name);
        let last = if mutated!("cluster-script-stops-half-way") {
            reserved::FENCE
        } else {
            reserved::NEVER
        };
        keys.push(name.beside(last));
        Target::with_keys(kind, name, keys)
    }

    fn with_keys(kind: &'static dyn Kind, name: Name, keys: Vec<Vec<u8>>) -> Arc<Target> {
        let channel = kind.channel(&name);
        Arc::new(Target { kind, name, keys, channel })
    }

    pub(crate) fn kind(&self) -> &'static dyn Kind {
        self.kind
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    /// The keys that are there for as long as it is held: the lock's own and its fence.
    pub(crate) fn lasting(&self) -> &[Vec<u8>] {
        self.keys.get(..2).unwrap_or(&self.keys)
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.name.as_bytes()
    }

    /// The channel on which releases of this lock are told, if its kind has one.
    pub(crate) fn channel(&self) -> Option<&[u8]> {
        self.channel.as_deref()
    }

    pub(crate) fn acquire(&self, attempt: &Attempt<'_>, deadline_micros: u64) -> Call {
        let mode: &[u8] = match attempt.mode {
            Mode::Try => b"try",
            Mode::Join => b"join",
            Mode::Beat => b"beat",
        };
        let dies_after = u64::try_from(attempt.dies_after.as_micros()).unwrap_or(u64::MAX);
        self.kind.scripts().acquire.call(
            &self.keys,
            &[
                Bytes(attempt.owner),
                Number(millis(attempt.ttl)),
                Number(deadline_micros),
                Number(fence(attempt.ttl)),
                Bytes(mode),
                Number(dies_after),
                Number(queue(attempt)),
            ],
        )
    }

    /// The request of an attempt that proposes its own token, and reserves those up to another.
    pub(crate) fn propose(
        &self,
        attempt: &Attempt<'_>,
        deadline_micros: u64,
        token: u64,
        reserved: u64,
    ) -> Call {
        self.kind.scripts().acquire.call(
            &self.keys,
            &[
                Bytes(attempt.owner),
                Number(millis(attempt.ttl)),
                Number(deadline_micros),
                Number(fence(attempt.ttl)),
                Number(token),
                Number(reserved),
            ],
        )
    }

    /// `last_token` is the last one used where that is not the one minted.
    pub(crate) fn release(&self, owner: &[u8], ttl: Duration, last_token: Option<u64>) -> Call {
        self.kind
            .scripts()
            .release
            .call(&self.keys, &[Bytes(owner), Number(fence(ttl)), Number(last_token.unwrap_or(0))])
    }

    /// As [`release`](Target::release), without a word to those who wait, where the kind can.
    pub(crate) fn withdraw(&self, owner: &[u8], ttl: Duration) -> Call {
        let arguments = [Bytes(owner), Number(fence(ttl)), Number(0), Bytes(b"quiet")];
        self.kind.scripts().release.call(&self.keys, &arguments)
    }

    pub(crate) fn renew(&self, owner: &[u8], ttl: Duration, count: u32) -> Call {
        self.kind.scripts().renew.call(
            if mutated!("cluster-renewal-with-all-keys") { &self.keys } else { self.lasting() },
            &[Bytes(owner), Number(millis(ttl)), Number(count.into()), Number(fence(ttl))],
        )
    }

    pub(crate) fn inspect(&self) -> Call {
        self.kind.inspect(self.key())
    }

    /// Takes it from an owner, by a deadline of the server's clock.
    pub(crate) fn force(&self, owner: &[u8], deadline_micros: u64) -> Call {
        let fence = Number(fence(SHORTEST_FENCE));
        let arguments = [Bytes(owner), Number(deadline_micros), fence, Bytes(b"force")];
        self.kind.scripts().force.call(&self.keys, &arguments)
    }

    pub(crate) fn request(&self) -> Option<Call> {
        self.kind.scripts().request.as_ref().map(|script| script.call(&self.keys, &[]))
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.kind.name(), self.name)
    }
}

/// The time to live of the queue for which an attempt keeps it, in milliseconds.
fn queue(attempt: &Attempt<'_>) -> u64 {
    millis(attempt.ttl.max(attempt.dies_after * 2).max(SHORTEST_QUEUE))
}

/// The time to live of the fence beside a lease, in milliseconds.
pub(crate) fn fence(ttl: Duration) -> u64 {
    millis(ttl.max(SHORTEST_FENCE))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use proptest::test_runner::Config;

    use super::*;
    use crate::protocol::mutex::MutexKind;
    use crate::protocol::quorum::kind::QuorumKind;
    use crate::protocol::reentrant::ReentrantKind;

    /// Every kind that there is.
    const KINDS: [&dyn Kind; 3] = [&MutexKind, &ReentrantKind, &QuorumKind];

    /// What a name is made of, where it may be mistaken for another's key.
    const PIECES: [&str; 22] = [
        "x",
        "y",
        "t",
        ":",
        "{",
        "}",
        "{x}",
        "{}",
        "{x}:",
        "x:t",
        ":t",
        "fence",
        "queue",
        "never",
        ":fence",
        "}:beats",
        "line",
        ":tline",
        "leasehold:",
        "index",
        "redisson_lock__channel:",
        "redisson_lock__channel",
    ];

    fn name() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(&PIECES[..]), 1..6)
            .prop_map(|pieces| pieces.concat().into_bytes())
    }

    /// All keys of the locks of a name, in a cluster or not. A channel is no key, although scripts are
    /// given it as one: it holds nothing, and what is said on it is a hint.
    fn keys(name: &Name) -> Vec<Vec<u8>> {
        let targets = KINDS.iter().map(|kind| Target::in_cluster(*kind, name.clone()));
        let keys = |target: Arc<Target>| {
            let channel = target.channel().map(<[u8]>::to_vec);
            target.keys.iter().filter(|key| Some(*key) != channel.as_ref()).cloned().collect()
        };
        targets.flat_map(|target| -> Vec<Vec<u8>> { keys(target) }).collect()
    }

    proptest! {
        #![proptest_config(Config { cases: 2_000, failure_persistence: None, ..Config::default() })]

        #[test]
        fn no_key_of_one_lock_is_a_key_of_another(
            prefix in prop::sample::select(&["", "p:", "{x}:", "{", "x"][..]),
            names in prop::collection::vec(name(), 1..5),
        ) {
            let accepted = |name: &Vec<u8>| Name::new(prefix.as_bytes(), name).ok();
            let mut locks: Vec<Name> = names.iter().filter_map(accepted).collect();
            // Whoever is accepted, somebody may wish to lock what are its keys, and the keys of those.
            for _ in 0..2 {
                let keys: Vec<Vec<u8>> = locks.iter().flat_map(keys).collect();
                locks.extend(keys.iter().filter_map(|key| Name::new(b"", key).ok()));
            }
            let mut owners: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            for lock in &locks {
                for key in keys(lock) {
                    let other = owners.entry(key.clone()).or_insert_with(|| lock.as_bytes().to_vec());
                    let key = key.escape_ascii();
                    prop_assert_eq!(other.as_slice(), lock.as_bytes(), "both have {}", key);
                }
            }
            // Nor is a channel of the library a lock.
            for channel in KINDS.iter().flat_map(|kind| locks.iter().filter_map(|it| kind.channel(it))) {
                prop_assert!(Name::new(b"", &channel).is_err(), "{}", channel.escape_ascii());
            }
        }
    }
}

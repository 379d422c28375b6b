//! The kinds side by side, and stories of the scripts of each (`story`).

mod story;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::{KINDS, QUORUM_KINDS};
use crate::base::name::Name;
use crate::base::sync::Arc;
use crate::protocol::lock_kind::LockKind;
use crate::protocol::target::Target;

/// Every kind that there is.
fn kinds() -> impl Iterator<Item = &'static dyn LockKind> {
    KINDS.iter().chain(QUORUM_KINDS).copied()
}

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
    let targets = kinds().map(|kind| Target::in_cluster(kind, name.clone()));
    let keys = |target: Arc<Target>| {
        let channel = target.channel();
        let keys = target.keys().iter().filter(|key| Some(&***key) != channel);
        keys.map(|key| key.to_vec()).collect()
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
        // For each name that is accepted, somebody may wish to lock its keys, and the keys of those.
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
        for channel in kinds().flat_map(|kind| locks.iter().filter_map(|it| kind.channel(it))) {
            prop_assert!(Name::new(b"", &channel).is_err(), "{}", channel.escape_ascii());
        }
    }
}

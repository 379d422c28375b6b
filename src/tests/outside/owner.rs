//! The values of owners, and the words of leaders.

use leasehold_support::fuzz::Target;

use super::{SMALL, bounded, is_shown};
use crate::base::id::Identity;
use crate::base::inspection::{HeldPart, Holder, Inspection, WaitingProcess};
use crate::kind::{KINDS, QUORUM_KINDS, SHARED_KINDS};
use crate::protocol::holder::ReportedHolder;
use crate::protocol::lock_kind::LockKind;

const WORDS: &[&str] =
    &["1q:", "1-:", "2q:", ":24000:27000:", ":e:", ":r:", ":w:", ":3:", ":", "-8b4b-8d5b-", "é"];
/// The most characters of a description: that of a holder, of a waiter and of a word.
const LONGEST: usize = 3_000;

/// Shows what is made of an owner's value. Returns what is known of the owner.
fn shown(kind: &dyn LockKind, identity: &Identity, value: &[u8]) -> String {
    let holder = ReportedHolder {
        owner: value.into(),
        ttl: None,
        overdue: None,
        last_token: Some(7),
        micros: 9,
        part: HeldPart::Whole,
    };
    let holder = holder.identify(kind, identity);
    is_shown(&format!("{holder:?}"));
    let origin = holder.origin.clone();
    let knows = |holder: &Holder| [holder.host(), holder.label()].map(|text| text.is_some());
    let shape = format!("{:?}{}", knows(&holder), holder.pid().is_some());
    let waiter = WaitingProcess { owner: value.to_vec(), origin, place: usize::MAX, since: None };
    let seen = Inspection {
        holders: vec![holder],
        waiters: vec![waiter],
        waiting: Some(1),
        permits: None,
        word: Some(value.to_vec()),
        servers: Vec::new(),
    };
    let text = seen.to_string();
    is_shown(&text);
    assert!(text.chars().count() <= LONGEST, "{} characters", text.chars().count());
    shape
}

#[test]
fn owner_of_any_value_is_shown() {
    let identity = Identity::new("here");
    let kinds: Vec<&dyn LockKind> =
        KINDS.iter().chain(&SHARED_KINDS).chain(QUORUM_KINDS).copied().collect();
    Target::new("owner").words(WORDS).run(|input| {
        bounded(input, SMALL, || kinds.iter().map(|kind| shown(*kind, &identity, input)).collect())
    });
}

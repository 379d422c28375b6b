//! What an inspection tells of a lock's holders and waiters.

use crate::lab::{Lab, TTL, on_both, permits, reader, upgradable, writer};
use crate::request::{ALL, Attempt, Become, Reply, UPGRADABLE, command};
use crate::script::Name;

/// What `inspect.lua` returns, without the times.
#[derive(Debug, PartialEq)]
struct Seen {
    /// The attempt, its token, and its slots or its access.
    holders: Vec<(String, i64, Vec<i64>)>,
    waiting: i64,
    waiters: Vec<(String, i64)>,
    declared: u64,
    limit: u64,
    used: u64,
}

const READS: i64 = 0;
const READS_UPGRADABLY: i64 = 1;
const WRITES: i64 = 2;
const NO_TOKEN: i64 = -1;

fn inspected(lab: &mut Lab) -> Seen {
    let is_rw = lab.limit == ALL;
    let words = command(lab.scripts.text(Name::Inspect, is_rw), ["10", "inspect"].into_iter());
    let value = lab.command(&words).expect("a reply");
    type Parts = (u64, Vec<Vec<::redis::Value>>, i64, Vec<(String, i64)>, [u64; 3]);
    let (_, holders, waiting, waiters, [declared, limit, used]): Parts =
        ::redis::from_redis_value(value).expect("as inspect.lua says");
    let holders = holders.into_iter().map(|mut holder| {
        let beside = holder.split_off(3).into_iter().map(number).collect();
        let token = number(holder.remove(2));
        let left = number(holder.remove(1));
        assert!((1..=i64::from(TTL)).contains(&left), "a lease of {left} ms");
        let attempt = ::redis::from_redis_value(holder.remove(0)).expect("an attempt");
        (attempt, token, beside)
    });
    Seen { holders: holders.collect(), waiting, waiters, declared, limit, used }
}

fn number(value: ::redis::Value) -> i64 {
    ::redis::from_redis_value(value).expect("a number")
}

#[track_caller]
fn has_holders(lab: &mut Lab, used: u64, holders: &[(Attempt, i64, i64)]) {
    let seen = inspected(lab);
    let expected: Vec<_> = holders
        .iter()
        .map(|&(attempt, token, beside)| (attempt.text(), token, vec![beside]))
        .collect();
    assert_eq!((seen.used, &seen.holders), (used, &expected));
    if used > 0 {
        assert_eq!((seen.declared, seen.limit), (lab.limit, lab.limit));
    }
}

/// Becomes what it asks for, at once. Returns the token, which is 0 where it keeps its own.
#[track_caller]
fn becomes(lab: &mut Lab, attempt: Attempt, number: u64, to: Become) -> i64 {
    match lab.change(attempt, number, to) {
        Reply::Changed { token, .. } => token.cast_signed(),
        other => panic!("{attempt:?}: {other:?}"),
    }
}

#[test]
pub(crate) fn inspection_tells_the_access_and_the_token() {
    on_both(ALL, |lab| {
        has_holders(lab, 0, &[]);
        lab.take(reader(0));
        has_holders(lab, 1, &[(reader(0), NO_TOKEN, READS)]);
        lab.take(upgradable(1));
        let both = [(reader(0), NO_TOKEN, READS), (upgradable(1), NO_TOKEN, READS_UPGRADABLY)];
        has_holders(lab, 1 + UPGRADABLE, &both);
        lab.release(reader(0));
        lab.release(upgradable(1));
        // Nobody is granted after a writer: so it alone is shown with the last token.
        let (token, _) = lab.take(writer(2));
        has_holders(lab, ALL, &[(writer(2), token.cast_signed(), WRITES)]);
    });
}

#[test]
pub(crate) fn inspection_tells_what_a_change_has_made_of_a_holder() {
    on_both(ALL, |lab| {
        lab.take(upgradable(0));
        let token = becomes(lab, upgradable(0), 1, Become::Writer);
        assert!(token > 0, "{token}");
        has_holders(lab, ALL, &[(upgradable(0), token, WRITES)]);
        becomes(lab, upgradable(0), 2, Become::Upgradable);
        has_holders(lab, UPGRADABLE, &[(upgradable(0), NO_TOKEN, READS_UPGRADABLY)]);
        becomes(lab, upgradable(0), 3, Become::Reader);
        has_holders(lab, 1, &[(upgradable(0), NO_TOKEN, READS)]);
        lab.release(upgradable(0));
        lab.take(writer(1));
        becomes(lab, writer(1), 1, Become::Upgradable);
        has_holders(lab, UPGRADABLE, &[(writer(1), NO_TOKEN, READS_UPGRADABLY)]);
        becomes(lab, writer(1), 2, Become::Reader);
        has_holders(lab, 1, &[(writer(1), NO_TOKEN, READS)]);
    });
}

/// Its place is above zero and below one.
#[test]
pub(crate) fn inspection_lists_an_upgrade_that_waits_as_holder_and_waiter() {
    on_both(ALL, |lab| {
        lab.take(reader(0));
        lab.take(upgradable(1));
        assert!(matches!(lab.change(upgradable(1), 1, Become::Writer), Reply::Busy { .. }));
        let both = [(reader(0), NO_TOKEN, READS), (upgradable(1), NO_TOKEN, READS_UPGRADABLY)];
        has_holders(lab, 1 + UPGRADABLE, &both);
        let seen = inspected(lab);
        assert_eq!((seen.waiting, seen.waiters), (1, vec![(upgradable(1).text(), 0)]));
    });
}

#[test]
pub(crate) fn inspection_lists_the_waiters_of_each_access_by_their_places() {
    on_both(ALL, |lab| {
        lab.take(writer(0));
        for attempt in [reader(1), upgradable(2), writer(3)] {
            lab.wait(attempt);
        }
        let seen = inspected(lab);
        let attempts: Vec<_> = seen.waiters.iter().map(|(attempt, _)| attempt.clone()).collect();
        assert_eq!(attempts, [reader(1), upgradable(2), writer(3)].map(Attempt::text));
        assert!(seen.waiters.is_sorted_by(|(_, one), (_, next)| one < next), "{seen:?}");
        assert_eq!(seen.waiting, 3);
    });
}

/// The weight of a lease that has ended stays in the sum until a script takes it out. An inspection writes nothing,
/// and tells the sum of those that it lists.
#[test]
pub(crate) fn inspection_leaves_out_ended_leases_and_their_weights() {
    on_both(ALL, |lab| {
        // Each beside one that lives, if it can have one.
        lab.take(reader(0));
        lab.take(upgradable(1));
        lab.end(upgradable(1));
        has_holders(lab, 1, &[(reader(0), NO_TOKEN, READS)]);
        lab.release(reader(0));
        lab.take(upgradable(1));
        lab.take(reader(0));
        lab.end(reader(0));
        has_holders(lab, UPGRADABLE, &[(upgradable(1), NO_TOKEN, READS_UPGRADABLY)]);
        becomes(lab, upgradable(1), 1, Become::Writer);
        lab.end(upgradable(1));
        has_holders(lab, 0, &[]);
        lab.take(writer(2));
        becomes(lab, writer(2), 1, Become::Reader);
        lab.take(upgradable(3));
        lab.end(writer(2));
        has_holders(lab, UPGRADABLE, &[(upgradable(3), NO_TOKEN, READS_UPGRADABLY)]);
        lab.release(upgradable(3));
        lab.take(writer(4));
        lab.end(writer(4));
        has_holders(lab, 0, &[]);
    });
}

#[test]
pub(crate) fn inspection_of_a_semaphore_leaves_out_ended_leases_and_their_permits() {
    on_both(4, |lab| {
        lab.take(permits(0, 2));
        lab.take(permits(1, 1));
        lab.end(permits(0, 2));
        has_holders(lab, 1, &[(permits(1, 1), NO_TOKEN, 2)]);
        lab.end(permits(1, 1));
        let seen = inspected(lab);
        assert_eq!((seen.used, seen.declared, seen.limit), (0, 4, 4));
        assert!(seen.holders.is_empty(), "{seen:?}");
    });
}

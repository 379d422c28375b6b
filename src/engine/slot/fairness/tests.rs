use super::*;
use crate::base::testing::manual_clock::ManualClock;

/// A release that this client received, or others, or both.
fn listener_count(listens: bool, others: bool) -> ListenerCount {
    let listeners = u32::from(listens) + u32::from(others);
    ListenerCount { listeners, listens, hears_own: true, round_trip: Duration::ZERO }
}

/// A listener may never take the lock.
#[test]
fn unused_pauses_become_rare_until_the_lock_is_taken() {
    let mut fairness = Fairness::default();
    let begin = ManualClock::START;
    let mut now = begin;
    let mut paused = |fairness: &mut Fairness, taken: bool| {
        now = now.after(Duration::from_micros(100));
        fairness.begin_release();
        fairness.released(listener_count(false, true), now);
        let pauses = fairness.until > now;
        fairness.paused = pauses.then_some(true);
        now = now.max(fairness.until);
        fairness.end(taken, now);
        (pauses, now.since(begin))
    };
    let first: Vec<bool> = (0..8).map(|_| paused(&mut fairness, false).0).collect();
    assert_eq!(first, [true, true, true, true, false, false, false, false]);
    let mut pauses = 0;
    let span = loop {
        let (pauses_now, span) = paused(&mut fairness, false);
        pauses += u32::from(pauses_now);
        if span > Duration::from_secs(60) {
            break span;
        }
    };
    assert!(YIELD_TIME * pauses < span / 100, "{pauses} pauses in {span:?}");
    while !paused(&mut fairness, true).0 {}
    assert!((0..100).all(|_| paused(&mut fairness, true).0), "a rest without a reason");
}

#[test]
fn own_late_messages_do_not_count_as_anothers() {
    let mut fairness = Fairness::default();
    let now = ManualClock::START;
    for number in 0..MAX_UNUSED_PAUSES {
        fairness.begin_release();
        fairness.released(listener_count(true, true), now);
        // The messages of two releases come together.
        (0..number % 2 * 2).for_each(|_| fairness.on_release());
        fairness.paused = Some(true);
        fairness.end(false, now);
    }
    assert_eq!(fairness.unused_pauses, MAX_UNUSED_PAUSES);
}

#[test]
fn release_received_only_here_counts_as_our_own() {
    let mut fairness = Fairness::default();
    fairness.begin_release();
    fairness.released(listener_count(true, false), ManualClock::START);
    fairness.begin_release();
    fairness.released(listener_count(true, true), ManualClock::START);
    (0..2).for_each(|_| fairness.on_release());
    assert!(!fairness.was_released_elsewhere());
    fairness.on_release();
    assert!(fairness.was_released_elsewhere());
}

#[test]
fn lost_message_stays_expected_until_resubscription() {
    let mut fairness = Fairness::default();
    fairness.begin_release();
    fairness.released(listener_count(true, true), ManualClock::START);
    fairness.on_resubscribe();
    fairness.begin_release();
    fairness.released(listener_count(true, true), ManualClock::START);
    fairness.on_release();
    assert!(!fairness.was_released_elsewhere());
    fairness.on_release();
    assert!(fairness.was_released_elsewhere());
}

/// The listener of a quorum drops the messages of its own client.
#[test]
fn release_that_is_not_heard_here_is_not_due() {
    let mut fairness = Fairness::default();
    fairness.begin_release();
    let count = ListenerCount { hears_own: false, ..listener_count(true, true) };
    fairness.released(count, ManualClock::START);
    assert!(fairness.until > ManualClock::START && !fairness.was_released_elsewhere());
    fairness.on_release();
    assert!(fairness.was_released_elsewhere(), "another has had the lock");
}

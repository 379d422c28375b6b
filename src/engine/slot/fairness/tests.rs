use super::*;
use crate::base::testing::manual_clock::ManualClock;

/// A release that this client received, or others, or both.
fn listener_count(listens: bool, others: bool) -> ListenerCount {
    let listeners = u32::from(listens) + u32::from(others);
    ListenerCount {
        listeners,
        listens,
        hears_own: true,
        hears_all: true,
        round_trip: Duration::ZERO,
    }
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
        for _ in 0..number % 2 * 2 {
            fairness.on_release(true, ManualClock::START);
        }
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
    for _ in 0..2 {
        fairness.on_release(true, ManualClock::START);
    }
    assert!(fairness.heard_elsewhere() == 0);
    fairness.on_release(true, ManualClock::START);
    assert!(fairness.heard_elsewhere() > 0);
}

#[test]
fn lost_message_stays_expected_until_resubscription() {
    let mut fairness = Fairness::default();
    fairness.begin_release();
    fairness.released(listener_count(true, true), ManualClock::START);
    fairness.on_resubscribe();
    fairness.begin_release();
    fairness.released(listener_count(true, true), ManualClock::START);
    fairness.on_release(true, ManualClock::START);
    assert!(fairness.heard_elsewhere() == 0);
    fairness.on_release(true, ManualClock::START);
    assert!(fairness.heard_elsewhere() > 0);
}

/// The listener of a quorum drops the messages of its own client.
#[test]
fn release_that_is_not_heard_here_is_not_due() {
    let mut fairness = Fairness::default();
    fairness.begin_release();
    let count = ListenerCount { hears_own: false, ..listener_count(true, true) };
    fairness.released(count, ManualClock::START);
    assert!(fairness.until > ManualClock::START && fairness.heard_elsewhere() == 0);
    fairness.on_release(true, ManualClock::START);
    assert!(fairness.heard_elsewhere() > 0, "another has had the lock");
}

/// A release that so many others received.
fn heard_by(others: u32) -> ListenerCount {
    ListenerCount { listeners: others + 1, ..listener_count(true, true) }
}

/// A process that has released the lock, and `others` have received that.
fn released(fairness: &mut Fairness, others: u32, now: Moment) {
    fairness.begin_release();
    fairness.on_release(true, now);
    fairness.released(heard_by(others), now);
}

/// Messages reach listeners in the order of their subscriptions, and of those that ask the first gets the lock.
#[test]
fn processes_have_equal_turns_in_whatever_order_they_hear() {
    let mut processes: [Fairness; 8] = Default::default();
    let (mut turns, mut holder, mut now) = ([0; 8], 0, ManualClock::START);
    for _ in 0..800 {
        turns[holder] += 1;
        now = now.after(Duration::from_micros(300));
        processes[holder].begin_release();
        for process in &mut processes {
            process.on_release(true, now);
        }
        processes[holder].released(heard_by(7), now);
        let asks = |process: &Fairness| !process.yields_at(now);
        holder = processes.iter().position(asks).expect("one has its turn");
    }
    assert!(turns.iter().all(|&count| (95..=105).contains(&count)), "{turns:?}");
}

/// Only the process whose turn it is asks at a message: the others would ask in vain.
#[test]
fn one_process_at_a_time_has_its_turn() {
    let mut processes: [Fairness; 4] = Default::default();
    let now = ManualClock::START;
    for round in 0..12 {
        let holder = round % 4;
        processes[holder].begin_release();
        let woken: Vec<_> =
            processes.iter_mut().map(|process| process.on_release(true, now)).collect();
        processes[holder].released(heard_by(3), now);
        let have_turn = processes.iter().filter(|process| process.is_turn()).count();
        if round >= 4 {
            assert_eq!(have_turn, 1, "in round {round}: {woken:?}");
            assert!(processes[(holder + 1) % 4].is_turn(), "it has waited the longest");
        }
    }
}

/// The sooner its turn comes, the sooner a process asks where nobody takes the lock.
#[test]
fn pause_is_longer_by_a_step_for_each_turn_before() {
    let (mut fairness, now) = (Fairness::default(), ManualClock::START);
    released(&mut fairness, 3, now);
    assert_eq!(fairness.until, now.after(YIELD_TIME + YIELD_STEP * 2));
    let later = now.after(YIELD_TIME);
    fairness.on_release(true, later);
    assert_eq!(fairness.until, later.after(YIELD_TIME + YIELD_STEP));
    fairness.on_release(false, now.after(YIELD_TIME * 2));
    assert_eq!(fairness.until, later.after(YIELD_TIME + YIELD_STEP), "nobody waits here");
    assert!(fairness.yields_at(later));
    fairness.on_release(true, later);
    assert!(!fairness.yields_at(later), "the others have had their turns");
    released(&mut fairness, u32::MAX - 1, now);
    assert_eq!(fairness.until, now.after(YIELD_TIME + YIELD_STEP * MAX_YIELD_STEPS));
}

#[test]
fn thread_that_comes_after_the_pause_waits_for_no_turn() {
    let (mut fairness, now) = (Fairness::default(), ManualClock::START);
    released(&mut fairness, 2, now);
    fairness.come(now);
    assert!(fairness.yields_at(now), "it comes during the pause");
    let later = fairness.until;
    fairness.come(later);
    fairness.on_release(true, later);
    assert!(!fairness.yields_at(later));
}

#[test]
fn releases_heard_before_a_resubscription_count() {
    let (mut fairness, now) = (Fairness::default(), ManualClock::START);
    released(&mut fairness, 2, now);
    fairness.on_release(true, now);
    fairness.on_resubscribe();
    assert!(!fairness.is_turn());
    fairness.on_release(true, now);
    assert!(fairness.is_turn());
}

/// In a cluster a client does not hear Redisson.
#[test]
fn turn_comes_with_the_first_release_where_not_all_are_heard() {
    let (mut fairness, now) = (Fairness::default(), ManualClock::START);
    fairness.begin_release();
    fairness.released(ListenerCount { hears_all: false, ..heard_by(7) }, now);
    fairness.on_release(true, now);
    assert!(!fairness.is_turn(), "its own");
    fairness.on_release(true, now);
    assert!(fairness.is_turn());
}

/// Two want the lock, and a third only listens.
#[test]
fn rest_waits_for_those_that_want_the_lock_alone() {
    let (mut fairness, mut now) = (Fairness::default(), ManualClock::START);
    // Returns whether the turn has come with the release of the other.
    let turn = |fairness: &mut Fairness, now: &mut Moment, taken| {
        *now = now.after(Duration::from_micros(100));
        released(fairness, 2, *now);
        assert!(fairness.yields_at(*now));
        fairness.on_release(true, *now);
        let is_turn = fairness.is_turn();
        if !is_turn {
            *now = fairness.until;
        }
        fairness.paused = Some(!is_turn);
        fairness.end(taken, *now);
        is_turn
    };
    let first: Vec<bool> = (0..8).map(|_| turn(&mut fairness, &mut now, false)).collect();
    assert_eq!(first, [false, false, false, false, true, true, true, true]);
    assert!(fairness.has_listeners(now));
    // The third has the lock once: a rest ends.
    turn(&mut fairness, &mut now, true);
    assert!(!turn(&mut fairness, &mut now, false));
}

#[test]
fn others_listen_for_a_heartbeat_after_a_release_that_they_received() {
    let (mut fairness, now) = (Fairness::default(), ManualClock::START);
    released(&mut fairness, 1, now);
    assert!(fairness.has_listeners(now.after(HEARTBEAT)));
    assert!(!fairness.has_listeners(now.after(HEARTBEAT + Duration::from_nanos(1))));
}

/// And a turn that is as long as those that listen is not short: it proves that they are served.
#[test]
fn rest_ends_at_its_end() {
    for (left, unused) in [(0, 0), (1, 2)] {
        let (mut fairness, now) = (Fairness::default(), ManualClock::START);
        fairness.unused_pauses = 2;
        fairness.rest_until = now.after(Duration::from_nanos(left));
        fairness.begin_release();
        fairness.released(heard_by(1), now);
        assert_eq!(fairness.turn, if left == 0 { 1 } else { 0 });
        // Its own, and that of another.
        (0..2).for_each(|_| _ = fairness.on_release(true, now));
        fairness.paused = Some(true);
        fairness.end(false, now);
        assert_eq!(fairness.unused_pauses, unused, "{left} ns are left");
    }
}

/// Messages come late, too.
#[test]
fn message_of_its_own_release_does_not_make_a_pause_longer() {
    let (mut fairness, now) = (Fairness::default(), ManualClock::START);
    fairness.begin_release();
    fairness.released(heard_by(1), now);
    let until = fairness.until;
    let later = now.after(YIELD_TIME / 2);
    fairness.on_release(true, later);
    assert_eq!((fairness.until, fairness.is_turn()), (until, false));
    assert!(fairness.on_release(true, later));
}

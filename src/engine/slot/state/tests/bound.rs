//! What holds at the very moment that bounds it, and just after; and how often something may happen.

use super::*;
use crate::base::share::{Access, Share};
use crate::engine::slot::acquirer::AcquirerPhase;

/// Between two moments.
const STEP: Duration = Duration::from_nanos(1);

impl Bench {
    fn wait(&mut self, span: Duration) {
        self.clock.put_forward(self.now.after(span));
        self.now = self.clock.now();
    }
}

/// In number while another process waits, and in time alone while none does; or never.
#[test]
fn lease_is_passed_on_as_often_as_its_hold_allows() {
    for (most, is_wanted, expected) in [(0, false, 0), (2, false, 4), (0, true, 0), (2, true, 2)] {
        let mut bench = Bench::new(false);
        bench.options = bench.options.local_handoffs(most);
        bench.enter(ALWAYS);
        bench.grant();
        (0..4).for_each(|_| assert_eq!(bench.enter(ALWAYS), None));
        if is_wanted {
            let number = bench.state.entries[0].number;
            assert!(bench.transition(|state, step| state.on_wanted(number, 1, step)));
        }
        let mut passed = 0;
        while bench.unlock() == Unlocked::ToThread {
            passed += 1;
        }
        assert_eq!(passed, expected, "{most} at most, wanted: {is_wanted}");
    }
}

#[test]
fn slot_is_in_use_until_its_last_lease_goes() {
    let mut bench = Bench::new(true);
    bench.options = bench.options.linger(Duration::ZERO).local_handoffs(0);
    bench.enter(ALWAYS);
    bench.grant();
    bench.enter(ALWAYS);
    bench.grant();
    assert_eq!(bench.unlock(), Unlocked::Releasing);
    assert!(bench.state.announce_at < Moment::FAR, "another lease is held");
    let lease = bench.releasing.remove(0);
    bench.remove(&lease);
    assert_eq!(bench.unlock(), Unlocked::Releasing);
    assert_eq!(bench.state.announce_at, Moment::FAR);

    let mut bench = Bench::new(false);
    bench.enter(ALWAYS);
    bench.grant();
    assert_eq!(bench.unlock(), Unlocked::Lingering);
    assert!(bench.state.announce_at < Moment::FAR);
    assert!(bench.end_lingers());
    assert_eq!(bench.state.announce_at, Moment::FAR);
}

#[test]
fn slot_that_is_waited_for_is_announced_at_its_moment_and_again() {
    let mut bench = Bench::new(false);
    bench.enter(ALWAYS);
    bench.queue();
    bench.queue();
    let due = bench.slot_due;
    assert!(due < Moment::FAR);
    bench.wait(due.since(bench.now));
    let announced = bench.transition(|state, step| state.announce(due, SECOND * 20, step));
    assert!(announced && due < bench.slot_due && bench.slot_due < Moment::FAR);
}

#[test]
fn single_attempt_takes_a_reply_of_a_certain_age_for_its_own() {
    let mut bench = Bench::new(false);
    bench.enter(ALWAYS);
    bench.queue();
    bench.wait(MAX_HOLDER_AGE);
    assert_eq!(bench.enter(WaitLimit::TryOnce), Some("busy"));
    bench.wait(STEP);
    assert_eq!(bench.enter(WaitLimit::TryOnce), None, "it waits for a new reply");
}

#[test]
fn holder_is_known_for_a_while_after_a_reply() {
    let mut bench = Bench::new(false);
    bench.enter(ALWAYS);
    bench.queue();
    for (passed, is_known) in [(HELD_FOR, true), (STEP, false)] {
        bench.wait(passed);
        assert_eq!(bench.enter(ALWAYS), None);
        let admission = bench.time_out(SECOND);
        assert_eq!(matches!(admission, Admission::Busy(_)), is_known, "{admission:?}");
    }
}

#[test]
fn as_many_threads_wait_as_the_options_allow() {
    let mut bench = Bench::new(false);
    bench.options = bench.options.max_waiters(2);
    assert_eq!(bench.enter(ALWAYS), Some("acquire"));
    assert_eq!(bench.enter(WaitLimit::TryOnce), None, "it waits for a reply");
    // Beside the first, which asks, and not beside the single attempt, which waits for no holder.
    assert_eq!(bench.enter(ALWAYS), None);
    assert_eq!(bench.enter(ALWAYS), Some("crowded"));
    assert_eq!(bench.enter(WaitLimit::TryOnce), None);
}

fn is_no_reply(admission: &Admission) -> bool {
    matches!(admission, Admission::NoReply(_))
}

#[test]
fn wait_of_a_replys_usual_grace_reports_silence() {
    let mut bench = Bench::new(false);
    bench.enter(ALWAYS);
    for (passed, is_silent) in [(REPLY_GRACE - STEP, false), (STEP, true)] {
        bench.wait(passed);
        assert_eq!(bench.enter(ALWAYS), None);
        let admission = bench.time_out(Duration::ZERO);
        assert_eq!(is_no_reply(&admission), is_silent, "{admission:?}");
    }
}

#[test]
fn silence_is_longer_than_a_reply_usually_takes() {
    let mut bench = Bench::new(false);
    bench.enter(ALWAYS);
    bench.queue();
    let now = bench.now;
    assert!(bench.transition(|state, _| state.take_received(true, now)).is_none());
    for (passed, is_silent) in [(USUAL_REPLY_TIME, false), (STEP, true)] {
        bench.wait(passed);
        assert_eq!(bench.enter(ALWAYS), None);
        // It came after the reply that found a holder.
        let admission = bench.time_out(USUAL_REPLY_TIME - STEP);
        assert_eq!(is_no_reply(&admission), is_silent, "{admission:?}");
        assert_eq!(matches!(admission, Admission::Busy(_)), !is_silent, "{admission:?}");
    }
}

#[test]
fn reply_to_another_thread_since_the_begin_of_a_wait_is_no_silence() {
    let mut bench = Bench::new(true);
    bench.enter(ALWAYS);
    bench.grant();
    assert_eq!(bench.enter(ALWAYS), Some("acquire"));
    let replied_at = bench.now;
    for (passed, is_silent) in [(USUAL_REPLY_TIME, false), (STEP, true)] {
        bench.wait(passed);
        assert_eq!(bench.enter(ALWAYS), None);
        let admission = bench.time_out(bench.now.since(replied_at));
        assert_eq!(is_no_reply(&admission), is_silent, "{admission:?}");
    }
}

/// The attempts that travel along with the acquirer, which has so long for its request.
fn take_along(bench: &mut Bench, time: Duration) -> Vec<u64> {
    let (options, now, mut number) = (bench.options, bench.now, 100);
    let next = || {
        number += 1;
        number
    };
    let along = bench.transition(|state, _| state.take_along(&options, now, now.after(time), next));
    along.into_iter().map(|(number, _)| number).collect()
}

#[test]
fn request_with_less_time_than_a_reply_takes_along_those_who_have_no_more() {
    let mut bench = Bench::new(true);
    bench.enter(ALWAYS);
    assert_eq!(bench.enter(ALWAYS), None);
    assert_eq!(take_along(&mut bench, USUAL_REPLY_TIME).len(), 1);
    assert_eq!(take_along(&mut bench, USUAL_REPLY_TIME - STEP).len(), 0);

    let mut bench = Bench::new(true);
    bench.enter(ALWAYS);
    let time = USUAL_REPLY_TIME / 2;
    assert_eq!(bench.enter(WaitLimit::Until(bench.now.after(time))), None);
    assert_eq!(take_along(&mut bench, time).len(), 1);
    assert_eq!(take_along(&mut bench, time - STEP).len(), 0);
}

#[test]
fn none_travels_along_for_a_heartbeat_after_one_had_no_reply() {
    let mut bench = Bench::new(true);
    bench.enter(ALWAYS);
    assert_eq!(bench.enter(ALWAYS), None);
    let now = bench.now;
    bench.transition(|state, _| state.end_along(true, now));
    bench.wait(HEARTBEAT);
    assert_eq!(take_along(&mut bench, SECOND).len(), 0);
    bench.wait(STEP);
    assert_eq!(take_along(&mut bench, SECOND).len(), 1);
}

#[test]
fn grant_is_for_the_thread_whose_attempt_it_names() {
    let mut bench = Bench::new(true);
    bench.enter(ALWAYS);
    assert_eq!((bench.enter(ALWAYS), bench.enter(ALWAYS)), (None, None));
    let second = Arc::clone(&bench.waiting[1]);
    assert_eq!(take_along(&mut bench, SECOND), [101, 102]);
    let grant = Grant::test(SECOND * 30, bench.now);
    let clock: Arc<dyn Clock> = Arc::clone(&bench.clock) as _;
    let hold = Hold::first(bench.value(), clock, grant, &bench.options);
    assert!(!bench.transition(|state, step| state.granted_along(&hold, 103, 0, step)));
    assert!(bench.transition(|state, step| state.granted_along(&hold, 102, 0, step)));
    assert!(bench.waiting.len() == 1 && !Arc::ptr_eq(&bench.waiting[0], &second));
    assert_eq!(bench.state.entries[0].number, 102);
}

/// The message may come before the reply to the request of its attempt.
#[test]
fn message_of_those_who_wait_is_for_the_attempt_that_it_names() {
    let mut bench = Bench::new(false);
    bench.enter(ALWAYS);
    let number = bench.number;
    let wanted = |bench: &mut Bench, number| {
        bench.transition(|state, step| state.on_wanted(number, 1, step))
    };
    assert!(!wanted(&mut bench, number + 1) && wanted(&mut bench, number));
    bench.grant();
    assert!(bench.state.entries[0].demand.wanted);
}

#[test]
fn single_attempt_is_one_that_does_not_wait() {
    let mut bench = Bench::new(false);
    bench.enter(ALWAYS);
    bench.enter(ALWAYS);
    assert!(!bench.state.has_single_attempt());
    bench.enter(WaitLimit::TryOnce);
    assert!(bench.state.has_single_attempt());
}

/// To those who have waited since then, it is as good as a reply.
#[test]
fn lease_that_a_thread_has_given_up_says_that_the_lock_was_held() {
    let mut bench = Bench::new(false);
    bench.enter(ALWAYS);
    bench.grant();
    assert_eq!((bench.enter(ALWAYS), bench.enter(ALWAYS)), (None, None));
    bench.hears = false;
    bench.options = bench.options.local_handoffs(0);
    bench.wait(SECOND);
    assert_eq!(bench.unlock(), Unlocked::Releasing);
    let lease = bench.releasing.remove(0);
    bench.remove(&lease);
    let admission = bench.time_out(Duration::ZERO);
    assert!(matches!(admission, Admission::Busy(_)), "{admission:?}");
}

#[test]
fn door_is_shut_by_those_who_wait_before_it_and_not_to_read() {
    const NUMBER: u64 = 5;
    let mut bench = Bench::new(true);
    bench.enter(ALWAYS);
    let now = bench.now;
    bench.state.door.open(NUMBER, now);
    bench.queue_behind(0);
    assert!(bench.state.door.is_of(NUMBER));
    bench.queue_behind(1);
    assert!(!bench.state.door.is_of(NUMBER));

    for (is_reader, wait_limit, stays) in [
        (true, ALWAYS, true),
        (true, WaitLimit::TryOnce, true),
        (false, ALWAYS, false),
        (false, WaitLimit::TryOnce, true),
    ] {
        let mut bench = Bench::new(true);
        let access = if is_reader { Access::Read } else { Access::Write };
        bench.options = LockOptions::new().for_share(Share::Access(access));
        bench.state.door.open(NUMBER, now);
        assert_eq!(bench.enter(wait_limit), Some("acquire"));
        assert_eq!(bench.state.door.is_of(NUMBER), stays, "{is_reader} {wait_limit:?}");
    }
}

/// Else it asks at once.
#[test]
fn thread_that_takes_a_place_over_rests_for_what_is_left_of_a_heartbeat() {
    for (passed, rests) in [(HEARTBEAT - STEP, true), (HEARTBEAT, false)] {
        let mut bench = Bench::new(true);
        bench.enter(ALWAYS);
        bench.queue();
        assert_eq!(bench.enter(ALWAYS), None);
        bench.wait(passed);
        bench.stop();
        assert_eq!(bench.paused, Some(HEARTBEAT - passed));
        let phase = &bench.state.acquirer.as_ref().expect("it took over").phase;
        assert_eq!(matches!(phase, AcquirerPhase::Resting), rests, "{phase:?}");
    }
}

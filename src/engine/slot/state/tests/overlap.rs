//! Where several may hold: a lease passes to the acquirer that waits, and its place in the queue to the next thread.

use super::*;
use crate::base::share::{Access, Share};
use crate::engine::heartbeat::DEAD_AFTER;
use crate::protocol::wake_message::GrantMessage;
use crate::wire::server_clock::ClockRun;

fn permits(count: u32) -> LockOptions {
    let share = Share::Permits { count, limit: 4 };
    let mut options = LockOptions::new().lease(LeaseOption::renewed(SECOND * 30));
    options.share = share;
    options
}

/// A thread holds permits, and another one of its process has asked for as many.
fn holder_and_acquirer() -> Bench {
    let mut bench = Bench::new(true);
    bench.options = permits(2);
    bench.permits = Some(Arc::from([2, 3]));
    assert_eq!(bench.enter(ALWAYS), Some("acquire"));
    bench.grant();
    assert_eq!(bench.enter(ALWAYS), Some("acquire"));
    bench
}

/// The same, and the other one stands in the queue of Redis.
fn holder_and_waiter() -> Bench {
    let mut bench = holder_and_acquirer();
    bench.queue();
    bench
}

fn look(bench: &mut Bench, asks: bool) -> Option<Received> {
    let now = bench.now;
    bench.transition(|state, _| state.take_received(asks, now))
}

fn message(bench: &mut Bench) {
    let number = bench.state.acquirer.as_ref().unwrap().heard.number;
    let grant = GrantMessage {
        number,
        token: 2,
        micros: 1_000_000,
        window: SECOND * 2,
        waiters: 0,
        permits: None,
        run: ClockRun::default(),
    };
    bench.transition(|state, step| state.on_grant(&grant, step));
}

#[test]
fn lease_passes_to_the_acquirer_with_its_permits() {
    let mut bench = holder_and_waiter();
    let first = bench.held[0].token();
    assert_eq!(bench.unlock(), Unlocked::ToThread);
    assert!(!bench.state.is_quiet(), "the acquirer goes on pausing");
    bench.check();
    assert!(bench.stop(), "nothing was passed on");
    let hold = &bench.held[0];
    assert_eq!(hold.lease.grant.permits.as_deref(), Some([2, 3].as_slice()));
    assert!(hold.token() > first && hold.is_live());
    bench.check();
}

#[test]
fn place_goes_to_the_next_thread_for_the_rest_of_a_heartbeat() {
    let mut bench = holder_and_waiter();
    assert_eq!(bench.enter(ALWAYS), None);
    bench.clock.put_forward(bench.now.after(HEARTBEAT / 4));
    bench.now = bench.clock.now();
    assert_eq!(bench.unlock(), Unlocked::ToThread);
    assert!(bench.stop() && bench.acquires);
    assert_eq!(bench.paused, Some(HEARTBEAT * 3 / 4));
    // In its pause it can get a lease like the one before it.
    assert_eq!(bench.unlock(), Unlocked::ToThread);
    assert!(bench.stop() && !bench.acquires);
    bench.check();
}

#[test]
fn place_of_a_thread_that_gives_up_while_asking_is_used_at_once() {
    let mut bench = holder_and_waiter();
    assert_eq!(bench.enter(ALWAYS), None);
    assert!(look(&mut bench, true).is_none());
    assert!(!bench.stop() && bench.acquires);
    assert_eq!(bench.paused, Some(Duration::ZERO));
    assert_eq!(bench.unlock(), Unlocked::Releasing, "it asks now");
}

/// What may happen to a waiter, and its name.
type Case = (&'static str, fn(&mut Bench));

#[test]
fn waiter_in_an_exchange_gets_no_lease() {
    let cases: [Case; 6] = [
        ("it asks", |bench| assert!(look(bench, true).is_none())),
        ("it gives up", |bench| assert!(look(bench, false).is_none())),
        ("it fails", |bench| assert!(bench.state.take_passed().is_none())),
        ("a grant has come", message),
        ("it reads a grant", |bench| {
            message(bench);
            assert!(matches!(look(bench, true), Some(Received::Grant(_))));
        }),
        ("it begins anew", |bench| bench.state.restart(99)),
    ];
    for (case, event) in cases {
        let mut bench = holder_and_waiter();
        event(&mut bench);
        assert_eq!(bench.unlock(), Unlocked::Releasing, "{case}");
        assert!(!bench.is_passed(), "{case}");
    }
}

#[test]
fn waiter_whose_reply_came_again_gets_a_lease() {
    let mut bench = holder_and_waiter();
    assert!(look(&mut bench, true).is_none());
    bench.queue();
    assert_eq!(bench.unlock(), Unlocked::ToThread);
}

#[test]
fn waiter_outside_the_queue_gets_no_lease() {
    let mut bench = holder_and_acquirer();
    bench.transition(|state, step| state.held_elsewhere(None, None, step));
    assert_eq!(bench.unlock(), Unlocked::Releasing);
}

#[test]
fn waiter_for_fewer_gets_no_lease() {
    let mut bench = Bench::new(true);
    bench.options = permits(2);
    bench.enter(ALWAYS);
    bench.grant();
    bench.options = permits(1);
    bench.enter(ALWAYS);
    bench.queue();
    assert_eq!(bench.unlock(), Unlocked::Releasing);
}

#[test]
fn lease_is_not_passed_on_past_those_who_wait_elsewhere() {
    let number = |bench: &Bench| bench.state.entries[0].number;
    // With this process in the queue, one waiter is itself.
    for (waiters, expected) in [(1, Unlocked::ToThread), (2, Unlocked::Releasing)] {
        let mut bench = holder_and_waiter();
        let number = number(&bench);
        assert_eq!(
            bench.transition(|state, step| state.on_wanted(number, waiters, step)),
            waiters > 1
        );
        assert_eq!(bench.unlock(), expected, "{waiters} by a message");

        let mut bench = holder_and_waiter();
        bench.held[0].lease.counted(Moment::PAST, Some(waiters));
        assert_eq!(bench.unlock(), expected, "{waiters} by a renewal");
    }
    // A message that its own join has caused may come before the reply.
    for (waiters, expected) in [(1, Unlocked::ToThread), (2, Unlocked::Releasing)] {
        let mut bench = holder_and_acquirer();
        let number = number(&bench);
        bench.transition(|state, step| state.on_wanted(number, waiters, step));
        bench.queue();
        assert_eq!(bench.unlock(), expected, "{waiters} before the reply");
    }
}

#[test]
fn upgrade_of_this_process_is_not_counted() {
    let mut bench = holder_and_acquirer();
    let number = bench.state.entries[0].number;
    assert!(bench.transition(|state, step| state.begin_upgrade(1, step)));
    for (waiters, others) in [(2, 0), (3, 1)] {
        bench.transition(|state, step| state.on_wanted(number, waiters, step));
        let remote = bench.state.entries[0].demand.remote(bench.now);
        assert_eq!(remote, others, "with the acquirer and the upgrade, {waiters} wait");
    }
}

/// Nobody tells that a waiter has given up, or died: its heartbeats are missed.
#[test]
fn count_of_waiters_ends_without_a_heartbeat() {
    let mut bench = Bench::new(true);
    bench.enter(ALWAYS);
    bench.grant();
    let number = bench.state.entries[0].number;
    for waiters in [3, 1] {
        bench.transition(|state, step| state.on_wanted(number, waiters, step));
        assert_eq!(bench.state.waiters(bench.now), waiters as usize);
        bench.now = bench.now.after(DEAD_AFTER - Duration::from_nanos(1));
        assert_eq!(bench.state.waiters(bench.now), waiters as usize, "it may be late");
    }
    bench.now = bench.now.after(Duration::from_nanos(1));
    assert_eq!(bench.state.waiters(bench.now), 0);
    // It has had a waiter all the same (rule 18).
    assert!(bench.state.entries[0].demand.wanted);
    bench.clock.put_forward(bench.now);
    bench.held[0].lease.counted(Moment::PAST, Some(2));
    bench.transition(|state, step| state.end_lingers(|_, _| false, step));
    assert_eq!(bench.state.waiters(bench.now), 2, "by a renewal");
}

/// The message of the waiter before it does not count it, and comes while it asks.
#[test]
fn reply_tells_of_those_who_stand_before_the_acquirer() {
    for (ahead, expected) in [(0, Unlocked::ToThread), (1, Unlocked::Releasing)] {
        let mut bench = holder_and_acquirer();
        let number = bench.state.entries[0].number;
        bench.transition(|state, step| state.on_wanted(number, 1, step));
        bench.queue_behind(ahead);
        assert_eq!(bench.unlock(), expected, "{ahead} before it");
    }
    // One of them is an upgrade of this process.
    for (ahead, others) in [(1, 0), (2, 1)] {
        let mut bench = holder_and_acquirer();
        assert!(bench.transition(|state, step| state.begin_upgrade(1, step)));
        bench.queue_behind(ahead);
        assert_eq!(bench.state.entries[0].demand.remote(bench.now), others);
    }
}

#[test]
fn lease_passes_to_the_queue_while_the_acquirer_asks() {
    let mut bench = holder_and_acquirer();
    assert_eq!(bench.enter(ALWAYS), None);
    assert_eq!(bench.unlock(), Unlocked::ToThread);
    assert_eq!((bench.held.len(), bench.waiting.len()), (1, 0));
    // Once the acquirer has a place, none overtakes it.
    bench.enter(ALWAYS);
    bench.queue();
    assert!(look(&mut bench, true).is_none());
    assert_eq!(bench.unlock(), Unlocked::Releasing);
    bench.check();
}

#[test]
fn no_reader_passes_an_upgrade_of_its_process() {
    let mut bench = Bench::new(true);
    bench.options.share = Share::Access(Access::Read);
    assert_eq!(bench.enter(ALWAYS), Some("acquire"));
    // It waits in Redis by the time that the reply to a reader before it comes.
    assert!(bench.transition(|state, step| state.begin_upgrade(1, step)));
    bench.grant();
    assert_eq!(bench.enter(ALWAYS), Some("acquire"), "the door is open");
    assert_eq!(bench.enter(ALWAYS), None);
    assert_eq!(bench.unlock(), Unlocked::Releasing, "passed on");
}

#[test]
fn deaf_client_passes_no_permits_on() {
    let mut bench = holder_and_waiter();
    bench.hears = false;
    assert_eq!(bench.unlock(), Unlocked::Releasing);
}

#[test]
fn lease_passes_for_a_second_only() {
    let mut bench = holder_and_waiter();
    for _ in 0..40 {
        assert_eq!(bench.enter(ALWAYS), None);
    }
    let began = bench.now;
    let mut passed = 0;
    while bench.unlock() == Unlocked::ToThread {
        assert!(bench.stop());
        bench.queue();
        bench.clock.put_forward(bench.now.after(SECOND / 20));
        bench.now = bench.clock.now();
        passed += 1;
    }
    assert!(passed > 10 && bench.now.since(began) <= SECOND, "{passed}");
}

#[test]
fn passed_lease_is_a_hold_while_the_client_closes() {
    for (closing, is_taken) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut bench = holder_and_waiter();
        assert_eq!(bench.unlock(), Unlocked::ToThread);
        bench.closing = closing;
        if is_taken {
            let taken = bench.state.take_received(true, bench.now);
            let Some(Received::Hold(hold)) = taken else { panic!("{taken:?}") };
            bench.held.push(hold);
        }
        assert_eq!(bench.state.waiters(bench.now), 0, "it has what it waited for");
        assert_eq!(bench.transition(|state, step| state.cancel(step)), 0);
        assert!(!bench.state.is_cancelled() && bench.state.holds().len() == 1);
        assert_eq!(bench.stop(), !is_taken);
        assert!(bench.held[0].is_live());
        bench.check();
    }
}

#[test]
fn cancelled_waiter_gets_no_lease() {
    for closing in [false, true] {
        let mut bench = holder_and_waiter();
        bench.closing = closing;
        assert_eq!(bench.transition(|state, step| state.cancel(step)), 1);
        assert_eq!(bench.unlock(), Unlocked::Releasing);
        assert!(bench.state.is_cancelled());
    }
}

/// Its thread may have found no grant, and fails, when the lease comes.
#[test]
fn failing_acquirer_takes_the_lease_that_was_passed_to_it() {
    let mut bench = holder_and_waiter();
    assert_eq!(bench.unlock(), Unlocked::ToThread);
    let hold = bench.state.take_passed().expect("a hold");
    assert!(hold.is_live() && bench.state.take_passed().is_none());
    // And no other afterwards, which nobody would have.
    bench.held.push(hold);
    assert_eq!(bench.unlock(), Unlocked::Releasing);
}

#[test]
fn single_attempt_behind_a_larger_waiter_is_busy() {
    let mut bench = Bench::new(true);
    bench.options = permits(4);
    bench.enter(ALWAYS);
    bench.queue();
    bench.options = permits(1);
    assert_eq!(bench.enter(WaitLimit::TryOnce), Some("busy"), "a waiter is not overtaken");
}

#[test]
fn smaller_single_attempt_gets_its_own_request() {
    let mut bench = Bench::new(true);
    bench.options = permits(3);
    assert_eq!(bench.enter(WaitLimit::TryOnce), Some("acquire"));
    for count in [4, 3, 2] {
        bench.options = permits(count);
        assert_eq!(bench.enter(WaitLimit::TryOnce), None);
    }
    bench.queue();
    assert_eq!(bench.waiting.len(), 1, "the reply holds for as many and for more");
    assert!(!bench.stop() && bench.acquires, "the one for two asks by itself");
    bench.grant();
    bench.check();
}

#[test]
fn end_of_a_lost_upgrade_leaves_the_next_one_waiting() {
    let mut bench = holder_and_acquirer();
    assert!(bench.transition(|state, step| state.begin_upgrade(1, step)));
    assert!(bench.transition(|state, step| state.begin_upgrade(2, step)));
    bench.transition(|state, _| state.end_upgrade(1));
    assert!(bench.state.upgrader.is_some());
    bench.transition(|state, _| state.end_upgrade(2));
    assert!(bench.state.upgrader.is_none());
}

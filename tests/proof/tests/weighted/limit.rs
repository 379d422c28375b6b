//! The limit of a semaphore: what is declared, and what is in force (rule 33).

use crate::lab::{Lab, TTL, on_both, permits};
use crate::request::{Attempt, LOCK, Mode, Reply, Says};

#[test]
pub(crate) fn another_declared_limit_is_refused_while_in_use() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        lab.limit = 3;
        for mode in [Mode::Try, Mode::Join] {
            assert_eq!(lab.acquire(permits(1, 1), mode), Reply::Config { declared: 2, limit: 2 });
        }
        lab.limit = 2;
        lab.release(permits(0, 1));
        lab.limit = 3;
        assert!(
            matches!(lab.acquire(permits(1, 1), Mode::Try), Reply::Config { declared: 2, .. }),
            "and for a while after"
        );
        let Ok(left) = u32::try_from(lab.content().left[0]) else { panic!("it ends") };
        assert!(left > 0);
    });
}

#[test]
pub(crate) fn requests_are_compared_with_what_was_declared() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        assert_eq!(lab.resize(3), Reply::Done(0));
        assert_eq!(lab.take(permits(1, 2)).1, [1, 2]);
    });
}

/// Rule 34: they hold no more than the limit, so they have nothing to give back.
#[test]
pub(crate) fn holders_are_not_told_of_a_limit_that_they_fill() {
    on_both(4, |lab| {
        lab.take(permits(0, 2));
        lab.messages();
        lab.resize(2);
        assert_eq!(lab.messages(), []);
        lab.resize(1);
        assert_eq!(lab.messages().len(), 1);
    });
}

#[test]
pub(crate) fn larger_limit_lets_those_in_who_fit() {
    on_both(1, |lab| {
        lab.take(permits(0, 1));
        lab.wait(permits(1, 1));
        lab.wait(permits(2, 1));
        lab.messages();
        assert_eq!(lab.resize(3), Reply::Done(0));
        assert_eq!(lab.granted(), [(1, 1), (2, 1)]);
    });
}

#[test]
pub(crate) fn smaller_limit_grants_nobody_until_it_fits() {
    on_both(3, |lab| {
        for client in [0, 1, 2] {
            lab.take(permits(client, 1));
        }
        lab.wait(permits(3, 1));
        lab.messages();
        assert_eq!(lab.resize(1), Reply::Done(0));
        // Rule 34: holders learn of it, by a message or a renewal.
        // One besides the waiter, which may be of the holder's own client.
        let wanted = Says::Wanted { waiters: 2 };
        let messages = lab.messages().into_iter().filter(|it| it.says == wanted);
        assert_eq!(messages.map(|it| it.client).collect::<Vec<_>>(), [0, 1, 2]);
        lab.release(permits(3, 1));
        assert_eq!(lab.renew(permits(0, 1)), Reply::Done(1));
        lab.wait(permits(3, 1));
        for client in [0, 1] {
            lab.messages();
            lab.release(permits(client, 1));
            assert_eq!(lab.granted(), []);
        }
        assert_eq!(lab.renew(permits(2, 1)), Reply::Done(1));
        lab.release(permits(2, 1));
        assert_eq!(lab.granted(), [(3, 1)]);
        assert_eq!(lab.content().holders[0].slots, [0]);
    });
}

/// Rule 34: a message is for all that a client holds, however many others hold before it.
#[test]
pub(crate) fn each_client_is_told_of_a_lower_limit_once() {
    on_both(301, |lab| {
        (1..=300).for_each(|number| _ = lab.take(Attempt { number, ..permits(0, 1) }));
        lab.take(permits(1, 1));
        lab.messages();
        assert_eq!(lab.resize(1), Reply::Done(0));
        let told = lab.messages().into_iter().filter(|it| it.says == Says::Wanted { waiters: 1 });
        assert_eq!(told.map(|it| it.client).collect::<Vec<_>>(), [0, 1]);
    });
}

/// It would block the line for ever.
#[test]
pub(crate) fn waiter_above_the_limit_is_told_and_taken_out() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        lab.wait(permits(1, 2));
        lab.wait(permits(2, 1));
        lab.messages();
        assert_eq!(lab.resize(1), Reply::Done(0));
        let messages = lab.messages();
        assert!(messages.iter().any(|it| it.client == 1 && it.says == Says::TooHeavy { limit: 1 }));
        assert_eq!(lab.waiting(), 1);
        let refused = Reply::Config { declared: 2, limit: 1 };
        assert_eq!(lab.acquire(permits(1, 2), Mode::Join), refused);
        assert_eq!(lab.acquire(permits(1, 2), Mode::Beat), refused);
        lab.release(permits(0, 1));
        assert_eq!(lab.granted(), [(2, 1)]);
    });
}

#[test]
pub(crate) fn resize_while_nobody_uses_it_is_in_force_for_a_while() {
    on_both(2, |lab| {
        assert_eq!(lab.resize(1), Reply::Done(0));
        assert_eq!(lab.acquire(permits(0, 2), Mode::Try), Reply::Config { declared: 2, limit: 1 });
        lab.take(permits(0, 1));
    });
}

#[test]
pub(crate) fn holder_above_a_smaller_limit_is_granted_again() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        lab.resize(1);
        assert!(matches!(lab.acquire(permits(0, 2), Mode::Join), Reply::Granted { .. }));
        assert_eq!(lab.content().used, 2, "what is held is never cut");
    });
}

/// In ms. No lease is that long.
const KEPT: u32 = 40 * TTL;

/// What an operator has limited stays so for as long as the resize says, whatever was done last.
#[track_caller]
fn is_kept(lab: &mut Lab, what: &str, use_it: impl FnOnce(&mut Lab)) {
    lab.ask(&["PEXPIRE", LOCK, &(2 * TTL).to_string()]);
    use_it(lab);
    let left = lab.content().left[0];
    // A real clock goes on.
    assert!(left > i64::from(KEPT - TTL), "after {what} it is kept for {left} ms");
}

#[test]
pub(crate) fn limit_of_a_resize_is_kept_after_each_use() {
    on_both(2, |lab| {
        is_kept(lab, "the first resize", |lab| assert_eq!(lab.resize_for(1, KEPT), Reply::Done(0)));
        is_kept(lab, "a first grant", |lab| _ = lab.take(permits(0, 1)));
        is_kept(lab, "a renewal", |lab| assert_eq!(lab.renew(permits(0, 1)), Reply::Done(0)));
        is_kept(lab, "a repeated request", |lab| _ = lab.take(permits(0, 1)));
        is_kept(lab, "a wait", |lab| lab.wait(permits(1, 1)));
        is_kept(lab, "a hand-over", |lab| _ = lab.release(permits(0, 1)));
        is_kept(lab, "a release", |lab| _ = lab.release(permits(1, 1)));
        is_kept(lab, "a resize", |lab| _ = lab.resize_for(2, KEPT));
        lab.take(permits(0, 1));
        is_kept(lab, "a grant beside another", |lab| _ = lab.take(permits(1, 1)));
        is_kept(lab, "a forced release", |lab| _ = lab.force(permits(1, 1)));
        lab.resize_for(0, KEPT);
        lab.release(permits(0, 1));
        let stopped = Reply::Config { declared: 2, limit: 0 };
        for mode in [Mode::Try, Mode::Join] {
            is_kept(lab, "a request", |lab| assert_eq!(lab.acquire(permits(2, 1), mode), stopped));
        }
    });
}

/// A time that was named in error is mended once nobody uses the lock, and no lease is cut.
#[test]
pub(crate) fn later_resize_shortens_the_time_of_a_lock_that_nobody_uses() {
    on_both(2, |lab| {
        lab.resize_for(1, KEPT);
        lab.resize_for(1, TTL / 2);
        assert!(lab.content().left[0] <= i64::from(TTL / 2));
        lab.take(permits(0, 1));
        lab.resize_for(2, 1);
        assert!(lab.content().left[0] > i64::from(TTL / 2));
        lab.release(permits(0, 1));
        lab.take(permits(0, 2));
    });
}

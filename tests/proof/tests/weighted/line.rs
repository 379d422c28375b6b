//! The line: who is granted, and in which order.

use crate::lab::{Lab, on_both, permits, reader, upgradable, writer};
use crate::request::{ALL, Attempt, Message, Mode, Reply, Request, Says};

/// Rule 27.
#[test]
pub(crate) fn small_request_does_not_overtake_a_large_one() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        lab.wait(permits(1, 2));
        // One permit is free, and the next in the line wants two.
        lab.wait(permits(2, 1));
        assert!(matches!(lab.acquire(permits(3, 1), Mode::Try), Reply::Busy { .. }));
        assert!(matches!(lab.acquire(permits(2, 1), Mode::Beat), Reply::Busy { ahead: 1, .. }));
        lab.release(permits(0, 1));
        assert_eq!(lab.granted(), [(1, 1)]);
        lab.release(permits(1, 2));
        assert_eq!(lab.granted(), [(2, 1)]);
    });
}

/// Rule 27.
#[test]
pub(crate) fn release_grants_all_who_fit_side_by_side() {
    on_both(ALL, |lab| {
        lab.take(writer(0));
        for client in [1, 2, 3] {
            lab.wait(reader(client));
        }
        lab.wait(writer(4));
        lab.wait(reader(5));
        lab.messages();
        lab.release(writer(0));
        let granted: Vec<Message> = lab.messages();
        let clients: Vec<u8> = granted
            .iter()
            .filter(|it| matches!(it.says, Says::Granted { .. }))
            .map(|it| it.client)
            .collect();
        assert_eq!(clients, [1, 2, 3], "the reader behind the writer waits for it");
        let tokens: Vec<u64> = granted
            .iter()
            .filter_map(|it| match it.says {
                Says::Granted { token, .. } => Some(token),
                _ => None,
            })
            .collect();
        assert!(tokens.is_sorted_by(|one, next| one < next), "each has its own: {tokens:?}");
        assert_eq!(lab.waiting(), 2);
    });
}

/// Rules 18, 39: a client that counted those who come in beside it would keep its door shut for nobody.
#[test]
pub(crate) fn grants_count_those_who_wait_after_the_last_of_them() {
    for is_another_behind in [false, true] {
        for (limit, holder, granted, behind) in [
            (ALL, writer(0), reader as fn(u8) -> Attempt, writer(4)),
            (3, permits(0, 3), |client| permits(client, 1), permits(4, 1)),
        ] {
            on_both(limit, |lab| {
                lab.take(holder);
                (1..4).for_each(|client| lab.wait(granted(client)));
                if is_another_behind {
                    lab.wait(behind);
                }
                lab.messages();
                lab.release(holder);
                let waiters = |it: Message| match it.says {
                    Says::Granted { waiters, .. } => Some(waiters),
                    _ => None,
                };
                let counted: Vec<_> = lab.messages().into_iter().filter_map(waiters).collect();
                assert_eq!(counted, [u32::from(is_another_behind); 3]);
            });
        }
    }
}

/// Rule 27: the rest is granted when it asks.
#[test]
pub(crate) fn very_many_are_granted_in_several_scripts() {
    on_both(ALL, |lab| {
        lab.take(writer(0));
        let waiter = |number| crate::request::Attempt { number, ..reader(1) };
        for number in 1..=70 {
            lab.wait(waiter(number));
        }
        lab.messages();
        lab.release(writer(0));
        assert_eq!(lab.granted().len(), 64);
        assert!(matches!(lab.acquire(waiter(68), Mode::Beat), Reply::Granted { .. }));
        assert_eq!((lab.granted().len(), lab.waiting()), (5, 0));
    });
}

/// Rule 7.
#[test]
pub(crate) fn window_is_the_waiters_own() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        let waiter = crate::request::Attempt { window: 3_000, ..permits(1, 1) };
        lab.wait(waiter);
        lab.messages();
        lab.release(permits(0, 2));
        let [
            Message {
                client: 1,
                says: Says::Granted { window: 3_000, at, waiters: 0, slots, .. },
                ..
            },
        ] = &lab.messages()[..]
        else {
            panic!("one message")
        };
        assert_eq!(slots, &[0]);
        assert_eq!(lab.content().holders[0].ends, at + 3_000_000);
    });
}

/// Rules 8, 11, 40.
#[test]
pub(crate) fn dead_waiter_is_passed_over_and_keeps_its_place() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        lab.wait(permits(1, 2));
        lab.wait(permits(2, 1));
        lab.kill(permits(1, 2));
        assert!(matches!(lab.acquire(permits(2, 1), Mode::Beat), Reply::Granted { .. }));
        assert!(lab.messages().iter().any(|it| it.client == 1 && it.says == Says::Retry));
        // A newcomer stands behind it, once it is heard of.
        lab.wait(permits(3, 1));
        assert!(matches!(lab.acquire(permits(1, 2), Mode::Beat), Reply::Busy { ahead: 0, .. }));
        lab.release(permits(0, 1));
        lab.release(permits(2, 1));
        assert_eq!(lab.granted(), [(1, 1)]);
    });
}

/// Rule 12.
#[test]
pub(crate) fn waiter_that_nobody_hears_is_passed_over() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        lab.wait(permits(1, 2));
        lab.wait(permits(2, 1));
        lab.deafen(1);
        lab.messages();
        lab.release(permits(0, 2));
        assert_eq!(lab.granted(), [(2, 1)]);
    });
}

/// Rule 28: the message may have been heard at a replica.
#[test]
pub(crate) fn published_grant_stays() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        lab.wait(permits(1, 1));
        lab.wait(permits(2, 1));
        lab.release(permits(0, 2));
        let content = lab.content();
        assert!(content.holder(permits(1, 1)).is_some() && content.holder(permits(2, 1)).is_some());
        assert_eq!(lab.granted(), [(1, 1), (2, 1)]);
    });
}

/// Rule 28: a node counts its own listeners alone.
#[test]
pub(crate) fn grant_in_a_cluster_stays_whoever_is_counted() {
    on_both(2, |lab| {
        lab.is_cluster = true;
        lab.take(permits(0, 2));
        lab.wait(permits(1, 1));
        lab.deafen(1);
        lab.release(permits(0, 2));
        assert!(lab.content().holder(permits(1, 1)).is_some());
    });
}

/// Rule 24: nobody's message is needed.
#[test]
pub(crate) fn beat_takes_what_an_ended_lease_gives_back() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        lab.wait(permits(1, 1));
        lab.wait(permits(2, 1));
        lab.end(permits(0, 2));
        // Also for the others.
        assert!(matches!(lab.acquire(permits(2, 1), Mode::Beat), Reply::Granted { .. }));
        assert_eq!(lab.granted(), [(1, 1)]);
        assert!(matches!(lab.acquire(permits(1, 1), Mode::Beat), Reply::Granted { .. }));
    });
}

/// Rule 1.
#[test]
pub(crate) fn beat_of_a_forgotten_waiter_neither_joins_nor_takes() {
    on_both(2, |lab| {
        assert_eq!(lab.acquire(permits(0, 1), Mode::Beat), Reply::Gone);
        lab.take(permits(0, 2));
        assert_eq!(lab.acquire(permits(1, 1), Mode::Beat), Reply::Gone);
        assert_eq!((lab.waiting(), lab.content().used), (0, 2));
    });
}

/// Rule 5: what is left behind would be granted to nobody.
#[test]
pub(crate) fn waiter_that_leaves_lets_those_behind_it_in() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        lab.wait(permits(1, 2));
        lab.wait(permits(2, 1));
        lab.messages();
        assert_eq!(lab.release(permits(1, 2)), Reply::NotHeld);
        assert_eq!(lab.granted(), [(2, 1)]);
        assert_eq!(lab.waiting(), 0);
    });
}

#[test]
pub(crate) fn holders_are_told_that_somebody_waits() {
    on_both(ALL, |lab| {
        lab.take(reader(0));
        lab.take(reader(1));
        lab.wait(writer(2));
        let clients: Vec<u8> = lab
            .messages()
            .iter()
            .filter(|it| it.says == Says::Wanted { waiters: 1 })
            .map(|it| it.client)
            .collect();
        assert_eq!(clients, [0, 1]);
        lab.wait(writer(3));
        assert_eq!(lab.messages(), [], "by the first in the line alone");
        // Rule 39: who was not told asks.
        assert_eq!(lab.renew(reader(0)), Reply::Done(2));
        // The dead wait for nothing, although they stand in the line still.
        lab.kill(writer(3));
        assert_eq!(lab.renew(reader(0)), Reply::Done(1));
    });
}

#[test]
pub(crate) fn upgradable_reader_is_alone_among_its_kind() {
    on_both(ALL, |lab| {
        lab.take(reader(0));
        lab.take(upgradable(1));
        lab.take(reader(2));
        lab.wait(upgradable(3));
        // Rule 27 holds for a reader behind it, too.
        lab.wait(reader(4));
        lab.messages();
        lab.release(upgradable(1));
        assert_eq!(lab.granted(), [(3, 1), (4, 1)]);
    });
}

/// Rule 40: a newcomer that comes first after a crash does not take what the living wait for.
#[test]
pub(crate) fn newcomer_serves_those_who_wait_before_itself() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        lab.wait(permits(1, 2));
        lab.end(permits(0, 2));
        lab.messages();
        for mode in [Mode::Try, Mode::Join] {
            assert!(matches!(lab.acquire(permits(2, 1), mode), Reply::Busy { .. }), "{mode:?}");
        }
        assert_eq!(lab.granted(), [(1, 1)]);
    });
}

#[test]
pub(crate) fn those_not_heard_of_for_long_are_forgotten() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        for client in [1, 2] {
            lab.wait(permits(client, 1));
        }
        let long_ago = (lab.now() - 400_000_000).to_string();
        lab.ask(&["ZADD", crate::request::SIGNS, &long_ago, &permits(1, 1).text()]);
        let beat = lab.acquire_request(permits(2, 1), Mode::Beat);
        assert!(matches!(beat, Request::Acquire { line: 300_000, .. }));
        assert!(matches!(lab.run(&beat), Reply::Busy { .. }));
        assert_eq!(lab.waiting(), 1);
        assert_eq!(lab.acquire(permits(1, 1), Mode::Beat), Reply::Gone);
    });
}

/// Rules 1, 2: it was sent before the join, and came after it.
#[test]
pub(crate) fn late_try_of_a_waiter_does_not_make_it_hold_and_wait() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        lab.wait(permits(1, 1));
        assert!(matches!(lab.acquire(permits(1, 1), Mode::Try), Reply::Busy { .. }));
        assert_eq!(lab.waiting(), 1);
        lab.kill(permits(1, 1));
        lab.end(permits(0, 2));
        assert!(matches!(lab.acquire(permits(1, 1), Mode::Try), Reply::Granted { .. }));
        assert_eq!(lab.waiting(), 0);
    });
}

/// Its hold has ended, and its join was repeated: it is granted by a message, with its window.
#[test]
pub(crate) fn change_of_an_attempt_that_waits_grants_it_like_any_other() {
    on_both(ALL, |lab| {
        lab.take(reader(0));
        lab.wait(writer(1));
        lab.end(reader(0));
        lab.messages();
        let change = lab.change(writer(1), 1, crate::request::Become::Reader);
        assert_eq!(change, Reply::NotHeld);
        assert_eq!(lab.granted(), [(1, 1)]);
        let holder = lab.content().holders.remove(0);
        let now = lab.now();
        assert!(holder.ends > now + 1_000_000, "{holder:?} at {now}");
    });
}

/// A client whose threads keep the lock busy has a place of its own before the others, and would never hear of them.
#[test]
pub(crate) fn waiter_behind_the_holders_own_client_tells_them() {
    on_both(2, |lab| {
        let told = |lab: &mut Lab| {
            let wanted = |it: &Message| match it.says {
                Says::Wanted { waiters } => Some((it.client, it.number, waiters)),
                _ => None,
            };
            lab.messages().iter().filter_map(wanted).collect::<Vec<_>>()
        };
        lab.take(permits(0, 1));
        lab.take(permits(1, 1));
        lab.wait(Attempt { number: 2, ..permits(0, 1) });
        lab.wait(Attempt { number: 2, ..permits(1, 1) });
        lab.messages();
        lab.wait(permits(2, 1));
        assert_eq!(told(lab), [(0, 1, 3), (1, 1, 3)]);
        lab.acquire(permits(2, 1), Mode::Beat);
        assert_eq!(told(lab), [(0, 1, 3), (1, 1, 3)], "a heartbeat tells it again");
        // That one has told them.
        lab.wait(permits(3, 1));
        assert_eq!(told(lab), []);
    });
}

/// It looks at so many places of holders' clients before its own, and no further.
#[test]
pub(crate) fn waiter_behind_33_places_of_holders_tells_nobody() {
    on_both(1, |lab| {
        lab.take(permits(0, 1));
        for number in 2..=33 {
            lab.wait(Attempt { number, ..permits(0, 1) });
        }
        lab.messages();
        lab.wait(permits(1, 1));
        assert_eq!(lab.messages().len(), 1, "behind 32");
        lab.release(permits(1, 1));
        lab.wait(Attempt { number: 34, ..permits(0, 1) });
        lab.messages();
        lab.wait(permits(2, 1));
        assert_eq!(lab.messages(), [], "behind 33");
    });
}

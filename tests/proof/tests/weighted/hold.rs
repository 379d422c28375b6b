//! Holders: what they are given, and how they end.

use ::redis::Value;

use crate::lab::{Lab, TTL, on_both, permits, reader, upgradable, writer};
use crate::request::{ALL, FENCE, KEYS, Mode, Reply, Request, Says, command};
use crate::script::Name;

/// What is left of a lease that was just granted, in ms.
fn is_whole(left: i64) -> bool {
    (i64::from(TTL) - 20_000..=i64::from(TTL)).contains(&left)
}

#[test]
pub(crate) fn weights_add_up_to_the_limit_and_no_further() {
    on_both(3, |lab| {
        lab.take(permits(0, 2));
        lab.take(permits(1, 1));
        assert!(
            matches!(lab.acquire(permits(2, 1), Mode::Try), Reply::Busy { left, ahead: 0 } if is_whole(left))
        );
        assert_eq!(lab.release(permits(0, 2)), Reply::Done(0));
        assert_eq!(lab.take(permits(2, 2)).1, [0, 1]);
        assert_eq!(lab.content().used, 3);
    });
}

#[test]
pub(crate) fn readers_share_and_a_writer_excludes_all() {
    on_both(ALL, |lab| {
        lab.take(reader(0));
        lab.take(reader(1));
        assert!(matches!(lab.acquire(writer(2), Mode::Try), Reply::Busy { .. }));
        assert_eq!(lab.release(reader(0)), Reply::Done(0));
        assert_eq!(lab.release(reader(1)), Reply::Done(0));
        lab.take(writer(2));
        assert!(matches!(lab.acquire(reader(0), Mode::Try), Reply::Busy { .. }));
        lab.release(writer(2));
        assert_eq!(lab.content().left[0], -2, "nothing is left");
    });
}

/// Rule 2.
#[test]
pub(crate) fn request_past_its_deadline_does_nothing() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        let deadline = lab.now() - 1;
        let Request::Acquire { attempt, ttl, mode, dies_after, line, limit, .. } =
            lab.acquire_request(permits(1, 1), Mode::Join)
        else {
            unreachable!()
        };
        let late = Request::Acquire { attempt, ttl, mode, deadline, dies_after, line, limit };
        assert_eq!(lab.run(&late), Reply::Late);
        assert_eq!(lab.waiting(), 0);
        let force = Request::Force { attempt: permits(0, 2), deadline, ttl };
        assert_eq!(lab.run(&force), Reply::Late);
        assert_eq!(
            lab.run(&Request::Resize { limit: 1, declared: 2, deadline, ttl, keep: ttl }),
            Reply::Late
        );
        assert_eq!(lab.content().limit, 2);
    });
}

/// Rules 3, 29.
#[test]
pub(crate) fn repeated_request_has_the_same_slots_and_its_weight_once() {
    on_both(4, |lab| {
        lab.take(permits(0, 1));
        let (first, slots) = lab.take(permits(1, 2));
        lab.release(permits(0, 1));
        let Reply::Granted { token, left, slots: again, .. } =
            lab.acquire(permits(1, 2), Mode::Join)
        else {
            panic!("it holds")
        };
        assert_eq!((again, slots), (vec![1, 2], vec![1, 2]));
        assert!(token > first && is_whole(left));
        assert_eq!(lab.content().used, 2);
    });
}

/// Rule 3: what is returned is what Redis keeps.
#[test]
pub(crate) fn repeated_request_makes_the_lease_whole() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        lab.wait(permits(1, 1));
        let before = lab.now();
        let Reply::Granted { left, .. } = lab.acquire(permits(0, 2), Mode::Join) else {
            panic!("it holds")
        };
        let kept = lab.content().holders[0].ends;
        assert!(kept >= before + 1_000 * left.unsigned_abs(), "{left}");
        let shorter = match lab.acquire_request(permits(0, 2), Mode::Join) {
            Request::Acquire { attempt, mode, deadline, dies_after, line, limit, .. } => {
                Request::Acquire { attempt, ttl: 50, mode, deadline, dies_after, line, limit }
            }
            _ => unreachable!(),
        };
        assert!(matches!(lab.run(&shorter), Reply::Granted { left, .. } if is_whole(left)));
        assert_eq!(lab.content().holders[0].ends, kept, "no script shortens a lease");
    });
}

/// Rules 23, 24: its weight comes back once, with the lease.
#[test]
pub(crate) fn weight_of_an_ended_lease_comes_back_once() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        lab.take(permits(1, 1));
        lab.end(permits(0, 1));
        lab.take(permits(2, 1));
        assert_eq!(lab.release(permits(0, 1)), Reply::NotHeld);
        assert_eq!(lab.content().used, 2);
        assert!(matches!(lab.acquire(permits(3, 1), Mode::Try), Reply::Busy { .. }));
    });
}

/// Rule 24: the others' leases have nothing to do with it.
#[test]
pub(crate) fn ended_lease_among_living_ones_gives_its_weight() {
    on_both(ALL, |lab| {
        lab.take(reader(0));
        lab.take(reader(1));
        lab.end(reader(0));
        lab.wait(writer(2));
        assert_eq!(lab.content().used, 1);
        lab.end(reader(1));
        assert!(matches!(lab.acquire(writer(2), Mode::Beat), Reply::Granted { .. }));
    });
}

/// Rule 25.
#[test]
pub(crate) fn renewal_neither_makes_nor_revives_a_holder() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        assert_eq!(lab.renew(permits(0, 1)), Reply::Done(0));
        lab.release(permits(0, 1));
        assert_eq!(lab.renew(permits(0, 1)), Reply::NotHeld);
        assert!(lab.content().holders.is_empty());
        lab.take(permits(1, 1));
        lab.end(permits(1, 1));
        assert_eq!(lab.renew(permits(1, 1)), Reply::NotHeld);
        assert!(lab.content().holders[0].ends < lab.now());
    });
}

/// Rule 14.
#[test]
pub(crate) fn renewal_never_shortens_a_lease() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        let ends = lab.content().holders[0].ends;
        assert_eq!(lab.run(&Request::Renew { attempt: permits(0, 1), ttl: 10 }), Reply::Done(0));
        assert_eq!(lab.content().holders[0].ends, ends);
    });
}

/// Rule 26.
#[test]
pub(crate) fn shorter_lease_shortens_no_key_of_a_longer_one() {
    on_both(3, |lab| {
        lab.take(permits(0, 1));
        let short = |attempt, mode| match Lab::in_memory(3).acquire_request(attempt, mode) {
            Request::Acquire { attempt, mode, deadline, dies_after, line, limit, .. } => {
                Request::Acquire { attempt, ttl: 2_000, mode, deadline, dies_after, line, limit }
            }
            _ => unreachable!(),
        };
        // `run` compares the ends of the keys with the leases.
        for attempt in [permits(1, 1), permits(2, 1), permits(3, 1)] {
            lab.run(&short(attempt, Mode::Join));
        }
        lab.run(&short(permits(1, 1), Mode::Beat));
        lab.run(&Request::Release { attempt: permits(1, 1), ttl: 2_000, last_token: 1 << 52 });
        lab.run(&Request::Renew { attempt: permits(2, 1), ttl: 2_000 });
        assert_eq!(
            lab.content().token,
            (1 << 52) + 1,
            "the waiter's is above the one that was used"
        );
    });
}

/// Rules 32, 19.
#[test]
pub(crate) fn every_grant_has_a_token_above_all_earlier_ones() {
    on_both(ALL, |lab| {
        lab.ask(&["SET", FENCE, "4000000000000000", "PX", "100000"]);
        let mut last = 4_000_000_000_000_000;
        for attempt in [reader(0), reader(1), reader(0), reader(2)] {
            let (token, _) = lab.take(attempt);
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        assert_eq!(lab.content().token, last);
    });
}

#[test]
pub(crate) fn touch_writes_only_for_a_holder() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        assert_eq!(lab.run(&Request::Touch { attempt: permits(0, 1) }), Reply::Done(0));
        assert_eq!(lab.run(&Request::Touch { attempt: permits(1, 1) }), Reply::NotHeld);
        lab.end(permits(0, 1));
        assert_eq!(lab.run(&Request::Touch { attempt: permits(0, 1) }), Reply::NotHeld);
    });
}

#[test]
pub(crate) fn evicted_holder_is_told_and_the_next_is_served() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        lab.wait(permits(1, 2));
        lab.messages();
        assert_eq!(lab.force(permits(2, 1)), Reply::NotHeld);
        assert_eq!(lab.force(permits(1, 2)), Reply::NotHeld, "a waiter is no holder");
        assert_eq!(lab.force(permits(0, 2)), Reply::Done(0));
        let messages = lab.messages();
        assert!(messages.iter().any(|it| it.client == 0 && it.says == Says::Evicted));
        assert!(lab.content().holder(permits(1, 2)).is_some(), "{messages:?}");
    });
}

/// Rule 42.
#[test]
pub(crate) fn transaction_runs_for_a_holder_alone() {
    on_both(ALL, |lab| {
        lab.take(reader(0));
        let run = |lab: &mut Lab, client: u8| {
            let commands = "memory 3 SET y 1 nothing 2 GET y nothing 2 GET x nothing 2 GET z";
            lab.transact(reader(client), commands).expect("a reply")
        };
        let Value::Array(replies) = run(lab, 0) else { panic!("it holds") };
        assert_eq!(replies[..2], [Value::Okay, Value::BulkString(b"1".to_vec())]);
        assert!(matches!(replies[2], Value::ServerError(_)), "{replies:?}");
        assert_eq!(replies[3], Value::Nil);
        assert_eq!(run(lab, 1), Value::Int(0));
        lab.ask(&["DEL", "y"]);
        lab.end(reader(0));
        assert_eq!(run(lab, 0), Value::Int(0));
        assert_eq!(lab.ask(&["EXISTS", "y"]), Value::Int(0));
    });
}

#[test]
pub(crate) fn inspection_lists_holders_and_waiters() {
    on_both(3, |lab| {
        lab.take(permits(0, 1));
        lab.take(permits(1, 2));
        lab.take_back_and_line_up();
        let words = command(lab.scripts.text(Name::Inspect, false), ["10"].into_iter());
        let Ok(Value::Array(parts)) = lab.command(&words) else { panic!("an array") };
        let Value::Array(holders) = &parts[1] else { panic!("{parts:?}") };
        let Value::Array(holder) = &holders[0] else { panic!("{parts:?}") };
        assert_eq!(holder[0], Value::BulkString(permits(1, 2).text().into_bytes()));
        assert_eq!(holder[2..], [Value::Int(-1), Value::Int(1), Value::Int(2)]);
        assert_eq!(parts[2], Value::Int(1));
        let Value::Array(waiters) = &parts[3] else { panic!("{parts:?}") };
        let Value::Array(waiter) = &waiters[0] else { panic!("{parts:?}") };
        assert_eq!(waiter[0], Value::BulkString(permits(2, 3).text().into_bytes()));
        assert_eq!((holders.len(), waiters.len()), (1, 1));
        assert_eq!(parts[4], Value::Array([3, 3, 2].map(Value::Int).to_vec()));
    });
}

impl Lab {
    fn take_back_and_line_up(&mut self) {
        self.release(permits(0, 1));
        self.wait(permits(2, 3));
    }
}

#[test]
pub(crate) fn release_leaves_those_who_hold_beside() {
    on_both(ALL, |lab| {
        let pairs =
            [(upgradable(0), reader(1)), (reader(0), upgradable(1)), (reader(0), reader(1))];
        for (leaves, stays) in pairs {
            lab.take(leaves);
            lab.take(stays);
            assert_eq!(lab.release(leaves), Reply::Done(0));
            let content = lab.content();
            assert_eq!(content.used, stays.weight.number(), "{leaves:?} has left {stays:?}");
            assert!(content.holder(stays).is_some(), "{leaves:?} has taken {stays:?} with it");
            assert_eq!(lab.release(stays), Reply::Done(0));
        }
    });
}

/// Rule 26: a fence that is written anew outlasts those who hold beside, and where nobody does it is not kept for longer.
#[test]
pub(crate) fn fence_is_kept_for_those_who_hold_beside() {
    on_both(2, |lab| {
        let mut left = |beside: bool| {
            if beside {
                lab.take(permits(0, 1));
            }
            let first = permits(1, if beside { 1 } else { 2 });
            lab.take(first);
            lab.wait(permits(2, 2 - u16::from(beside)));
            lab.ask(&["PEXPIRE", FENCE, &(10 * TTL).to_string()]);
            lab.release(first);
            assert_eq!(lab.granted(), [(2, 1)]);
            lab.release(permits(2, 2 - u16::from(beside)));
            let Value::Int(left) = lab.ask(&["PTTL", FENCE]) else { panic!("a time") };
            left
        };
        let (alone, beside) = (left(false), left(true));
        assert!(alone <= TTL.into(), "{alone} ms are left");
        assert!(beside > TTL.into(), "{beside} ms are left");
    });
}

/// Whatever was done, what is left ends by itself.
#[test]
pub(crate) fn no_key_is_left_for_ever() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        lab.wait(permits(1, 1));
        lab.resize(1);
        lab.release(permits(0, 2));
        lab.release(permits(1, 1));
        for key in KEYS {
            let left = lab.ask(&["PTTL", key]);
            assert!(matches!(left, Value::Int(left) if left == -2 || left > 0), "{key}: {left:?}");
        }
    });
}

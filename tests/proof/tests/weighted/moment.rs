//! What happens at an exact microsecond, which a clock that stands can meet and a real server's cannot.

use ::redis::Value;

use crate::lab::{LIVES, Lab, TTL, permits, reader};
use crate::request::{ALL, Attempt, FENCE, LOCK, Mode, Reply, Request, command};
use crate::script::Name;

/// The microseconds have six digits here.
const NOON: u64 = 1_700_000_000_500_000;

impl Lab {
    /// Runs a request at this time.
    fn run_at(&mut self, time: u64, request: &Request) -> Reply {
        self.set_next(time);
        self.run(request)
    }

    /// Takes it at this time; returns the token.
    #[track_caller]
    fn take_at(&mut self, time: u64, attempt: Attempt) -> u64 {
        self.set_next(time);
        self.take(attempt).0
    }

    fn transaction_at(&mut self, time: u64, attempt: Attempt) -> Value {
        self.set_next(time);
        self.transact(attempt, "nothing 2 GET y").expect("a reply")
    }

    /// The key would end with its last lease.
    fn keep(&mut self) {
        self.ask(&["PEXPIRE", LOCK, &(100 * TTL).to_string()]);
    }
}

#[test]
pub(crate) fn request_is_in_time_at_its_deadline_and_late_after_it() {
    let deadline = NOON;
    let (attempt, ttl, limit) = (permits(1, 1), TTL, 2);
    let requests = [
        Request::Acquire {
            attempt,
            ttl,
            mode: Mode::Try,
            deadline,
            dies_after: LIVES,
            line: TTL,
            limit,
        },
        Request::Force { attempt, deadline, ttl },
        Request::Resize { limit, declared: limit, deadline, ttl, keep: TTL },
    ];
    let mut lab = Lab::in_memory(limit);
    lab.take(permits(0, 1));
    for request in requests {
        assert_ne!(lab.run_at(deadline, &request), Reply::Late, "{request:?}");
        assert_eq!(lab.run_at(deadline + 1, &request), Reply::Late, "{request:?}");
    }
}

#[test]
pub(crate) fn lease_is_over_at_its_end_and_not_before() {
    let mut lab = Lab::in_memory(ALL);
    let attempt = reader(0);
    lab.take_at(NOON, attempt);
    lab.keep();
    let end = NOON + 1_000 * u64::from(TTL);
    let (touch, renew) = (Request::Touch { attempt }, Request::Renew { attempt, ttl: 1 });
    assert_eq!(lab.transaction_at(end - 1, attempt), Value::Array(vec![Value::Nil]));
    assert_ne!(lab.run_at(end - 1, &touch), Reply::NotHeld);
    assert_ne!(lab.run_at(end - 1, &renew), Reply::NotHeld);
    // Which has lengthened it by this.
    let end = end - 1 + 1_000;
    assert_eq!(lab.transaction_at(end, attempt), Value::Int(0));
    assert_eq!(lab.run_at(end, &touch), Reply::NotHeld);
    assert_eq!(lab.run_at(end, &renew), Reply::NotHeld);
}

#[test]
pub(crate) fn waiter_is_dead_at_its_death_and_not_before() {
    for (early, granted) in [(1, vec![(1, 1)]), (0, vec![])] {
        let mut lab = Lab::in_memory(1);
        lab.take(permits(0, 1));
        lab.set_next(NOON);
        lab.wait(permits(1, 1));
        lab.keep();
        lab.set_next(NOON + LIVES.cast_unsigned() - early);
        lab.release(permits(0, 1));
        assert_eq!(lab.granted(), granted, "{early} µs before");
    }
}

/// Rule 20: each is above the one before.
#[test]
pub(crate) fn grants_of_one_microsecond_have_tokens_that_rise() {
    let mut lab = Lab::in_memory(2);
    assert_eq!(lab.take_at(NOON, permits(0, 2)), NOON);
    lab.release(permits(0, 2));
    // Where nobody holds, and beside a holder.
    assert_eq!(lab.take_at(NOON, permits(1, 1)), NOON + 1);
    assert_eq!(lab.take_at(NOON + 1, permits(2, 1)), NOON + 2);
}

/// A server leaves out the zeros before the microseconds.
#[test]
pub(crate) fn time_of_few_microseconds_is_whole() {
    let early = NOON - 500_000 + 7;
    let mut lab = Lab::in_memory(2);
    assert_eq!(lab.take_at(early, permits(0, 1)), early);
    assert_eq!(lab.take_at(early + 10, permits(1, 1)), early + 10);
    lab.wait(permits(2, 1));
    lab.set_next(early + 90);
    lab.release(permits(0, 1));
    assert_eq!(lab.granted(), [(2, 1)]);
    assert_eq!(lab.ask(&["GET", FENCE]), Value::BulkString((early + 90).to_string().into()));
}

/// A server keeps a key for the millisecond in which it ends, and has 0 ms left then.
#[test]
pub(crate) fn free_lock_in_its_last_millisecond_is_a_lock() {
    let mut lab = Lab::in_memory(2);
    lab.take(permits(0, 1));
    lab.release(permits(0, 1));
    lab.ask(&["PEXPIREAT", LOCK, &(NOON / 1_000).to_string()]);
    lab.set_next(NOON);
    assert_eq!(lab.ask(&["PTTL", LOCK]), Value::Int(0));
    let words = command(lab.scripts.text(Name::Look, false), ["look"].into_iter());
    lab.set_next(NOON);
    assert_eq!(lab.command(&words), Ok(Value::Array(Vec::new())));
}

//! What calls inside a hold ask of its lease.

use super::*;

fn fixed() -> LockOptions {
    LockOptions::new().lease(LeaseOption::fixed(LEASE))
}

fn asked(renewed_to: Duration) -> Asked {
    Asked { hold: 1, renewed_to, most_renewals: u32::MAX, limit: Moment::FAR }
}

/// The request was sent before the call inside came: Redis knows nothing of the longer lease.
#[test]
fn renewal_lasts_for_what_it_asked_for() {
    let bench = Bench::granted(renewed(), LEASE);
    let ttl = bench.lease.ttl();
    let sent = bench.at(SECOND);
    bench.lease.ask(asked(LEASE * 10), sent);
    assert_eq!(bench.lease.ttl(), LEASE * 10);
    bench.lease.renewed(sent, ttl);
    assert_eq!(bench.lease.valid_until(), validity(sent, ttl, &renewed().of_request()));
    assert!(bench.lease.renew_at() <= sent.after(LEASE / 3), "the next one is too late");
}

/// The reply comes when the call is over.
#[test]
fn renewal_for_a_call_that_is_over_is_noted_and_not_followed_by_another() {
    let bench = Bench::granted(fixed(), LEASE);
    let sent = bench.at(SECOND);
    let asked = bench.lease.ask(asked(LEASE * 2), sent);
    assert!(bench.lease.is_renewed() && bench.lease.renew_at() <= sent.after(LEASE));
    let ttl = bench.lease.ttl();
    bench.lease.forget(asked);
    assert!(!bench.lease.is_renewed());
    // It reaches as far in Redis, whether the reply comes or not.
    assert!(bench.lease.perhaps_until() >= sent.after(ttl));
    bench.lease.renewed(sent, ttl);
    assert_eq!(bench.lease.valid_until(), validity(sent, ttl, &fixed().of_request()));
    assert_eq!(bench.lease.renew_at(), Moment::FAR);
}

/// A renewal that fails after that is no cause of the end of a fixed lease.
#[test]
fn failed_renewal_is_forgotten_with_the_call() {
    for is_late in [false, true] {
        let bench = Bench::granted(fixed(), LEASE);
        let asked = bench.lease.ask(asked(LEASE), bench.clock.now());
        let fail = || {
            let reason = NotSentReason::Forked;
            bench.lease.renewal_failed(Failure::NotSent(reason));
        };
        if !is_late {
            fail();
        }
        bench.lease.forget(asked);
        if is_late {
            fail();
        }
        let end = bench.at(LEASE);
        assert_eq!(bench.lease.expire(end), Some(LossCause::Expired), "{is_late}");
    }
}

#[test]
fn equal_calls_are_forgotten_one_by_one() {
    let bench = Bench::granted(fixed(), LEASE);
    let now = bench.clock.now();
    let limited = Asked { limit: now.after(SECOND), ..asked(LEASE) };
    let [one, other] = [limited; 2].map(|asked| bench.lease.ask(asked, now));
    assert_eq!(bench.lease.forget(one), limited.limit);
    assert!(bench.lease.is_renewed());
    assert_eq!(bench.lease.forget(other), Moment::FAR);
    assert!(!bench.lease.is_renewed());
}

#[test]
fn limit_of_a_call_is_that_of_its_hold_alone() {
    let bench = Bench::granted(renewed(), LEASE);
    let now = bench.clock.now();
    let call = |hold, limit| {
        bench.lease.ask(Asked { hold, limit: now.after(limit), ..asked(Duration::ZERO) }, now)
    };
    let (_other, one, _two) = (call(2, SECOND), call(1, SECOND * 2), call(1, SECOND * 3));
    assert_eq!(bench.lease.forget(one), now.after(SECOND * 3));
}

/// Its guard may outlive the hold.
#[test]
fn next_hold_forgets_what_was_asked_inside_the_one_before() {
    let bench = Bench::granted(renewed(), LEASE);
    let now = bench.at(SECOND);
    let asked = bench.lease.ask(Asked { most_renewals: 0, ..asked(LEASE * 2) }, now);
    assert_eq!(bench.lease.renew_at(), Moment::FAR);
    assert!(bench.hold.begin_release());
    let next = Hold::next(&bench.lease, &renewed(), now).expect("it may be passed on");
    assert_eq!(bench.lease.ttl(), LEASE);
    assert!(bench.lease.renew_at() < next.valid_until(), "nobody renews it");
    assert_eq!(bench.lease.forget(asked), Moment::FAR);
}

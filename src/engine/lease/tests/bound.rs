//! What holds at the very moment that ends something, and just before it.

use super::*;
use crate::base::sync::AtomicUsize;

/// Between two moments.
const STEP: Duration = Duration::from_nanos(1);
const TAIL: Duration = Duration::from_secs(9);

fn recoverable() -> LockOptions {
    LockOptions::new().lease(LeaseOption::renewed(LEASE).recoverable_for(TAIL))
}

#[test]
fn lease_is_lost_at_its_end_and_not_before() {
    for options in [renewed(), recoverable()] {
        let bench = Bench::new(options);
        let end = bench.lease.lost_at();
        assert!(!bench.lease.has_ended_by(end.before(STEP)) && bench.lease.has_ended_by(end));
        assert_eq!(bench.lease.expire(end.before(STEP)), None, "{options:?}");
        assert_eq!(bench.lease.expire(end), Some(LossCause::Expired), "{options:?}");
    }
}

#[test]
fn reply_is_late_at_the_end_and_not_before() {
    for options in [renewed(), recoverable()] {
        for early in [STEP, Duration::ZERO] {
            let bench = Bench::new(options);
            let sent = bench.at(SECOND);
            let (before, end) = (bench.lease.valid_until(), bench.lease.lost_at());
            bench.clock.put_forward(end.before(early));
            bench.lease.renewed(sent, bench.lease.ttl());
            let is_longer = bench.lease.valid_until() > before;
            assert_eq!(is_longer, early == STEP, "{early:?} before the end of {options:?}");
        }
    }
}

#[test]
fn lease_with_a_tail_is_silent_from_the_end_of_its_validity_to_its_loss() {
    let bench = Bench::new(recoverable());
    let (until, lost_at) = (bench.lease.valid_until(), bench.lease.lost_at());
    assert_eq!(lost_at, until.after(margin(LEASE, &bench.lease.value.options) + TAIL));
    let is_silent = |moment| bench.lease.is_silent(moment);
    assert!(!is_silent(until.before(STEP)) && is_silent(until));
    assert!(is_silent(lost_at.before(STEP)) && !is_silent(lost_at));
    bench.lease.release();
    assert_eq!(bench.lease.lost_at(), Moment::PAST);
}

/// A request of its attempt that runs after its validity could take the lock again, after another's hold (rule 30).
#[test]
fn tail_needs_requests_that_are_settled_by_the_end_of_the_validity() {
    let bench = Bench::new(recoverable());
    let until = bench.lease.valid_until();
    bench.lease.value.unanswered_until(until);
    assert!(bench.lease.lost_at() > until);
    bench.lease.value.unanswered_until(until.after(STEP));
    assert_eq!(bench.lease.lost_at(), until);
}

#[test]
fn lease_is_shared_from_the_settling_of_its_requests_on() {
    let bench = Bench::new(renewed());
    bench.lease.value.unanswered_until(bench.begin.after(SECOND));
    assert!(!bench.lease.may_be_shared(bench.begin.after(SECOND - STEP)));
    assert!(bench.lease.may_be_shared(bench.begin.after(SECOND)));
}

#[test]
fn lease_is_shared_until_a_quarter_is_left() {
    let bench = Bench::new(renewed());
    let quarter = bench.lease.valid_until().before(CLAIM / 4);
    assert!(bench.lease.may_be_shared(quarter.before(STEP)));
    assert!(!bench.lease.may_be_shared(quarter));
}

#[test]
fn lock_is_kept_until_a_moment_and_not_at_it() {
    let bench = Bench::new(renewed());
    let until = bench.begin.after(SECOND);
    bench.lease.keep_until(until);
    assert!(bench.lease.is_kept(until.before(STEP)) && !bench.lease.is_kept(until));
}

#[test]
fn claim_is_renewed_early_and_is_none_after_a_whole_lease() {
    let bench = Bench::new(renewed());
    assert!(bench.lease.is_claim());
    assert_eq!(bench.lease.renew_at(), bench.begin.after(CLAIM_RENEWED_AFTER));
    bench.lease.lengthen(bench.begin, LEASE - STEP);
    assert!(bench.lease.is_claim(), "it was extended for less");
    bench.lease.renewed(bench.begin, bench.lease.ttl());
    assert!(!bench.lease.is_claim());
    assert!(!Bench::granted(renewed(), LEASE).lease.is_claim());
    let fixed = Bench::new(LockOptions::new().lease(LeaseOption::fixed(LEASE)));
    assert_eq!(fixed.lease.renew_at(), Moment::FAR);
}

#[test]
fn next_hold_has_the_limit_of_renewals_that_the_one_before_had_not() {
    let bench = Bench::new(renewed());
    let sent = bench.at(SECOND);
    bench.lease.renewed(sent, bench.lease.ttl());
    let _next = Hold::next(&bench.lease, &renewed().max_renewals(1), sent).expect("passed on");
    assert!(bench.lease.renew_at() < Moment::FAR);
    bench.lease.renewed(sent, bench.lease.ttl());
    assert_eq!(bench.lease.renew_at(), Moment::FAR, "used up");
}

/// Redis has stored the token that it minted, and a release sends along a later one alone.
#[test]
fn tokens_are_those_that_were_used() {
    let bench = Bench::new(renewed());
    assert_eq!((bench.lease.unstored_token(), bench.lease.upgraded_token()), (None, None));
    let next = bench.lease.next_token().expect("the server's clock is far ahead");
    assert_eq!(bench.lease.unstored_token(), Some(next.get()));
    bench.lease.upgraded(bench.lease.begin_change(Access::Write), 7);
    assert_eq!(bench.lease.upgraded_token(), Some(FencingToken::new(7)));
}

/// Rule 19.
#[test]
fn next_token_is_at_most_the_time_of_the_server() {
    let sent = ManualClock::START;
    let grant = Grant::test(CLAIM, sent);
    let (time, _) = grant.server_time;
    assert_eq!(grant.token_after(time - 1, sent), Some(time));
    assert_eq!(grant.token_after(time, sent), None);
}

/// Stands still, and counts how often it was read.
#[derive(Debug, Default)]
struct Counted(AtomicUsize);

impl Clock for Counted {
    fn now(&self) -> Moment {
        self.0.fetch_add(1, Ordering::SeqCst);
        ManualClock::START
    }
}

#[test]
fn token_is_waited_for_where_few_microseconds_are_missing() {
    let grant = Grant::test(CLAIM, ManualClock::START);
    let (time, _) = grant.server_time;
    let looks = |missing: u64| {
        let clock = Counted::default();
        grant.wait_for_token_after(time - 1 + missing, &clock);
        clock.0.into_inner()
    };
    assert_eq!((looks(0), looks(5)), (1, 1));
    assert!(looks(1) > 1 && looks(4) > 1);
}

/// Only the door of readers needs to know that nobody waits.
#[test]
fn count_of_nobody_is_for_readers_alone() {
    let reader = renewed().for_share(Share::Access(Access::Read));
    let writer = renewed().for_share(Share::Access(Access::Write));
    for (options, nobody) in [(renewed(), None), (writer, None), (reader, Some(0))] {
        let bench = Bench::new(options);
        let counted = |waiters| {
            bench.lease.counted(bench.begin, waiters);
            bench.lease.news.take().map(|count| count.waiters)
        };
        assert_eq!(counted(Some(0)), nobody, "{options:?}");
        assert_eq!((counted(Some(1)), counted(None)), (Some(1), None), "{options:?}");
    }
}

#[test]
fn lease_that_comes_back_with_no_time_left_is_not_told_to_be_back() {
    for late in [Duration::ZERO, STEP] {
        let bench = Bench::granted(recoverable(), LEASE);
        let now = bench.lease.valid_until();
        bench.clock.put_forward(now);
        assert!(matches!(bench.lease.next_silence(now), Some((Silence::Begun(_), _))));
        bench.lease.renewed(bench.begin.after(late), bench.lease.ttl());
        let told = bench.lease.next_silence(now);
        let is_back = matches!(told, Some((Silence::Over(_), _)));
        assert_eq!(is_back, late == STEP, "{told:?}");
    }
}

#[test]
fn renewal_yields_until_those_who_wait_would_be_dead() {
    let bench = Bench::granted(recoverable(), LEASE);
    let yields_at = |span| {
        bench.at(span);
        bench.lease.yields_for()
    };
    assert_eq!(yields_at(SECOND), TAIL);
    bench.lease.yielded(bench.clock.now());
    bench.at(SECOND * 2);
    bench.lease.yielded(bench.clock.now());
    assert_eq!(yields_at(SECOND + DEAD_AFTER - STEP), TAIL);
    assert_eq!(yields_at(SECOND + DEAD_AFTER), Duration::ZERO);
}

#[test]
fn loss_that_a_reply_shows_has_the_cause_of_the_end_that_came_first() {
    let bench = Bench::new(renewed());
    let until = bench.lease.valid_until();
    let cause = |cause, moment| bench.lease.cause_of(cause, moment);
    assert_eq!(cause(LossCause::Taken, until.before(STEP)), LossCause::Taken);
    assert_eq!(cause(LossCause::Taken, until), LossCause::Expired);

    let bench = Bench::new(recoverable());
    let (until, lost_at) = (bench.lease.valid_until(), bench.lease.lost_at());
    let cause = |cause, moment| bench.lease.cause_of(cause, moment);
    assert_eq!(cause(LossCause::Taken, until), LossCause::Taken, "it could have come back");
    assert_eq!(cause(LossCause::Deleted, lost_at.before(STEP)), LossCause::Deleted, "in its tail");
    assert_eq!(cause(LossCause::Deleted, lost_at), LossCause::Expired);
}

#[test]
fn key_that_is_gone_was_anothers_if_a_token_is_above_those_of_the_lease() {
    let bench = Bench::new(renewed());
    let last = bench.lease.token().get();
    let gone = |fence| bench.lease.ownership(Ownership::Gone, fence);
    assert_eq!((gone(None), gone(Some(last))), (Ownership::Gone, Ownership::Gone));
    assert_eq!(gone(Some(last + 1)), Ownership::Taken);
    assert_eq!(bench.lease.ownership(Ownership::Owned, Some(last + 1)), Ownership::Owned);
    let now = bench.at(SECOND);
    let next = Hold::next(&bench.lease, &renewed(), now).expect("it may be passed on");
    assert_eq!(gone(Some(next.token().get())), Ownership::Gone, "its own");
}

#[test]
fn lease_is_fresh_for_a_heartbeat_after_it_was_confirmed() {
    let bench = Bench::new(renewed());
    let stale = bench.begin.after(HEARTBEAT);
    assert!(bench.lease.is_fresh(stale.before(STEP)) && !bench.lease.is_fresh(stale));
}

/// A reply to a request that was sent before says nothing about what the message reports.
#[test]
fn doubt_ends_with_a_request_that_was_sent_after_it() {
    let bench = Bench::new(renewed());
    let doubted_at = bench.begin.after(SECOND);
    bench.lease.doubt(doubted_at);
    bench.lease.confirmed(doubted_at.before(STEP));
    assert!(bench.lease.is_doubted());
    bench.lease.confirmed(doubted_at);
    assert!(!bench.lease.is_doubted());
}

#[test]
fn next_hold_shows_its_count_if_the_one_before_had_another() {
    let count = ReentryCount::new();
    count.begin();
    assert!(!count.is_unshown());
    count.set(2);
    count.show();
    count.begin();
    assert!(count.is_unshown());
    assert_eq!(count.show(), 1);
}

/// Else the worker would look at it again and again at the same moment.
#[test]
fn worker_comes_later_than_now() {
    let linger = SECOND * 12;
    let bench = Bench::new(renewed().linger(linger));
    let (now, renew_at) = (bench.begin, bench.lease.renew_at());
    assert!(bench.lease.next_after(renew_at) > renew_at);
    bench.lease.linger(now.after(linger));
    // Not retaken since: it is looked at before it is stale.
    let (refresh, was_retaken) = bench.lease.begin_look(now);
    assert!(!was_retaken && now < refresh && bench.lease.is_fresh(refresh), "{refresh:?}");
    assert!(bench.lease.next_due(refresh) > refresh);

    // Its turn, which it shares with others, would be now.
    let end = now.after(SECOND / 50);
    bench.lease.begin_hold(&renewed(), end, now);
    assert_eq!(bench.lease.begin_look(now), (end, true));
}

//! A lease and its hold, whose end coincides with replies about it.

mod bound;
mod inside;

use super::*;
use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::option::Lease as LeaseOption;
use crate::base::testing::manual_clock::ManualClock;
use crate::base::time::Clock;
use crate::engine::hold::Hold;
use crate::engine::holding::Holding;
use crate::engine::slot::Slot;
use crate::engine::{Bounds, Callbacks, Engine};
use crate::kind::mutex::MutexKind;
use crate::protocol::script_protocol::ScriptProtocol;
use crate::topology::memory::backend::MemoryBackend;
use crate::topology::memory::server::MemoryServer;
use crate::wire::failure::NotSentReason;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
/// The lease that a hand-over writes.
const CLAIM: Duration = Duration::from_secs(3);

/// A lease that no worker watches, and a clock that stands still.
struct Bench {
    clock: Arc<ManualClock>,
    begin: Moment,
    slot: Arc<Slot>,
    lease: Arc<Lease>,
    hold: Arc<Hold>,
}

impl Bench {
    fn new(options: LockOptions) -> Bench {
        Bench::granted(options, CLAIM)
    }

    /// Granted for this long.
    fn granted(options: LockOptions, ttl: Duration) -> Bench {
        let clock = Arc::new(ManualClock::new(false));
        let server = MemoryServer::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let engine = Engine::new(
            Arc::new(ScriptProtocol::new(MemoryBackend::new(server, Arc::new(Identity::new(""))))),
            Arc::clone(&clock) as Arc<dyn Clock>,
            Bounds { reply: SECOND, exchange: SECOND, give_up_after: SECOND, slow_wait: None },
            Callbacks::default(),
        );
        engine.worker.stand_still();
        let begin = clock.now();
        let slot = engine.slot(&MutexKind, Name::new(b"", b"x").unwrap());
        let value = OwnerValue::new(Arc::clone(slot.target()), *b"owner", options);
        let as_clock = Arc::clone(&clock);
        let hold = Hold::first(value, as_clock, Grant::test(ttl, begin), &options);
        Bench { clock, begin, slot, lease: Arc::clone(&hold.lease), hold }
    }

    /// Puts the clock forward to this long after the start.
    fn at(&self, span: Duration) -> Moment {
        self.clock.put_forward(self.begin.after(span));
        self.clock.now()
    }
}

fn renewed() -> LockOptions {
    LockOptions::new().lease(LeaseOption::renewed(LEASE))
}

/// The reply comes between the start of the release and the hand-off to the next thread.
#[test]
fn renewal_confirmed_during_a_hand_off_is_for_the_next_hold() {
    let bench = Bench::new(renewed());
    let sent = bench.at(SECOND);
    assert!(bench.hold.begin_release());
    let under_way = bench.lease.renewal();
    let next =
        Hold::next(&bench.lease, &renewed(), bench.clock.now()).expect("it may be passed on");
    drop(under_way);
    bench.lease.renewed(sent, bench.lease.ttl());
    assert_eq!(next.valid_until(), validity(sent, LEASE, &renewed().of_request()));
    assert!(bench.lease.renew_at() < next.valid_until(), "lost before it is renewed: {next:?}");
    assert_eq!(bench.hold.valid_until(), Moment::PAST, "the hold before is over");
}

#[test]
fn renewal_confirmed_after_the_release_changes_nothing() {
    let bench = Bench::new(renewed());
    let sent = bench.at(SECOND);
    let before = (bench.lease.leased_until(), bench.lease.renew_at());
    assert!(bench.hold.begin_release());
    bench.lease.release();
    bench.lease.renewed(sent, bench.lease.ttl());
    assert_eq!((bench.lease.leased_until(), bench.lease.renew_at()), before);
    assert!(bench.lease.is_over() && !bench.lease.lose(LossCause::Deleted, sent));
    // Its removal reaches as far as the lease in Redis.
    assert!(bench.lease.perhaps_until() >= sent.after(LEASE));
}

/// A command of the hold before would run under the next one (rule 17).
#[test]
fn command_under_way_prevents_a_hand_off_and_a_renewal_does_not() {
    let bench = Bench::new(renewed());
    let now = bench.at(SECOND);
    let renewal = bench.lease.renewal();
    assert!(bench.lease.may_last(now));
    let command = bench.lease.command();
    assert!(!bench.lease.may_last(now) && bench.lease.may_be_shared(now));
    drop(command);
    assert!(bench.lease.may_last(now) && bench.lease.is_under_way());
    drop(renewal);
    bench.lease.command().keep_pending();
    assert!(!bench.lease.may_last(now) && bench.lease.is_under_way());
}

#[test]
fn lost_lease_ends_all_its_holds_and_gets_no_other() {
    let bench = Bench::new(renewed());
    let now = bench.at(SECOND);
    assert!(bench.lease.lose(LossCause::Taken, now));
    assert!(!bench.hold.is_valid_at(now));
    assert!(Hold::next(&bench.lease, &renewed(), now).is_none());
    assert_eq!(bench.hold.expire(now).expect("lost").cause(), LossCause::Taken);
    bench.lease.renewed(now, bench.lease.ttl());
    assert!(bench.lease.is_over(), "a late reply revives it");
}

/// The worker may find it lingering each time, between two holds.
#[test]
fn lingering_lease_is_renewed_only_if_it_was_taken_again() {
    let bench = Bench::new(renewed());
    let due = bench.lease.renew_at();
    bench.at(due.since(bench.begin));
    bench.lease.linger(due.after(SECOND));
    let looks = || {
        let (_, was_retaken) = bench.lease.begin_look(due);
        bench.lease.needs_renewal(due, was_retaken)
    };
    assert!(!looks(), "nobody needs it");
    let next = Hold::next(&bench.lease, &renewed(), due).expect("it may be taken");
    bench.lease.linger(due.after(SECOND));
    assert!(looks(), "threads take it over and over");
    assert!(!looks(), "once");
    drop(next);
}

/// Sixty-four of them, at as many moments of a linger, held or lingering.
#[test]
fn leases_that_are_taken_over_and_over_share_the_turns_of_the_worker() {
    const LINGER: Duration = Duration::from_millis(200);
    let mut turns: Vec<_> = (0..64)
        .map(|number| {
            let bench = Bench::new(renewed().linger(LINGER));
            let now = bench.at(LINGER * number / 64);
            bench.lease.linger(now.after(LINGER));
            let next = Hold::next(&bench.lease, &renewed().linger(LINGER), now).expect("retaken");
            if number % 2 == 0 {
                bench.lease.linger(now.after(LINGER));
            }
            let (turn, was_retaken) = bench.lease.begin_look(now);
            assert!(was_retaken && now < turn && turn <= now.after(LINGER), "{turn:?} at {now:?}");
            drop(next);
            turn
        })
        .collect();
    turns.sort_unstable();
    turns.dedup();
    assert!(turns.len() <= 10, "{turns:?}");
}

/// However long it may linger: a thread that takes it a heartbeat after the last reply finds it stale.
#[test]
fn worker_comes_before_a_lingering_lease_is_stale() {
    let bench = Bench::new(renewed().linger(SECOND * 12));
    bench.lease.renewed(bench.begin, bench.lease.ttl());
    bench.lease.confirmed(bench.begin);
    let now = bench.at(SECOND / 10);
    bench.lease.linger(now.after(SECOND * 12));
    let due = bench.lease.next_due(now);
    assert!(bench.lease.is_fresh(due), "the first time");
    let next = Hold::next(&bench.lease, &renewed(), now).expect("it may be taken");
    bench.lease.linger(now.after(SECOND * 12));

    let (_, was_retaken) = bench.lease.begin_look(due);
    assert!(bench.lease.needs_renewal(due, was_retaken));
    bench.lease.confirmed(due);
    assert!(bench.lease.is_fresh(bench.lease.next_due(due)), "and after each reply");
    drop(next);
}

#[test]
fn next_hold_counts_its_renewals_for_itself() {
    let most = renewed().max_renewals(1);
    let bench = Bench::new(most);
    let sent = bench.at(SECOND);
    bench.lease.renewed(sent, bench.lease.ttl());
    assert_eq!(bench.lease.renew_at(), Moment::FAR, "used up");
    let next = Hold::next(&bench.lease, &most, sent).expect("it may be passed on");
    assert!(bench.lease.renew_at() < next.valid_until());
    bench.lease.renewed(sent, bench.lease.ttl());
    assert_eq!(bench.lease.renew_at(), Moment::FAR, "used up");
    let _last = Hold::next(&bench.lease, &renewed(), sent).expect("it may be passed on");
    bench.lease.renewed(sent, bench.lease.ttl());
    assert!(bench.lease.renew_at() < Moment::FAR, "it has no limit");
}

#[test]
fn renewal_confirmed_in_time_changes_all_of_the_lease() {
    let bench = Bench::new(renewed());
    let sent = bench.at(SECOND);
    bench.lease.renewed(sent, bench.lease.ttl());
    assert_eq!(bench.hold.valid_until(), validity(sent, LEASE, &renewed().of_request()));
    assert!(bench.lease.renew_at() > sent.after(LEASE / 4));
    assert_eq!(bench.lease.perhaps_until(), Moment::PAST);
}

/// The hold is over, and nobody here has noticed that yet. Another client may have had the lock since.
#[test]
fn late_renewal_reply_revives_no_hold() {
    for renewal in [true, false] {
        let bench = Bench::new(renewed());
        let sent = bench.at(SECOND);
        let now = bench.at(CLAIM);
        assert!(bench.hold.is_live() && !bench.hold.is_valid_at(now));
        if renewal {
            bench.lease.renewed(sent, bench.lease.ttl());
        } else {
            bench.lease.lengthen(sent, LEASE);
        }
        assert!(!bench.hold.is_valid_at(now), "renewal: {renewal}");
        let loss = bench.hold.expire(now).expect("it is found lost");
        assert_eq!(loss.cause(), LossCause::Expired);
        assert!(bench.lease.perhaps_until() >= sent.after(LEASE), "Redis keeps it");
    }
}

/// After a suspend, the thread of the holder may run before the worker does.
#[test]
fn hold_lost_during_its_renewal_is_released() {
    let bench = Bench::new(renewed());
    let sent = bench.at(SECOND);
    let renewal = bench.lease.renewal();
    bench.at(CLAIM);
    assert!(Holding::new(&bench.slot, Arc::clone(&bench.hold)).release().unwrap_err().is_lost());
    bench.lease.renewed(sent, bench.lease.ttl());
    drop(renewal);
    let worker = &bench.slot.context().worker;
    assert_eq!(worker.wait_released(Moment::PAST).len(), 1, "nobody gives it back");
}

/// The reply to the extension comes after `max_hold` has ended the hold.
#[test]
fn extension_confirmed_after_max_hold_revives_no_hold() {
    let bench = Bench::new(renewed().max_hold(SECOND * 2));
    let now = bench.at(SECOND * 2);
    bench.lease.lengthen(now, LEASE);
    assert!(!bench.hold.is_valid_at(now));
    assert_eq!(bench.hold.expire(now).expect("lost").cause(), LossCause::MaxHold);
}

#[test]
fn cause_of_a_loss_is_the_kind_of_most_failures() {
    let refused = || Failure::Refused(std::io::Error::other("MISCONF").into());
    let held_up = || Failure::NotSent(NotSentReason::DeadlinePassed);
    let lost = |failures: &[Failure]| {
        let bench = Bench::new(renewed());
        for failure in failures {
            bench.lease.renewal_failed(failure.clone());
        }
        bench.at(SECOND * 60);
        let loss = bench.hold.expire(bench.clock.now()).expect("it is over");
        assert_eq!(bench.lease.failures() as usize, failures.len());
        (loss.cause(), loss.source().map(ToString::to_string).unwrap_or_default())
    };
    let (cause, source) = lost(&[refused(), refused(), Failure::silent()]);
    assert_eq!(cause, LossCause::Refused);
    assert!(source.contains("MISCONF"), "{source}");
    let (cause, source) = lost(&[Failure::silent(), refused(), Failure::silent()]);
    assert_eq!(cause, LossCause::Unreachable);
    assert!(!source.contains("MISCONF"), "{source}");
    assert_eq!(lost(&[refused(), held_up(), held_up()]).0, LossCause::Refused);
    assert_eq!(lost(&[Failure::silent(), refused()]).0, LossCause::Refused, "as many of each");
    assert_eq!(lost(&[held_up()]).0, LossCause::Expired, "the process was held up");
    // A confirmed one ends what was before.
    let bench = Bench::new(renewed());
    bench.lease.renewal_failed(refused());
    bench.lease.renewed(bench.clock.now(), bench.lease.ttl());
    bench.lease.renewal_failed(Failure::silent());
    assert_eq!(
        bench.hold.expire(bench.at(SECOND * 60)).expect("lost").cause(),
        LossCause::Unreachable
    );
}

/// As after a suspend, in which both ends have passed.
#[test]
fn loss_noticed_late_has_the_cause_of_the_first_end() {
    let cause = |limit, fails: bool| {
        let bench = Bench::new(renewed().max_hold(limit));
        if fails {
            bench.lease.renewal_failed(Failure::silent());
        }
        let now = bench.at(SECOND * 60);
        bench.hold.expire(now).expect("it is over").cause()
    };
    assert_eq!(cause(SECOND * 2, true), LossCause::MaxHold);
    assert_eq!(cause(SECOND * 20, true), LossCause::Unreachable);
    assert_eq!(cause(SECOND * 20, false), LossCause::Expired);
}

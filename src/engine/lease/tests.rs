//! A lease whose end coincides with replies about it.

use super::*;
use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::option::Lease;
use crate::base::testing::manual_clock::ManualClock;
use crate::base::time::Clock;
use crate::engine::holding::Holding;
use crate::engine::slot::Slot;
use crate::engine::{Bounds, Callbacks, Engine};
use crate::kind::mutex::MutexKind;
use crate::protocol::script_protocol::ScriptProtocol;
use crate::topology::memory::backend::MemoryBackend;
use crate::topology::memory::server::MemoryServer;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
/// The lease that a hand-over writes.
const CLAIM: Duration = Duration::from_secs(3);

/// A lease that no worker watches, and a clock that stands still.
struct Bench {
    clock: Arc<ManualClock>,
    begin: Moment,
    slot: Arc<Slot>,
    lease: Arc<HeldLease>,
}

impl Bench {
    fn new(options: LockOptions) -> Bench {
        let clock = Arc::new(ManualClock::new(false));
        let server = MemoryServer::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let engine = Engine::new(
            Arc::new(ScriptProtocol::new(MemoryBackend::new(server, Arc::new(Identity::new(""))))),
            Arc::clone(&clock) as Arc<dyn Clock>,
            Bounds { reply: SECOND, exchange: SECOND, give_up_after: SECOND, slow_wait: None },
            Callbacks::default(),
        );
        let begin = clock.now();
        let grant = Grant {
            owner: Arc::from(*b"owner"),
            token: 1,
            ttl: CLAIM,
            sent: begin,
            server_time: (1_000_000, begin),
            settled: Moment::PAST,
            slots: None,
        };
        let slot = engine.slot(&MutexKind, Name::new(b"", b"x").unwrap());
        let (target, as_clock) = (Arc::clone(slot.target()), Arc::clone(&clock));
        let lease = HeldLease::new(target, as_clock, grant, options);
        Bench { clock, begin, slot, lease }
    }

    /// Puts the clock forward to this long after the start.
    fn at(&self, span: Duration) -> Moment {
        self.clock.put_forward(self.begin.after(span));
        self.clock.now()
    }
}

fn renewed() -> LockOptions {
    LockOptions::new().lease(Lease::renewed(LEASE))
}

/// The reply comes between the start of the release and the hand-off to the next thread.
#[test]
fn renewal_confirmed_during_a_release_changes_nothing() {
    let bench = Bench::new(renewed());
    let sent = bench.at(SECOND);
    let before = (bench.lease.leased_until(), bench.lease.renew_at());
    assert!(bench.lease.begin_release().is_some());
    bench.lease.renewed(sent);
    assert_eq!((bench.lease.leased_until(), bench.lease.renew_at()), before);
    let next = bench.lease.successor(&renewed(), bench.clock.now()).expect("it may be passed on");
    assert!(next.renew_at() < next.valid_until(), "lost before it is renewed: {next:?}");
    // If the next hold is lost, its release reaches as far as the lease in Redis.
    assert!(next.perhaps_until() >= sent.after(LEASE));
}

#[test]
fn renewal_confirmed_in_time_changes_all_of_the_lease() {
    let bench = Bench::new(renewed());
    let sent = bench.at(SECOND);
    bench.lease.renewed(sent);
    assert_eq!(bench.lease.valid_until(), validity(sent, LEASE, &renewed()));
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
        assert!(bench.lease.is_live() && !bench.lease.is_valid_at(now));
        if renewal {
            bench.lease.renewed(sent);
        } else {
            bench.lease.lengthen(sent, LEASE);
        }
        assert!(!bench.lease.is_valid_at(now), "renewal: {renewal}");
        let loss = bench.lease.expire(now).expect("it is found lost");
        assert_eq!(loss.cause(), LossCause::Expired);
        assert!(bench.lease.perhaps_until() >= sent.after(LEASE), "Redis keeps it");
    }
}

/// After a suspend, the thread of the holder may run before the worker does.
#[test]
fn hold_lost_during_its_renewal_is_released() {
    let bench = Bench::new(renewed());
    let sent = bench.at(SECOND);
    let renewal = bench.lease.command();
    bench.at(CLAIM);
    assert!(Holding::new(&bench.slot, Arc::clone(&bench.lease)).release().unwrap_err().is_lost());
    bench.lease.renewed(sent);
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
    assert!(!bench.lease.is_valid_at(now));
    assert_eq!(bench.lease.expire(now).expect("lost").cause(), LossCause::MaxHold);
}

/// As after a suspend, in which both ends have passed.
#[test]
fn loss_noticed_late_has_the_cause_of_the_first_end() {
    let cause = |limit, fails: bool| {
        let bench = Bench::new(renewed().max_hold(limit));
        if fails {
            bench.lease.renewal_failed();
        }
        let now = bench.at(SECOND * 60);
        bench.lease.expire(now).expect("it is over").cause()
    };
    assert_eq!(cause(SECOND * 2, true), LossCause::MaxHold);
    assert_eq!(cause(SECOND * 20, true), LossCause::Unreachable);
    assert_eq!(cause(SECOND * 20, false), LossCause::Expired);
}

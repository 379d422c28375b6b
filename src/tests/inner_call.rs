//! What a call asks for by which a thread takes a lock once more, over the server in memory (rule 62).

use std::any::Any;
use std::time::Duration;

use super::double::{at_once, until};
use crate::base::error::{ErrorKind, Result};
use crate::base::loss::LossCause;
use crate::base::name::Name;
use crate::base::option::{Lease, LockOptions};
use crate::base::sync::channel::{TryRecvError, unbounded};
use crate::base::sync::{Arc, spawn};
use crate::client::{DistributedLock, LockClient};
use crate::engine::hold::Hold;
use crate::kind::Part;
use crate::kind::mutex::MutexKind;
use crate::kind::reentrant::ReentrantKind;
use crate::kind::weighted::RW_LOCK;
use crate::protocol::lock_kind::LockKind;
use crate::testing::{Link, Server};
use crate::wire::Value;

const SECOND: Duration = Duration::from_secs(1);
/// The lease of each outer hold.
const OUTER: Duration = Duration::from_secs(10);
const KEY: &str = "a";

/// How a lock is held and taken once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mutex,
    Reentrant,
    Reader,
    Writer,
    ReaderInUpgradable,
    ReaderInWriter,
    /// The inner call asks for several locks.
    Part,
    ReaderAsPart,
    ByKey,
}

const KINDS: [Kind; 9] = [
    Kind::Mutex,
    Kind::Reentrant,
    Kind::Reader,
    Kind::Writer,
    Kind::ReaderInUpgradable,
    Kind::ReaderInWriter,
    Kind::Part,
    Kind::ReaderAsPart,
    Kind::ByKey,
];

/// What gives a hold up when it is dropped.
type Held = Box<dyn Any>;

/// Unlocks by key when it is dropped.
struct Unlock(LockClient);

impl Drop for Unlock {
    fn drop(&mut self) {
        let _ = self.0.unlock(KEY);
    }
}

/// Locks by key have no options but the lease, which may have the limit.
fn by_key(options: LockOptions) -> Lease {
    options.longest_hold().map_or(options.lease, |limit| options.lease.at_most(limit))
}

/// A client of a server whose clock stands still.
struct Bench {
    kind: Kind,
    server: Server,
    client: LockClient,
    link: Link,
}

impl Bench {
    fn new(kind: Kind) -> Bench {
        let server = Server::standing_still();
        let client = server.connect(LockClient::builder("redis://memory").announce(false)).unwrap();
        Bench { kind, link: server.link(&client), server, client }
    }

    fn outer(&self, options: LockOptions) -> Held {
        self.take(options, true, None).unwrap()
    }

    fn inner(&self, options: LockOptions) -> Result<Held> {
        self.take(options, false, None)
    }

    /// Takes the lock. With a wait it asks for no longer.
    fn take(&self, options: LockOptions, is_outer: bool, wait: Option<Duration>) -> Result<Held> {
        let client = &self.client;
        let mutex = || client.mutex_with(KEY, options).unwrap();
        let rw = || client.rw_lock_with(KEY, options).unwrap();
        /// Each kind by both of its methods.
        macro_rules! held {
            ($lock:expr, $wait:ident, $span:ident) => {
                match wait {
                    None => Box::new($lock.$wait()?),
                    Some(wait) => Box::new($lock.$span(wait)?.expect("it is this thread's")),
                }
            };
        }
        let all = |part| -> Result<Held> {
            Ok(match wait {
                None => Box::new(client.lock_all([part])?),
                Some(wait) => Box::new(client.try_lock_all_for([part], wait)?.expect("the same")),
            })
        };
        Ok(match self.kind {
            Kind::Part if !is_outer => all(Part::from(&mutex()))?,
            Kind::ReaderAsPart if !is_outer => all(rw().for_read())?,
            Kind::Mutex | Kind::Part => held!(mutex(), lock, try_lock_for),
            Kind::Reentrant => {
                held!(client.reentrant_with(KEY, options).unwrap(), lock, try_lock_for)
            }
            Kind::Writer => held!(rw(), write, try_write_for),
            Kind::ReaderInWriter if is_outer => held!(rw(), write, try_write_for),
            Kind::ReaderInUpgradable if is_outer => {
                held!(rw(), upgradable_read, try_upgradable_read_for)
            }
            Kind::Reader | Kind::ReaderAsPart | Kind::ReaderInUpgradable | Kind::ReaderInWriter => {
                held!(rw(), read, try_read_for)
            }
            Kind::ByKey => {
                assert!(client.try_lock(KEY, wait.unwrap_or(SECOND), by_key(options))?);
                Box::new(Unlock(client.clone()))
            }
        })
    }

    fn lock_kind(&self) -> &'static dyn LockKind {
        match self.kind {
            Kind::Mutex | Kind::Part | Kind::ByKey => &MutexKind,
            Kind::Reentrant => &ReentrantKind,
            _ => &RW_LOCK,
        }
    }

    /// The hold of this thread.
    fn hold(&self) -> Arc<Hold> {
        let name = Name::new(b"", KEY.as_bytes()).unwrap();
        let slot = self.client.engine().slot(self.lock_kind(), name);
        slot.holds().pop().expect("it is held")
    }

    /// For how long its holder may rely on it.
    fn remaining(&self) -> Duration {
        let now = self.client.engine().clock.now();
        self.hold().valid_until().since(now)
    }

    /// The time to live of the key, in whole milliseconds; zero if it is not there.
    fn pttl(&self) -> Duration {
        match self.server.inner().call(&[b"PTTL", KEY.as_bytes()]).unwrap() {
            Value::Int(-2) => Duration::ZERO,
            Value::Int(millis) => Duration::from_millis(millis.try_into().unwrap()),
            other => panic!("{other:?}"),
        }
    }

    /// Another program writes something else to the key.
    fn overwrite(&self) {
        self.server.delete(KEY);
        self.server.inner().call(&[b"RPUSH", KEY.as_bytes(), b"x"]).unwrap();
    }

    /// How many exchanges this takes.
    fn exchanges<T>(&self, call: impl FnOnce() -> T) -> (T, u64) {
        let before = self.link.exchanges();
        let value = call();
        (value, self.link.exchanges() - before)
    }
}

fn fixed(seconds: u32) -> LockOptions {
    LockOptions::new().lease(Lease::fixed(SECOND * seconds))
}

fn renewed(seconds: u32) -> LockOptions {
    LockOptions::new().lease(Lease::renewed(SECOND * seconds))
}

/// What the validity is less than the lease by, with some room.
const MARGIN: Duration = Duration::from_secs(1);

#[test]
fn inner_call_has_what_it_asks_for_by_one_request_at_most() {
    at_once(ask_for_everything);
}

fn ask_for_everything() {
    // What asks for more than each outer lease, how many exchanges that takes beside a fixed and a renewed one, and for how
    // many seconds the key lives then.
    let hardly_longer = LockOptions::new().lease(Lease::fixed(OUTER + SECOND / 20));
    let inner = [
        ("shorter", fixed(4), [0, 0], 10),
        ("equal", fixed(10), [0, 0], 10),
        ("longer by what clocks may differ by", hardly_longer, [0, 0], 10),
        ("longer", fixed(30), [1, 1], 30),
        ("renewed", renewed(10), [0, 0], 10),
        ("renewed for less", renewed(4), [0, 0], 10),
        ("renewed for longer", renewed(30), [1, 1], 30),
        ("renewed never", renewed(30).max_renewals(0), [1, 1], 30),
        ("max_hold", fixed(10).max_hold(SECOND * 3), [0, 0], 10),
        ("max_hold of a longer one", renewed(30).max_hold(SECOND * 3), [1, 1], 30),
    ];
    for kind in KINDS {
        for (column, outer) in [fixed(10), renewed(10)].into_iter().enumerate() {
            for (name, options, exchanges, seconds) in inner {
                let case = format!("{kind:?}, {outer:?}, {name}");
                let bench = Bench::new(kind);
                let held = bench.outer(outer);
                assert_eq!(bench.pttl(), OUTER, "{case}");
                let (again, sent) = bench.exchanges(|| bench.inner(options).unwrap());
                assert_eq!(sent, exchanges[column], "{case}");
                assert_eq!(bench.pttl(), SECOND * seconds, "{case}");
                match options.max_hold {
                    Some(limit) => assert_eq!(bench.remaining(), limit, "{case}"),
                    None => assert!(bench.remaining() + MARGIN > SECOND * seconds, "{case}"),
                }
                // Nothing is left to ask for.
                let (third, sent) = bench.exchanges(|| bench.inner(options).unwrap());
                assert_eq!(sent, 0, "{case}");
                let ((), sent) = bench.exchanges(|| drop((third, again)));
                assert_eq!(sent, 0, "{case}");
                assert_eq!(bench.pttl(), SECOND * seconds, "{case}: it keeps its end");
                assert!(bench.remaining() + MARGIN > SECOND * seconds, "{case}: and no limit");
                drop(held);
                assert_eq!(bench.pttl(), Duration::ZERO, "{case}");
            }
        }
    }
}

/// The issue's own story, but for the clock.
#[test]
fn renewal_lasts_as_long_as_the_inner_guard() {
    at_once(|| KINDS.into_iter().for_each(renew_inside));
}

fn renew_inside(kind: Kind) {
    let bench = Bench::new(kind);
    let outer = bench.outer(fixed(10));
    bench.server.advance(SECOND * 8);
    let (inner, sent) = bench.exchanges(|| bench.inner(renewed(10)).unwrap());
    assert_eq!((sent, bench.pttl()), (1, OUTER), "{kind:?}");
    // A second one is renewed as well, and goes on without the first.
    let second = bench.inner(renewed(10)).unwrap();
    bench.server.advance(SECOND * 100);
    assert!(bench.remaining() > SECOND * 5, "{kind:?}");
    drop(inner);
    bench.server.advance(SECOND * 100);
    assert!(bench.remaining() > SECOND * 5, "{kind:?}");
    let hold = bench.hold();
    drop(second);
    let left = bench.pttl();
    assert!(left > SECOND * 5, "{kind:?}");
    bench.server.advance(left - MARGIN);
    assert!(bench.remaining() > Duration::ZERO, "{kind:?}: it keeps its end");
    bench.server.advance(MARGIN);
    assert_eq!(bench.pttl(), Duration::ZERO, "{kind:?}: it is not renewed any more");
    let loss = hold.loss().expect("it is over");
    assert_eq!(loss.cause(), LossCause::Expired, "{kind:?}");
    drop(outer);
}

#[test]
fn longest_of_all_is_renewed_and_each_guard_takes_away_its_own() {
    let bench = Bench::new(Kind::Mutex);
    let outer = bench.outer(renewed(6));
    let longest = bench.inner(renewed(60)).unwrap();
    let middle = bench.inner(renewed(30)).unwrap();
    bench.server.advance(SECOND * 200);
    assert!(bench.pttl() > SECOND * 39, "{:?}", bench.pttl());
    drop(longest);
    bench.server.advance(SECOND * 200);
    assert!((20..=30).contains(&bench.pttl().as_secs()), "{:?}", bench.pttl());
    drop(middle);
    bench.server.advance(SECOND * 200);
    assert!((4..=6).contains(&bench.pttl().as_secs()), "{:?}", bench.pttl());
    drop(outer);
}

/// The next renewal would come when that of the inner call was due.
#[test]
fn loss_is_noticed_as_soon_as_before_once_the_inner_call_is_over() {
    let bench = Bench::new(Kind::Mutex);
    let outer = bench.outer(renewed(6));
    let inner = bench.inner(renewed(60)).unwrap();
    // It is renewed for the inner call.
    bench.server.advance(SECOND * 3);
    assert!(bench.pttl() > SECOND * 50, "{:?}", bench.pttl());
    drop(inner);
    let hold = bench.hold();
    assert!(bench.server.delete(KEY));
    bench.server.advance(SECOND * 2);
    assert_eq!(hold.loss().expect("it was renewed").cause(), LossCause::Deleted);
    drop(outer);
}

/// The guard for which the lease is renewed may be gone before another that was taken inside it.
#[test]
fn fixed_lease_does_not_rest_on_the_renewals_of_another_call() {
    for outer in [fixed(10), renewed(6)] {
        let bench = Bench::new(Kind::Mutex);
        let _outer = bench.outer(outer);
        let first = bench.inner(renewed(30)).unwrap();
        bench.server.advance(SECOND * 9);
        let (_second, sent) = bench.exchanges(|| bench.inner(fixed(30)).unwrap());
        assert_eq!(sent, 1);
        drop(first);
        bench.link.cut();
        bench.server.advance(SECOND * 29);
        assert!(bench.remaining() > Duration::ZERO);
    }
}

#[test]
fn fixed_lease_in_a_renewed_one_outlasts_an_outage() {
    let bench = Bench::new(Kind::Mutex);
    let _outer = bench.outer(renewed(6));
    let _inner = bench.inner(fixed(60)).unwrap();
    bench.link.cut();
    bench.server.advance(SECOND * 55);
    assert!(bench.hold().loss().is_none() && bench.remaining() > Duration::ZERO);
}

#[test]
fn limit_of_an_inner_call_ends_the_whole_hold_or_nothing() {
    at_once(|| KINDS.into_iter().for_each(limit_inside));
}

fn limit_inside(kind: Kind) {
    let limited = || renewed(10).max_hold(SECOND * 5);
    let bench = Bench::new(kind);
    let outer = bench.outer(renewed(10).max_hold(SECOND * 100));
    let inner = bench.inner(limited()).unwrap();
    let shorter = bench.inner(renewed(10).max_hold(SECOND * 2)).unwrap();
    assert_eq!(bench.remaining(), SECOND * 2, "{kind:?}");
    drop(shorter);
    assert_eq!(bench.remaining(), SECOND * 5, "{kind:?}");
    bench.server.advance(SECOND * 4);
    drop(inner);
    bench.server.advance(SECOND * 50);
    assert!(bench.remaining() > SECOND, "{kind:?}: it was given up in time");
    let hold = bench.hold();
    let inner = bench.inner(limited()).unwrap();
    bench.server.advance(SECOND * 5);
    assert_eq!(hold.loss().expect("its time is over").cause(), LossCause::MaxHold, "{kind:?}");
    drop(inner);
    assert!(!hold.is_live(), "{kind:?}: what is lost stays lost");
    drop(outer);
}

/// Nobody has noticed yet that the time of the inner call is over.
#[test]
fn guard_that_is_dropped_late_gives_no_hold_back_its_time() {
    let bench = Bench::new(Kind::Mutex);
    bench.client.engine().worker.stand_still();
    let _outer = bench.outer(renewed(10));
    let inner = bench.inner(renewed(10).max_hold(SECOND)).unwrap();
    bench.server.advance(SECOND);
    let hold = bench.hold();
    assert!(hold.loss().is_none() && hold.valid_until() <= bench.client.engine().clock.now());
    drop(inner);
    assert!(hold.valid_until() <= bench.client.engine().clock.now());
}

#[test]
fn fewest_renewals_count_while_their_guard_lasts() {
    let few = |most| renewed(10).max_renewals(most);
    // The whole hold is lost when those of the inner call are used up.
    let bench = Bench::new(Kind::Mutex);
    let outer = bench.outer(renewed(10));
    bench.server.advance(SECOND * 100);
    let inner = bench.inner(few(2)).unwrap();
    let hold = bench.hold();
    bench.server.advance(SECOND * 14);
    assert!(hold.loss().is_none());
    bench.server.advance(SECOND * 6);
    assert_eq!(hold.loss().unwrap().cause(), LossCause::RenewalsUsedUp);
    drop((inner, outer));
    // Given up before, it takes nothing from the outer one.
    let _outer = bench.outer(renewed(10));
    let inner = bench.inner(few(0)).unwrap();
    bench.server.advance(SECOND * 8);
    assert!(bench.remaining() < SECOND * 2);
    drop(inner);
    bench.server.advance(SECOND * 100);
    assert!(bench.remaining() > SECOND * 5);
    // And the inner one has no more than the outer.
    let bench = Bench::new(Kind::Mutex);
    let _outer = bench.outer(few(1));
    let _inner = bench.inner(few(5)).unwrap();
    let hold = bench.hold();
    bench.server.advance(SECOND * 14);
    assert_eq!(hold.loss().unwrap().cause(), LossCause::RenewalsUsedUp);
}

/// Several threads may share its renewals.
#[test]
fn reader_does_not_limit_the_renewals_of_others() {
    let bench = Bench::new(Kind::Reader);
    let _outer = bench.outer(renewed(10));
    let _inner = bench.inner(renewed(10).max_renewals(0)).unwrap();
    bench.server.advance(SECOND * 100);
    assert!(bench.remaining() > SECOND * 5);
}

#[test]
fn lease_that_readers_share_is_renewed_for_the_longest_of_them() {
    let bench = Bench::new(Kind::Reader);
    let outer = bench.outer(renewed(6));
    let lock = bench.client.rw_lock_with(KEY, renewed(6)).unwrap();
    let (sender, receiver) = unbounded();
    let (stop, stopped) = unbounded::<()>();
    spawn("other", move || {
        let _other = lock.try_read().unwrap().expect("reads overlap");
        _ = sender.send(());
        let _ = stopped.recv();
    })
    .unwrap();
    receiver.recv().unwrap();
    let inner = bench.inner(renewed(60)).unwrap();
    bench.server.advance(SECOND * 100);
    assert!(bench.pttl() > SECOND * 39, "{:?}", bench.pttl());
    drop((inner, outer));
    bench.server.advance(SECOND * 100);
    assert!((4..=6).contains(&bench.pttl().as_secs()), "{:?}", bench.pttl());
    drop(stop);
    until(|| bench.pttl().is_zero());
}

/// The server in memory has no replicas, and `tests/it/replica.rs` real ones.
#[test]
fn copies_that_are_missing_leave_the_hold_as_it_was() {
    for kind in KINDS.into_iter().filter(|&kind| kind != Kind::ByKey) {
        let bench = Bench::new(kind);
        let server = bench.server.clone();
        while_time_passes(&server, move || ask_for_replicas(&bench));
    }
}

fn ask_for_replicas(bench: &Bench) {
    let kind = bench.kind;
    let outer = bench.outer(fixed(3_600));
    let (hold, before) = (bench.hold(), bench.hold().valid_until());
    let error = bench.inner(fixed(4).min_replicas(1, SECOND / 10)).map(drop).unwrap_err();
    assert!(error.is_not_replicated(), "{kind:?}: {error}");
    assert!(error.to_string().contains("holds the lock as before"), "{error}");
    assert!(hold.is_live() && hold.valid_until() == before, "{kind:?}");
    drop(outer);
    assert!(bench.pttl().is_zero(), "{kind:?}: it was not entered");
}

/// Runs this on a thread of its own, and lets the time pass for which it waits.
fn while_time_passes<T: Send + 'static>(
    server: &Server,
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = unbounded();
    spawn("body", move || _ = sender.send(body())).unwrap();
    let mut outcome = Err(TryRecvError::Empty);
    server.run_until(|| {
        outcome = receiver.try_recv();
        !matches!(outcome, Err(TryRecvError::Empty))
    });
    outcome.expect("it has panicked")
}

#[test]
fn failure_leaves_the_hold_as_it_was_and_tells_which_it_was() {
    at_once(|| KINDS.into_iter().for_each(fail_inside));
}

fn fail_inside(kind: Kind) {
    type Fault = fn(&Bench);
    let faults: [(&str, Fault, ErrorKind, bool); 5] = [
        ("wrong type", Bench::overwrite, ErrorKind::Lost, false),
        ("cut", |it| it.link.cut(), ErrorKind::Unreachable, true),
        ("no reply", |it| it.link.lose_answers(9), ErrorKind::UnknownOutcome, true),
        ("deleted", |it| assert!(it.server.delete(KEY)), ErrorKind::Lost, false),
        ("flushed", |it| it.server.flush(), ErrorKind::Lost, false),
    ];
    for (name, fault, expected, survives) in faults {
        for options in [fixed(30), renewed(30)] {
            let case = format!("{kind:?}, {name}, {options:?}");
            let bench = Bench::new(kind);
            let outer = bench.outer(fixed(10));
            let (hold, before) = (bench.hold(), bench.remaining());
            fault(&bench);
            let error = bench.inner(options).map(drop).expect_err(&case);
            assert_eq!(error.kind(), expected, "{case}: {error}");
            bench.link.restore();
            assert_eq!(hold.is_live(), survives, "{case}");
            assert_eq!(error.to_string().contains("as before"), survives, "{case}: {error}");
            if survives {
                assert_eq!(bench.remaining(), before, "{case}");
                // What asks for nothing is as good as ever.
                drop(bench.inner(fixed(4)).unwrap());
                // It was not entered, and nothing renews it.
                bench.server.advance(OUTER - MARGIN);
                assert!(hold.loss().is_none(), "{case}");
                drop(outer);
                bench.server.advance(Duration::ZERO);
                assert!(bench.pttl().is_zero(), "{case}");
            } else {
                let cause = hold.loss().expect("it is lost").cause();
                assert!([LossCause::Deleted, LossCause::Taken].contains(&cause), "{case}");
            }
        }
    }
}

#[test]
fn time_of_the_call_bounds_its_request() {
    // Without a time, an exchange has that of the client: a second for a connection and one for the reply.
    for kind in KINDS {
        // The clock may go on before the thread that has waited runs, so the shortest of some counts.
        let is_short = (0..5).any(|_| {
            let short = time_without_a_reply(kind, Some(SECOND / 5));
            assert!(short >= SECOND / 5, "{kind:?}: {short:?}");
            short < SECOND / 3
        });
        assert!(is_short, "{kind:?}");
        let whole = time_without_a_reply(kind, None);
        // A call by key always has a time.
        let most = if kind == Kind::ByKey { SECOND + SECOND / 5 } else { SECOND * 4 };
        assert!(whole > SECOND / 2 && whole < most, "{kind:?}: {whole:?}");
    }
}

/// How long an inner call with this time takes that has no reply.
fn time_without_a_reply(kind: Kind, wait: Option<Duration>) -> Duration {
    let bench = Bench::new(kind);
    let server = bench.server.clone();
    let (error, took, is_as_before) = while_time_passes(&server, move || {
        let _outer = bench.outer(fixed(10));
        let hold = bench.hold();
        bench.link.silence();
        let before = bench.server.elapsed();
        let error = bench.take(fixed(30), false, wait).map(drop).unwrap_err();
        let took = bench.server.elapsed() - before;
        bench.link.restore();
        let is_reached = hold.lease.perhaps_until() > hold.lease.leased_until().after(SECOND * 15);
        (error, took, hold.is_live() && is_reached)
    });
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{kind:?}: {error}");
    assert!(is_as_before, "{kind:?}: its removal must reach as far as the lease may in Redis");
    took
}

#[test]
fn calls_by_key_end_in_their_order() {
    let bench = Bench::new(Kind::ByKey);
    let lock = |lease| assert!(bench.client.try_lock(KEY, SECOND, lease).unwrap());
    let unlock = || bench.client.unlock(KEY).unwrap();
    lock(Lease::fixed(OUTER));
    lock(Lease::renewed(OUTER));
    lock(Lease::renewed(OUTER).at_most(SECOND * 50));
    lock(Lease::fixed(OUTER));
    assert!(bench.hold().limit() < bench.client.engine().clock.now().after(SECOND * 51));
    unlock();
    bench.server.advance(SECOND * 40);
    assert!(bench.client.is_held(KEY));
    unlock();
    bench.server.advance(SECOND * 40);
    assert!(bench.client.is_held(KEY), "its limit is gone");
    unlock();
    bench.server.advance(OUTER);
    assert!(!bench.client.is_held(KEY), "its renewal is gone");
    assert!(bench.client.unlock(KEY).unwrap_err().is_lost());
}

#[test]
fn guard_that_leaves_its_thread_keeps_what_it_asked_for() {
    let bench = Bench::new(Kind::Mutex);
    let lock = |options| bench.client.mutex_with(KEY, options).unwrap().lock().unwrap();
    let outer = lock(fixed(10));
    let inner = lock(renewed(10));
    drop(outer);
    let owned = inner.into_owned().unwrap();
    bench.server.advance(SECOND * 100);
    assert!(owned.is_valid());
    let guard = owned.into_guard();
    bench.server.advance(SECOND * 100);
    assert!(guard.is_valid());
    drop(guard);
    assert!(bench.pttl().is_zero());
}

/// The next hold of the lease has its own options.
#[test]
fn lease_that_lingers_or_is_passed_on_forgets_the_calls_inside() {
    let lingering = |options: LockOptions| options.linger(SECOND * 2);
    let bench = Bench::new(Kind::Mutex);
    super::double::listen(&bench.client);
    let outer = bench.client.mutex_with(KEY, lingering(renewed(10))).unwrap();
    let inner = bench.client.mutex_with(KEY, renewed(60).max_hold(SECOND * 3)).unwrap();
    let first = outer.lock().unwrap();
    // A guard that outlives the hold: it was released by key.
    let outlives = inner.lock().unwrap();
    bench.client.unlock(KEY).unwrap();
    bench.client.unlock(KEY).unwrap();
    bench.server.advance(SECOND / 100);
    let (_next, sent) = bench.exchanges(|| outer.lock().unwrap());
    assert_eq!(sent, 0, "it lingered");
    assert!(bench.remaining() > SECOND * 10, "its end stays, and not the limit");
    bench.server.advance(SECOND * 200);
    assert!((6..=10).contains(&bench.pttl().as_secs()), "{:?}", bench.pttl());
    drop((first, outlives));
    bench.server.advance(SECOND * 20);
    assert!(bench.remaining() > SECOND * 5);
}

/// What was asked for is in force without the guard inside which it was.
#[test]
fn reader_that_is_left_of_a_writer_has_what_it_asked_for() {
    let bench = Bench::new(Kind::ReaderInWriter);
    let outer = bench.outer(fixed(10));
    let inner = bench.inner(renewed(10)).unwrap();
    drop(outer);
    bench.server.advance(SECOND * 100);
    assert!(bench.remaining() > SECOND * 5);
    drop(inner);
    assert!(bench.pttl().is_zero());
}

/// What cannot be: the tail is in the value with which Redis knows the owner.
#[test]
fn tail_of_an_inner_call_has_no_effect() {
    let bench = Bench::new(Kind::Mutex);
    let tail = |seconds| Lease::renewed(OUTER).recoverable_for(SECOND * seconds);
    let _outer = bench.outer(renewed(10));
    let inner = bench.inner(LockOptions::new().lease(tail(60))).unwrap();
    let hold = bench.hold();
    bench.link.cut();
    bench.server.advance(OUTER);
    assert!(hold.loss().is_some(), "it does not come back");
    drop(inner);
}

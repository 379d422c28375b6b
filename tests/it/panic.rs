//! A logger that panics loses its lines and nothing else, on background threads and on those of users.

use std::sync::{Mutex as StdMutex, MutexGuard, Once, PoisonError, mpsc};
use std::thread;
use std::time::Instant;

use crate::common::process::in_own_process;
use crate::common::{
    SLACK, SOON, ask, behind_proxy, ms, open, open_at, patient, renewed, server, until,
};
use leasehold::{Guard, LockClient, LossCause};
use leasehold_support::lag::Spent as _;

/// Where it panics next: on threads whose name begins so, at messages that contain that.
static ARMED: StdMutex<Option<(&str, &str)>> = StdMutex::new(None);
static FIRED: StdMutex<u64> = StdMutex::new(0);

struct Faulty;

impl log::Log for Faulty {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let armed = *ARMED.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((name, text)) = armed else { return };
        let here = thread::current();
        let here = here.name().unwrap_or_default();
        if here.starts_with(name) && record.args().to_string().contains(text) {
            *FIRED.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            panic!("on purpose, in {here}: {}", record.args());
        }
    }

    fn flush(&self) {}
}

fn fired() -> u64 {
    *FIRED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The logger panics there for as long as this lives; one test at a time.
struct Armed(#[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Armed {
    fn new(thread: &'static str, text: &'static str) -> Armed {
        static TURN: StdMutex<()> = StdMutex::new(());
        static LOGGER: Once = Once::new();
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        LOGGER.call_once(|| {
            log::set_logger(&Faulty).expect("the only logger");
            log::set_max_level(log::LevelFilter::Trace);
        });
        *FIRED.lock().unwrap_or_else(PoisonError::into_inner) = 0;
        *ARMED.lock().unwrap_or_else(PoisonError::into_inner) = Some((thread, text));
        Armed(turn)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        *ARMED.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

const USER: &str = "user";
/// The thread that writes the lines of the worker and the listener.
const LOG: &str = "lease-log";

/// Each failed renewal is a panic, until Redis is there again.
#[cfg(feature = "testing")]
#[test]
fn worker_goes_on_after_a_panic() {
    in_own_process!();
    let _armed = Armed::new(LOG, "");
    let server = leasehold::testing::Server::standing_still();
    // What lists the locks in use is not among the keys.
    let client = server.connect(LockClient::builder("redis://memory").announce(false)).unwrap();
    let kept: Vec<Guard> = (0..20)
        .map(|number| client.mutex_with(format!("kept{number}"), renewed(6_000)).unwrap())
        .map(|lock| lock.lock().unwrap())
        .collect();
    let dropped = client.mutex_with("dropped", renewed(20_000)).unwrap().lock().unwrap();
    let is_there = || server.keys().contains(&b"dropped".to_vec());
    server.link(&client).cut();
    drop(dropped);
    // All renewals are due and fail, and are tried again.
    server.advance(ms(4_000));
    assert!(is_there());
    until("it has panicked again and again", || fired() >= 3);
    server.link(&client).restore();
    server.run_until(|| !is_there());
    server.advance(ms(60_000));
    assert_eq!(kept.iter().find_map(Guard::loss), None, "after {} panics", fired());
    // Nothing was counted twice or forgotten.
    client.shutdown(SOON).unwrap();
    assert!(server.keys().iter().all(|key| key.ends_with(b"fence")));
}

/// One lock's renewal panics each time: it alone is lost, at its time.
#[test]
fn panicking_renewal_is_a_loss_of_its_own_lease_only() {
    in_own_process!();
    let _armed = Armed::new(LOG, "\"bad\"");
    let server = server();
    let client = open(&server);
    let kept: Vec<Guard> = (0..50)
        .map(|number| client.mutex_with(format!("good{number}"), renewed(9_000)).unwrap())
        .map(|lock| lock.lock().unwrap())
        .collect();
    let bad = client.mutex_with("bad", renewed(9_000)).unwrap().lock().unwrap();
    let (sender, receiver) = mpsc::channel();
    bad.on_loss(move |loss| sender.send(loss.cause()).unwrap());
    // Its renewals are denied from now on, and a warning is logged of each.
    ask::<()>(&server, &["ACL", "SETUSER", "default", "resetkeys", "~*good*"]);
    let (begin, left) = (Instant::now(), bad.remaining());
    let cause = receiver.recv_timeout(SOON).unwrap();
    let took = begin.spent();
    assert!(!bad.is_valid() && took < left + SLACK * 2, "{took:?} of {left:?}");
    assert_eq!(cause, LossCause::Refused);
    assert!(fired() >= 2, "{}", fired());
    // Theirs go on.
    let mut last = kept[0].remaining();
    until("they are renewed again", || {
        assert_eq!(kept.iter().find_map(Guard::loss), None);
        let before = std::mem::replace(&mut last, kept[0].remaining());
        last > before
    });
}

#[test]
fn listener_subscribes_again_after_a_panic() {
    in_own_process!();
    let _armed = Armed::new(LOG, "");
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let listens = || ask::<Vec<String>>(&server, &["PUBSUB", "CHANNELS", "leasehold:*"]).len() == 1;
    let lock = client.mutex("x").unwrap();
    let holder = open(&server).mutex("x").unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().map(drop));
        until("it listens", listens);
        proxy.refuse();
        proxy.cut();
        until("it has panicked", || fired() > 0);
        assert!(!listens());
        proxy.heal();
        until("it listens again", listens);
        holder.release().unwrap();
        waiter.join().unwrap().unwrap();
    });
}

/// A drop that logged while its thread unwinds would end the process.
#[test]
fn panicking_logger_does_not_panic_the_user() {
    in_own_process!();
    let _armed = Armed::new(USER, "lost");
    let server = server();
    let client = open(&server);
    let lock = client.mutex("x").unwrap();
    let user = thread::Builder::new().name(USER.to_owned());
    let outcome = thread::scope(|scope| {
        let lock = &lock;
        let user = user.spawn_scoped(scope, || {
            let guard = lock.lock().unwrap();
            ask::<()>(&server, &["DEL", "x"]);
            assert!(guard.check().unwrap_err().is_lost());
            drop(guard);
            let _guard = lock.lock().unwrap();
            ask::<()>(&server, &["DEL", "x"]);
            std::panic::resume_unwind(Box::new("of the user"));
        });
        user.unwrap().join()
    });
    assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"of the user"));
    assert!(fired() > 1);
    assert!(lock.try_lock_for(SOON).unwrap().is_some());
}

/// A callback panics, and so does the logger that is told.
#[test]
fn panicking_callback_and_logger_do_not_stop_others() {
    in_own_process!();
    let _armed = Armed::new("lease-call-", "");
    let server = server();
    let (sender, receiver) = mpsc::channel();
    let builder = patient(LockClient::builder(server.url()));
    let client = builder.on_loss(move |loss| sender.send(loss.cause()).unwrap()).build().unwrap();
    let guard = client.mutex_with("x", renewed(6_000)).unwrap().lock().unwrap();
    guard.on_loss(|_| panic!("on purpose"));
    ask::<()>(&server, &["DEL", "x"]);
    assert_eq!(receiver.recv_timeout(SOON), Ok(LossCause::Deleted));
    assert!(fired() > 0);
}

//! The roles of child processes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use leasehold::{Error, Lease, LockClient, LockOptions};
use leasehold_support::child::{hear, role, tell};
use leasehold_support::fork::fork;

use crate::common::{ms, renewed};
use crate::trial::{COMMAND, KEY, LEASE, TAIL};

/// The parts that children play.
pub(crate) fn play() {
    match role().as_deref() {
        Some("holder") => hold(),
        Some("hurt") => hold_hurt(),
        Some("waiter") => wait_in_queue(),
        Some("worker") => work(),
        Some("forker") => fork_away(),
        Some("clocked") => hold_by_the_clock(),
        Some(other) => panic!("unknown role {other}"),
        None => {}
    }
}

fn own_lock() -> leasehold::Mutex {
    let builder = LockClient::builder(std::env::var("URL").expect("a URL"));
    let client = builder.command_timeout(COMMAND).build().unwrap();
    let options = match std::env::var_os("TAIL") {
        Some(_) => LockOptions::new().lease(Lease::renewed(ms(LEASE)).recoverable_for(ms(TAIL))),
        None => renewed(LEASE),
    };
    client.mutex_with(KEY, options).unwrap()
}

fn hold() {
    let guard = own_lock().lock().unwrap();
    tell(&format!("held {}", guard.fencing_token()));
    hear();
    if std::env::var_os("TAIL").is_some() {
        // The reply to a renewal may be on its way.
        let _ = guard.check();
    }
    let seen = (guard.is_valid(), guard.remaining());
    tell(&format!("valid {} {:?}", seen.0, seen.1));
    hear();
    tell(match guard.release() {
        Ok(()) => "released in time",
        Err(error) if error.is_lost() => "released lost",
        Err(_) => "released ?",
    });
}

/// A logger that hurts the thread that writes the lines of the worker, the first time that it logs a warning.
struct Hurting {
    how: String,
    done: AtomicBool,
}

impl log::Log for Hurting {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &log::Record<'_>) {
        let writer = thread::current().name().is_some_and(|name| name == "lease-log");
        if writer && !self.done.swap(true, Ordering::SeqCst) {
            tell("hurt");
            match self.how.as_str() {
                "panic" => panic!("planned"),
                _ => thread::sleep(ms(LEASE * 2)),
            }
        }
    }

    fn flush(&self) {}
}

fn hold_hurt() {
    let how = std::env::var("HOW").expect("a way");
    let logger = Box::leak(Box::new(Hurting { how, done: AtomicBool::new(false) }));
    log::set_logger(logger).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    hold();
}

/// Forks while it holds a lock. The fork may not do anything, and its end is not the parent's.
fn fork_away() {
    let lock = own_lock();
    let guard = lock.lock().unwrap();
    tell(&format!("held {}", guard.fencing_token()));
    let fork = fork(|| {
        let refused = |error: Error| error.is_refused() && error.to_string().contains("fork");
        let copy = lock.lock().expect("the copy of a hold");
        let answers = [
            copy.check().is_err_and(refused),
            lock.holder().is_err_and(refused),
            lock.force_release().is_err_and(refused),
        ];
        drop(copy);
        tell(&format!("fork {} {answers:?}", std::process::id()));
    });
    let begin = Instant::now();
    while begin.elapsed() < ms(LEASE + 200) {
        guard.check().unwrap();
        thread::sleep(ms(1));
    }
    assert!(fork.unwrap().wait().unwrap().success());
    guard.release().unwrap();
    tell("well");
}

/// Holds a lock while its own wall clock jumps.
fn hold_by_the_clock() {
    #[allow(clippy::disallowed_methods, reason = "it is to be seen that this one jumps")]
    let wall = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |span| span.as_secs());
    let guard = own_lock().lock().unwrap();
    tell(&format!("held {}", wall()));
    while hear().as_deref() == Some("look") {
        let begin = Instant::now();
        while begin.elapsed() < ms(LEASE + 200) {
            assert!(guard.is_valid(), "{:?}", guard.loss());
            assert!(guard.remaining() <= ms(LEASE));
            thread::sleep(ms(5));
        }
        guard.check().unwrap();
        tell(&format!("valid {}", wall()));
    }
    guard.release().unwrap();
    tell("well");
}

fn wait_in_queue() {
    let guard = own_lock().lock().unwrap();
    tell(&format!("granted {}", guard.fencing_token()));
    guard.release().unwrap();
}

fn is_expected(error: &Error) -> bool {
    error.is_unknown_outcome() || error.is_unreachable()
}

/// Locks and unlocks; each outcome is a typed one, and each token above the last.
fn work() {
    let lock = own_lock();
    drop(lock.lock().unwrap());
    tell("ready");
    hear();
    let enough = thread::spawn(hear);
    let (begin, mut done, mut last) = (Instant::now(), 0_u64, 0);
    while begin.elapsed() < ms(600) || done == 0 || !enough.is_finished() {
        match lock.try_lock() {
            Ok(Some(guard)) => {
                let token = guard.fencing_token().get();
                assert!(token > last, "{token} after {last}");
                last = token;
                match guard.release() {
                    Ok(()) => done += 1,
                    Err(error) => assert!(is_expected(&error) || error.is_lost(), "{error:?}"),
                }
            }
            Ok(None) => {}
            Err(error) => assert!(is_expected(&error), "{error:?}"),
        }
    }
    tell(&format!("done {done}"));
}

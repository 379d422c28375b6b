//! What the child processes of trials do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use leasehold::{Error, LockClient};
use leasehold_support::child::{hear, role, tell};

use crate::common::{ms, renewed};
use crate::trial::{COMMAND, KEY, LEASE};

/// The parts that children play.
pub(crate) fn play() {
    match role().as_deref() {
        Some("holder") => hold(),
        Some("hurt") => hold_hurt(),
        Some("waiter") => wait_in_queue(),
        Some("worker") => work(),
        Some(other) => panic!("unknown role {other}"),
        None => {}
    }
}

fn own_lock() -> leasehold::Mutex {
    let builder = LockClient::builder(std::env::var("URL").expect("a URL"));
    let client = builder.command_timeout(COMMAND).build().unwrap();
    client.mutex_with(KEY, renewed(LEASE)).unwrap()
}

fn hold() {
    let guard = own_lock().lock().unwrap();
    tell(&format!("held {}", guard.fencing_token()));
    hear();
    let seen = (guard.is_valid(), guard.remaining());
    tell(&format!("valid {} {:?}", seen.0, seen.1));
    hear();
    tell(match guard.release() {
        Ok(()) => "released in time",
        Err(error) if error.is_lost() => "released lost",
        Err(_) => "released ?",
    });
}

/// A logger that hurts the worker the first time that it logs a warning.
struct Hurting {
    how: String,
    done: AtomicBool,
}

impl log::Log for Hurting {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.args().to_string().contains("goes on") {
            tell("goes on");
        }
        let worker = thread::current().name() == Some("leasehold-worker");
        if worker && !self.done.swap(true, Ordering::SeqCst) {
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

fn wait_in_queue() {
    let guard = own_lock().lock().unwrap();
    tell(&format!("granted {}", guard.fencing_token()));
    guard.release().unwrap();
}

fn is_told(error: &Error) -> bool {
    error.is_unknown_outcome() || error.is_unreachable()
}

/// Locks and unlocks; each outcome is a typed one, and each token above the last.
fn work() {
    let lock = own_lock();
    drop(lock.lock().unwrap());
    tell("ready");
    hear();
    let (begin, mut done, mut last) = (Instant::now(), 0_u64, 0);
    while begin.elapsed() < ms(600) || done == 0 {
        match lock.try_lock() {
            Ok(Some(guard)) => {
                let token = guard.fencing_token().get();
                assert!(token > last, "{token} after {last}");
                last = token;
                match guard.release() {
                    Ok(()) => done += 1,
                    Err(error) => assert!(is_told(&error) || error.is_lost(), "{error:?}"),
                }
            }
            Ok(None) => {}
            Err(error) => assert!(is_told(&error), "{error:?}"),
        }
    }
    tell(&format!("done {done}"));
}

//! A process that takes one lock again and again, and records when it relies on it. It is compiled in this tree and in an
//! older one, so it has only what both have.

use std::thread::sleep;
use std::time::{Duration, Instant};

use fastrand::Rng;
use leasehold::{Guard, Lease, LockClient, LockOptions};
use leasehold_proof::trial::{Record, work};
use leasehold_support::history::now;

pub(crate) const LEASE: Duration = Duration::from_millis(600);
pub(crate) const NAME: &str = "LEASEHOLD_NAME";
const WAIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);
/// A validity that lasts so much longer is another one, in ns.
const LONGER: u64 = 1_000_000;

/// Contends until it is killed.
pub(crate) fn serve(lease: Lease) {
    work(|url, record| {
        let name = std::env::var(NAME).expect("the name of the lock");
        let client = LockClient::builder(url).build().expect("a client");
        let options = LockOptions::new().lease(lease);
        let mutex = client.mutex_with(name, options).expect("a mutex");
        let mut rng = Rng::new();
        loop {
            match mutex.try_lock_for(WAIT) {
                Ok(Some(guard)) => {
                    // Now and then for so long that it is renewed.
                    let most = if rng.u8(..8) == 0 { 2 * LEASE.as_millis() as u64 } else { 60 };
                    hold(guard, record, Duration::from_millis(rng.u64(5..most)));
                }
                _ => sleep(PAUSE),
            }
        }
    });
}

/// | line | means |
/// | --- | --- |
/// | `V token at until` | the hold is valid from `at` until `until`, unless it is released |
/// | `S token at` | it is not valid, and not lost |
/// | `L token at cause` | it is lost |
/// | `R token at` | it is about to be released |
fn hold(guard: Guard, record: &Record, stay: Duration) {
    let token = guard.fencing_token();
    let end = Instant::now() + stay;
    let (mut told, mut is_silent) = (0, false);
    loop {
        // In this order, so that no validity is recorded as longer than it is.
        let before = now();
        let left = u64::try_from(guard.remaining().as_nanos()).expect("no age of the world");
        let (at, until) = (now(), before + left);
        if at < until {
            if is_silent || until > told + LONGER {
                record.line(&format!("V {token} {at} {until}"));
            }
            (told, is_silent) = (told.max(until), false);
            if Instant::now() >= end {
                break;
            }
        } else if let Some(loss) = guard.loss() {
            record.line(&format!("L {token} {at} {}", loss.cause()));
            return;
        } else if left == 0 && !is_silent {
            is_silent = true;
            record.line(&format!("S {token} {at}"));
        }
        sleep(PAUSE);
    }
    record.line(&format!("R {token} {}", now()));
    drop(guard.release());
}

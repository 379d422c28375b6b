//! One thread of a process that uses a lock, and records each of its calls.
//!
//! The form of the lines is in `porcupine/README.md`.

use std::fmt::Arguments;
use std::thread::sleep;
use std::time::Duration;

use fastrand::Rng;
use leasehold::{
    Error, ErrorKind, Guard, Leadership, Lease, LockOptions, Permit, ReadGuard, Release, Result,
    UpgradableReadGuard, Wait, WriteGuard,
};
use leasehold_proof::trial::Record;
use leasehold_support::history::now;

use crate::client::Client;
use crate::round::{CHANGES, variable};
use crate::store::{Content, Store};
use crate::topology::Address;

/// How long a lock lasts without a renewal.
pub(crate) const LEASE: Duration = Duration::from_millis(800);

/// What a guard of any kind has.
pub(crate) trait Hold {
    fn token(&self) -> u64;
    fn remaining(&self) -> Duration;
    fn is_valid(&self) -> bool;
    fn release(self) -> Result<()>;
}

macro_rules! holds {
    ($($guard:ident)+) => {$(
        impl Hold for $guard {
            fn token(&self) -> u64 {
                self.fencing_token().get()
            }

            fn remaining(&self) -> Duration {
                $guard::remaining(self)
            }

            fn is_valid(&self) -> bool {
                $guard::is_valid(self)
            }

            fn release(self) -> Result<()> {
                $guard::release(self)
            }
        }
    )+};
}

holds! { Guard Permit ReadGuard UpgradableReadGuard WriteGuard Leadership }

/// A thread of a process.
pub(crate) struct Worker<'a> {
    pub(crate) thread: u32,
    pub(crate) rng: Rng,
    pub(crate) address: &'a Address,
    pub(crate) client: &'a Client,
    pub(crate) store: Store,
    record: &'a Record,
    /// Of how many holds one changes what the lock protects.
    changes: u32,
    values: u64,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        thread: u32,
        address: &'a Address,
        client: &'a Client,
        store: Store,
        record: &'a Record,
    ) -> Worker<'a> {
        let changes = variable(CHANGES).parse().expect("a number");
        Worker { thread, rng: Rng::new(), address, client, store, record, changes, values: 0 }
    }

    /// Writes a line.
    pub(crate) fn line(&self, at: u64, phase: &str, op: &str, object: &str, rest: Arguments<'_>) {
        self.record.line(&format!("{at} {} {phase} {op} {object}{rest}", self.thread));
    }

    /// The beginning of a call.
    pub(crate) fn call(&self, op: &str, object: &str, rest: Arguments<'_>) -> u64 {
        let at = now();
        self.line(at, "call", op, object, rest);
        at
    }

    /// The end of a call with an error: of an unknown outcome, or sure that nothing was done.
    pub(crate) fn failed(&mut self, op: &str, object: &str, error: &Error) {
        let phase = if error.is_unknown_outcome() { "unknown" } else { "no" };
        self.line(now(), phase, op, object, format_args!(" error={}", word(error.kind())));
        self.pause(10_000);
    }

    /// Sleeps for so many microseconds at most.
    pub(crate) fn pause(&mut self, most: u64) {
        sleep(Duration::from_micros(self.rng.u64(0..most)));
    }

    /// Stays in a critical section: mostly briefly, and now and then for long, to be hit by what goes wrong.
    pub(crate) fn stay(&mut self, object: &str, hold: &impl Hold) {
        match self.rng.u8(..40) {
            0 => self.pause(100_000),
            1..=4 => self.pause(3_000),
            _ => return,
        }
        // In this order, so that it is never too late.
        let (at, remaining) = (now(), hold.remaining());
        if !remaining.is_zero() {
            self.line(at, "valid", "hold", object, format_args!(" until={}", after(at, remaining)));
        }
    }

    /// Asks for a hold, and records what came of it. `rest` is what else the call says, `more` what else the grant does.
    pub(crate) fn acquire<H: Hold>(
        &mut self,
        op: &str,
        object: &str,
        rest: Arguments<'_>,
        take: impl FnOnce() -> Result<Option<H>>,
        more: impl FnOnce(&H) -> String,
    ) -> Option<H> {
        let invoked = self.call(op, object, rest);
        let taken = take();
        let at = now();
        match taken {
            Ok(Some(hold)) => {
                let (token, until) = (hold.token(), until(invoked, at, &hold));
                let more = more(&hold);
                self.line(at, "ok", op, object, format_args!(" token={token} until={until}{more}"));
                return Some(hold);
            }
            Ok(None) => {
                self.line(at, "no", op, object, format_args!(""));
                self.pause(3_000);
            }
            Err(error) => self.failed(op, object, &error),
        }
        None
    }

    /// Releases a hold, and records it. The hold is over before its release is sent.
    pub(crate) fn release(&mut self, op: &str, object: &str, hold: impl Hold) {
        self.leaving(op, object, format_args!(""), &hold);
        let released = hold.release();
        self.released(op, object, released);
    }

    /// The beginning of a call that ends a hold: the moment first, so that the hold was valid then if it still is.
    pub(crate) fn leaving(&self, op: &str, object: &str, rest: Arguments<'_>, hold: &impl Hold) {
        let at = now();
        let valid = if hold.is_valid() { "yes" } else { "no" };
        self.line(at, "call", op, object, format_args!(" valid={valid}{rest}"));
    }

    /// The end of such a call.
    pub(crate) fn released(&self, op: &str, object: &str, released: Result<()>) {
        let at = now();
        match released {
            Ok(()) => self.line(at, "ok", op, object, format_args!("")),
            Err(error) => {
                // The client goes on trying, unless it is lost.
                let phase = if error.is_lost() || error.is_not_held() { "no" } else { "unknown" };
                self.line(at, phase, op, object, format_args!(" error={}", word(error.kind())));
            }
        }
    }

    /// A value that nobody else adds.
    pub(crate) fn value(&mut self) -> String {
        self.values += 1;
        format!("{}.{}.{}", std::process::id(), self.thread, self.values)
    }

    /// Changes what the lock protects, if it is time to.
    pub(crate) fn change(&mut self, object: &str, token: u64) {
        if self.rng.u32(..self.changes) == 0 {
            self.change_now(object, token);
        }
    }

    /// Changes what the lock protects: a set beside Redis that compares tokens when it is read and when it is written.
    pub(crate) fn change_now(&mut self, object: &str, token: u64) {
        let (object, value) = (format!("tokens:{object}"), self.value());
        self.call("add", &object, format_args!(" value={value} token={token}"));
        let holder = format!("{}.{}", std::process::id(), self.thread);
        let Some(before) = self.store.enter(&object, token, &holder) else {
            return self.line(now(), "no", "add", &object, format_args!(" refused=read"));
        };
        let is_written = self.store.write_fenced(&object, token, &holder, &before.with(&value));
        let at = now();
        if is_written {
            self.added(at, &object, &before);
        } else {
            self.line(at, "no", "add", &object, format_args!(" refused=write"));
        }
    }

    /// A value was added to what stood there before.
    pub(crate) fn added(&self, at: u64, object: &str, before: &Content) {
        let (count, last) = (before.count(), before.last());
        self.line(at, "ok", "add", object, format_args!(" saw={count}:{last}"));
    }

    /// How the hold is asked for: a lease that is mostly renewed, and that may stay for the next thread.
    pub(crate) fn options(&mut self) -> LockOptions {
        let fixed = self.rng.u8(..8) == 0;
        let lease = if fixed { Lease::fixed(LEASE) } else { Lease::renewed(LEASE) };
        let options = LockOptions::new().lease(lease);
        match self.rng.u8(..6) {
            0 => options.linger(Duration::from_millis(20)),
            _ => options,
        }
    }

    /// The same for a mutex, which has more ways to wait. Over several servers it has no others, and does not linger.
    pub(crate) fn mutex_options(&mut self) -> LockOptions {
        let mut options = self.options();
        if matches!(self.client, Client::Several(_)) {
            options = options.linger(Duration::ZERO);
            return match self.rng.u8(..12) {
                0 | 1 => options.wait(Wait::spin()),
                2 => options.local_handoffs(0),
                _ => options,
            };
        }
        match self.rng.u8(..12) {
            0 => options.linger(Duration::ZERO).wait(Wait::spin()),
            1 => options.linger(Duration::ZERO).wait(Wait::spin()).release(Release::watch()),
            2 => options.local_handoffs(0),
            _ => options,
        }
    }

    /// How long a call waits.
    pub(crate) fn wait(&mut self) -> Duration {
        Duration::from_millis(self.rng.u64(0..400))
    }
}

/// Until when a hold is valid that was granted at the latest at this moment. If it is over already, it was valid at some
/// moment of its call.
fn until(invoked: u64, at: u64, hold: &impl Hold) -> u64 {
    let remaining = hold.remaining();
    if remaining.is_zero() { invoked } else { after(at, remaining) }
}

pub(crate) fn after(at: u64, remaining: Duration) -> u64 {
    at + u64::try_from(remaining.as_nanos()).expect("a lease")
}

/// The kind of an error as one word.
pub(crate) fn word(kind: ErrorKind) -> String {
    let text = format!("{kind:?}").to_lowercase();
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

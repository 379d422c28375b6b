//! Faults of a process that holds a lock or waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::fault::{Active, Fired, Injector, Site};
use crate::signal::{self, Signal};

fn child(site: &Site<'_>) -> u32 {
    site.child.expect("a site with a process").pid()
}

/// It is stopped (SIGSTOP) until it is healed.
#[derive(Debug, Clone, Copy)]
pub struct Stopped;

impl Stopped {
    /// Begins it in a process of this id.
    ///
    /// # Panics
    ///
    /// If there is no such process.
    pub fn begin(&self, pid: u32) -> Active<'static> {
        signal::send(pid, Signal::STOP);
        let seen = u64::from(signal::state(pid) == Some('T'));
        let count = move || Fired { injected: 1, witnessed: seen, witness: "the process state" };
        Active::new(self.name(), count, move || signal::send(pid, Signal::CONT))
    }
}

impl Injector for Stopped {
    fn name(&self) -> String {
        "holder-stopped".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        self.begin(child(site))
    }
}

/// It is killed (SIGKILL). Nothing heals that.
#[derive(Debug, Clone, Copy)]
pub struct Killed;

impl Killed {
    /// Begins it in a process of this id.
    ///
    /// # Panics
    ///
    /// If there is no such process.
    pub fn begin(&self, pid: u32) -> Active<'static> {
        signal::send(pid, Signal::KILL);
        // This process, its parent, has not waited for it yet, so no other process has its number.
        let dead = move || matches!(signal::state(pid), None | Some('Z' | 'X'));
        let count =
            move || Fired { injected: 1, witnessed: dead().into(), witness: "the process state" };
        Active::new(self.name(), count, || ())
    }
}

impl Injector for Killed {
    fn name(&self) -> String {
        "holder-killed".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        self.begin(child(site))
    }
}

/// It is stopped and continued about a thousand times a second, until it is healed.
///
/// On Linux that interrupts its reads, writes and waits on sockets that have a time-out (`EINTR`),
/// signal handler or not.
#[derive(Debug, Clone, Copy)]
pub struct SignalStorm;

impl SignalStorm {
    /// Begins it in a process of this id.
    ///
    /// # Panics
    ///
    /// If there is no such process.
    pub fn begin(&self, pid: u32) -> Active<'static> {
        let stops = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let over = Arc::new(AtomicBool::new(false));
        let (counts, end) = (Arc::clone(&stops), Arc::clone(&over));
        let storm = thread::spawn(move || {
            while !end.load(Ordering::SeqCst) {
                let sent = signal::try_send(pid, Signal::STOP).is_ok();
                counts[0].fetch_add(u64::from(sent), Ordering::SeqCst);
                while sent && !matches!(signal::state(pid), Some('T' | 'Z' | 'X') | None) {
                    thread::yield_now();
                }
                counts[1].fetch_add(u64::from(sent), Ordering::SeqCst);
                let _ = signal::try_send(pid, Signal::CONT);
                thread::sleep(Duration::from_micros(800));
            }
        });
        let count = move || {
            let [injected, witnessed] = [0, 1].map(|index| stops[index].load(Ordering::SeqCst));
            // The last stop may be on its way.
            Fired { injected: injected.min(witnessed), witnessed, witness: "the process state" }
        };
        let heal = move || {
            over.store(true, Ordering::SeqCst);
            let _ = storm.join();
        };
        Active::new(self.name(), count, heal)
    }
}

impl Injector for SignalStorm {
    fn name(&self) -> String {
        "signal-storm".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        self.begin(child(site))
    }
}

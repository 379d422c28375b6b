//! How far a client has come with its end, and how threads wait for that.
//!
//! | phase | a thread that wants a lock | a thread that holds one |
//! | --- | --- | --- |
//! | open | waits, and acquires it | keeps it |
//! | closing | is refused, also in the midst of its wait | keeps it, and may take it once more |
//! | ended | is refused | loses it |
//!
//! A phase never goes back, so what it refuses stays refused. Each slot reads the phase under its own lock, and
//! from `closing` on it tells of every change here.

use crate::base::sync::{AtomicU32, Condvar, Mutex, Ordering};
use crate::base::time::{Clock, Moment};

/// How far a client has come with its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClosingPhase {
    Open,
    Closing,
    Ended,
}

/// The phase of one client, and where those wait who end it.
#[derive(Debug)]
pub(crate) struct Closing {
    phase: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Closing {
    pub(crate) fn new() -> Closing {
        let phase = AtomicU32::new(ClosingPhase::Open as u32);
        Closing { phase, lock: Mutex::new(()), changed: Condvar::new() }
    }

    pub(crate) fn phase(&self) -> ClosingPhase {
        match self.phase.load(Ordering::SeqCst) {
            0 => ClosingPhase::Open,
            1 => ClosingPhase::Closing,
            _ => ClosingPhase::Ended,
        }
    }

    /// Goes on to this phase, unless the client is past it.
    pub(crate) fn advance(&self, phase: ClosingPhase) {
        self.phase.fetch_max(phase as u32, Ordering::SeqCst);
        self.tell();
    }

    /// Something has changed for which a thread may wait here. The caller has no lock.
    pub(crate) fn tell(&self) {
        // A thread that has looked already waits by now, and one that looks later sees the change.
        drop(self.lock.lock());
        self.changed.notify_all();
    }

    /// Waits until none of these is busy any more, or the deadline. Returns those that are.
    pub(crate) fn wait<'a, T>(
        &self,
        clock: &dyn Clock,
        deadline: Moment,
        all: &'a [T],
        is_busy: impl Fn(&T) -> bool,
    ) -> impl Iterator<Item = &'a T> {
        let mut first = all;
        let mut state = self.lock.lock();
        loop {
            // None becomes busy again, so each change costs one look and not one at all of them.
            while let Some((last, others)) = first.split_last()
                && !is_busy(last)
            {
                first = others;
            }
            if first.is_empty() || deadline <= clock.now() {
                break;
            }
            clock.wait_until(deadline, &mut |left| {
                self.changed.wait_for(&mut state, left);
            });
        }
        drop(state);
        first.iter().filter(move |one| is_busy(one))
    }
}

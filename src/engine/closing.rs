//! How far a client has come with its end, and how threads wait for that.
//!
//! | phase | a thread that wants a lock | a thread that holds one |
//! | --- | --- | --- |
//! | open | waits, and acquires it | keeps it |
//! | closing | is refused, also in the midst of its wait | keeps it, and may take it once more; if it waits for an upgrade, gives it back |
//! | ended | is refused | loses it |
//!
//! A phase never goes back, so what it refuses stays refused. Each slot reads the phase under its own lock, and
//! from `closing` on it tells of every change here.

use crate::base::sync::{AtomicU32, AtomicUsize, Condvar, Mutex, Ordering};
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
    /// How many waits ended because of that before the thread that closes came to their slots.
    refused: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Closing {
    pub(crate) fn new() -> Closing {
        let phase = AtomicU32::new(ClosingPhase::Open as u32);
        Closing {
            phase,
            refused: AtomicUsize::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        }
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
        self.set(phase);
        self.tell();
    }

    /// The same for a caller that has a lock. Returns whether the client was open until now.
    pub(crate) fn set(&self, phase: ClosingPhase) -> bool {
        self.phase.fetch_max(phase as u32, Ordering::SeqCst) == ClosingPhase::Open as u32
    }

    /// Notes that a wait has ended because the client is closing.
    pub(crate) fn note_refused(&self) {
        self.refused.fetch_add(1, Ordering::SeqCst);
    }

    /// How many such waits nobody has counted yet.
    pub(crate) fn take_refused(&self) -> usize {
        self.refused.swap(0, Ordering::SeqCst)
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

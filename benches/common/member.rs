//! A thread of a crowd, and what it notes of each acquisition.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::clock::{now, sleep_until};
use super::way::Lock;
use super::witness::{Seen, Witness};

/// How often a process tells how far it is, where that is watched.
const TICK: Duration = Duration::from_millis(50);

/// What a slice was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slice {
    /// Acquisitions that began and ended in its time.
    pub(crate) within: u64,
    /// Those and the ones under way when its time was over.
    pub(crate) all: u64,
}

impl AddAssign for Slice {
    fn add_assign(&mut self, other: Slice) {
        self.within += other.within;
        self.all += other.all;
    }
}

/// A thread of the crowd.
pub(crate) struct Member {
    pub(crate) slice: Slice,
    pub(crate) longest: u64,
    /// The beginning and the end of each hold, if they are noted.
    pub(crate) holds: Vec<(u64, u64)>,
    pub(crate) waits: Histogram<u64>,
    pub(crate) operations: Histogram<u64>,
    pub(crate) seen: Seen,
    pub(crate) lost: u64,
}

impl Member {
    pub(crate) fn new() -> Member {
        let (waits, operations) = (times(), times());
        let (slice, seen) = (Slice::default(), Seen::default());
        Member { slice, longest: 0, holds: Vec::new(), waits, operations, seen, lost: 0 }
    }

    /// Wants the lock until the end of the slice; answers what it was.
    pub(crate) fn run(&mut self, work: &Work, start: u64, end: u64) -> Slice {
        let mut slice = Slice::default();
        sleep_until(start);
        while now() < end {
            let turn = self.once(work);
            slice += self.note(&turn, end);
            work.progress.fetch_add(1, Ordering::Relaxed);
        }
        slice
    }

    fn once(&mut self, work: &Work) -> Turn {
        let asked = now();
        let guard = work.lock.lock().unwrap_or_else(|error| panic!("no lock: {error}"));
        let had = now();
        let (mark, token) = (guard.mark(), guard.fencing_token().get());
        work.witness.enter(mark, token, &mut self.seen, || work.hold());
        let given_up = now();
        if work.noted {
            self.holds.push((had, given_up));
        }
        match guard.release() {
            Err(error) if error.is_lost() => self.lost += 1,
            outcome => outcome.unwrap_or_else(|error| panic!("no release: {error}")),
        }
        Turn { asked, had, given_up, released: now() }
    }

    /// Notes a turn of a slice that ends at this moment.
    fn note(&mut self, turn: &Turn, end: u64) -> Slice {
        let Turn { asked, had, given_up, released } = *turn;
        let (wait, release) = (had - asked, released - given_up);
        self.waits.record(wait).expect("it grows as needed");
        self.operations.record(wait + release).expect("it grows as needed");
        // Once the others have stopped, everybody gets the lock: that says nothing about waiting.
        self.longest = self.longest.max(had.min(end).saturating_sub(asked));
        let slice = Slice { within: u64::from(released <= end), all: 1 };
        self.slice += slice;
        slice
    }
}

/// One acquisition: the moments of the call, of its return, of the call to release, and of that one's
/// return.
struct Turn {
    asked: u64,
    had: u64,
    given_up: u64,
    released: u64,
}

/// What the threads of a process share.
pub(crate) struct Work {
    pub(crate) lock: Lock,
    pub(crate) hold: Duration,
    pub(crate) witness: Witness,
    pub(crate) progress: AtomicU64,
    /// Where progress is noted, or zero if nobody watches.
    pub(crate) place: u64,
    /// Whether the time of each hold is noted.
    pub(crate) noted: bool,
}

impl Work {
    fn hold(&self) {
        if !self.hold.is_zero() {
            thread::sleep(self.hold);
        }
    }

    /// Notes how far this process is until nobody runs any more.
    pub(crate) fn note_progress<T>(&self, threads: &[ScopedJoinHandle<'_, T>]) {
        let Witness::Shared(file) = &self.witness else { return };
        while self.place > 0 && threads.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(TICK);
            file.write(self.place, self.progress.load(Ordering::Relaxed));
        }
    }
}

/// For times in ns, to a hundredth of each.
pub(crate) fn times() -> Histogram<u64> {
    Histogram::new(2).expect("two digits are allowed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(asked: u64, had: u64) -> Turn {
        Turn { asked, had, given_up: had + 5, released: had + 7 }
    }

    #[test]
    fn starved_thread_waits_until_the_end_and_has_no_share() {
        let mut member = Member::new();
        let slice = member.note(&turn(100, 5000), 1000);
        assert_eq!((slice.within, slice.all), (0, 1));
        assert_eq!(member.longest, 900);
    }

    #[test]
    fn longest_wait_of_several_slices_is_kept() {
        let mut member = Member::new();
        member.note(&turn(0, 300), 1000);
        member.note(&turn(310, 400), 1000);
        member.note(&turn(2900, 3050), 3000);
        assert_eq!(member.longest, 300);
        assert_eq!((member.slice.within, member.slice.all), (2, 3));
    }
}

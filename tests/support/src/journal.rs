//! The journal of a proxy: the fates of its messages.
//!
//! It is written where bytes are written, and knows nothing of faults: an injection's own count can
//! be checked against it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::fault::{Direction, Operation};

/// A message that waited this long in the proxy is late.
pub(crate) const LATE: Duration = Duration::from_millis(20);

/// The fates of the messages of one operation and direction; each message counts in one of the
/// fields after the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many came.
    pub seen: u64,
    /// Passed on as they were, and at once.
    pub passed: u64,
    /// Passed on as they were, after a wait or after later ones.
    pub late: u64,
    /// Something else was passed on, or a part.
    pub altered: u64,
    /// Nothing was passed on.
    pub lost: u64,
    /// Passed on twice.
    pub doubled: u64,
}

impl Tally {
    /// Returns the counts since an earlier reading.
    pub fn since(self, before: Tally) -> Tally {
        Tally {
            seen: self.seen - before.seen,
            passed: self.passed - before.passed,
            late: self.late - before.late,
            altered: self.altered - before.altered,
            lost: self.lost - before.lost,
            doubled: self.doubled - before.doubled,
        }
    }

    /// Returns how many did not go through as they came.
    pub fn harmed(self) -> u64 {
        self.late + self.altered + self.lost + self.doubled
    }
}

#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<BTreeMap<(bool, Operation), Tally>>);

impl Journal {
    pub(crate) fn note(&self, trace: &Trace) {
        let mut tallies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tally = tallies.entry(key(trace.direction, trace.operation)).or_default();
        tally.seen += 1;
        match (trace.whole, trace.altered) {
            (_, true) => tally.altered += 1,
            (0, _) => tally.lost += 1,
            (1, _) if trace.late => tally.late += 1,
            (1, _) => tally.passed += 1,
            _ => tally.doubled += 1,
        }
    }

    pub(crate) fn tally(&self, direction: Direction, operation: Operation) -> Tally {
        let tallies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tallies.get(&key(direction, operation)).copied().unwrap_or_default()
    }

    pub(crate) fn sum(&self, direction: Direction) -> Tally {
        let tallies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let request = direction == Direction::Request;
        let mut sum = Tally::default();
        for (_, tally) in tallies.iter().filter(|((way, _), _)| *way == request) {
            sum.seen += tally.seen;
            sum.passed += tally.passed;
            sum.late += tally.late;
            sum.altered += tally.altered;
            sum.lost += tally.lost;
            sum.doubled += tally.doubled;
        }
        sum
    }
}

fn key(direction: Direction, operation: Operation) -> (bool, Operation) {
    (direction == Direction::Request, operation)
}

/// The fate of one message.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) direction: Direction,
    pub(crate) operation: Operation,
    arrived: Instant,
    length: usize,
    whole: u64,
    altered: bool,
    late: bool,
}

impl Trace {
    pub(crate) fn new(
        direction: Direction,
        operation: Operation,
        arrived: Instant,
        message: &[u8],
    ) -> Self {
        let length = message.len();
        Self { direction, operation, arrived, length, whole: 0, altered: false, late: false }
    }

    /// This number of bytes is written in place of the message.
    pub(crate) fn writes(&mut self, message: bool, length: usize) {
        if message && length == self.length {
            self.whole += 1;
            self.late |= self.arrived.elapsed() >= LATE;
        } else {
            self.altered = true;
        }
    }

    /// A later message went before it.
    pub(crate) fn overtaken(&mut self) {
        self.late = true;
    }
}

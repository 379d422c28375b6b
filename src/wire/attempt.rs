//! The attempts to connect to a server: how many there were, whether the last one failed, and when another may
//! be made.

use std::time::Duration;

use redis::RedisError;

use crate::base::sync::{Condvar, Mutex};
use crate::base::time::Moment;
use crate::wire::failure::{Failure, Hindrance};
use crate::wire::retry::{Passing, Retry};

/// How many connections were made and could not be made so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AttemptCounts {
    pub(crate) made: u64,
    /// When the last of these was.
    pub(crate) made_at: Moment,
    pub(crate) failed: u64,
    /// The last of them could not.
    pub(crate) is_failing: bool,
}

impl AttemptCounts {
    /// How many there were.
    pub(crate) fn all(self) -> u64 {
        self.made + self.failed
    }
}

/// The attempts of all pools that share a manager.
#[derive(Debug)]
pub(crate) struct Attempts {
    counts: Mutex<AttemptCounts>,
    ended: Condvar,
    last_failure: Mutex<Option<RedisError>>,
    retry: Retry,
}

impl Attempts {
    pub(crate) fn new() -> Attempts {
        Attempts {
            counts: Mutex::new(AttemptCounts::default()),
            ended: Condvar::new(),
            last_failure: Mutex::new(None),
            retry: Retry::new(),
        }
    }

    pub(crate) fn counts(&self) -> AttemptCounts {
        *self.counts.lock()
    }

    /// Why no connection can be made at the moment, if so.
    pub(crate) fn trouble(&self) -> Option<RedisError> {
        self.last_failure().filter(|_| self.counts().is_failing)
    }

    pub(crate) fn last_failure(&self) -> Option<RedisError> {
        self.last_failure.lock().clone()
    }

    /// Waits until there was another attempt than those that were seen, but not longer than this.
    pub(crate) fn wait(&self, seen: AttemptCounts, most: Duration) {
        let mut counts = self.counts.lock();
        if *counts == seen {
            self.ended.wait_for(&mut counts, most);
        }
    }

    /// Asks for an attempt where the last one failed. Returns whether the thread that connects has to be
    /// told.
    pub(crate) fn ask(&self) -> bool {
        self.retry.ask()
    }

    /// Begins an attempt, or returns for how long none may be made unless a caller asks.
    pub(crate) fn begin(&self, now: Moment) -> Result<(), Duration> {
        self.retry.begin(now)
    }

    /// Ends an attempt, which failed if there is an error.
    pub(crate) fn end(&self, now: Moment, error: Option<&RedisError>) {
        let passing = error.map(|error| {
            *self.last_failure.lock() = Some(error.clone());
            Passing(Failure::NotSent(Hindrance::Connect(error.clone())).is_passing())
        });
        let mut counts = self.counts.lock();
        counts.is_failing = error.is_some();
        match error {
            None => (counts.made, counts.made_at) = (counts.made + 1, now),
            Some(_) => counts.failed += 1,
        }
        // Before a caller hears of it, which may ask for the next.
        self.retry.end(now, passing.map_or(Ok(()), Err));
        self.ended.notify_all();
    }
}

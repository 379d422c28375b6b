//! A clock that goes on by a step at each reading, so that no real pause is in what it shows.

use std::time::Duration;

use crate::base::sync::{AtomicU64, Ordering};
use crate::base::testing::manual_clock::ManualClock;
use crate::base::time::{Clock, Moment};

/// A clock that goes on by a step at each reading.
#[derive(Debug)]
pub(crate) struct TickingClock {
    readings: AtomicU64,
    step: Duration,
}

impl TickingClock {
    pub(crate) fn new(step: Duration) -> TickingClock {
        TickingClock { readings: AtomicU64::new(0), step }
    }
}

impl Clock for TickingClock {
    fn now(&self) -> Moment {
        let number = self.readings.fetch_add(1, Ordering::SeqCst);
        ManualClock::START.after(self.step * u32::try_from(number).expect("few readings"))
    }
}

//! The server's clock, seen from the holder's.

use crate::base::sync::Mutex;
use crate::base::time::{Moment, drift_allowance};

/// What the latest answer told about the server's time (rule 10): at some moment between `sent`
/// and `received` it was `micros`.
#[derive(Clone, Copy, Debug)]
struct Reading {
    micros: u64,
    received: Moment,
}

/// Maps the holder's time to the server's.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<Reading>>);

impl ServerClock {
    /// Notes the server's time, as told by the answer to a command.
    pub(crate) fn note(&self, micros: u64, received: Moment) {
        *self.0.lock() = Some(Reading { micros, received });
    }

    /// Whether the server's time has ever been told.
    pub(crate) fn is_known(&self) -> bool {
        self.0.lock().is_some()
    }

    /// The server's time in microseconds that is surely reached at `moment`, so that a request
    /// with this deadline is dead on the server once the holder's clock is past `moment`
    /// (rule 2). `None` before the server's time is known.
    pub(crate) fn reached_at(&self, moment: Moment) -> Option<u64> {
        let reading = (*self.0.lock())?;
        let ahead = moment.since(reading.received);
        let sure = ahead.saturating_sub(drift_allowance(ahead));
        let behind = reading.received.since(moment);
        let micros = reading.micros.saturating_add(u64::try_from(sure.as_micros()).ok()?);
        Some(micros.saturating_sub(u64::try_from(behind.as_micros()).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_deadline_on_the_server_is_never_later_than_the_holders() {
        let clock = ServerClock::default();
        assert_eq!(clock.reached_at(Moment::from_nanos(5)), None);
        let received = Moment::from_nanos(5_000_000_000);
        clock.note(1_000_000, received);
        // One second later, less 1 % and 2 ms.
        assert_eq!(clock.reached_at(received.after(Duration::from_secs(1))), Some(1_988_000));
        assert_eq!(clock.reached_at(received.before(Duration::from_millis(1))), Some(999_000));
    }
}

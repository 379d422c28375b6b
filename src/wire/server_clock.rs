//! The server's clock, seen from the holder's.

use std::time::Duration;

use crate::base::sync::Mutex;
use crate::base::time::{Moment, drift_allowance};

/// A reading older than this is not relied on to date a message.
const STALE: Duration = Duration::from_secs(2);

/// A clock that is being slewed or set by so little is still the same.
const DOUBT: Duration = Duration::from_secs(1);

/// What the latest answer told about the server's time (rule 10): at some moment between `sent`
/// and `received` it was `micros`.
#[derive(Clone, Copy, Debug)]
struct Reading {
    micros: u64,
    sent: Moment,
    received: Moment,
}

/// Maps the holder's time to the server's and back.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<Reading>>);

impl ServerClock {
    /// Notes the server's time, as told by the answer to a command. The latest answer counts, whoever
    /// comes to note it last: an older one may be of another server, before a fail-over.
    pub(crate) fn note(&self, micros: u64, sent: Moment, received: Moment) {
        let mut reading = self.0.lock();
        if reading.is_none_or(|known| known.received <= received) {
            *reading = Some(Reading { micros, sent, received });
        }
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
        let read =
            if mutated!("deadline-from-the-sending") { reading.sent } else { reading.received };
        let ahead = moment.since(read);
        let sure = ahead.saturating_sub(drift_allowance(ahead));
        let behind = reading.received.since(moment);
        let micros = reading.micros.saturating_add(u64::try_from(sure.as_micros()).ok()?);
        Some(micros.saturating_sub(u64::try_from(behind.as_micros()).ok()?))
    }

    /// Whether the server's time may have been `micros` between two moments. An answer that says
    /// otherwise is none to what was asked, or the server's clock was set.
    pub(crate) fn agrees(&self, micros: u64, sent: Moment, received: Moment) -> bool {
        let Some(reading) = *self.0.lock() else { return true };
        let least = sent.since(reading.received);
        let most = received.since(reading.sent);
        let micros = Duration::from_micros(micros);
        let then = Duration::from_micros(reading.micros);
        micros + DOUBT >= then + least.saturating_sub(drift_allowance(least))
            && micros <= then + most + drift_allowance(most) + DOUBT
    }

    /// A moment at which the server's time had surely not passed `micros`, as a message that was
    /// received before `now` tells it. `None` if that cannot be told: the last reading is too old,
    /// or the message is said to come from after its own receipt.
    pub(crate) fn not_before(&self, micros: u64, now: Moment) -> Option<Moment> {
        let reading = (*self.0.lock())?;
        if now.since(reading.received) > STALE {
            return None;
        }
        let apart = Duration::from_micros(micros.abs_diff(reading.micros));
        let start = if micros >= reading.micros {
            reading.sent.after(apart.saturating_sub(drift_allowance(apart)))
        } else {
            reading.sent.before(apart + drift_allowance(apart))
        };
        let start = if mutated!("grant-dated-by-its-receipt") { now } else { start };
        (start <= now).then_some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Moment = Moment::from_nanos(5_000_000_000);
    const MILLI: Duration = Duration::from_millis(1);

    fn clock() -> ServerClock {
        let clock = ServerClock::default();
        clock.note(1_000_000, SENT, SENT.after(MILLI));
        clock
    }

    #[test]
    fn a_deadline_on_the_server_is_never_later_than_the_holders() {
        assert_eq!(ServerClock::default().reached_at(SENT), None);
        let received = SENT.after(MILLI);
        // One second later, less 1 % and 2 ms.
        assert_eq!(clock().reached_at(received.after(MILLI * 1000)), Some(1_988_000));
        assert_eq!(clock().reached_at(received.before(MILLI)), Some(999_000));
    }

    #[test]
    fn the_latest_answer_counts_whenever_it_is_noted() {
        let clock = clock();
        clock.note(9_000_000, SENT.before(MILLI * 2), SENT);
        assert_eq!(clock.reached_at(SENT.after(MILLI)), Some(1_000_000));
        clock.note(9_000_000, SENT, SENT.after(MILLI * 2));
        assert_eq!(clock.reached_at(SENT.after(MILLI * 2)), Some(9_000_000));
    }

    #[test]
    fn a_message_is_dated_no_later_than_it_was_sent() {
        let now = SENT.after(MILLI * 1000);
        // Half a second after the reading, less 1 % and 2 ms.
        assert_eq!(clock().not_before(1_500_000, now), Some(SENT.after(MILLI * 493)));
        // Before the reading: earlier still.
        assert_eq!(clock().not_before(900_000, now), Some(SENT.before(MILLI * 103)));
    }

    #[test]
    fn a_time_far_from_what_it_should_be_is_not_the_servers() {
        let (sent, received) = (SENT.after(MILLI * 1000), SENT.after(MILLI * 1001));
        assert!(clock().agrees(2_000_000, sent, received));
        assert!(clock().agrees(1_100_000, sent, received));
        assert!(clock().agrees(2_900_000, sent, received));
        for odd in [0, 1, 500_000, 3_100_000, u64::MAX] {
            assert!(!clock().agrees(odd, sent, received), "{odd}");
        }
    }

    #[test]
    fn a_message_from_the_future_or_after_a_long_silence_is_not_believed() {
        assert_eq!(clock().not_before(3_000_000, SENT.after(MILLI * 1000)), None);
        assert_eq!(clock().not_before(1_000_001, SENT.after(MILLI * 2002)), None);
        assert_eq!(ServerClock::default().not_before(1, SENT), None);
    }
}

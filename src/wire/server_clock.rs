//! The server's clock, seen from the holder's.

use std::time::Duration;

use crate::base::sync::Mutex;
use crate::base::time::{Moment, drift_allowance};
use crate::wire::epoch::Epochs;

/// A reading older than this is not relied on to date a message.
const STALE: Duration = Duration::from_secs(2);

/// A deadline in the server's time, in microseconds, that every request misses.
const ALWAYS_LATE: u64 = 1;

/// A clock that is being slewed or set by so little is still the same.
const DOUBT: Duration = Duration::from_secs(1);

/// What the latest answer told about the server's time (rule 10): at some moment between `sent`
/// and `received` it was `micros`.
#[derive(Clone, Copy, Debug)]
struct Reading {
    epoch: u64,
    micros: u64,
    sent: Moment,
    received: Moment,
}

/// Maps the holder's time to the server's and back.
///
/// Another server has another clock. A reading is relied on only in the epoch of the server that it was
/// taken in, and for messages of that epoch.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    epochs: Epochs,
    reading: Mutex<Option<Reading>>,
}

impl ServerClock {
    /// Where the server is that has this clock.
    pub(crate) fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Notes the server's time, as a reply of this epoch reports it. The latest reply counts, in whatever
    /// order they are noted: an older one may be of another server, before a fail-over.
    pub(crate) fn note(&self, epoch: u64, micros: u64, sent: Moment, received: Moment) {
        let mut reading = self.reading.lock();
        if reading.is_none_or(|known| (known.epoch, known.received) <= (epoch, received)) {
            *reading = Some(Reading { epoch, micros, sent, received });
        }
    }

    /// The latest reading, if it was taken in this epoch.
    fn reading_of(&self, epoch: u64) -> Option<Reading> {
        let reading = *self.reading.lock();
        reading.filter(|reading| reading.epoch == epoch)
    }

    fn reading(&self) -> Option<Reading> {
        self.reading_of(self.epochs.number())
    }

    /// Whether the time of the server is known, wherever it is now.
    pub(crate) fn is_known(&self) -> bool {
        self.reading().is_some()
    }

    /// The server's time in microseconds that is surely reached at `moment`, so that a request
    /// with this deadline is dead on the server once the holder's clock is past `moment`
    /// (rule 2). `None` before the server's time is known.
    pub(crate) fn reached_at(&self, moment: Moment) -> Option<u64> {
        let reading = self.reading()?;
        let ahead = moment.since(reading.received);
        let sure = ahead.saturating_sub(drift_allowance(ahead));
        let behind = reading.received.since(moment);
        let micros = reading.micros.saturating_add(u64::try_from(sure.as_micros()).ok()?);
        Some(micros.saturating_sub(u64::try_from(behind.as_micros()).ok()?))
    }

    /// The deadline of a request in the server's time, in microseconds, so that the server does nothing
    /// once the holder's clock is past `moment` (rule 2).
    ///
    /// Where the server is elsewhere since its time was known, the request is late whenever it arrives, and
    /// only reports the time: a request without a deadline could be carried out at any time.
    pub(crate) fn deadline(&self, moment: Moment) -> u64 {
        self.reached_at(moment).unwrap_or(ALWAYS_LATE)
    }

    /// Whether the server's time may have been `micros` between two moments. An answer that says
    /// otherwise is none to what was asked, or the server's clock was set.
    pub(crate) fn agrees(&self, micros: u64, sent: Moment, received: Moment) -> bool {
        let Some(reading) = self.reading() else { return true };
        let least = sent.since(reading.received);
        let most = received.since(reading.sent);
        let micros = Duration::from_micros(micros);
        let then = Duration::from_micros(reading.micros);
        micros + DOUBT >= then + least.saturating_sub(drift_allowance(least))
            && micros <= then + most + drift_allowance(most) + DOUBT
    }

    /// A moment at which the server's time had surely not passed `micros`, as a message that was
    /// received before `now` in this epoch tells it. `None` if that cannot be told: the last reading is
    /// too old or of another epoch, or the message is said to come from after its own receipt.
    pub(crate) fn not_before(&self, epoch: u64, micros: u64, now: Moment) -> Option<Moment> {
        let reading = self.reading_of(epoch)?;
        if now.since(reading.received) > STALE {
            return None;
        }
        let apart = Duration::from_micros(micros.abs_diff(reading.micros));
        let start = if micros >= reading.micros {
            reading.sent.after(apart.saturating_sub(drift_allowance(apart)))
        } else {
            reading.sent.before(apart + drift_allowance(apart))
        };
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
        clock.note(0, 1_000_000, SENT, SENT.after(MILLI));
        clock
    }

    #[test]
    fn server_deadline_is_never_later_than_the_callers() {
        assert_eq!(ServerClock::default().reached_at(SENT), None);
        let received = SENT.after(MILLI);
        // One second later, less 1 % and 2 ms.
        assert_eq!(clock().reached_at(received.after(MILLI * 1000)), Some(1_988_000));
        assert_eq!(clock().reached_at(received.before(MILLI)), Some(999_000));
    }

    #[test]
    fn latest_reply_counts_in_whatever_order_noted() {
        let clock = clock();
        clock.note(0, 9_000_000, SENT.before(MILLI * 2), SENT);
        assert_eq!(clock.reached_at(SENT.after(MILLI)), Some(1_000_000));
        clock.note(0, 9_000_000, SENT, SENT.after(MILLI * 2));
        assert_eq!(clock.reached_at(SENT.after(MILLI * 2)), Some(9_000_000));
    }

    #[test]
    fn message_is_dated_no_later_than_its_sending() {
        let now = SENT.after(MILLI * 1000);
        // Half a second after the reading, less 1 % and 2 ms.
        assert_eq!(clock().not_before(0, 1_500_000, now), Some(SENT.after(MILLI * 493)));
        // Before the reading: earlier still.
        assert_eq!(clock().not_before(0, 900_000, now), Some(SENT.before(MILLI * 103)));
    }

    #[test]
    fn implausible_time_is_not_the_servers() {
        let (sent, received) = (SENT.after(MILLI * 1000), SENT.after(MILLI * 1001));
        assert!(clock().agrees(2_000_000, sent, received));
        assert!(clock().agrees(1_100_000, sent, received));
        assert!(clock().agrees(2_900_000, sent, received));
        for odd in [0, 1, 500_000, 3_100_000, u64::MAX] {
            assert!(!clock().agrees(odd, sent, received), "{odd}");
        }
    }

    #[test]
    fn future_or_too_distant_message_gets_no_date() {
        assert_eq!(clock().not_before(0, 3_000_000, SENT.after(MILLI * 1000)), None);
        assert_eq!(clock().not_before(0, 1_000_001, SENT.after(MILLI * 2002)), None);
        assert_eq!(ServerClock::default().not_before(0, 1, SENT), None);
    }

    /// The new server's clock may be behind, and then the old one's would date a grant too late.
    #[test]
    fn clock_of_the_old_server_dates_nothing_after_a_move() {
        let clock = clock();
        let now = SENT.after(MILLI * 1000);
        clock.epochs().current().end();
        assert!(!clock.is_known() && clock.reached_at(now).is_none());
        assert_eq!(clock.deadline(now), ALWAYS_LATE, "not even a request may rely on it");
        assert_eq!(clock.not_before(1, 1_500_000, now), None);
        // What the old server granted before the move, and is heard only now.
        assert_eq!(clock.not_before(0, 1_500_000, now), Some(SENT.after(MILLI * 493)));
        clock.note(1, 9_000_000, SENT, SENT.after(MILLI));
        // A late reply of the old server does not take the place of the new one's.
        clock.note(0, 1_000_000, SENT, SENT.after(MILLI * 2));
        assert!(clock.is_known());
        assert_eq!(clock.not_before(0, 1_500_000, now), None);
        assert_eq!(clock.not_before(1, 9_500_000, now), Some(SENT.after(MILLI * 493)));
    }
}

//! The server's time, computed from the holder's clock.

use std::time::Duration;

use crate::base::sync::contended::Mutex;
use crate::base::time::{Moment, drift_allowance};
use crate::wire::epoch::Epochs;

/// No message is dated by a reading older than this.
const STALE: Duration = Duration::from_secs(2);

/// A deadline in the server's time, in microseconds, that every request misses. 0 would be no
/// deadline.
const ALWAYS_LATE: u64 = 1;

/// A clock that is slewed or set by no more than this counts as unchanged.
const DOUBT: Duration = Duration::from_secs(1);

/// The server's time by the latest reply (rule 10): it was `micros` at some moment between `sent`
/// and `received`.
#[derive(Clone, Copy, Debug)]
struct Reading {
    epoch: u64,
    micros: u64,
    sent: Moment,
    received: Moment,
}

/// Converts the holder's time to the server's and back.
///
/// Another server has another clock. A reading is valid only in its own epoch, and for messages of
/// that epoch.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    epochs: Epochs,
    reading: Mutex<Option<Reading>>,
}

impl ServerClock {
    /// The epochs of the server with this clock.
    pub(crate) fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Notes the server's time from a reply of this epoch.
    pub(crate) fn note(&self, epoch: u64, micros: u64, sent: Moment, received: Moment) {
        let mut reading = self.reading.lock();
        // By epoch and receipt, and not by the order of calls. A thread with a reply of the old
        // master may be held up, and note it after others have read the new master's time. The
        // epoch comes first, because that late reply may also have been received later.
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

    /// Whether the time of the server in the present epoch is known.
    pub(crate) fn is_known(&self) -> bool {
        self.reading().is_some()
    }

    /// The server's time, in microseconds, that is certainly reached at `moment`: a request with
    /// this deadline does nothing once the holder's clock is past `moment` (rule 2). `None` while
    /// the server's time is unknown.
    pub(crate) fn reached_at(&self, moment: Moment) -> Option<u64> {
        let reading = self.reading()?;
        // At `received` the server's time was `micros` or more, so it is safe to count from there:
        // an error makes the deadline earlier, never later. `sent` would be wrong by the time of
        // the way back.
        let ahead = moment.since(reading.received);
        let sure = ahead.saturating_sub(drift_allowance(ahead));
        let behind = reading.received.since(moment);
        let micros = reading.micros.saturating_add(u64::try_from(sure.as_micros()).ok()?);
        Some(micros.saturating_sub(u64::try_from(behind.as_micros()).ok()?))
    }

    /// The deadline of a request in the server's time, in microseconds: the server does nothing
    /// once the holder's clock is past `moment` (rule 2).
    ///
    /// If the server has moved since its time was read, the request is late whenever it arrives,
    /// and its reply only reports the time.
    pub(crate) fn deadline(&self, moment: Moment) -> u64 {
        // Not 0, which the scripts read as no deadline: such a request could wait in a buffer, and
        // take the lock for an attempt that was given up long ago.
        self.reached_at(moment).unwrap_or(ALWAYS_LATE)
    }

    /// Whether the server's time may have been `micros` between two moments. If not, the reply
    /// belongs to another command, or the server's clock was set.
    pub(crate) fn agrees(&self, micros: u64, sent: Moment, received: Moment) -> bool {
        // No reading means that the server has moved while this request was under way: a request
        // that is sent without one is always late, and its reply is no bare number.
        let Some(reading) = self.reading() else { return true };
        let least = sent.since(reading.received);
        let most = received.since(reading.sent);
        let micros = Duration::from_micros(micros);
        let then = Duration::from_micros(reading.micros);
        micros + DOUBT >= then + least.saturating_sub(drift_allowance(least))
            && micros <= then + most + drift_allowance(most) + DOUBT
    }

    /// A moment at which the server's time had certainly not passed `micros`, the time in a message
    /// that was received before `now` in this epoch. `None` if there is no such moment: the last
    /// reading is too old or of another epoch, or the message claims to be from after its own
    /// receipt.
    pub(crate) fn not_before(&self, epoch: u64, micros: u64, now: Moment) -> Option<Moment> {
        let reading = self.reading_of(epoch)?;
        if now.since(reading.received) > STALE {
            return None;
        }
        // The other end of the reading than in `reached_at`: at `sent` the server's time was
        // `micros` or less. Each allowance makes the grant older, so its window never ends later
        // here than on the server.
        let apart = Duration::from_micros(micros.abs_diff(reading.micros));
        let start = if micros >= reading.micros {
            reading.sent.after(apart.saturating_sub(drift_allowance(apart)))
        } else {
            reading.sent.before(apart + drift_allowance(apart))
        };
        // The server's clock has jumped if a grant comes from the future. Its true age is unknown
        // then.
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

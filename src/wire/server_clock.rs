//! The server's time, computed from the holder's clock.
//!
//! | the clock of a server is | when | goes to |
//! | --- | --- | --- |
//! | unknown | no reply of the present run has told the time | known, by the first reply to a request that was sent in this run |
//! | known | a reply has: the latest one counts | known, by a later reply that lies within the bound; unknown, by one that does not, and when the server has moved |
//!
//! A *run* is a time in which one server's clock goes on without a step. A move of the server ends it, and so does a reply
//! whose time lies outside of what the last reading lets expect, by more than the bound of [`ServerClocks`]. Such a reply
//! is not believed either: the next one tells the time. Its client learns of the fault, and keeps its connections, which
//! the clock says nothing about.
//!
//! A clock that becomes known is compared with those of the client's other servers, and again each minute. A difference
//! above the bound is a fault of the one that was compared, and is told once.

mod group;
mod reading;

use std::time::Duration;

use redis::Value;

use crate::base::sync::Arc;
use crate::base::sync::contended::Mutex;
use crate::base::time::{Moment, drift_allowance};
use crate::wire::epoch::Epochs;
use crate::wire::script::Call;

pub(crate) use group::{ClockFault, ServerClocks};
pub(crate) use reading::Reading;

/// No message is dated by a reading older than this.
const STALE: Duration = Duration::from_secs(2);

/// A deadline in the server's time, in microseconds, that every request misses. 0 would be no
/// deadline.
const ALWAYS_LATE: u64 = 1;

/// Two connections that are found to have ended within this time have ended together.
const SAME_BREAK: Duration = Duration::from_secs(1);

/// How often a clock is compared with those of other servers.
const COMPARED_EVERY: Duration = Duration::from_secs(60);

/// A time in which one server's clock goes on without a step, as far as its client can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClockRun {
    pub(crate) epoch: u64,
    /// How many faults of this clock there were.
    pub(crate) faults: u64,
}

/// Converts the holder's time to the server's and back.
///
/// Another server has another clock. A reading is valid only in its own run, and for messages of
/// that run.
#[derive(Debug)]
pub(crate) struct ServerClock {
    clocks: Arc<ServerClocks>,
    /// Distinguishes it from the client's other clocks.
    number: u64,
    epochs: Epochs,
    /// Where the last connection led.
    address: Mutex<Arc<str>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    reading: Option<Reading>,
    faults: u64,
    /// When the last fault was found. Requests that were sent before may have run before it.
    faulty: Moment,
    /// When it was last compared with other clocks.
    compared: Option<Moment>,
    /// Whether the differences to other clocks come from a fault that was told.
    is_told: bool,
}

impl State {
    /// Ends the run: the reply that was received at this moment shows a fault.
    fn end_run(&mut self, received: Moment) {
        self.reading = None;
        self.faults += 1;
        self.faulty = received;
        self.compared = None;
    }
}

impl Default for ServerClock {
    /// The clock of the only server.
    fn default() -> ServerClock {
        ServerClock::new(ServerClocks::new(Duration::ZERO, false), 0)
    }
}

impl ServerClock {
    fn new(clocks: Arc<ServerClocks>, number: u64) -> ServerClock {
        ServerClock {
            clocks,
            number,
            epochs: Epochs::default(),
            address: Mutex::new("the server".into()),
            state: Mutex::default(),
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The epochs of the server with this clock.
    pub(crate) fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// The connections to the server have ended by this moment, or those before this one have: what it had before may be
    /// gone. Its client learns of it.
    pub(crate) fn note_break(&self, at: Moment) {
        self.epochs.note_break(at);
        self.clocks.tell_break();
    }

    /// A subscription that began at `began` was found to have ended. The connections for callers may have ended with it,
    /// which nobody sees while they are idle.
    pub(crate) fn note_subscription_end(&self, began: Moment, at: Moment) {
        let since = self.epochs.unbroken_since();
        // All end together, and each shows it. If another has just done so, the leases are asked about already, and once is
        // enough.
        let is_known = began < since && at.since(since) < SAME_BREAK;
        if !is_known {
            self.note_break(at);
        }
    }

    /// A connection leads to this address.
    pub(crate) fn set_address(&self, address: Arc<str>) {
        *self.address.lock() = address;
    }

    fn address(&self) -> Arc<str> {
        Arc::clone(&self.address.lock())
    }

    /// How many faults of this clock were found.
    pub(crate) fn faults(&self) -> u64 {
        self.state.lock().faults
    }

    /// Notes the server's time from a reply.
    pub(crate) fn note(&self, reading: Reading) {
        if let Some(fault) = self.note_inner(reading) {
            self.clocks.tell(fault);
        }
    }

    fn note_inner(&self, reading: Reading) -> Option<ClockFault> {
        let mut state = self.state.lock();
        // Of requests that were under way at the fault some ran before it, and some after.
        if reading.sent < state.faulty {
            return None;
        }
        if let Some(known) = state.reading {
            // By epoch and receipt, and not by the order of calls. A thread with a reply of the old
            // master may be held up, and note it after others have read the new master's time. The
            // epoch comes first, because that late reply may also have been received later.
            if (known.epoch, known.received) > (reading.epoch, reading.received) {
                return None;
            }
            if let Some(deviation) = known.deviation(&reading, self.clocks.bound()) {
                state.end_run(reading.received);
                state.is_told = true;
                drop(state);
                return Some(self.clocks.step(self, deviation, known.epoch != reading.epoch));
            }
        }
        state.reading = Some(reading);
        if state.compared.is_some_and(|at| reading.received.since(at) < COMPARED_EVERY) {
            return None;
        }
        state.compared = Some(reading.received);
        let is_told = std::mem::take(&mut state.is_told);
        // The other clocks have such locks too, and another thread may have one and want this one.
        drop(state);
        let fault = self.clocks.compare(self, &reading).filter(|_| !is_told)?;
        self.state.lock().end_run(reading.received);
        Some(fault)
    }

    /// The latest reading, if it was taken in this epoch.
    fn reading_of(&self, epoch: u64) -> Option<Reading> {
        self.state.lock().reading.filter(|reading| reading.epoch == epoch)
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

    /// Whether the server's time may be that of a reading. If not, the reply belongs to another command, or the server's
    /// clock was set.
    pub(crate) fn agrees(&self, reading: &Reading) -> bool {
        let Some(known) = self.reading() else {
            // Either the server has moved while this request was under way: a request that is sent without a reading is
            // always late, and its reply is no bare number. Or a fault has dropped the reading, and only a reply to what was
            // sent since tells the time.
            return reading.sent >= self.state.lock().faulty;
        };
        self.agree(&known, reading)
    }

    /// Whether two readings may be of one clock.
    pub(crate) fn agree(&self, one: &Reading, other: &Reading) -> bool {
        one.deviation(other, self.clocks.bound()).is_none()
    }

    /// Whether a message of this time may have been published between two moments, which are both in the present run.
    pub(crate) fn confirms(&self, micros: u64, from: Moment, to: Moment) -> bool {
        let Some(known) = self.reading() else { return false };
        let is_of_the_run = self.state.lock().faulty <= from;
        let message = Reading { epoch: known.epoch, micros, sent: from, received: to };
        is_of_the_run && self.agree(&known, &message)
    }

    /// A moment at which the server's time had certainly not passed `micros`, the time in a message
    /// that was received before `now` in this run. `None` if there is no such moment: the last
    /// reading is too old or of another run, or the message claims to be from after its own
    /// receipt.
    pub(crate) fn not_before(&self, run: ClockRun, micros: u64, now: Moment) -> Option<Moment> {
        let reading = {
            let state = self.state.lock();
            // A message may have been under way for as long, and then it was sent before the fault.
            let is_faulty = state.faults > 0 && now.since(state.faulty) <= STALE;
            let is_its = state.faults == run.faults && !is_faulty;
            state.reading.filter(|reading| is_its && reading.epoch == run.epoch)?
        };
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

/// The command that returns the server's time.
pub(crate) fn time() -> Call {
    Call::plain(&[b"TIME"])
}

/// The time in the reply to that, in microseconds.
pub(crate) fn micros_of(value: &Value) -> Option<u64> {
    let (seconds, micros) = redis::from_redis_value_ref::<(u64, u64)>(value).ok()?;
    Some(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sync::channel::unbounded;

    const SENT: Moment = Moment::from_nanos(5_000_000_000);
    const MILLI: Duration = Duration::from_millis(1);
    const RUN: ClockRun = ClockRun { epoch: 0, faults: 0 };

    /// A reading of a reply that took a millisecond, and was requested so long after the first.
    fn reading(epoch: u64, micros: u64, millis: u32) -> Reading {
        let sent = SENT.after(MILLI * millis);
        Reading { epoch, micros, sent, received: sent.after(MILLI) }
    }

    fn clock() -> ServerClock {
        let clock = ServerClock::default();
        clock.note(reading(0, 1_000_000, 0));
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
        let earlier = SENT.before(MILLI * 2);
        clock.note(Reading { epoch: 0, micros: 9_000_000, sent: earlier, received: SENT });
        assert_eq!(clock.reached_at(SENT.after(MILLI)), Some(1_000_000));
        let received = SENT.after(MILLI * 2);
        clock.note(Reading { epoch: 0, micros: 1_050_000, sent: SENT, received });
        assert_eq!(clock.reached_at(received), Some(1_050_000));
    }

    /// Of connections that were closed together, those for callers may be found first.
    #[test]
    fn end_of_a_subscription_is_noted_unless_it_is_known() {
        let second = MILLI * 1_000;
        for (began, later, is_noted) in [
            (SENT.before(second), MILLI * 999, false),
            (SENT.before(second), second, true),
            (SENT, MILLI, true),
        ] {
            let clock = ServerClock::default();
            clock.note_break(SENT);
            let at = SENT.after(later);
            clock.note_subscription_end(began, at);
            assert_eq!(clock.epochs().unbroken_since(), if is_noted { at } else { SENT });
        }
    }

    #[test]
    fn message_is_dated_no_later_than_its_sending() {
        let now = SENT.after(MILLI * 1000);
        // Half a second after the reading, less 1 % and 2 ms.
        assert_eq!(clock().not_before(RUN, 1_500_000, now), Some(SENT.after(MILLI * 493)));
        // Before the reading: earlier still.
        assert_eq!(clock().not_before(RUN, 900_000, now), Some(SENT.before(MILLI * 103)));
    }

    #[test]
    fn implausible_time_is_not_the_servers() {
        // 100 ms, and the allowance for a second.
        for micros in [1_890_000, 2_000_000, 2_111_000] {
            assert!(clock().agrees(&reading(0, micros, 1_000)), "{micros}");
        }
        for micros in [0, 1, 1_885_000, 2_116_000, u64::MAX] {
            assert!(!clock().agrees(&reading(0, micros, 1_000)), "{micros}");
        }
        let ample = ServerClock::new(ServerClocks::new(MILLI * 500, true), 0);
        ample.note(reading(0, 1_000_000, 0));
        assert!(ample.agrees(&reading(0, 2_500_000, 1_000)));
        assert!(!ample.agrees(&reading(0, 2_516_000, 1_000)));
    }

    /// Two requests at a time: the one that was sent first may have run last.
    #[test]
    fn requests_that_overlap_agree() {
        let clock = ServerClock::default();
        let read = |micros, sent, received| Reading {
            epoch: 0,
            micros,
            sent: SENT.after(MILLI * sent),
            received: SENT.after(MILLI * received),
        };
        clock.note(read(9_000_000, 1_000, 2_000));
        // It ran two seconds before, and its reply was held up.
        clock.note(read(7_010_000, 0, 2_001));
        assert_eq!((clock.faults(), clock.is_known()), (0, true));
    }

    #[test]
    fn future_or_too_distant_message_gets_no_date() {
        assert_eq!(clock().not_before(RUN, 3_000_000, SENT.after(MILLI * 1000)), None);
        assert_eq!(clock().not_before(RUN, 1_000_001, SENT.after(MILLI * 2002)), None);
        assert_eq!(ServerClock::default().not_before(RUN, 1, SENT), None);
    }

    /// In a cluster, where a message is dated by the last request that found its waiter in the queue.
    #[test]
    fn message_is_confirmed_by_the_clock_of_its_run() {
        let clock = clock();
        let [asked, heard] = [500, 600].map(|millis| SENT.after(MILLI * millis));
        assert!(!ServerClock::default().confirms(1_550_000, asked, heard));
        assert!(clock.confirms(1_550_000, asked, heard));
        assert!(!clock.confirms(1_800_000, asked, heard), "of a node whose clock is ahead");
        clock.note(reading(0, 9_000_000, 550));
        assert!(!clock.confirms(9_040_000, asked, heard), "nothing is known");
        clock.note(reading(0, 9_050_000, 600));
        assert!(!clock.confirms(9_040_000, asked, heard), "it found the waiter before the step");
        let [asked, heard] = [700, 800].map(|millis| SENT.after(MILLI * millis));
        assert!(clock.confirms(9_200_000, asked, heard));
    }

    /// The new server's clock may be behind, and then the old one's would date a grant too late.
    #[test]
    fn clock_of_the_old_server_dates_nothing_after_a_move() {
        let clock = clock();
        let now = SENT.after(MILLI * 1000);
        clock.epochs().current().end();
        assert!(!clock.is_known() && clock.reached_at(now).is_none());
        assert_eq!(clock.deadline(now), ALWAYS_LATE, "not even a request may rely on it");
        let next = ClockRun { epoch: 1, faults: 0 };
        assert_eq!(clock.not_before(next, 1_500_000, now), None);
        // What the old server granted before the move, and is heard only now.
        assert_eq!(clock.not_before(RUN, 1_500_000, now), Some(SENT.after(MILLI * 493)));
        clock.note(reading(1, 1_050_000, 0));
        // A late reply of the old server does not take the place of the new one's.
        clock.note(reading(0, 1_001_000, 1));
        assert!(clock.is_known());
        assert_eq!(clock.not_before(RUN, 1_500_000, now), None);
        assert_eq!(clock.not_before(next, 1_550_000, now), Some(SENT.after(MILLI * 493)));
    }

    /// A clock whose faults are counted.
    fn watched() -> (Arc<ServerClocks>, Arc<ServerClock>, impl Fn() -> Vec<String>) {
        let clocks = ServerClocks::new(MILLI * 500, true);
        let (sender, receiver) = unbounded();
        clocks.on_fault(move |fault| _ = sender.send(fault.to_string()));
        let clock = clocks.add();
        (clocks, clock, move || receiver.try_iter().collect())
    }

    #[test]
    fn step_drops_the_reading_and_what_may_be_from_before_it() {
        for (micros, word) in [(7_000_000, "ahead"), (1_000, "behind")] {
            let (_clocks, clock, faults) = watched();
            clock.set_address("10.0.0.1:1".into());
            clock.note(reading(0, 1_000_000, 0));
            clock.note(reading(0, micros, 1_000));
            let text = faults().pop().unwrap();
            assert!(text.contains("10.0.0.1:1") && text.contains(word), "{text}");
            assert!(!clock.is_known());
            let now = SENT.after(MILLI * 1_001);
            assert_eq!(clock.not_before(RUN, 1_500_000, now), None, "dated by what was dropped");
            // This one was under way at the step, and may have run before it.
            clock.note(reading(0, 2_000_000, 1_000));
            assert!(!clock.is_known());
            clock.note(reading(0, micros + 500_000, 1_500));
            assert!(clock.is_known() && faults().is_empty());
            // A message of the earlier run, or one that may be of it.
            let run = ClockRun { epoch: 0, faults: 1 };
            let soon = SENT.after(MILLI * 1_502);
            for of in [RUN, run] {
                assert_eq!(clock.not_before(of, micros + 500_000, soon), None);
            }
            clock.note(reading(0, micros + 2_500_000, 3_500));
            let later = SENT.after(MILLI * 3_502);
            assert!(clock.not_before(run, micros + 2_500_000, later).is_some());
        }
    }

    #[test]
    fn server_that_takes_over_is_compared_with_the_one_before() {
        let (_clocks, clock, faults) = watched();
        clock.note(reading(0, 1_000_000, 0));
        clock.epochs().advance();
        clock.note(reading(1, 1_400_000, 1));
        assert_eq!((faults().len(), clock.is_known()), (0, true));
        clock.epochs().advance();
        clock.note(reading(2, 2_500_000, 2));
        assert!(faults().pop().unwrap().contains("before it") && !clock.is_known());
        clock.note(reading(2, 2_502_000, 4));
        assert_eq!((faults().len(), clock.is_known()), (0, true));
    }

    #[test]
    fn clocks_that_differ_are_told_once() {
        let (clocks, first, faults) = watched();
        let second = clocks.add();
        first.note(reading(0, 1_000_000, 0));
        second.note(reading(0, 1_400_000, 0));
        assert!(faults().is_empty(), "within the bound");
        let third = clocks.add();
        third.note(reading(0, 2_000_000, 0));
        assert_eq!((faults().len(), third.is_known()), (1, false));
        // Nothing is new about that.
        for millis in [10, 70_000] {
            third.note(reading(0, 2_000_000 + u64::from(millis) * 1_000, millis));
            first.note(reading(0, 1_000_000 + u64::from(millis) * 1_000, millis));
            assert!(faults().is_empty() && third.is_known() && first.is_known());
        }
        // One that was set differs from the others too, which is the same fault.
        second.note(reading(0, 90_000_000, 70_000));
        assert_eq!(faults().len(), 1);
        second.note(reading(0, 90_001_000, 70_002));
        third.note(reading(0, 142_000_000, 140_000));
        assert!(faults().is_empty());
        // Locks do not move between these, so a difference does no harm.
        let apart = ServerClocks::new(Duration::ZERO, false);
        let two = [apart.add(), apart.add()];
        two[0].note(reading(0, 1_000_000, 0));
        two[1].note(reading(0, 9_000_000, 0));
        assert!(two.iter().all(|clock| clock.is_known()));
    }
}

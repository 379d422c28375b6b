//! When a connection that could not be made is tried again.
//!
//! The pool repeats an order that failed until it succeeds, also when nobody wants the connection any longer.
//! Without a limit it would connect to a failing server ten times a second for the life of the client, and
//! send a wrong password each time. So the thread that connects looks here first:
//!
//! | the last attempt | a caller asks | the thread |
//! | --- | --- | --- |
//! | succeeded, or there was none | | tries |
//! | failed | yes | tries once |
//! | failed, and may succeed soon | no | tries after a pause that grows |
//! | failed, and fails until somebody mends something | no | waits until a caller asks |
//!
//! A caller that asks during an attempt waits for that one.

use std::time::Duration;

use crate::base::sync::Mutex;
use crate::base::time::Moment;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// For how long a server that refused the user is left alone. Each attempt is noted there, and the refusal
/// is mended by hand.
pub(crate) const REFUSED: Duration = Duration::from_secs(60);

/// Pauses between attempts that nobody asked for. They double each time, and each is shortened by up to a
/// half at random, so that many clients do not all try at once.
#[derive(Debug)]
pub(crate) struct Pauses {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Pauses {
    pub(crate) fn between(first: Duration, longest: Duration) -> Pauses {
        Pauses { first, longest, next: first }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.next = (self.next * 2).min(self.longest);
        pause
    }

    /// The next pause is the first again.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Whether one more attempt may be made.
#[derive(Debug)]
pub(crate) struct Retry(Mutex<State>);

#[derive(Debug)]
struct State {
    /// From when on it may be tried again, if the last attempt failed.
    failing: Option<Moment>,
    pauses: Pauses,
    /// An attempt is being made.
    under_way: bool,
    /// A caller asked since the last attempt began.
    asked: bool,
}

impl Retry {
    pub(crate) fn new() -> Retry {
        let pauses = Pauses::between(FIRST_PAUSE, LONGEST_PAUSE);
        Retry(Mutex::new(State { failing: None, pauses, under_way: false, asked: false }))
    }

    /// Asks for an attempt where the last one failed. Returns whether the thread has to be told.
    pub(crate) fn ask(&self) -> bool {
        let mut state = self.0.lock();
        if state.failing.is_none() || state.under_way {
            return false;
        }
        state.asked = true;
        true
    }

    /// Begins an attempt, or returns for how long none may be made unless a caller asks.
    pub(crate) fn begin(&self, now: Moment) -> Result<(), Duration> {
        let mut state = self.0.lock();
        if let Some(due) = state.failing
            && now < due
            && !state.asked
            && !mutated!("refused-sign-in-repeated")
        {
            return Err(due.since(now));
        }
        (state.under_way, state.asked) = (true, false);
        Ok(())
    }

    /// Ends an attempt. One that failed is repeated after a pause if the failure may pass.
    pub(crate) fn end(&self, now: Moment, outcome: Result<(), Passing>) {
        let mut state = self.0.lock();
        state.under_way = false;
        state.failing = match outcome {
            Ok(()) => {
                state.pauses.reset();
                None
            }
            Err(Passing(true)) => Some(now.after(state.pauses.next())),
            Err(Passing(false)) => Some(Moment::FAR),
        };
    }
}

/// Whether a failure may be over soon, without anybody's doing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passing(pub(crate) bool);

/// Since when a server is left alone that refuses the user who listens. It is listened to again when a
/// connection was tried for a caller, or after [`REFUSED`]: while the callers' connections are healthy,
/// nothing tells that the refusal is mended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    tried: u64,
    since: Moment,
}

impl Refusal {
    /// Both are read before the attempt that is refused. A caller whose attempt comes after the refusal may
    /// have found it mended, and its attempt must not be taken for an earlier one.
    pub(crate) fn before(tried: u64, now: Moment) -> Refusal {
        Refusal { tried, since: now }
    }

    /// Whether the server may be listened to again.
    pub(crate) fn is_over(self, tried: u64, now: Moment) -> bool {
        let lasted = now.since(self.since) >= REFUSED;
        tried != self.tried || lasted && !mutated!("refusal-lasts-for-ever")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::{BootClock, Clock};

    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn pauses_double_up_to_their_bound() {
        let mut pauses = Pauses::between(FIRST_PAUSE, LONGEST_PAUSE);
        for power in 0..12 {
            let longest = (FIRST_PAUSE * (1 << power)).min(LONGEST_PAUSE);
            let pause = pauses.next();
            assert!((longest / 2..=longest).contains(&pause), "{pause:?} of {longest:?}");
        }
        pauses.reset();
        assert!(pauses.next() <= FIRST_PAUSE);
    }

    #[test]
    fn passing_failure_is_repeated_after_a_pause() {
        let (retry, now) = (Retry::new(), BootClock.now());
        assert!(!retry.ask());
        retry.begin(now).unwrap();
        // The caller waits for the attempt that is under way.
        assert!(!retry.ask());
        retry.end(now, Err(Passing(true)));
        let left = retry.begin(now).unwrap_err();
        assert!(left <= FIRST_PAUSE, "{left:?}");
        retry.begin(now.after(left)).unwrap();
    }

    #[test]
    fn lasting_failure_is_repeated_once_for_each_caller() {
        let (retry, now) = (Retry::new(), BootClock.now());
        retry.begin(now).unwrap();
        retry.end(now, Err(Passing(false)));
        retry.begin(now.after(LONG)).unwrap_err();
        assert!(retry.ask());
        retry.begin(now).unwrap();
        retry.end(now, Err(Passing(false)));
        retry.begin(now.after(LONG)).unwrap_err();
        assert!(retry.ask());
        retry.begin(now).unwrap();
        retry.end(now, Ok(()));
        retry.begin(now).unwrap();
    }
}

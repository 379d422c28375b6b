//! The attempts to connect to a server: how many there were, whether the last one failed, and when
//! the next may begin.
//!
//! r2d2 repeats a failed order until it succeeds, even if nobody wants the connection any longer.
//! Without a limit it would connect to a failing server ten times a second for the life of the
//! client, and send a wrong password each time. So the connecting thread checks here first:
//!
//! | the last attempt | a caller asks | the thread |
//! | --- | --- | --- |
//! | succeeded, or there was none | | tries |
//! | failed | yes | tries once |
//! | failed, as all have for two seconds | yes | tries once, a quarter of a second after the last attempt |
//! | failed, and may succeed soon | no | tries after a pause that grows |
//! | failed, and fails until somebody mends something | no | waits until a caller asks |
//!
//! A caller that asks during an attempt waits for that one.

use std::time::Duration;

use redis::RedisError;

use crate::base::sync::contended::{self, Condvar, Mutex};
use crate::base::time::Moment;
use crate::wire::failure::Failure;
use crate::wire::retry::{REFUSED, RetryBackoff};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// When attempts have failed for this long, callers share them…
const LONG_OUTAGE: Duration = Duration::from_secs(2);
/// …with so much time between two, however many callers there are.
const SHARED_PAUSE: Duration = Duration::from_millis(250);

/// How many attempts succeeded and failed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectCounts {
    pub(crate) made: u64,
    /// When the last connection was made.
    pub(crate) made_at: Moment,
    pub(crate) failed: u64,
    /// Whether the last attempt failed.
    pub(crate) is_failing: bool,
}

impl ConnectCounts {
    /// The number of all attempts.
    pub(crate) fn all(self) -> u64 {
        self.made + self.failed
    }
}

/// The attempts of all pools that share a manager.
#[derive(Debug)]
pub(crate) struct ConnectAttempts {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    counts: ConnectCounts,
    last_failure: Option<RedisError>,
    /// When the last one failed.
    failed_at: Moment,
    /// When the next attempt may begin, if the last one failed.
    due: Moment,
    /// When the first attempt failed since one was successful, and when the last one ended.
    failing_since: Moment,
    ended_at: Moment,
    pauses: RetryBackoff,
    /// An attempt is being made.
    under_way: bool,
    /// A caller asked since the last attempt began.
    asked: bool,
}

impl ConnectAttempts {
    pub(crate) fn new() -> ConnectAttempts {
        let state = State {
            counts: ConnectCounts::default(),
            last_failure: None,
            failed_at: Moment::PAST,
            due: Moment::PAST,
            failing_since: Moment::PAST,
            ended_at: Moment::PAST,
            pauses: RetryBackoff::between(FIRST_PAUSE, LONGEST_PAUSE),
            under_way: false,
            asked: false,
        };
        ConnectAttempts { state: Mutex::new(state), ended: Condvar::new() }
    }

    pub(crate) fn counts(&self) -> ConnectCounts {
        self.state.lock().counts
    }

    /// Why no connection can be made at the moment, if the last attempt failed.
    pub(crate) fn last_error(&self) -> Option<RedisError> {
        let state = self.state.lock();
        state.last_failure.clone().filter(|_| state.counts.is_failing)
    }

    /// Waits until an attempt has ended that is not counted in `seen`, for no longer than `most`.
    pub(crate) fn wait(&self, seen: ConnectCounts, most: Duration) {
        let state = self.state.lock();
        // Compared under the lock: an attempt may have ended since the caller read the counts, and
        // its wake-up came before this wait. A spurious wake-up is harmless, as callers look again
        // anyway.
        if state.counts == seen {
            drop(contended::wait_for(&self.ended, state, most));
        }
    }

    /// Asks for an attempt if the last one failed. Returns whether the thread must be woken for it.
    pub(crate) fn ask(&self) -> bool {
        let mut state = self.state.lock();
        // While all is well the pool's own order suffices. During an attempt this caller waits for
        // its end: if its request were remembered, a refused password would be sent twice for one
        // caller.
        let needed = state.counts.is_failing && !state.under_way;
        state.asked |= needed;
        needed
    }

    /// Asks for an attempt for a caller that has another connection. Such a caller does not try again for a
    /// while if the server refused the user. A failure that may pass is retried anyway. Returns
    /// whether the thread must be woken for it.
    pub(crate) fn ask_seldom(&self, now: Moment) -> bool {
        let mut state = self.state.lock();
        let needed = state.counts.is_failing
            && !state.under_way
            && state.due == Moment::FAR
            && now.since(state.failed_at) >= REFUSED;
        state.asked |= needed;
        needed
    }

    /// Begins an attempt, or returns how long none may begin unless a caller asks.
    pub(crate) fn begin(&self, now: Moment) -> Result<(), Duration> {
        let mut state = self.state.lock();
        if state.counts.is_failing {
            let is_long = now.since(state.failing_since) >= LONG_OUTAGE;
            let due = match (state.asked, is_long) {
                (true, false) => Moment::PAST,
                (true, true) => state.due.min(state.ended_at.after(SHARED_PAUSE)),
                (false, _) => state.due,
            };
            if now < due {
                return Err(due.since(now));
            }
        }
        // One attempt serves all callers that asked before it.
        (state.under_way, state.asked) = (true, false);
        Ok(())
    }

    /// Ends an attempt. A failed one is repeated after a pause if the failure may pass by itself.
    pub(crate) fn end(&self, now: Moment, error: Option<&RedisError>) {
        let mut state = self.state.lock();
        state.under_way = false;
        state.ended_at = now;
        if !state.counts.is_failing {
            state.failing_since = now;
        }
        state.counts.is_failing = error.is_some();
        if let Some(error) = error {
            let is_transient = Failure::connect(error.clone()).is_transient();
            state.counts.failed += 1;
            state.last_failure = Some(error.clone());
            state.failed_at = now;
            // `FAR` waits for a caller. Each of them gets one fresh attempt, so that it returns the
            // present error, and a password that was mended works at once.
            state.due = if is_transient { now.after(state.pauses.next()) } else { Moment::FAR };
        } else {
            state.counts.made += 1;
            state.counts.made_at = now;
            state.pauses.reset();
        }
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use redis::{ErrorKind, RedisError};

    use super::*;
    use crate::base::time::{BootClock, Clock};

    const LONG: Duration = Duration::from_secs(3_600);

    fn passing() -> RedisError {
        io::Error::from(io::ErrorKind::ConnectionRefused).into()
    }

    fn lasting() -> RedisError {
        RedisError::from((ErrorKind::AuthenticationFailed, "wrong password"))
    }

    #[test]
    fn passing_failure_is_repeated_after_a_pause() {
        let (attempts, now) = (ConnectAttempts::new(), BootClock.now());
        assert!(!attempts.ask());
        attempts.begin(now).unwrap();
        // The caller waits for the attempt that is under way.
        assert!(!attempts.ask());
        attempts.end(now, Some(&passing()));
        let left = attempts.begin(now).unwrap_err();
        assert!(left <= FIRST_PAUSE, "{left:?}");
        attempts.begin(now.after(left)).unwrap();
    }

    #[test]
    fn refusal_is_repeated_seldom_for_a_caller_with_another_connection() {
        let (attempts, now) = (ConnectAttempts::new(), BootClock.now());
        let later = now.after(REFUSED);
        assert!(!attempts.ask_seldom(later));
        attempts.begin(now).unwrap();
        attempts.end(now, Some(&lasting()));
        assert!(!attempts.ask_seldom(later.before(Duration::from_millis(1))));
        attempts.begin(now).unwrap_err();
        assert!(attempts.ask_seldom(later));
        attempts.begin(later).unwrap();
        attempts.end(later, Some(&passing()));
        assert!(!attempts.ask_seldom(later.after(LONG)), "it is repeated all the same");
    }

    #[test]
    fn callers_share_attempts_in_a_long_outage() {
        let (attempts, mut now) = (ConnectAttempts::new(), BootClock.now());
        let mut count = 0;
        let begin = now;
        while now.since(begin) < Duration::from_secs(62) {
            attempts.ask();
            if attempts.begin(now).is_ok() {
                count += u32::from(now.since(begin) >= LONG_OUTAGE);
                attempts.end(now, Some(&passing()));
            }
            now = now.after(Duration::from_millis(1));
        }
        // A caller comes each millisecond.
        assert!((230..=241).contains(&count), "{count} attempts in a minute");
        // One that is successful ends the outage.
        assert!(attempts.ask());
        attempts.begin(now.after(SHARED_PAUSE)).unwrap();
        attempts.end(now, None);
        attempts.begin(now).unwrap();
        attempts.end(now, Some(&passing()));
        assert!(attempts.ask());
        attempts.begin(now).unwrap();
    }

    #[test]
    fn lasting_failure_is_repeated_once_for_each_caller() {
        let (attempts, now) = (ConnectAttempts::new(), BootClock.now());
        attempts.begin(now).unwrap();
        attempts.end(now, Some(&lasting()));
        attempts.begin(now.after(LONG)).unwrap_err();
        assert!(attempts.ask());
        attempts.begin(now).unwrap();
        attempts.end(now, Some(&lasting()));
        attempts.begin(now.after(LONG)).unwrap_err();
        assert!(attempts.ask());
        attempts.begin(now).unwrap();
        attempts.end(now, None);
        attempts.begin(now).unwrap();
    }
}

//! A wait for a connection: until when it lasts, and what its end says.
//!
//! | the wait is over | because | it says |
//! | --- | --- | --- |
//! | at a limit of the settings | connecting takes too long, or the pool is too small | which of them |
//! | at the caller's deadline | the same, where it has lasted long enough to show that, or the server is known to be silent | which of them |
//! | at the caller's deadline | the caller had little time | nothing about the server |
//! | at the caller's deadline | the thread did not run for most of it | nothing about the server |

use std::time::Duration;

use crate::base::time::Moment;

/// A caller's wait for a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) start: Moment,
    /// The end of the time that the caller has for it.
    pub(crate) deadline: Moment,
    /// Until when the thread is known to have run.
    ran: Moment,
    /// For how long it should have run, and did not.
    late: Duration,
}

impl Wait {
    pub(crate) fn new(start: Moment, deadline: Moment) -> Wait {
        Wait { start, deadline, ran: start, late: Duration::ZERO }
    }

    /// Notes that the thread runs, after a sleep that was to end at `due`; `PAST` if it has not slept.
    pub(crate) fn woke(&mut self, due: Moment, now: Moment) {
        self.late += now.since(self.ran.max(due));
        self.ran = now;
    }

    /// From when on the limits of settings count. A thread that does not run finds no connection, and no server is to
    /// blame for that.
    pub(crate) fn counts_from(&self) -> Moment {
        self.start.after(self.late)
    }

    /// How long it has lasted while the thread ran, or slept as it wanted to.
    pub(crate) fn span(&self, now: Moment) -> Duration {
        now.since(self.counts_from())
    }

    /// Whether the deadline has passed mostly while the thread did not run.
    pub(crate) fn is_held_up(&self, now: Moment) -> bool {
        now >= self.deadline && self.late >= self.span(now)
    }

    /// How much of this silence of the server is a part of it, in which the thread ran.
    pub(crate) fn silence(&self, silence: Duration, now: Moment) -> Duration {
        silence.saturating_sub(self.late).min(self.span(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(10);
    const START: Moment = Moment::from_nanos(1_000_000_000);

    fn wait() -> Wait {
        Wait::new(START, START.after(STEP * 10))
    }

    #[test]
    fn thread_that_woke_in_time_was_not_held_up() {
        let mut wait = wait();
        for number in 1..=10 {
            let now = START.after(STEP * number);
            wait.woke(now, now);
            assert!(!wait.is_held_up(now));
        }
        assert_eq!(wait.span(wait.deadline), STEP * 10);
        // One that is woken before its time, such as by a connection that is returned, has not slept for too long.
        wait.woke(Moment::FAR, wait.deadline.after(STEP));
        assert_eq!(wait.counts_from(), START);
    }

    #[test]
    fn thread_that_woke_late_was_held_up() {
        let mut wait = wait();
        let (due, now) = (START.after(STEP), wait.deadline.after(STEP));
        wait.woke(due, now);
        assert!(wait.is_held_up(now));
        assert_eq!(wait.span(now), STEP);
        // Not if its time is not over: then it goes on waiting.
        let (mut wait, now) = (self::wait(), wait.deadline.before(STEP));
        wait.woke(due, now);
        assert!(!wait.is_held_up(now));
        assert_eq!(wait.counts_from(), now.before(STEP));
    }

    #[test]
    fn thread_that_came_late_was_held_up() {
        for late in [Duration::ZERO, STEP] {
            let mut wait = Wait::new(START, START.before(late));
            wait.woke(Moment::PAST, START);
            assert!(wait.is_held_up(START));
        }
        let mut wait = wait();
        wait.woke(Moment::PAST, wait.deadline);
        assert!(wait.is_held_up(wait.deadline));
    }
}

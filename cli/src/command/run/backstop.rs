//! When the wrapper ends the job itself, as its guardian does not: a state machine without a clock of its own.
//!
//! | situation | SIGTERM | SIGKILL |
//! | --- | --- | --- |
//! | no news of a renewal | | half a margin before the end of validity |
//! | the lock is lost, and the guardian reports no SIGTERM | a margin later | a grace after that |
//! | the lock is lost, and the guardian reports it | | a grace and a margin after the loss |

use std::time::Duration;

use super::clock::Moment;
use super::deadline::{Deadline, Reason, Spans, Step};

#[derive(Debug)]
pub(crate) struct Backstop {
    silence: Deadline,
    spans: Spans,
    /// When the guardian should have told the job to end, for a loss.
    due: Option<Moment>,
    is_announced: bool,
}

impl Backstop {
    pub(crate) fn new(spans: Spans, valid_until: Moment) -> Backstop {
        let late = Spans { grace: Duration::ZERO, margin: spans.margin / 2, ..spans };
        Backstop {
            silence: Deadline::new(late, valid_until),
            spans,
            due: None,
            is_announced: false,
        }
    }

    /// A renewal was confirmed.
    pub(crate) fn extend(&mut self, valid_until: Moment) {
        self.silence.extend(valid_until);
    }

    /// The guardian expects the killing to take so long.
    pub(crate) fn set_margin(&mut self, margin: Duration) {
        self.spans.margin = margin;
        self.silence.set_margin(margin / 2);
    }

    /// The lock is lost.
    pub(crate) fn lose(&mut self, now: Moment) {
        self.due.get_or_insert(now.after(self.spans.margin));
    }

    /// The guardian has told the job to end.
    pub(crate) fn announced(&mut self) {
        self.is_announced = true;
    }

    pub(crate) fn step(&mut self, now: Moment) -> Step {
        let last = match self.silence.step(now) {
            Step::Wait(last) => last,
            due => return due,
        };
        let Some(due) = self.due else { return Step::Wait(last) };
        if now < due {
            return Step::Wait(due.min(last));
        }
        if !std::mem::replace(&mut self.is_announced, true) {
            return Step::Terminate(Reason::Lost);
        }
        let end = due.after(self.spans.grace);
        if now < end { Step::Wait(end.min(last)) } else { Step::Kill }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPANS: Spans = Spans {
        grace: Duration::from_secs(10),
        margin: Duration::from_secs(2),
        most_margin: Duration::from_secs(5),
    };

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn backstop() -> Backstop {
        Backstop::new(SPANS, at(130))
    }

    #[test]
    fn guardian_has_all_but_half_of_the_margin() {
        let mut backstop = backstop();
        assert_eq!(backstop.step(at(128)), Step::Wait(at(129)));
        backstop.extend(at(140));
        assert_eq!(backstop.step(at(129)), Step::Wait(at(139)));
        backstop.set_margin(Duration::from_secs(4));
        assert_eq!(backstop.step(at(129)), Step::Wait(at(138)));
        backstop.set_margin(SPANS.margin);
        assert_eq!(backstop.step(at(139)), Step::Kill);
    }

    #[test]
    fn job_of_a_lost_lock_ends_without_its_guardian() {
        let mut backstop = backstop();
        backstop.lose(at(100));
        backstop.lose(at(101));
        assert_eq!(backstop.step(at(100)), Step::Wait(at(102)), "the guardian comes first");
        assert_eq!(backstop.step(at(102)), Step::Terminate(Reason::Lost));
        assert_eq!(backstop.step(at(103)), Step::Wait(at(112)));
        assert_eq!(backstop.step(at(112)), Step::Kill);
    }

    #[test]
    fn job_that_the_guardian_told_is_not_told_again() {
        let mut backstop = backstop();
        backstop.lose(at(100));
        backstop.announced();
        assert_eq!(backstop.step(at(102)), Step::Wait(at(112)));
        assert_eq!(backstop.step(at(112)), Step::Kill, "it may have stopped after that");
    }

    #[test]
    fn loss_gives_no_time_beyond_the_lease() {
        let mut backstop = backstop();
        backstop.lose(at(125));
        assert_eq!(backstop.step(at(127)), Step::Terminate(Reason::Lost));
        assert_eq!(backstop.step(at(127)), Step::Wait(at(129)));
        assert_eq!(backstop.step(at(129)), Step::Kill);
    }
}

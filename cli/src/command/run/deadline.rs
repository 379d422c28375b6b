//! When a job is told to end, and when it is killed: a state machine without a clock of its own.
//!
//! | situation | SIGTERM | SIGKILL |
//! | --- | --- | --- |
//! | no news of a renewal | `grace` before SIGKILL | `margin` before the end of validity |
//! | the lock is lost | at once | after `grace`, or `margin` before the end of validity |
//! | the main process has ended, and others are left | at once | the same |
//! | the wrapper is gone | | at once |

use std::time::Duration;

use super::clock::Moment;

/// The spans that a run keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spans {
    /// From SIGTERM to SIGKILL.
    pub(crate) grace: Duration,
    /// From SIGKILL to the end of validity: the time that it takes until the last process is gone.
    pub(crate) margin: Duration,
    /// As much as that may grow to, with the number of processes.
    pub(crate) most_margin: Duration,
}

impl Spans {
    /// The same for a crowd that takes so much longer to die.
    pub(crate) fn widened(self, by: Duration) -> Spans {
        let margin = (self.margin + by).min(self.most_margin).max(self.margin);
        Spans { margin, ..self }
    }
}

/// Why a job is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The lock is lost.
    Lost,
    /// No renewal was confirmed in time.
    Silence,
    /// Its main process has ended.
    Finished,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing until then.
    Wait(Moment),
    /// SIGTERM, once.
    Terminate(Reason),
    /// SIGKILL, until nothing is left.
    Kill,
}

#[derive(Debug)]
pub(crate) struct Deadline {
    spans: Spans,
    valid_until: Moment,
    ending: Option<(Moment, Reason)>,
    is_announced: bool,
    is_abandoned: bool,
}

impl Deadline {
    pub(crate) fn new(spans: Spans, valid_until: Moment) -> Deadline {
        Deadline { spans, valid_until, ending: None, is_announced: false, is_abandoned: false }
    }

    pub(crate) fn valid_until(&self) -> Moment {
        self.valid_until
    }

    /// A renewal was confirmed. A later message may bring an earlier moment: a lease never becomes shorter.
    pub(crate) fn extend(&mut self, valid_until: Moment) {
        self.valid_until = self.valid_until.max(valid_until);
    }

    /// Changes how long the killing is expected to take.
    pub(crate) fn set_margin(&mut self, margin: Duration) {
        self.spans.margin = margin;
    }

    /// The job is to end from now on.
    pub(crate) fn end(&mut self, now: Moment, reason: Reason) {
        match &mut self.ending {
            // The grace runs from the first reason on. A loss matters more than an end that came before it.
            Some((_, known)) if reason == Reason::Lost => *known = reason,
            Some(_) => {}
            none => *none = Some((now, reason)),
        }
    }

    /// Nobody renews the lease any more, and nobody would say so.
    pub(crate) fn abandon(&mut self) {
        self.is_abandoned = true;
    }

    /// Why the job ends, if it is killed before it was told to end: without a grace, or after a sleep of the machine.
    pub(crate) fn unannounced(&mut self) -> Option<Reason> {
        let reason = self.ending.map_or(Reason::Silence, |(_, reason)| reason);
        (!std::mem::replace(&mut self.is_announced, true)).then_some(reason)
    }

    pub(crate) fn step(&mut self, now: Moment) -> Step {
        let last = self.valid_until.before(self.spans.margin);
        if self.is_abandoned || now >= last {
            return Step::Kill;
        }
        let patience = last.before(self.spans.grace);
        if now >= patience {
            self.end(now, Reason::Silence);
        }
        let Some((begin, reason)) = self.ending else { return Step::Wait(patience) };
        let end = begin.after(self.spans.grace).min(last);
        if now >= end {
            return Step::Kill;
        }
        if !self.is_announced {
            self.is_announced = true;
            return Step::Terminate(reason);
        }
        Step::Wait(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPANS: Spans = Spans {
        grace: Duration::from_secs(10),
        margin: Duration::from_secs(1),
        most_margin: Duration::from_secs(5),
    };

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn deadline() -> Deadline {
        Deadline::new(SPANS, at(130))
    }

    #[test]
    fn silence_ends_the_job_before_its_lease() {
        let mut deadline = deadline();
        assert_eq!(deadline.step(at(100)), Step::Wait(at(119)));
        assert_eq!(deadline.step(at(119)), Step::Terminate(Reason::Silence));
        assert_eq!(deadline.step(at(119)), Step::Wait(at(129)), "the whole grace");
        assert_eq!(deadline.step(at(129)), Step::Kill);
        assert_eq!(deadline.unannounced(), None);
    }

    #[test]
    fn news_of_a_renewal_moves_all_moments() {
        let mut deadline = deadline();
        deadline.extend(at(140));
        deadline.extend(at(90));
        assert_eq!(deadline.step(at(120)), Step::Wait(at(129)));
        assert_eq!(deadline.step(at(129)), Step::Terminate(Reason::Silence));
        // Late news: the job was told to end and has its whole grace, not more.
        deadline.extend(at(170));
        assert_eq!(deadline.step(at(130)), Step::Wait(at(139)));
        assert_eq!(deadline.step(at(139)), Step::Kill);
    }

    #[test]
    fn loss_gives_the_grace_and_no_more_than_the_lease() {
        let mut early = deadline();
        early.end(at(100), Reason::Lost);
        assert_eq!(early.step(at(100)), Step::Terminate(Reason::Lost));
        assert_eq!(early.step(at(101)), Step::Wait(at(110)));
        assert_eq!(early.step(at(110)), Step::Kill);

        let mut late = deadline();
        late.end(at(120), Reason::Lost);
        assert_eq!(late.step(at(120)), Step::Terminate(Reason::Lost));
        assert_eq!(late.step(at(120)), Step::Wait(at(129)));
    }

    #[test]
    fn grace_below_the_margin_is_given_whole() {
        let grace = Duration::from_millis(500);
        let mut deadline = Deadline::new(Spans { grace, ..SPANS }, at(130));
        let begin = at(129).before(grace);
        assert_eq!(deadline.step(begin), Step::Terminate(Reason::Silence));
        assert_eq!(deadline.step(begin), Step::Wait(at(129)));
    }

    #[test]
    fn leftovers_are_told_once_and_killed_after_the_grace() {
        let mut deadline = deadline();
        deadline.end(at(100), Reason::Finished);
        assert_eq!(deadline.step(at(100)), Step::Terminate(Reason::Finished));
        deadline.extend(at(200));
        deadline.end(at(105), Reason::Lost);
        assert_eq!(deadline.step(at(106)), Step::Wait(at(110)));
        assert_eq!(deadline.step(at(110)), Step::Kill);
    }

    #[test]
    fn crowd_is_killed_earlier() {
        let spans = SPANS.widened(Duration::from_secs(2));
        assert_eq!(spans.margin, Duration::from_secs(3));
        assert_eq!(SPANS.widened(Duration::from_secs(60)).margin, SPANS.most_margin);
        let tight = Spans { most_margin: Duration::ZERO, ..SPANS };
        assert_eq!(tight.widened(Duration::from_secs(1)).margin, SPANS.margin, "never less");
        let mut deadline = deadline();
        deadline.set_margin(spans.margin);
        assert_eq!(deadline.step(at(100)), Step::Wait(at(117)));
        assert_eq!(deadline.step(at(117)), Step::Terminate(Reason::Silence));
        assert_eq!(deadline.step(at(127)), Step::Kill);
    }

    #[test]
    fn a_dead_wrapper_ends_the_job_at_once() {
        let mut deadline = deadline();
        deadline.abandon();
        assert_eq!(deadline.step(at(100)), Step::Kill);
    }

    #[test]
    fn a_resumed_machine_finds_the_job_overdue() {
        let mut deadline = deadline();
        assert_eq!(deadline.step(at(500)), Step::Kill);
        assert_eq!(deadline.unannounced(), Some(Reason::Silence), "the wrapper is to know");
        assert_eq!(deadline.unannounced(), None);
    }

    #[test]
    fn without_a_grace_there_is_no_sigterm() {
        let spans = Spans { grace: Duration::ZERO, ..SPANS };
        let mut deadline = Deadline::new(spans, at(130));
        assert_eq!(deadline.step(at(100)), Step::Wait(at(129)));
        assert_eq!(deadline.step(at(129)), Step::Kill);
    }
}

//! Whether a job is due, by its record.

use crate::kind::once::period::{Missed, Schedule, micros};
use crate::kind::once::policy::Policy;
use crate::kind::once::record::{End, Mark, Record};

/// Whether a job is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It is due for the period of this number, or runs. This is the number of its try.
    Now { number: i64, tries: u32 },
    /// This run was it.
    Done(Mark),
    /// It fails: the number of tries, and the time before which there is none.
    Failing { tries: u32, next_at: i64 },
}

impl Record {
    /// Whether the job is due. `is_over` says that a run without an end does not go on: the caller has its lock. `first` is
    /// the record as the call found it before it waited for the lock.
    pub(super) fn due(
        &self,
        schedule: Schedule,
        policy: Policy,
        is_over: bool,
        first: Option<&Record>,
    ) -> Due {
        let current = self.current(schedule, policy, first);
        let next = match (&self.done, &self.run) {
            (Some(done), _) if done.number_in(schedule) >= current => {
                return Due::Done(done.clone());
            }
            (Some(done), _) => done.number_in(schedule) + 1,
            // Nothing has succeeded yet. The period that was tried is missed, once it is over.
            (None, Some((tried, _))) => tried.number_in(schedule),
            (None, None) => current,
        };
        let tries = self.tries();
        let tried_in = self.run.as_ref().map(|(run, _)| schedule.number(run.began));
        // A period of time that is over does not count. That of a clock that was set back is not over.
        let tries_now = if tried_in >= Some(current) { tries } else { 0 };
        if let Some(failed_at) = self.failed_at(is_over) {
            let is_spent = policy.max_tries.is_some_and(|most| tries_now >= most);
            let spent_until = tried_in.filter(|_| is_spent).map(|it| schedule.start(it + 1));
            let is_delayed = !policy.retry_after.is_zero();
            let delayed_until =
                is_delayed.then(|| failed_at.saturating_add(micros(policy.retry_after)));
            let next_at = spent_until.max(delayed_until).unwrap_or(self.now);
            // A call for a period that is over has no later try in it.
            if next_at > self.now || is_spent {
                return Due::Failing { tries, next_at };
            }
        }
        let number = next.clamp(schedule.oldest(current, policy.missed), current);
        Due::Now { number, tries: tries_now.saturating_add(1) }
    }

    /// The period that a call is for. A call that waited for a run is for the period of that run, also if the next period
    /// has begun meanwhile: or each of the callers of a night would run the job at once for the next one, which then skips
    /// it. Where periods are caught up, a call is for the present one, because a skip would end the caller's loop.
    fn current(&self, schedule: Schedule, policy: Policy, first: Option<&Record>) -> i64 {
        let current = schedule.number(self.now);
        let (Some(first), Some((mark, end)), Missed::Skip) = (first, &self.run, policy.missed)
        else {
            return current;
        };
        match end {
            // Not by the time of the end, which the machine of the run has estimated.
            End::Succeeded(_) | End::Failed(..) if self.run != first.run => {
                current.min(mark.number_in(schedule))
            }
            // It may have died long before the call.
            End::Running if self.noticed(mark).is_none() => current.min(schedule.number(first.now)),
            _ => current,
        }
    }

    /// The last run, if it has no end and nobody has noted yet that it is over.
    pub(super) fn without_end(&self) -> Option<&Mark> {
        let (mark, end) = self.run.as_ref()?;
        (*end == End::Running && self.noticed(mark).is_none()).then_some(mark)
    }

    /// When it was noticed that a run is over without an end.
    pub(super) fn noticed(&self, mark: &Mark) -> Option<i64> {
        self.over.filter(|over| over.token == mark.token).map(|over| over.noticed)
    }

    /// When the last run failed; that it died counts from when it was noticed.
    fn failed_at(&self, is_over: bool) -> Option<i64> {
        match self.run.as_ref()? {
            (_, End::Failed(at, _)) => Some(*at),
            (mark, End::Running) => self.noticed(mark).or(is_over.then_some(self.now)),
            (_, End::Succeeded(_)) => None,
        }
    }

    /// How many runs have begun without a success in the period of time of the last one, that one included.
    pub(super) fn tries(&self) -> u32 {
        match &self.run {
            Some((_, End::Running | End::Failed(..))) => self.tries,
            Some((_, End::Succeeded(_))) | None => 0,
        }
    }
}

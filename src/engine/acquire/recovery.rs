//! What an acquirer does after a request that failed.

use std::time::Duration;

use crate::base::error::Error;
use crate::base::time::Moment;
use crate::engine::acquire::{AcquireLoop, NextAction};
use crate::engine::slot::{HELD_FOR, REPLY_GRACE, USUAL_REPLY_TIME};
use crate::wire::failure::Failure;

/// The consequence of a request for the lock that had no reply.
const MAYBE_TAKEN: &str = "this client may have taken the lock, and then releases it, or it ends with its \
     lease; do not go on as if you had it; trying again is safe";

/// An outage is no restart any more after this.
const LONG_OUTAGE: Duration = Duration::from_secs(2);
/// The longest pause before a request in an outage.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The least pause in an outage that has lasted for so long. It grows with the outage: thousands of waiters would
/// otherwise keep down what tries to start.
fn pause_in_outage(lasted: Duration) -> Duration {
    if lasted < LONG_OUTAGE {
        return Duration::ZERO;
    }
    (lasted / 4).min(LONGEST_PAUSE).mul_f64(0.5 + fastrand::f64() / 2.0)
}

impl AcquireLoop<'_> {
    /// Decides what follows from a failed request. It had this deadline, and so much time.
    pub(super) fn recover(
        &mut self,
        failure: Failure,
        deadline: Moment,
        time: Duration,
    ) -> NextAction {
        if failure.is_unknown() {
            self.attempt.value.unanswered_until(deadline);
            self.attempt.unknown = true;
        }
        // The script takes back what it wrote, as far as the user may. The error stays what it is: the caller has no
        // lock, and what may be left of the attempt is removed (rule 56).
        self.attempt.partial |= failure.may_have_run_in_part();
        if !failure.is_transient() {
            // A key of another type is not this attempt's lock, whatever became of earlier requests. Any
            // other refusal says nothing about them, so the error must leave the outcome open.
            let certain = failure.is_wrong_type();
            let error = failure.into();
            return NextAction::Fail(if certain { error } else { self.outcome_error(error) });
        }
        // The thread did not get the processor in time. That says nothing about Redis, so the last reply
        // stands at any age.
        let unsent = failure.is_held_up();
        let too_short = self.outage.is_none() && failure.is_out_of_time();
        if self.time_left().is_none()
            && too_short
            && (self.last_reply_stands(time) || (unsent && self.busy_at.is_some()))
        {
            // The caller's time was too short for another reply, and the last one found a holder. That is
            // a wait that ran out, and no outage.
            return NextAction::GiveUp(Ok(()));
        }

        if self.may_repeat(&failure) {
            self.outage = Some(self.context.now());
            return NextAction::Again(Duration::ZERO);
        }

        let error = self.outcome_error(failure.into());
        self.retry_in_outage(error)
    }

    /// Whether a failed request is repeated at once. A pooled connection may have died unnoticed, in a restart or a
    /// fail-over long ago: the first one says nothing. The next failure counts, since `outage` is set by then.
    pub(super) fn may_repeat(&self, failure: &Failure) -> bool {
        let has_time = self.context.now() < self.last_deadline;
        failure.is_disconnect() && self.outage.is_none() && has_time
    }

    /// A request reached Redis after its deadline, for which it had `time`. If the end of the caller's
    /// time made the deadline short, the last reply may stand.
    pub(super) fn retry_late(&mut self, time: Duration) -> NextAction {
        let left = self.time_left();
        // If the request had a whole exchange, or the caller has time left, lateness means that Redis or the
        // network is slow.
        if time < self.context.bounds.exchange
            && left.is_none_or(|left| left <= REPLY_GRACE)
            && self.outage.is_none()
            && self.last_reply_stands(time)
        {
            return match left {
                None => NextAction::GiveUp(Ok(())),
                Some(left) => NextAction::Again(self.backoff.next().min(left)),
            };
        }
        self.retry_in_outage(Error::unreachable(
            "the request reached Redis after its deadline, so it did nothing; look whether Redis or the \
             network is slow",
        ))
    }

    /// Whether the last reply, which found a holder, stands although the request after it had no reply
    /// within `time`: that was too little for a usual reply, and the last reply is recent.
    pub(super) fn last_reply_stands(&self, time: Duration) -> bool {
        let brief = time <= USUAL_REPLY_TIME;
        let is_recent = |at| self.context.now().since(at) <= HELD_FOR;
        brief && self.busy_at.is_some_and(is_recent)
    }

    /// Asks again in spite of an error, while the caller waits and the client rides the outage out.
    pub(super) fn retry_in_outage(&mut self, error: Error) -> NextAction {
        let now = self.context.now();
        let since = *self.outage.get_or_insert(now);
        let give_up = since.after(self.context.bounds.give_up_after);
        match self.time_left() {
            // Backoff keeps the clients from connecting in step when the server comes back.
            Some(left) if now < give_up => {
                let pause = self.backoff.next().max(pause_in_outage(now.since(since)));
                NextAction::Again(pause.min(left).min(give_up.since(now)))
            }
            _ => {
                // The caller's time ended first: it gets the error, and the threads behind it go on.
                if now < give_up {
                    return NextAction::GiveUp(Err(error));
                }
                self.silence = Some(now.since(since));
                NextAction::GiveUp(Err(error.in_outage()))
            }
        }
    }

    /// Turns an error that says that nothing was done into an unknown outcome, if an earlier request had
    /// no reply or a grant was not confirmed.
    pub(super) fn outcome_error(&self, error: Error) -> Error {
        match self.attempt.unknown {
            true if !error.is_unknown_outcome() => {
                let unknown = Error::unknown_outcome(format!(
                    "a request had no reply, so {MAYBE_TAKEN}; the next try failed: {error}"
                ));
                let unknown = if error.is_unreachable() { unknown.in_outage() } else { unknown };
                unknown.with_source(error)
            }
            true => error.with_consequence(MAYBE_TAKEN),
            false => error,
        }
    }
}

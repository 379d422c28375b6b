//! What an acquirer makes of a request that failed.

use std::time::Duration;

use crate::base::error::Error;
use crate::base::time::Moment;
use crate::engine::acquire::{AcquireLoop, NextAction, REPLY_GRACE};
use crate::engine::heartbeat::HEARTBEAT;
use crate::engine::slot::USUAL_REPLY_TIME;
use crate::wire::failure::{Failure, NotSentReason};

/// What follows from a request for the lock that had no reply.
const MAYBE_TAKEN: &str = "this client may have taken the lock, and then releases it, or it ends with its \
     lease; do not go on as if you had it; trying again is safe";

impl AcquireLoop<'_> {
    pub(super) fn recover(
        &mut self,
        failure: Failure,
        deadline: Moment,
        time: Duration,
    ) -> NextAction {
        if failure.is_unknown()
            && let Some(attempt) = &mut self.attempt
        {
            attempt.settled = attempt.settled.max(deadline);
            attempt.unknown = true;
        }
        if !failure.is_transient() {
            // Where it is another thing's, it is not ours.
            let certain = failure.is_wrong_type();
            let error = failure.into();
            return NextAction::Fail(if certain { error } else { self.outcome_error(error) });
        }
        // A thread that was kept from sending its last request has learned nothing new of Redis.
        let unsent = matches!(failure, Failure::NotSent(NotSentReason::DeadlinePassed));
        let too_short = self.outage.is_none() && failure.is_out_of_time();
        if self.time_left().is_none()
            && too_short
            && (self.last_reply_stands(time) || (unsent && self.busy_at.is_some()))
        {
            // The caller's time was too short for another answer; the last one told of a holder.
            return NextAction::GiveUp(Ok(()));
        }
        let now = self.context.now();
        // A pooled connection may have died unnoticed: that is no outage yet.
        if failure.is_disconnect() && self.outage.is_none() && now < self.last_deadline {
            self.outage = Some(now);
            return NextAction::Again(Duration::ZERO);
        }
        let error = self.outcome_error(failure.into());
        self.retry_in_outage(error)
    }

    /// The request, which had so much time, reached Redis too late. Where it was the end of the caller's
    /// time that made it so, the last word of a holder may stand.
    pub(super) fn retry_late(&mut self, time: Duration) -> NextAction {
        let left = self.time_left();
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

    /// Whether what Redis last told of a holder stands, though the last request, which had so much
    /// time, brought no answer: it is not old, and there was no time for a usual answer. Who asks once a
    /// heartbeat was told that long ago when its time is over, and a little longer at the answer.
    pub(super) fn last_reply_stands(&self, time: Duration) -> bool {
        let brief = time <= USUAL_REPLY_TIME;
        let is_recent = |at| self.context.now().since(at) <= HEARTBEAT * 2;
        brief && self.busy_at.is_some_and(is_recent)
    }

    /// Goes on in spite of an error, for as long as the caller waits and an outage is ridden out.
    pub(super) fn retry_in_outage(&mut self, error: Error) -> NextAction {
        let now = self.context.now();
        let since = *self.outage.get_or_insert(now);
        let give_up = since.after(self.context.bounds.give_up_after);
        match self.time_left() {
            Some(left) if now < give_up => {
                NextAction::Again(self.backoff.next().min(left).min(give_up.since(now)))
            }
            _ => {
                if now < give_up {
                    return NextAction::GiveUp(Err(error));
                }
                self.silence = Some(now.since(since));
                NextAction::GiveUp(Err(error.in_outage()))
            }
        }
    }

    /// An error that says that nothing was done. Where a request brought no answer, or a grant could
    /// not be made sure of, that would be too much to say.
    pub(super) fn outcome_error(&self, error: Error) -> Error {
        match &self.attempt {
            Some(attempt) if attempt.unknown && !error.is_unknown_outcome() => {
                let unknown = Error::unknown_outcome(format!(
                    "a request had no reply, so {MAYBE_TAKEN}; the next try failed: {error}"
                ));
                let unknown = if error.is_unreachable() { unknown.in_outage() } else { unknown };
                unknown.with_source(error)
            }
            Some(attempt) if attempt.unknown => error.with_consequence(MAYBE_TAKEN),
            _ => error,
        }
    }
}

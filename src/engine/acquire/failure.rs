//! What a delegate makes of a request that failed.

use std::time::Duration;

use crate::base::error::Error;
use crate::base::time::Moment;
use crate::engine::acquire::{Delegate, GRACE, Next};
use crate::engine::heartbeat::HEARTBEAT;
use crate::engine::slot::USUAL_ANSWER;
use crate::wire::failure::{Failure, NotSentReason};

/// What follows from a request for the lock that had no reply.
const MAYBE_TAKEN: &str = "this client may have taken the lock, and then releases it, or it ends with its \
     lease; do not go on as if you had it; trying again is safe";

impl Delegate<'_> {
    pub(super) fn recover(&mut self, failure: Failure, deadline: Moment, time: Duration) -> Next {
        if failure.is_unknown()
            && let Some(bid) = &mut self.bid
        {
            bid.settled = bid.settled.max(deadline);
            bid.unknown = true;
        }
        if !failure.is_passing() {
            // Where it is another thing's, it is not ours.
            let certain = failure.is_wrong_type();
            let error = failure.into();
            return Next::Fail(if certain { error } else { self.open(error) });
        }
        // A thread that was kept from sending its last request has learned nothing new of Redis.
        let unsent = matches!(failure, Failure::NotSent(NotSentReason::Overdue));
        let too_short = self.outage.is_none() && failure.is_for_want_of_time();
        if self.left().is_none()
            && too_short
            && (self.last_word_stands(time) || (unsent && self.busy_at.is_some()))
        {
            // The caller's time was too short for another answer; the last one told of a holder.
            return Next::GiveUp(Ok(()));
        }
        let now = self.context.now();
        // A pooled connection may have died unnoticed: that is no outage yet.
        if failure.is_disconnect() && self.outage.is_none() && now < self.last {
            self.outage = Some(now);
            return Next::Again(Duration::ZERO);
        }
        let error = self.open(failure.into());
        self.ride_out(error)
    }

    /// The request, which had so much time, reached Redis too late. Where it was the end of the caller's
    /// time that made it so, the last word of a holder may stand.
    pub(super) fn come_late(&mut self, time: Duration) -> Next {
        let left = self.left();
        if time < self.context.bounds.exchange
            && left.is_none_or(|left| left <= GRACE)
            && self.outage.is_none()
            && self.last_word_stands(time)
        {
            return match left {
                None => Next::GiveUp(Ok(())),
                Some(left) => Next::Again(self.backoff.next().min(left)),
            };
        }
        self.ride_out(Error::unreachable(
            "the request reached Redis after its deadline, so it did nothing; look whether Redis or the \
             network is slow",
        ))
    }

    /// Whether what Redis last told of a holder stands, though the last request, which had so much
    /// time, brought no answer: it is not old, and there was no time for a usual answer. Who asks once a
    /// heartbeat was told that long ago when its time is over, and a little longer at the answer.
    pub(super) fn last_word_stands(&self, time: Duration) -> bool {
        let brief = time <= USUAL_ANSWER;
        let is_recent = |at| self.context.now().since(at) <= HEARTBEAT * 2;
        brief && self.busy_at.is_some_and(is_recent)
    }

    /// Goes on in spite of an error, for as long as the caller waits and an outage is ridden out.
    pub(super) fn ride_out(&mut self, error: Error) -> Next {
        let now = self.context.now();
        let since = *self.outage.get_or_insert(now);
        let give_up = since.after(self.context.bounds.give_up_after);
        match self.left() {
            Some(left) if now < give_up => {
                Next::Again(self.backoff.next().min(left).min(give_up.since(now)))
            }
            _ => {
                if now < give_up {
                    return Next::GiveUp(Err(error));
                }
                self.silence = Some(now.since(since));
                Next::GiveUp(Err(error.in_outage()))
            }
        }
    }

    /// An error that says that nothing was done. Where a request brought no answer, or a grant could
    /// not be made sure of, that would be too much to say.
    pub(super) fn open(&self, error: Error) -> Error {
        match &self.bid {
            Some(bid) if bid.unknown && !error.is_unknown_outcome() => {
                let unknown = Error::unknown_outcome(format!(
                    "a request had no reply, so {MAYBE_TAKEN}; the next try failed: {error}"
                ));
                let unknown = if error.is_unreachable() { unknown.in_outage() } else { unknown };
                unknown.with_source(error)
            }
            Some(bid) if bid.unknown => error.so(MAYBE_TAKEN),
            _ => error,
        }
    }
}

//! Requests of threads that wait behind the acquirer, and travel with its own.

use crate::base::option::LockOptions;
use crate::base::sync::Arc;
use crate::engine::acquire::grant::exceeded_limit;
use crate::engine::acquire::{AcquireLoop, Sending};
use crate::engine::hold::Hold;
use crate::engine::lease::Grant;
use crate::engine::slot::Attempt;
use crate::engine::worker::Removal;
use crate::protocol::Protocol;
use crate::protocol::reply::{AcquireOutcome, AcquireReply, Granted};
use crate::protocol::request::{AcquireMode, AcquireRequest};
use crate::wire::failure::Failure;

impl AcquireLoop<'_> {
    /// Sends a request for this thread, and in the same round trip one for each thread that can travel along. Returns
    /// this thread's outcome.
    pub(super) fn ask_for_all(&mut self, sending: &Sending) -> AcquireOutcome {
        let target = self.slot.target();
        // In an outage each repetition would leave as many attempts to be removed.
        let companions = match self.outage.is_none() && target.kind().overlaps() {
            true => self.slot.take_along(self.options, sending.deadline),
            false => Vec::new(),
        };
        if companions.is_empty() {
            let request = self.request(sending);
            let ask = |it: &dyn Protocol| it.acquire(target, &request, sending.deadline);
            return self.context.exchange(ask);
        }
        let attempt = |&(number, options): &_| Attempt::new(self.slot, &options, number);
        let attempts: Vec<Attempt> = companions.iter().map(attempt).collect();
        let along = attempts.iter().map(|attempt| AcquireRequest {
            owner: &attempt.value.bytes,
            mode: AcquireMode::Try,
            ..self.request(sending)
        });
        let requests = std::iter::once(self.request(sending)).chain(along);
        let requests: Vec<_> = requests.map(|request| (&**target, request)).collect();
        let outcomes = self.context.exchange(|it| it.acquire_all(&requests, sending.deadline));
        let mut outcomes = outcomes.into_iter();
        let own = outcomes.next();
        // Before this thread's own outcome: with that the next of them acquires.
        for ((companion, attempt), acquired) in companions.iter().zip(&attempts).zip(outcomes) {
            self.note_companion(companion, attempt, acquired, sending);
        }
        let is_silent = own.as_ref().is_none_or(|acquired| acquired.outcome.is_err());
        self.slot.end_along(is_silent);
        own.unwrap_or(AcquireOutcome { outcome: Err(Failure::silent()), is_spent: false })
    }

    /// Gives a companion its hold, or removes from Redis what may be left of its attempt.
    fn note_companion(
        &self,
        companion: &(u64, LockOptions),
        attempt: &Attempt,
        acquired: AcquireOutcome,
        sending: &Sending,
    ) {
        let remains = match acquired.outcome {
            Ok(AcquireReply::Granted(granted)) => !self.serve(companion, attempt, granted),
            // It did nothing. Its thread goes on waiting, or learns from this thread's reply.
            Ok(_) => false,
            Err(failure) => {
                if failure.is_unknown() {
                    attempt.value.unanswered_until(sending.deadline);
                }
                failure.is_unknown() || failure.may_have_run_in_part()
            }
        };
        if remains {
            let removal = Removal::of_attempt(&attempt.value, self.context.now());
            self.context.worker.release_in_background(removal);
        }
    }

    /// Returns whether its thread has the hold.
    fn serve(
        &self,
        (number, options): &(u64, LockOptions),
        attempt: &Attempt,
        granted: Granted,
    ) -> bool {
        let Granted { token, ttl, sent, micros, received, waiters, permits } = granted;
        if exceeded_limit(options, sent, ttl, self.context.now()).is_some() {
            return false;
        }
        let grant = Grant { token, ttl, sent, server_time: (micros, received), permits };
        let clock = Arc::clone(&self.context.clock);
        let hold = Hold::first(Arc::clone(&attempt.value), clock, grant, options);
        self.slot.granted_along(&hold, *number, waiters)
    }
}

//! The pauses of an acquirer: between two requests, and before the first one where it yields to
//! listeners, as the fairness of its slot says.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::base::time::Moment;
use crate::engine::slot::Slot;
use crate::engine::slot::fairness::LONGEST_YIELD;

/// How an acquirer's pause ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paused {
    Over,
    Cancelled,
}

impl Slot {
    /// The acquirer pauses until a message comes for it, it is cancelled, or the time is over.
    pub(crate) fn pause(&self, span: Duration) -> Paused {
        let mut state = self.state.lock();
        if !span.is_zero() {
            let until = self.context.now().after(span);
            // `is_quiet` and the wait share the slot's lock, which a message needs too: one that came
            // before is seen here, and a later one finds this thread waiting.
            while state.is_quiet() && self.context.now() < until {
                self.context.wait_until(until, &mut |left| {
                    self.pause.wait_for(&mut state, left);
                });
            }
        }
        // Also where the pause has no length: whatever asked for a retry is served by the request that
        // follows.
        state.end_pause();
        if state.is_cancelled() { Paused::Cancelled } else { Paused::Over }
    }

    /// Until when the acquirer has to leave the lock to others before it asks again, if it has to.
    pub(crate) fn yield_until(&self) -> Option<Moment> {
        let fairness = &self.state.lock().fairness;
        fairness.yields_at(self.context.now()).then_some(fairness.until)
    }

    /// The acquirer leaves the lock to others until nobody has taken it for a pause, or until its turn comes. It
    /// pauses no longer than its caller has time, nor than the threads behind it.
    pub(crate) fn yield_to_others(&self, last: Moment) -> Paused {
        let mut state = self.state.lock();
        let first = state.fairness.until;
        let last = first.max(self.context.now().after(LONGEST_YIELD)).min(last);
        state.fairness.is_pausing = true;
        while !state.is_cancelled() && state.fairness.yields_at(self.context.now()) {
            // A single attempt gets its reply after one pause, whatever others do meanwhile.
            let until = if state.has_single_attempt() { first } else { state.fairness.until };
            let until = until.min(last);
            if state.is_out_of_time_by(until) || until <= self.context.now() {
                break;
            }
            self.context.wait_until(until, &mut |left| {
                self.pause.wait_for(&mut state, left);
            });
        }
        state.fairness.is_pausing = false;
        // The next request answers every retry that messages asked for during the pause.
        state.end_pause();
        if state.is_cancelled() {
            return Paused::Cancelled;
        }
        // A pause that its caller's time cut short is still due: the next acquirer of this process goes
        // on with it.
        let to_the_end = state.fairness.until <= self.context.now();

        let listens = state.fairness.listens;
        // Lock order: the listener locks a slot while it has its own state locked, which `is_subscribed`
        // locks.
        drop(state);
        let counts = to_the_end && listens && self.hears_all_releases();
        self.state.lock().fairness.paused = Some(counts);
        Paused::Over
    }

    /// Whether this client receives the releases of all others. If not, a pause without a message proves
    /// nothing.
    fn hears_all_releases(&self) -> bool {
        let channel = self.target.channel().filter(|_| self.target.hears_every_release());
        channel.is_some_and(|channel| self.context.listener.is_subscribed(channel))
    }
}

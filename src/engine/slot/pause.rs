//! The pauses of an acquirer: between two attempts, and before the first of them where it leaves the lock to
//! listeners, as the fairness of its slot says.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::base::time::Moment;
use crate::engine::slot::Slot;

/// How an acquirer's pause ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paused {
    Over,
    Cancelled,
}

impl Slot {
    /// The acquirer pauses until it is told something, called off, or the time is over.
    pub(crate) fn pause(&self, span: Duration) -> Paused {
        let mut state = self.state.lock();
        if !span.is_zero() {
            let until = self.context.now().after(span);
            while state.is_quiet() && self.context.now() < until {
                self.context.wait_until(until, &mut |left| {
                    self.pause.wait_for(&mut state, left);
                });
            }
        }
        state.end_pause();
        if state.is_cancelled() { Paused::Cancelled } else { Paused::Over }
    }

    /// The acquirer leaves the lock to others until then, or until one of them has had it, or for as long as
    /// its caller and those behind it have time.
    pub(crate) fn yield_to_others(&self, until: Moment, last: Moment) -> Paused {
        let mut state = self.state.lock();
        while !state.is_cancelled()
            && !state.fairness.was_released_elsewhere()
            && !state.is_out_of_time_by(until)
            && self.context.now() < until.min(last)
        {
            self.context.wait_until(until.min(last), &mut |left| {
                self.pause.wait_for(&mut state, left);
            });
        }
        // What was heard meanwhile is no reason for another attempt after the next.
        state.end_pause();
        if state.is_cancelled() {
            return Paused::Cancelled;
        }
        let to_the_end = until <= self.context.now();
        if to_the_end || state.fairness.was_released_elsewhere() {
            state.fairness.until = Moment::PAST;
        }
        let listens = state.fairness.listens;
        // The listener looks at slots while it has what the next question needs.
        drop(state);
        let counts = to_the_end && listens && self.hears_all_releases();
        self.state.lock().fairness.paused = Some(counts);
        Paused::Over
    }

    /// Whether this client hears the releases of all others.
    fn hears_all_releases(&self) -> bool {
        let channel = self.target.channel().filter(|_| self.target.hears_every_release());
        channel.is_some_and(|channel| self.context.listener.is_subscribed(channel))
    }
}

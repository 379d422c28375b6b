//! The pauses of a delegate: between two attempts, and before the first of them where it leaves the lock to
//! listeners, as the courtesy of its slot says.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::base::time::Moment;
use crate::engine::slot::patience::Patience;
use crate::engine::slot::{Inner, Slot};
use crate::protocol::answer::{Released, Verdict};

impl Inner {
    /// Whether a thread waits that has no more time than until then, and would not be told of the lock.
    fn is_short_of_time(&self, until: Moment) -> bool {
        let is_short = |patience| matches!(patience, Patience::Until(end) if end <= until);
        self.queue.iter().any(|waiter| is_short(waiter.patience))
    }
}

/// How a delegate's pause ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paused {
    Over,
    CalledOff,
}

impl Slot {
    /// The delegate pauses until it is told something, called off, or the time is over.
    pub(crate) fn pause(&self, span: Duration, seen: &mut u64) -> Paused {
        let mut inner = self.inner.lock();
        let quiet =
            |inner: &Inner| inner.cancellations == *seen && inner.grant.is_none() && !inner.nudged;
        if !span.is_zero() && quiet(&inner) {
            let until = self.context.now().after(span);
            loop {
                self.context.doze(until, &mut |left| {
                    self.pause.wait_for(&mut inner, left);
                });
                if !quiet(&inner) || until <= self.context.now() {
                    break;
                }
            }
        }
        inner.nudged = false;
        if self.is_called_off(&inner, seen) { Paused::CalledOff } else { Paused::Over }
    }

    /// Whether the delegate was called off since it last looked. A call that does not wait is called off by
    /// a shutdown only: `cancel_waits` ends waits.
    fn is_called_off(&self, inner: &Inner, seen: &mut u64) -> bool {
        let cancelled = std::mem::replace(seen, inner.cancellations) != inner.cancellations;
        cancelled && (inner.waits || self.context.is_shut_down())
    }

    /// Notes how many heard the release, which took so long, and whether this client was one of them.
    pub(crate) fn released(&self, released: Released, listens: bool, trip: Duration) {
        if released.verdict != Verdict::Done {
            return;
        }
        let others = released.listeners > u32::from(listens) && !mutated!("no-pause-for-listeners");
        self.inner.lock().courtesy.released(listens, others, trip, self.context.now());
    }

    /// Until when this process leaves the lock to those who listen, if it does.
    pub(crate) fn is_left_until(&self) -> Option<Moment> {
        let inner = self.inner.lock();
        inner.courtesy.is_left_at(self.context.now()).then_some(inner.courtesy.until)
    }

    /// The delegate leaves the lock to others until then, or until one of them has had it, or for as long as
    /// its caller and those behind it have time.
    pub(crate) fn leave_to_others(&self, until: Moment, last: Moment, seen: &mut u64) -> Paused {
        let mut inner = self.inner.lock();
        let waits = |inner: &Inner, seen: u64| {
            inner.cancellations == seen
                && !inner.courtesy.is_over()
                && !inner.is_short_of_time(until)
        };
        while waits(&inner, *seen) && self.context.now() < until.min(last) {
            self.context.doze(until.min(last), &mut |left| {
                self.pause.wait_for(&mut inner, left);
            });
        }
        // What was heard meanwhile is no reason for another attempt after the next.
        inner.nudged = false;
        if self.is_called_off(&inner, seen) {
            return Paused::CalledOff;
        }
        let to_the_end = until <= self.context.now();
        if to_the_end || inner.courtesy.is_over() {
            inner.courtesy.until = Moment::PAST;
        }
        let listens = inner.courtesy.listens;
        // The listener looks at slots while it has what the next question needs.
        drop(inner);
        let counts = to_the_end && listens && self.hears_others();
        self.inner.lock().courtesy.paused = Some(counts);
        Paused::Over
    }

    /// Whether this client hears the releases of all others.
    fn hears_others(&self) -> bool {
        let channel = self.target.channel().filter(|_| self.target.is_heard_everywhere());
        channel.is_some_and(|channel| self.context.listener.hears(channel))
    }
}

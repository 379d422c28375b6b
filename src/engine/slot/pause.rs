//! The pause of a delegate that leaves the lock to listeners, as the courtesy of its slot says.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::slot::{Inner, Patience, Paused, Slot};
use crate::protocol::answer::{Released, Verdict};

impl Inner {
    /// Whether a thread waits that has no more time than until then, and would not be told of the lock.
    fn is_short_of_time(&self, until: Moment) -> bool {
        let is_short = |patience| matches!(patience, Patience::Until(end) if end <= until);
        self.queue.iter().any(|waiter| is_short(waiter.patience))
    }
}

impl Slot {
    /// Notes how many heard the release, which took so long, and whether this client was one of them.
    pub(crate) fn released(&self, released: Released, listens: bool, trip: Duration) {
        if released.verdict != Verdict::Done {
            return;
        }
        let others = released.listeners > u32::from(listens) && !mutated!("no-pause-for-listeners");
        self.inner.lock().courtesy.released(listens, others, trip, self.engine.now());
    }

    /// Until when this process leaves the lock to those who listen, if it does.
    pub(crate) fn is_left_until(&self) -> Option<Moment> {
        let inner = self.inner.lock();
        inner.courtesy.is_left_at(self.engine.now()).then_some(inner.courtesy.until)
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
        while waits(&inner, *seen) && self.engine.now() < until.min(last) {
            self.engine.doze(until.min(last), &mut |left| {
                self.pause.wait_for(&mut inner, left);
            });
        }
        // What was heard meanwhile is no reason for another attempt after the next.
        inner.nudged = false;
        if self.is_called_off(&inner, seen) {
            return Paused::CalledOff;
        }
        let to_the_end = until <= self.engine.now();
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
        channel.is_some_and(|channel| self.engine.hub().hears(channel))
    }

    /// Somebody released the lock, perhaps this process.
    pub(crate) fn hear_release(self: &Arc<Slot>) {
        self.inner.lock().courtesy.hear_release();
        self.nudge();
    }

    /// The client listens for releases anew.
    pub(crate) fn listen_anew(&self) {
        self.inner.lock().courtesy.listen_anew();
    }
}

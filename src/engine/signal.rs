//! Where a thread waits that observes a lock, and does not want it.

use std::time::Duration;

use crate::base::sync::{Arc, Condvar, Mutex, Weak};
use crate::base::time::{Clock, Moment};
use crate::engine::listener::ReleaseListener;

/// Says that there may be something to see. A leaf: nothing else is locked under it.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    is_raised: Mutex<bool>,
    raised: Condvar,
}

impl Signal {
    fn raise(&self) {
        *self.is_raised.lock() = true;
        self.raised.notify_all();
    }

    /// Whether it was raised since it was last taken.
    pub(crate) fn take(&self) -> bool {
        std::mem::take(&mut *self.is_raised.lock())
    }

    /// Waits until it is raised, or until that moment. It may return earlier.
    pub(crate) fn wait(&self, clock: &dyn Clock, until: Moment) {
        let mut is_raised = self.is_raised.lock();
        // Looked at under the lock, so that one that is raised before the wait ends it.
        if !*is_raised {
            clock.wait_until(until, &mut |left: Duration| {
                self.raised.wait_for(&mut is_raised, left);
            });
        }
    }
}

impl ReleaseListener for Signal {
    fn has_waiters(&self) -> bool {
        // Its observer has the only reference. Between two calls, too, a message is noted.
        true
    }

    fn on_release(&self) {
        self.raise();
    }

    fn on_resubscribe(&self) {
        // What was published before is lost.
        self.raise();
    }

    fn request_retry(&self) {
        self.raise();
    }
}

/// The signals of a client's observers.
#[derive(Debug, Default)]
pub(crate) struct Signals(Mutex<Vec<Weak<Signal>>>);

impl Signals {
    /// A signal of one more observer.
    pub(crate) fn add(&self) -> Arc<Signal> {
        let signal = Arc::new(Signal::default());
        let mut signals = self.0.lock();
        signals.retain(|signal| signal.strong_count() > 0);
        signals.push(Arc::downgrade(&signal));
        signal
    }

    /// Wakes all observers: the client is closing.
    pub(super) fn raise_all(&self) {
        let signals: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        signals.iter().for_each(|signal| signal.raise());
    }
}

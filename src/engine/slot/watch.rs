//! When the worker is to look at a slot.
//!
//! The slot knows by when the worker looks, and asks for an earlier look only where that is too late.
//! A lease that is passed on inside the process, or taken again while it lingers, needs none: the
//! entry of the hold before serves the next. What the worker finds when it looks is what counts.

use std::time::Duration;

use crate::base::loss::Loss;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::callback::News;
use crate::engine::lease::LiveLease;
use crate::engine::slot::hand_off::Ending;
use crate::engine::slot::{Inner, Slot, State};
use crate::engine::worker::Tended;

/// Counts that people see follow within this time.
const SHOW_AFTER: Duration = Duration::from_millis(20);

impl Slot {
    /// Makes the worker look when this lease needs it. Returns whether the worker is to be woken once
    /// the slot is unlocked.
    pub(super) fn watch(self: &Arc<Slot>, inner: &mut Inner, lease: &LiveLease) -> bool {
        let due = lease.next_look();
        let due = if lease.hold_count.is_unshown() {
            due.min(self.context.now().after(SHOW_AFTER))
        } else {
            due
        };
        self.look_by(inner, due)
    }

    /// The same, by a moment.
    pub(super) fn look_by(self: &Arc<Slot>, inner: &mut Inner, due: Moment) -> bool {
        if due >= inner.look_at && !mutated!("relocks-starve-renewal") {
            return false;
        }
        inner.look_at = due;
        self.context.worker.look_at(self, due)
    }

    /// Spares the worker the look: there is no lease any more.
    pub(super) fn unwatch(&self, inner: &mut Inner) {
        let watched = std::mem::replace(&mut inner.look_at, Moment::FAR) != Moment::FAR;
        if watched && !mutated!("pile-without-end") {
            self.context.worker.forget(self);
        }
    }

    /// Makes the worker show the hold count of a lease soon.
    pub(crate) fn show(self: &Arc<Slot>, lease: &LiveLease) {
        let mut inner = self.inner.lock();
        let wake = self.watch(&mut inner, lease);
        drop(inner);
        self.context.worker.wake_if(wake);
    }

    /// The worker looks at the slot. Returns the lease that a thread has, live or not, after which another
    /// look is owed; or the end of a linger whose time is over.
    pub(crate) fn look(self: &Arc<Slot>, now: Moment) -> (Option<Arc<LiveLease>>, Option<Ending>) {
        let mut inner = self.inner.lock();
        inner.look_at = Moment::FAR;
        match &inner.state {
            State::Held(lease) => return (lease.upgrade(), None),
            State::Lingering(..) if inner.linger_until > now => {
                let until = inner.linger_until;
                self.look_by(&mut inner, until);
            }
            State::Lingering(..) => return (None, self.end(&mut inner)),
            _ => {}
        }
        (None, None)
    }

    /// Tells the user of a loss.
    pub(crate) fn tell(&self, lease: &LiveLease, loss: Loss) {
        self.context.worker.announce(News::Lost(loss, Arc::new(lease.take_hooks())));
    }
}

impl Tended for Slot {
    fn held(self: Arc<Self>, now: Moment) -> Option<Arc<LiveLease>> {
        // What lingered comes in as a duty to give back, once this is dropped.
        let (held, _ending) = self.look(now);
        held
    }

    /// Makes the worker look again then, or when the lease ends, so that its end is told as soon as the
    /// worker is free. Where there is none any more, nothing is to be looked at.
    fn look_again(self: Arc<Self>, due: Moment) {
        let now = self.context.now();
        // Dropped after the slot is unlocked: ours may be the last reference.
        let lease;
        let mut inner = self.inner.lock();
        let due = match &inner.state {
            State::Held(held) => {
                let Some(held) = held.upgrade() else { return };
                lease = held;
                if !lease.is_live() {
                    return;
                }
                due.min(lease.valid_until().max(now))
            }
            State::Lingering(..) => due.min(inner.linger_until),
            _ => return,
        };
        // The look before may have been cut short by a panic, and then the slot still counts on it.
        if !mutated!("cut-look-forgotten") {
            inner.look_at = Moment::FAR;
        }
        self.look_by(&mut inner, due);
    }

    /// What is owed when a lease was found lost: the slot is free for the next, and the user is told.
    /// What is left of it in Redis ends by itself, and not before, as its thread may still be at work. Only
    /// its attempt must not come back.
    fn lost(&self, lease: &LiveLease, loss: Loss) {
        self.give_back_later(lease, loss.cause());
        self.vacate(None);
        self.tell(lease, loss);
    }
}

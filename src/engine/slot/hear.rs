//! What a slot is told by messages.

use crate::base::sync::Arc;
use crate::engine::callback::News;
use crate::engine::listener::HearsReleases;
use crate::engine::slot::{Heard, Slot, State};
use crate::protocol::wake::GrantMessage;

impl Slot {
    /// A grant was heard. It is kept for the delegate, also before the answer to its request
    /// (rule 10).
    pub(crate) fn hear_grant(&self, grant: GrantMessage) {
        let mut inner = self.inner.lock();
        let trying = match inner.state {
            State::Trying { told_busy } => told_busy || !mutated!("early-grant-not-kept"),
            _ => false,
        };
        let ours = inner.number == Some(grant.number) || mutated!("grant-of-another-attempt");
        if trying && ours {
            inner.grant = Some(Heard { grant, received: self.context.now() });
            // Whoever wakes needs the lock at once.
            drop(inner);
            self.pause.notify_one();
        }
    }

    /// Another process waits for what this attempt has. A lease that lingers is given back.
    pub(crate) fn hear_wanted(&self, number: u64, waiters: u32) {
        let mut inner = self.inner.lock();
        if inner.number != Some(number) {
            return;
        }
        inner.wanted = true;
        inner.remote = waiters.max(1);
        drop(inner);
        if !mutated!("linger-not-revoked") {
            self.revoke_linger();
        }
    }

    /// Somebody asks for what this attempt has. A lease that lingers is given back, and the user is told
    /// of what a thread here holds.
    pub(crate) fn hear_request(&self, number: u64) {
        let inner = self.inner.lock();
        let (ours, held) = (inner.number == Some(number), matches!(inner.state, State::Held(_)));
        drop(inner);
        if ours {
            self.revoke_linger();
        }
        if ours && held {
            let name = self.target.name().as_bytes().to_vec();
            self.context.worker.announce(News::Requested(name));
        }
    }

    /// This attempt is said to have been evicted: the worker asks Redis at once whether that is so. A lease
    /// that lingers is given back.
    pub(crate) fn hear_evicted(self: &Arc<Slot>, number: u64) {
        let mut inner = self.inner.lock();
        if inner.number != Some(number) {
            return;
        }
        // The grant may be in a reply on its way.
        inner.evicted = matches!(inner.state, State::Trying { .. });
        // Dropped after the slot is unlocked: ours may be the last reference.
        let held = match &inner.state {
            State::Held(lease) => lease.upgrade(),
            _ => None,
        };
        let wake = held.as_ref().is_some_and(|lease| {
            let now = self.context.now();
            lease.doubt(now);
            self.look_by(&mut inner, now)
        });
        drop(inner);
        self.context.worker.wake_if(wake);
        self.revoke_linger();
    }
}

impl HearsReleases for Slot {
    fn is_waited_for(&self) -> bool {
        let inner = self.inner.lock();
        matches!(inner.state, State::Trying { .. }) || !inner.queue.is_empty()
    }

    fn hear_release(&self) {
        self.inner.lock().courtesy.hear_release();
        self.nudge();
    }

    fn listen_anew(&self) {
        self.inner.lock().courtesy.listen_anew();
    }

    fn nudge(&self) {
        let mut inner = self.inner.lock();
        let trying = matches!(inner.state, State::Trying { .. });
        if trying {
            inner.nudged = true;
            self.pause.notify_one();
        }
        // Who nudges has not heard what was said before.
        inner.wanted = true;
    }
}

//! A lease in whose holds threads take the lock once more: what comes of what these calls ask for (rule 62).

use std::time::Duration;

use crate::base::sync::Ordering;
use crate::base::time::Moment;
use crate::engine::lease::inside::Asked;
use crate::engine::lease::{Guarded, Lease, RENEWALS_PER_LEASE};

impl Lease {
    /// Whether it will be renewed.
    pub(crate) fn has_renewals(&self) -> bool {
        self.is_renewed() && self.renew_at() != Moment::FAR
    }

    /// How many renewals its present hold allows by its own options; `u32::MAX` if there is no limit.
    pub(crate) fn own_most_renewals(&self) -> u32 {
        self.most_renewals.load(Ordering::SeqCst)
    }

    /// A call inside one of its holds asks for this from now on. It has lengthened the lease by a request that was sent at
    /// `from`, or comes then. Returns what is to be forgotten with the call.
    pub(crate) fn ask(&self, asked: Asked, from: Moment) -> Asked {
        let mut guarded = self.guarded.lock();
        let most_renewals = guarded.renewals.saturating_add(asked.most_renewals);
        let asked = Asked { most_renewals, ..asked };
        guarded.asked.push(asked);
        self.inside.set(&guarded.asked);
        let due = match asked.renewed_to {
            Duration::ZERO => Moment::FAR,
            ttl => self.renewal_after(from, ttl, guarded.renewals),
        };
        self.renewals_changed(&mut guarded, due);
        asked
    }

    /// The call that asked for this is over. Returns when the first of the calls that are left in its hold ends that. The
    /// lease keeps its end.
    pub(crate) fn forget(&self, asked: Asked) -> Moment {
        let mut guarded = self.guarded.lock();
        if let Some(index) = guarded.asked.iter().position(|it| *it == asked) {
            // A renewal to what was asked for may be under way, whose reply nobody here may get.
            if !asked.renewed_to.is_zero() {
                let ttl = self.value.options.lease.key_ttl(self.ttl());
                self.may_last_until(self.now().after(ttl));
            }
            guarded.asked.swap_remove(index);
            self.inside.set(&guarded.asked);
            self.renew_as_before(&mut guarded);
        }
        let left = guarded.asked.iter().filter(|it| it.hold == asked.hold);
        left.map(|it| it.limit).min().unwrap_or(Moment::FAR)
    }

    /// Another hold begins, in which no call is.
    pub(super) fn forget_asked(&self) {
        // Each hold of a lease that is passed on comes here, and almost none has had such a call.
        if self.inside.ttl().is_some() || self.inside.most_renewals() != u32::MAX {
            let mut guarded = self.guarded.lock();
            guarded.asked.clear();
            self.inside.set(&[]);
            self.renew_as_before(&mut guarded);
        }
    }

    /// A call inside is over that may have made the lease so long that its next renewal is far ahead. That would be the next
    /// time that a loss is noticed.
    fn renew_as_before(&self, guarded: &mut Guarded) {
        let due = match self.renew_at() {
            Moment::FAR => Moment::FAR,
            _ => self.renewal_after(self.now(), self.ttl(), guarded.renewals),
        };
        self.renewals_changed(guarded, due);
    }

    /// Calls inside ask for something else than before, which needs a renewal at `due`.
    fn renewals_changed(&self, guarded: &mut Guarded, due: Moment) {
        if !self.is_renewed() {
            // As it is not to be renewed any more, its end is no fault of the renewals that failed.
            guarded.failures = None;
            self.failing.store(false, Ordering::SeqCst);
        }
        let is_renewed = self.is_renewed() && !self.are_used_up(guarded.renewals);
        self.renew_at.set(match self.renew_at() {
            _ if !is_renewed => Moment::FAR,
            // The renewals were used up, or there were none.
            Moment::FAR if due == Moment::FAR => {
                let now = self.now();
                now.after(self.leased_until().since(now) / RENEWALS_PER_LEASE)
            }
            before => before.min(due),
        });
    }
}

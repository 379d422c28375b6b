//! What calls ask of a lease by which its threads hold the lock once more (rule 61).
//!
//! A thread that holds the lock by a fixed lease may take it again with a renewed one, or for longer. The lease then is
//! what the two ask for together, until the guard of the inner call is gone.

use std::time::Duration;

use crate::base::sync::{AtomicU32, AtomicU64, Ordering};
use crate::base::time::Moment;
use crate::engine::lease::{Guarded, Lease, RENEWALS_PER_LEASE};

/// What one call asks for, beyond what its hold has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The address of its hold, of which a lease that readers share has several.
    pub(crate) hold: usize,
    /// To what the lease is to be renewed; zero if it need not be.
    pub(crate) renewed_to: Duration,
    /// How many renewals it allows; `u32::MAX` if there is no limit. Once noted, with those before it.
    pub(crate) most_renewals: u32,
    /// When its `max_hold` ends the hold.
    pub(crate) limit: Moment,
}

/// What all of them ask for together, of which a thread reads each part without a lock.
#[derive(Debug)]
pub(super) struct Inside {
    /// The longest lease that is to be renewed, in nanoseconds; 0 if there is none.
    ttl: AtomicU64,
    /// The fewest renewals; `u32::MAX` if there is no limit.
    most_renewals: AtomicU32,
}

impl Inside {
    pub(super) fn new() -> Inside {
        Inside { ttl: AtomicU64::new(0), most_renewals: AtomicU32::new(u32::MAX) }
    }

    pub(super) fn ttl(&self) -> Option<Duration> {
        let nanos = self.ttl.load(Ordering::SeqCst);
        (nanos != 0).then(|| Duration::from_nanos(nanos))
    }

    pub(super) fn most_renewals(&self) -> u32 {
        self.most_renewals.load(Ordering::SeqCst)
    }

    fn set(&self, asked: &[Asked]) {
        // A lease has at most 30 days.
        let nanos = |it: &Asked| u64::try_from(it.renewed_to.as_nanos()).unwrap_or(u64::MAX);
        self.ttl.store(asked.iter().map(nanos).max().unwrap_or(0), Ordering::SeqCst);
        let most = asked.iter().map(|it| it.most_renewals).min();
        self.most_renewals.store(most.unwrap_or(u32::MAX), Ordering::SeqCst);
    }
}

impl Lease {
    /// Whether its renewals keep it for a call that asks for this time to live.
    pub(crate) fn is_renewed_to(&self, ttl: Duration) -> bool {
        self.is_renewed() && self.renew_at() != Moment::FAR && ttl <= self.ttl()
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
            self.renewals_changed(&mut guarded, Moment::FAR);
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
            self.renewals_changed(&mut guarded, Moment::FAR);
        }
    }

    /// Calls inside ask for something else than before. The last of them needs a renewal at `due`.
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

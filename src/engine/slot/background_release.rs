//! How Redis is told that this process no longer has a lease.

use crate::base::loss::LossCause;
use crate::base::sync::Arc;
use crate::base::time::{Moment, drift_allowance};
use crate::engine::lease::HeldLease;
use crate::engine::ownership::taken_by_wrong_type;
use crate::engine::slot::Slot;
use crate::engine::worker::PendingRelease;
use crate::protocol::reply::{Ownership, Released};
use crate::protocol::request::ReleaseRequest;
use crate::wire::failure::Failure;

impl Slot {
    /// Asks Redis once to release a lease.
    pub(crate) fn send_release(
        &self,
        lease: &HeldLease,
        deadline: Moment,
    ) -> Result<Released, Failure> {
        let request = ReleaseRequest {
            owner: &lease.terms.owner,
            ttl: lease.terms.ttl(),
            last_token: lease.terms.last_token(),
            kind: lease.terms.options.release.0,
        };
        let reply = self.context.protocol.release(&self.target, &request, deadline);
        reply.or_else(|failure| taken_by_wrong_type(failure).map(Released::from))
    }

    /// Gives a lease back that lingers no longer; what cannot be done until `deadline` is left to the
    /// worker.
    pub(super) fn release_now(&self, lease: &HeldLease, deadline: Moment) {
        let reply = self.send_release(lease, deadline);
        if !reply.is_ok_and(|released| released.ownership == Ownership::Owned) {
            self.release_in_background(lease);
        }
    }

    /// Makes the worker give a lease back.
    pub(crate) fn release_in_background(&self, lease: &HeldLease) {
        self.context.worker.release_in_background(self.pending_release(lease));
    }

    /// Gives back what Redis may have of a lost lease, now that its thread is done:
    ///
    /// - beyond the end that its holder knew, by a renewal or an extension that was never answered, or was
    ///   confirmed too late, or may yet be: the worker gives it back after it has read that reply;
    /// - until its end, where `max_hold` ended the hold;
    /// - of several servers, on the few that have not forgotten it.
    pub(crate) fn release_remainder(&self, lease: &HeldLease) {
        let Some(loss) = lease.loss() else { return };
        let mut end = lease.perhaps_until();
        if loss.cause() == LossCause::MaxHold {
            end = end.max(lease.leased_until());
        }
        let asked = lease.is_under_way();
        let protocol = &self.context.protocol;
        let votes = protocol.may_still_own(&lease.terms.owner);
        if end > self.context.now() || asked || votes {
            self.release_in_background(lease);
        }
    }

    /// Makes the worker take the attempt of a lost lease out of Redis, where a request for it that was never
    /// answered may still run and make it the owner once more: nobody here would know of it (rules 6, 30).
    ///
    /// That is done once no such request can run any longer. What `max_hold` ended is left alone until its
    /// lease ends too, as its thread may still be at work. What a shutdown ended is given back already.
    pub(super) fn release_later(&self, lease: &HeldLease, cause: LossCause) {
        if lease.terms.settled <= self.context.now() {
            return;
        }
        let due = match cause {
            LossCause::ShutDown => return,
            LossCause::MaxHold => lease.terms.settled.max(lease.leased_until()),
            _ => lease.terms.settled,
        };
        self.context.worker.release_later(due, self.pending_release(lease));
    }

    /// What the worker needs to give a lease back.
    fn pending_release(&self, lease: &HeldLease) -> PendingRelease {
        let now = self.context.now();
        let end = lease.leased_until().max(lease.perhaps_until());
        PendingRelease {
            target: Arc::clone(&self.target),
            owner: Arc::clone(&lease.terms.owner),
            settled: lease.terms.settled.max(now),
            // It may have been extended beyond its usual length.
            ttl: lease.terms.ttl().max(end.since(now) + drift_allowance(lease.terms.ttl()) * 2),
            last_token: lease.terms.last_token(),
        }
    }
}

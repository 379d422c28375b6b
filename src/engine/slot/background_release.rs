//! The release requests of a slot, sent at once or by the worker.

use crate::base::loss::LossCause;
use crate::base::time::Moment;
use crate::engine::hold::Hold;
use crate::engine::lease::Lease;
use crate::engine::ownership::released_or_taken;
use crate::engine::slot::Slot;
use crate::engine::worker::Removal;
use crate::protocol::reply::Released;
use crate::protocol::request::ReleaseRequest;
use crate::wire::failure::Failure;

impl Slot {
    /// Sends one release request for a lease.
    pub(crate) fn send_release(
        &self,
        lease: &Lease,
        deadline: Moment,
    ) -> Result<Released, Failure> {
        let request = self.release_request(lease);
        released_or_taken(
            self.context.exchange(|protocol| protocol.release(&self.target, &request, deadline)),
        )
    }

    /// The request that releases a lease.
    pub(crate) fn release_request<'a>(&self, lease: &'a Lease) -> ReleaseRequest<'a> {
        ReleaseRequest {
            owner: &lease.value.bytes,
            ttl: lease.value.key_ttl(),
            // The last token goes along: holds to which the lease was passed on used tokens that Redis has
            // not seen, and the next owner must get a higher one (rule 19).
            last_token: lease.unstored_token(),
            kind: lease.value.options.release.0,
            is_wanted: lease.was_wanted(),
        }
    }

    /// Releases a lease that lingers no longer. The worker goes on after `deadline`.
    pub(super) fn release_now(&self, lease: &Lease, deadline: Moment) {
        // Without a reply the worker repeats it until Redis has replied. Every reply is final, because no
        // lease lingers with a command under way or unsettled (rule 17), and a renewal acquires nothing. No thread
        // holds the lease, so there is nobody to whom a loss could be reported.
        if self.send_release(lease, deadline).is_err() {
            self.release_in_background(lease);
        }
    }

    /// Makes the worker release a lease.
    pub(crate) fn release_in_background(&self, lease: &Lease) {
        let removal = Removal::of_lease(lease, self.context.now());
        self.context.worker.release_in_background(removal);
    }

    /// Releases what Redis may still have of a lost lease, now that its thread is done. There may be
    /// something left:
    ///
    /// - beyond the end that the holder knew, after a renewal or an extension that had no reply, or a
    ///   late one;
    /// - until the end of the lease, if `max_hold` ended the hold;
    /// - in the tail of the lease, which nobody may have asked for;
    /// - on a minority of several servers.
    pub(crate) fn release_remainder(&self, hold: &Hold) {
        let Some(loss) = hold.loss() else { return };
        let lease = &hold.lease;
        // Other threads may hold the same entry, and the last of them gives it back.
        if self.is_shared(lease) {
            return;
        }
        let mut end = lease.perhaps_until();
        let tail = lease.value.options.lease.tail();
        if loss.cause() == LossCause::MaxHold || !tail.is_zero() {
            end = end.max(lease.leased_until().after(tail));
        }
        // A renewal that is under way may lengthen the lease after this look at its end. The worker sends
        // the release in a later turn, after it has read that reply.
        let asked = lease.is_under_way();
        let protocol = &self.context.protocol;
        let votes = protocol.may_still_own(&lease.value.bytes);
        if end > self.context.now() || asked || votes {
            self.release_in_background(lease);
        }
    }

    /// Makes the worker remove the attempt of a lost lease from Redis, if a request for it without a
    /// reply may still run and make it the owner again: nobody here would know of that (rules 6, 30).
    ///
    /// The removal is due when no such request can run any more. After `max_hold` it waits for the end of
    /// the lease too, because the thread may still be at work.
    pub(super) fn release_lost(&self, lease: &Lease) {
        let (now, settled) = (self.context.now(), lease.value.settled());
        if settled <= now {
            return;
        }
        // One that is not lost is still good in Redis, unlike one that ran out: to release it now would let
        // another holder in beside a thread that has not noticed the end of its hold.
        let is_lost = lease.expire(now).is_some();
        let due = if is_lost { settled } else { settled.max(lease.leased_until()) };
        self.context.worker.release_later(due, Removal::of_lease(lease, now));
    }
}

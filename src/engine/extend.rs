//! The requests of a holder about its lease: extend and check.

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::option::{SHORTEST, TTL_OF_EXTEND, check_span};
use crate::base::text::Span;
use crate::base::time::{Moment, drift_allowance};
use crate::engine::holding::Holding;
use crate::engine::ownership::{loss_cause, may_remain, taken_by_wrong_type};
use crate::protocol::holder::ReportedHolder;
use crate::protocol::inspection::View;
use crate::protocol::reply::{Ownership, OwnershipReply};
use crate::wire::failure::Failure;

impl Holding {
    /// Makes a lease last at least `ttl` from now.
    pub(crate) fn extend(&self, ttl: Duration) -> Result<()> {
        check_span(TTL_OF_EXTEND, ttl)
            .and_then(|()| self.lengthen(ttl))
            .map(|reply| self.hold.lease.lengthen(reply.sent, ttl))
            // A reply that came after the end of the validity changed nothing (rule 30), and is no success.
            .and_then(|()| self.check_valid())
            .map_err(|error| error.of(self.name()))
    }

    /// Renews it for all readers of this process, by a request with this deadline. Returns when it was sent, unless
    /// others wait or that is not known.
    pub(super) fn renew_unless_wanted(&self, deadline: Moment) -> Option<Moment> {
        let ttl = self.hold.lease.ttl();
        let OwnershipReply { sent, waiters, .. } = self.lengthen_by(ttl, deadline).ok()?;
        self.hold.lease.counted(sent, waiters);
        self.hold.lease.lengthen(sent, ttl);
        (waiters == Some(0) && self.check_valid().is_ok()).then_some(sent)
    }

    /// Makes a claim a whole lease, as its first renewal would. Any other lease is whole.
    pub(crate) fn confirm(&self) -> Result<()> {
        let claim = self.make_valid().map(|()| self.hold.lease.is_claim());
        let whole = claim.and_then(|is_claim| if is_claim { self.come_back() } else { Ok(()) });
        whole.and_then(|()| self.check_valid()).map_err(|error| error.of(self.name()))
    }

    /// Renews it at once, by this thread.
    pub(super) fn come_back(&self) -> Result<()> {
        self.come_back_by(self.context().exchange_deadline())
    }

    /// The same by a request with this deadline.
    pub(super) fn come_back_by(&self, deadline: Moment) -> Result<()> {
        // Fails if it has ended, also since its caller looked.
        let lease = &self.hold.lease;
        let ttl = lease.ttl();
        let sent = self.lengthen_by(ttl, deadline)?.sent;
        lease.renewed(sent, ttl);
        lease.confirmed(sent);
        // A turn of the worker that began before this comes back only at the end of what was the tail then, and the next
        // renewal is due before that.
        self.slot.watch(lease);
        self.check_valid()
    }

    /// Keeps the lock for at least this long after the hold began, whatever becomes of the hold.
    pub(crate) fn keep_for(&self, least: Duration) -> Result<()> {
        self.keep_for_inner(least).map_err(|error| error.of(self.name()))
    }

    fn keep_for_inner(&self, least: Duration) -> Result<()> {
        check_span("keep_for", least)?;
        self.make_valid()?;
        let until = self.hold.began().after(least);
        if self.hold.lease.leased_until() < until {
            // Longer by what clocks may differ: the server's may be fast, that of the server to which the lock
            // comes may be ahead, and the validity is less than what was asked for. The skew of twice the time is
            // no less than that of the sum.
            let left = until.since(self.now());
            let skew = self.hold.lease.value.options.clock_skew(left * 2);
            let ttl = left + drift_allowance(left) * 2 + skew;
            let reply = self.lengthen(ttl).map_err(|error| {
                if !error.is_config() {
                    return error;
                }
                let wrong = format!("{} is too long", Span(least));
                Error::config("keep_for", wrong, "less than max_lease of the QuorumClient")
            })?;
            self.hold.lease.lengthen(reply.sent, ttl);
        }
        // Last: if the lease could not be made longer, the hold is an ordinary one.
        if self.hold.keep_until(until) { Ok(()) } else { self.check_valid() }
    }

    /// Asks Redis to let a lease live for at least `ttl` from now.
    fn lengthen(&self, ttl: Duration) -> Result<OwnershipReply> {
        self.lengthen_by(ttl, self.context().exchange_deadline())
    }

    pub(super) fn lengthen_by(&self, ttl: Duration, deadline: Moment) -> Result<OwnershipReply> {
        self.check_live()?;
        let ttl = self.hold.lease.value.options.lease.key_ttl(ttl);
        let (context, target) = (self.context(), self.slot.target());
        // Counted before it is sent, so that a release by another thread does not pass the lease on
        // meanwhile (rule 17).
        let under_way = self.hold.lease.command();

        let count = self.hold.lease.count.show();
        let mut unanswered = false;
        let outcome = Failure::retry_disconnected(|| {
            let owner = &self.hold.lease.value.bytes;
            let outcome = context.exchange(|it| it.extend(target, owner, ttl, count, deadline));
            // Kept over both requests: the first may be carried out after the second has its reply (rule
            // 31).
            unanswered |= outcome.as_ref().is_err_and(Failure::is_unknown);
            let may_remain =
                |failure| may_remain(&*context.protocol, &self.hold.lease.value.bytes, failure);
            // Redis may have the longer lease, on which nobody here may rely. The release of a lost hold
            // must still reach that far.
            if outcome.as_ref().is_err_and(may_remain) {
                self.hold.lease.may_last_until(context.now().after(ttl));
            }
            outcome
        });
        // A reply to the repetition says nothing about the first request, which stays under way (rule
        // 17).
        if unanswered {
            under_way.keep_pending();
        }

        let reply = match outcome {
            Ok(reply) => reply,
            Err(failure) => {
                let is_unknown = failure.is_unknown();
                let ownership = taken_by_wrong_type(failure).map_err(|failure| {
                    let error = Error::from(failure);
                    if is_unknown { error.with_consequence("asking again is safe") } else { error }
                })?;
                // Never *owned*, so the moment is not used.
                OwnershipReply::new(ownership, Moment::PAST)
            }
        };

        self.check_ownership(self.hold.lease.ownership(reply.ownership, reply.fence))?;
        Ok(reply)
    }

    /// Asks Redis whether the owner still has the lock.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_inner().map_err(|error| error.of(self.name()))
    }

    fn check_inner(&self) -> Result<()> {
        // Redis is not asked about a hold that is over here: a late request may have made it the owner
        // again, and *owned* would be wrong (rule 30). One that may come back is renewed instead.
        if self.check_valid().is_err() {
            return self.come_back();
        }
        let (context, target) = (self.context(), self.slot.target());
        let (lease, owner) = (&self.hold.lease, &self.hold.lease.value.bytes);
        let asked = lease.value.options.lease;
        let outcome = if target.weighted().is_some() || !asked.tail().is_zero() {
            // There may be very many holders. A renewal that lengthens nothing asks about this one. And a lease with a tail
            // may end earlier there than its holder believes, as after a step of the server's clock: then it is free to
            // the next that asks, although its owner has the key. So it is made as long as that.
            let ttl = match asked.tail() {
                Duration::ZERO => SHORTEST,
                _ => asked.key_ttl(lease.valid_until().since(self.now())),
            };
            let outcome = context.ask(|it, deadline| it.extend(target, owner, ttl, 0, deadline));
            outcome.map(|reply| lease.ownership(reply.ownership, reply.fence))
        } else {
            let is_ours = |holder: &ReportedHolder| *holder.owner == **owner;
            context.ask(|it, deadline| it.holders(target, View::Owners, deadline)).map(|holders| {
                match holders.as_slice() {
                    [] => Ownership::Gone,
                    holders if holders.iter().any(is_ours) => Ownership::Owned,
                    _ => Ownership::Taken,
                }
            })
        };
        let ownership = match outcome {
            Ok(ownership) => ownership,
            Err(failure) => taken_by_wrong_type(failure)?,
        };
        self.check_ownership(ownership)?;
        // The validity may have ended during the exchange. Redis has just replied, so one that may come back does.
        self.make_valid()
    }

    /// Ends a lease as lost if Redis replied that its owner does not have the lock.
    pub(crate) fn check_ownership(&self, ownership: Ownership) -> Result<()> {
        if ownership == Ownership::Owned {
            return Ok(());
        }
        self.lose_all(loss_cause(ownership));
        Err(self.not_live_error())
    }
}

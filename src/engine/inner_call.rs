//! What a call asks for by which a thread takes a lock that it holds already (rule 62).
//!
//! | the call asks for | then | while its guard lasts | after that |
//! | --- | --- | --- | --- |
//! | a lease that ends later | the lease is extended, by one request | | the lease keeps its end |
//! | a renewed lease | the same, if it ends later | the lease is renewed, to the longest that a call asks for | it is renewed as the hold asks |
//! | `max_renewals` | | the fewest count | those of the hold |
//! | `max_hold` | | the first limit ends the whole hold | that of the hold |
//! | copies | it waits for those that the hold does not have | | |
//!
//! What the lease has for the call already costs no request and cannot fail. All else, such as a tail, is in the owner's
//! value or about the end of the hold, and stays that of the hold. So do the renewals of a reader's lease that other
//! threads may share: a limit of them would end the holds of those.

use std::time::Duration;

use crate::base::error::Result;
use crate::base::option::{Durability, LockOptions};
use crate::base::share::Access;
use crate::base::sync::Arc;
use crate::base::time::{Moment, drift_allowance};
use crate::engine::acquire::last_deadline;
use crate::engine::durability::confirm_again;
use crate::engine::holding::Holding;
use crate::engine::lease::{Asked, validity};
use crate::engine::slot::WaitLimit;

/// What a call asks for beyond what its hold has, in force until it is dropped.
#[derive(Debug)]
pub(crate) struct InnerCall {
    holding: Holding,
    asked: Asked,
}

impl Holding {
    /// Sees to it that the hold has what a call with these options asks for, within its time. Returns what is in force
    /// while its guard lasts. An error leaves the hold as it was.
    pub(crate) fn enter(
        &self,
        options: &LockOptions,
        wait_limit: WaitLimit,
    ) -> Result<Option<Box<InnerCall>>> {
        let (hold, lease) = (&self.hold, &self.hold.lease);
        let (own, asked) = (lease.value.options.lease, options.lease);
        // Each reentry comes here, and almost none asks for more: that costs no reading of the clock. The renewals of the
        // hold last as long as this call, and those for another call inside need not, but this one may ask for them, too.
        let is_kept = lease.has_renewals()
            && match asked.is_renewed() {
                true => options.is_renewed() && asked.ttl() <= lease.ttl(),
                false => own.is_renewed() && asked.ttl() <= own.ttl(),
            };
        let extended = if is_kept { None } else { self.last_for(asked.ttl(), wait_limit)? };
        let has = |wanted: &Durability| {
            let mut copies = hold.options.durabilities.iter();
            copies.any(|it| it.on_disk == wanted.on_disk && it.covers(wanted))
        };
        // The copies have the lease as it was before it was extended.
        let missing = options.durabilities().filter(|it| extended.is_some() || !has(it));
        confirm_again(self, missing)?;

        let is_longer = !own.is_renewed() || own.ttl() < asked.ttl();
        let renewed_to = match asked.is_renewed() && is_longer {
            true => asked.ttl(),
            false => Duration::ZERO,
        };
        let own_most = lease.own_most_renewals();
        let may_be_shared = lease.access() == Some(Access::Read) && own_most == u32::MAX;
        let most_renewals = options
            .max_renewals
            .filter(|&most| asked.is_renewed() && !may_be_shared && most < own_most)
            .unwrap_or(u32::MAX);
        let from = || extended.unwrap_or_else(|| self.now());
        // In a call through the same handle, that of the hold comes first anyway.
        let limit = options.longest_hold().map(|span| from().after(span));
        let limit = limit.filter(|&limit| limit < hold.own_limit()).unwrap_or(Moment::FAR);
        if renewed_to.is_zero() && most_renewals == u32::MAX && limit == Moment::FAR {
            return Ok(None);
        }
        let hold_of = Arc::as_ptr(hold).addr();
        let asked = lease.ask(Asked { hold: hold_of, renewed_to, most_renewals, limit }, from());
        let inner = InnerCall { holding: self.clone(), asked };
        if asked.limit < hold.limit() {
            hold.limit_inside(asked.limit);
            lease.join(asked.limit);
        }
        self.slot.watch(lease);
        // It may have ended meanwhile.
        self.check_valid()?;
        Ok(Some(Box::new(inner)))
    }

    /// Makes the lease last for this long from now on, unless it does. Returns when the request was sent, if one was.
    fn last_for(&self, ttl: Duration, wait_limit: WaitLimit) -> Result<Option<Moment>> {
        let (lease, now) = (&self.hold.lease, self.now());
        // A call that follows at once asks for the same end. What clocks may differ by is no difference.
        let until = validity(now, ttl, &lease.value.options);
        if until <= lease.leased_until().after(drift_allowance(ttl)) {
            return Ok(None);
        }
        let reply = self.lengthen_by(ttl, self.deadline_within(wait_limit))?;
        lease.lengthen(reply.sent, ttl);
        // A reply that came after the end of the validity changed nothing (rule 30).
        self.check_valid()?;
        Ok(Some(reply.sent))
    }

    /// The same as [`make_valid`](Self::make_valid), within the time of a call.
    pub(crate) fn make_valid_within(&self, wait_limit: WaitLimit) -> Result<()> {
        self.check_valid().or_else(|_| self.come_back_by(self.deadline_within(wait_limit)))
    }

    /// The deadline of a request of a call that comes now.
    fn deadline_within(&self, wait_limit: WaitLimit) -> Moment {
        let context = self.context();
        last_deadline(context, wait_limit).min(context.exchange_deadline())
    }
}

impl Drop for InnerCall {
    fn drop(&mut self) {
        let Holding { slot, hold } = &self.holding;
        let first = hold.lease.forget(self.asked);
        if self.asked.limit != Moment::FAR {
            hold.limit_inside(first);
        }
        // Renewals that it did not allow go on.
        slot.watch(&hold.lease);
    }
}

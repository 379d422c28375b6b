//! A lease that counts only once there are so many copies of it.

use crate::base::error::{Error, Result};
use crate::base::option::Durability;
use crate::base::text::Span;
use crate::engine::holding::Holding;

/// Waits until replicas and disks have a lease that its thread has just got, if its options say so;
/// else gives it back.
pub(super) fn confirm(holding: Holding) -> Result<Holding> {
    let options = holding.lease.terms.options;
    let Some(error) = options.durabilities().find_map(|wanted| missing(&holding, wanted)) else {
        return Ok(holding);
    };
    // What cannot be given back at once is left to the worker.
    if holding.lease.is_live()
        && let Err(error) = holding.release()
    {
        log!(warn, "{error}; it was given back because there were too few copies of it");
    }
    Err(error.of(holding.name()))
}

/// Why the lease does not count; `None` once there are as many copies as there must be.
fn missing(holding: &Holding, wanted: Durability) -> Option<Error> {
    let Holding { slot, lease } = holding;
    let (context, target) = (slot.context(), slot.target());
    let start = context.now();
    let deadline = start.after(wanted.within + context.bounds.exchange);
    let deadline = deadline.min(lease.valid_until());
    match context.protocol.replicate(target, &lease.terms.owner, wanted, deadline) {
        Ok(Ok(have)) if have.covers(&wanted) => holding.check_valid().err(),
        Ok(Ok(have)) => {
            let is_cut = lease.valid_until() < start.after(wanted.within);
            Some(short(have, wanted, is_cut))
        }
        // It was passed on in this process, and lost before.
        Ok(Err(ownership)) => holding.check_ownership(ownership).err(),
        Err(failure) => Some(failure.into()),
    }
}

/// `is_cut` where the lease is shorter than the time that they may take.
fn short(have: Durability, wanted: Durability, is_cut: bool) -> Error {
    let time = if is_cut {
        "before its lease was nearly over".to_owned()
    } else {
        format!("within {}", Span(wanted.within))
    };
    let advice = "so it was released again; look whether a replica is down or slow";
    if wanted.on_disk {
        Error::not_fsynced(format!(
            "min_fsyncs: {wanted} must have the lock, and {have} had it {time}, {advice}"
        ))
    } else {
        let have = have.replicas;
        Error::not_replicated(format!(
            "min_replicas: only {have} of {wanted} confirmed the lock {time}, {advice}"
        ))
    }
}

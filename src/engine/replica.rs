//! A lease that counts only once there are so many copies of it.

use crate::base::error::{Error, Result};
use crate::base::option::{Copies, Least};
use crate::base::text::Span;
use crate::engine::holding::Holding;

/// Waits until replicas and disks have a lease that its thread has just got, if its options say so;
/// else gives it back.
pub(super) fn confirm(holding: Holding) -> Result<Holding> {
    let options = holding.lease.terms.options;
    let Some(error) = options.copies().find_map(|copies| missing(&holding, copies)) else {
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
fn missing(holding: &Holding, copies: Copies) -> Option<Error> {
    let Holding { slot, lease } = holding;
    let (context, target) = (slot.context(), slot.target());
    let start = context.now();
    let deadline = start.after(copies.within + context.bounds.exchange);
    let deadline = deadline.min(lease.valid_until());
    match context.protocol.replicate(target, &lease.terms.owner, copies, deadline) {
        Ok(Ok(have)) if have.covers(copies.least) || mutated!("too-few-replicas") => {
            holding.check_valid().err()
        }
        Ok(Ok(have)) => {
            let is_cut = lease.valid_until() < start.after(copies.within);
            Some(short(have, copies, is_cut))
        }
        // It was passed on in this process, and lost before.
        Ok(Err(verdict)) => holding.conclude(verdict).err(),
        Err(failure) => Some(failure.into()),
    }
}

/// `is_cut` where the lease is shorter than the time that they may take.
fn short(have: Least, copies: Copies, is_cut: bool) -> Error {
    let (field, least) = (copies.field(), copies.least);
    let time = if is_cut {
        "before its lease was nearly over".to_owned()
    } else {
        format!("within {}", Span(copies.within))
    };
    let advice = "so it was released again; look whether a replica is down or slow";
    match have {
        Least::Replicas(have) => Error::not_replicated(format!(
            "{field}: only {have} of {least} confirmed the lock {time}, {advice}"
        )),
        Least::Disks { .. } => Error::not_fsynced(format!(
            "{field}: {least} must have the lock, and {have} had it {time}, {advice}"
        )),
    }
}

//! A lease that counts only once there are so many copies of it.

use crate::base::error::{Error, Result};
use crate::base::option::{Copies, Least};
use crate::base::sync::Arc;
use crate::base::text::Span;
use crate::engine::extend::conclude;
use crate::engine::lease::LiveLease;
use crate::engine::release::{check_valid, release};

/// Waits until replicas and disks have a lease that its thread has just got, if its options say so;
/// else gives it back.
pub(crate) fn confirm(lease: Arc<LiveLease>) -> Result<Arc<LiveLease>> {
    let options = lease.options();
    let Some(error) = options.copies().find_map(|copies| missing(&lease, copies)) else {
        return Ok(lease);
    };
    // What cannot be given back at once is left to the worker.
    if lease.is_live()
        && let Err(error) = release(&lease)
    {
        log::warn!("{error}; it was given back because there were too few copies of it");
    }
    Err(error.of(lease.slot().target().name()))
}

/// Why the lease does not count; `None` once there are as many copies as there must be.
fn missing(lease: &Arc<LiveLease>, copies: Copies) -> Option<Error> {
    let engine = lease.slot().engine();
    let start = engine.now();
    let deadline = start.after(copies.within + engine.bounds().exchange);
    let target = lease.slot().target();
    let deadline = deadline.min(lease.valid_until());
    match engine.protocol().replicate(target, lease.owner(), copies, deadline) {
        Ok(Ok(have)) if have.covers(copies.least) || mutated!("too-few-replicas") => {
            check_valid(lease).err()
        }
        Ok(Ok(have)) => {
            let is_cut = lease.valid_until() < start.after(copies.within);
            Some(short(have, copies, is_cut))
        }
        // It was passed on in this process, and lost before.
        Ok(Err(verdict)) => conclude(lease, verdict).err(),
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

//! Waiting until enough replicas or disks have a new lease.

use crate::base::error::{Error, Result};
use crate::base::option::Durability;
use crate::base::text::Span;
use crate::engine::holding::Holding;

/// Waits until replicas and disks have a lease that was just granted, if its options ask for that.
/// Releases it if too few have it.
pub(super) fn confirm(holding: Holding) -> Result<Holding> {
    let mut wanted = holding.hold.options.durabilities.iter().copied();
    let Some(error) = wanted.find_map(|wanted| missing(&holding, wanted)) else {
        return Ok(holding);
    };
    // The caller must not hold a lock that a fail-over could lose. A lease that is over is a loss that
    // was reported already.
    if holding.hold.is_live()
        && let Err(error) = holding.release()
    {
        log!(warn, "{error}; it had to be released because too few replicas or disks had it");
    }
    let error = match is_short(&error) {
        true => error.with_consequence("it was released again"),
        false => error,
    };
    Err(error.of(holding.name()))
}

/// Waits until replicas and disks have a lease of which its thread asks for these copies once more. Nothing changes if too
/// few have it.
pub(super) fn confirm_again(
    holding: &Holding,
    wanted: impl Iterator<Item = Durability>,
) -> Result<()> {
    let mut wanted = wanted;
    wanted.find_map(|wanted| missing(holding, wanted)).map_or(Ok(()), Err)
}

/// Waits until replicas and disks have what was written under a lease, if its options ask for that.
pub(crate) fn confirm_written(holding: &Holding) -> Result<()> {
    // The wait is for a later write, and replicas and files apply all writes in order.
    let mut wanted = holding.hold.options.durabilities.iter().copied();
    let error = wanted.find_map(|wanted| {
        let error = missing(holding, wanted)?;
        // The write itself is done: only its copies are in doubt.
        Some(match is_short(&error) {
            true => error,
            false => unconfirmed(wanted, &error),
        })
    });
    error.map_or(Ok(()), |error| Err(error.of(holding.name())))
}

/// The error if there are too few copies of the lease; `None` if there are enough.
fn missing(holding: &Holding, wanted: Durability) -> Option<Error> {
    let Holding { slot, hold } = holding;
    let (context, target) = (slot.context(), slot.target());
    let start = context.now();
    let deadline = start.after(wanted.within + context.bounds.exchange);
    // No longer than the lease: it would be lost by then, and the server would be asked to wait for
    // nothing.
    let deadline = deadline.min(hold.valid_until());
    let owner = &hold.lease.value.bytes;
    match context.exchange(|it| it.server()?.replicate(target, owner, wanted, deadline)) {
        Ok(Ok(have)) if have.covers(&wanted) => holding.check_valid().err(),
        Ok(Ok(have)) => {
            let is_cut = hold.valid_until() < start.after(wanted.within);
            Some(short(have, wanted, is_cut))
        }
        // A lease that was passed on in this process is no longer new, and may be gone by now.
        Ok(Err(ownership)) => holding.check_ownership(ownership).err(),
        Err(failure) => Some(failure.into()),
    }
}

/// Whether there are too few copies.
fn is_short(error: &Error) -> bool {
    error.is_not_replicated() || error.is_not_fsynced()
}

fn unconfirmed(wanted: Durability, why: &Error) -> Error {
    if wanted.on_disk {
        Error::not_fsynced(format!("min_fsyncs: {wanted} could not be confirmed: {why}"))
    } else {
        let replicas = wanted.replicas;
        Error::not_replicated(format!("min_replicas: {replicas} could not be confirmed: {why}"))
    }
}

/// `is_cut` is true if the lease ends before the time that they may take.
fn short(have: Durability, wanted: Durability, is_cut: bool) -> Error {
    let time = if is_cut {
        "before its lease was nearly over".to_owned()
    } else {
        format!("within {}", Span(wanted.within))
    };
    let advice = "look whether a replica is down or slow";
    if wanted.on_disk {
        Error::not_fsynced(format!(
            "min_fsyncs: {wanted} must have the write, and {have} had it {time}; {advice}"
        ))
    } else {
        let have = have.replicas;
        Error::not_replicated(format!(
            "min_replicas: only {have} of {wanted} confirmed the write {time}; {advice}"
        ))
    }
}

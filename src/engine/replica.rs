//! A lease that counts only once so many replicas have it.

use crate::base::error::{Error, Result};
use crate::base::option::Replicas;
use crate::base::sync::Arc;
use crate::engine::lease::LiveLease;
use crate::engine::release::{check_expiry, gone, release};

/// Waits until replicas have a lease that its thread has just got, if its options say so; else
/// gives it back.
pub(crate) fn confirm(lease: Arc<LiveLease>) -> Result<Arc<LiveLease>> {
    let Some(replicas) = lease.options().min_replicas_option() else { return Ok(lease) };
    let engine = lease.slot().engine();
    let deadline = engine.now().after(replicas.within + engine.bounds().exchange);
    let target = lease.slot().target();
    let have = engine.protocol().replicate(target, replicas, deadline.min(lease.valid_until()));
    let error = match have {
        Ok(have) if have >= replicas.least || mutated!("too-few-replicas") => {
            check_expiry(&lease);
            if lease.is_live() {
                return Ok(lease);
            }
            gone(&lease)
        }
        Ok(have) => short(have, replicas),
        Err(failure) => failure.into(),
    };
    // What cannot be given back at once is left to the worker.
    if let Err(error) = release(&lease) {
        log::warn!("{error}; it was given back because replicas had not confirmed it");
    }
    Err(error.of(target.name()))
}

fn short(have: u32, Replicas { least, within }: Replicas) -> Error {
    Error::not_replicated(format!(
        "of the {least} replicas that must have it, {have} had it within {within:?}; it was given back"
    ))
}

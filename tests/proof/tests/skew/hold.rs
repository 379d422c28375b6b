//! The kinds of lock and of lease.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use leasehold::{Lease, LeaseWatch, LockClient, LockOptions, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Mutex,
    Reentrant,
    Semaphore,
    Write,
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Mutex, Kind::Reentrant, Kind::Semaphore, Kind::Write];

    /// Takes a lock if it is free.
    pub(crate) fn take(
        self,
        client: &LockClient,
        name: &str,
        options: LockOptions,
    ) -> Result<Option<Held>> {
        Ok(match self {
            Kind::Mutex => client
                .mutex_with(name, options)?
                .try_lock()?
                .map(|guard| Held { watch: guard.lease_watch(), _guard: Box::new(guard) }),
            Kind::Reentrant => client
                .reentrant_with(name, options)?
                .try_lock()?
                .map(|guard| Held { watch: guard.lease_watch(), _guard: Box::new(guard) }),
            Kind::Semaphore => client
                .semaphore_with(name, 1, options)?
                .try_acquire()?
                .map(|permit| Held { watch: permit.lease_watch(), _guard: Box::new(permit) }),
            Kind::Write => client
                .rw_lock_with(name, options)?
                .try_write()?
                .map(|guard| Held { watch: guard.lease_watch(), _guard: Box::new(guard) }),
        })
    }
}

/// How a lease is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// Never.
    Fixed,
    /// Once, and then no more, as where its holder is cut off.
    RenewedOnce,
    /// For as long as it is held.
    Renewed,
}

impl Form {
    pub(crate) fn options(self, lease: Duration) -> LockOptions {
        let renewed = LockOptions::new().lease(Lease::renewed(lease));
        match self {
            Form::Fixed => renewed.lease(Lease::fixed(lease)),
            Form::RenewedOnce => renewed.max_renewals(1),
            Form::Renewed => renewed,
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::Fixed => "fixed",
            Form::RenewedOnce => "renewed, then cut off",
            Form::Renewed => "renewed",
        })
    }
}

/// A hold, and what another thread can see of it.
pub(crate) struct Held {
    pub(crate) watch: LeaseWatch,
    _guard: Box<dyn Any>,
}

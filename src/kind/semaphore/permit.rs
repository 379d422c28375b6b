//! The guard of permits.

use crate::kind::OwnedLease;
use crate::kind::hold::OwnedHold;
use crate::kind::hold_method::hold_methods;

/// One or several permits of a [`Semaphore`](crate::Semaphore), given back when this is dropped.
///
/// It belongs to no thread, and can be sent to another. It keeps alive what it needs, so it may outlive its
/// semaphore and its client. A drop makes one attempt to release, as with a [`Guard`](crate::Guard).
///
/// ```
/// # fn demo(gpus: &leasehold::Semaphore) -> leasehold::Result<()> {
/// let permit = gpus.acquire()?;
/// std::thread::spawn(move || {
///     println!("work on GPU {}", permit.slot());
///     permit.release()
/// });
/// # Ok(())
/// # }
/// ```
#[must_use = "if unused the permit is given back at once, also with `let _ = …`; keep it in a variable such as `_guard`"]
pub struct Permit(pub(in crate::kind) OwnedHold);

hold_methods! {
    Permit {
        /// The token of these permits. No I/O.
        ///
        /// The tokens of one [slot](Self::slot) grow from holder to holder, and those of different slots say nothing
        /// about each other. So a resource that is divided by slots keeps the highest token for each slot, and
        /// refuses a lower one.
        fencing_token;
        /// The callback belongs to these permits.
        on_loss;
        /// The names of the keys must be arguments of the commands, and are asked for before, which is one more round
        /// trip. Numbers above 2<sup>53</sup> in replies lose digits. A script runs the commands, so one that no script may
        /// call, such as `EVAL`, is refused: see [Limits](crate::guide::limits#transactions-that-a-script-runs).
        transaction;
        /// Several permits of one call are given back together.
        release
    }
}

impl Permit {
    pub(in crate::kind) fn new(hold: OwnedHold) -> Permit {
        Permit(hold)
    }

    #[cfg(all(test, leasehold_shuttle))]
    pub(crate) fn hold(&self) -> &crate::base::sync::Arc<crate::engine::hold::Hold> {
        &self.holding().hold
    }

    /// The number of the permit, or the lowest where there are several: from 0 to one less than the limit.
    ///
    /// No other living permit has it. After a [`resize`](crate::Semaphore::resize) to fewer permits it may be above
    /// the limit until it is released.
    ///
    /// ```
    /// # fn demo(permit: &leasehold::Permit) {
    /// std::env::set_current_dir(format!("/scratch/{}", permit.slot())).unwrap();
    /// # }
    /// ```
    pub fn slot(&self) -> u32 {
        self.slots().first().copied().unwrap_or_default()
    }

    /// The numbers of all its permits, which ascend.
    ///
    /// ```
    /// # fn demo(gpus: &leasehold::Semaphore) -> leasehold::Result<()> {
    /// let two = gpus.acquire_many(2)?;
    /// assert_eq!(two.slots().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn slots(&self) -> &[u32] {
        self.holding().hold.lease.grant.permits.as_deref().unwrap_or_default()
    }

    /// Makes it an [`OwnedLease`], which all kinds of lock have, for code that keeps any of them.
    ///
    /// # Errors
    ///
    /// Never, because a permit belongs to no thread. The signature is that of
    /// [`Guard::into_owned`](crate::Guard::into_owned).
    ///
    /// ```
    /// # fn demo(permit: leasehold::Permit, held: &mut Vec<leasehold::OwnedLease>) {
    /// held.extend(permit.into_owned());
    /// # }
    /// ```
    pub fn into_owned(self) -> std::result::Result<OwnedLease, Permit> {
        Ok(OwnedLease::new(self.0))
    }
}

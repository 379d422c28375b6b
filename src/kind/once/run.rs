//! A run of a job, and what becomes of it.

use std::fmt;
use std::ops::Range;
use std::time::SystemTime;

use crate::base::error::Result;
use crate::base::sync::panicking;
use crate::base::time::Moment;
use crate::engine::durability;
use crate::kind::once::outage::ride_out_writing;
use crate::kind::once::period::micros;
use crate::kind::once::record::{self, End, Entry};
use crate::kind::{Guard, Handle};

/// A run of a job that has begun: the lock, and the duty to say how the job ended.
///
/// [`Once::begin`](crate::Once::begin) makes it, for a job that is no closure. A drop without
/// [`succeed`](Run::succeed) or [`fail`](Run::fail) records a failure. Like a [`Guard`] it belongs to its thread.
///
/// ```
/// use leasehold::{Begun, Once};
/// use std::process::Command;
///
/// fn backup(job: &Once) -> Result<(), Box<dyn std::error::Error>> {
///     if let Begun::Run(run) = job.begin()? {
///         let token = run.guard().fencing_token();
///         let status = Command::new("backup").env("TOKEN", token.to_string()).status()?;
///         if status.success() {
///             run.succeed()?;
///         } else {
///             run.fail(status)?;
///         }
///     }
///     Ok(())
/// }
/// ```
#[must_use = "a run that is not ended has failed"]
pub struct Run {
    handle: Handle,
    guard: Guard,
    entry: Entry,
    /// When it began, by the clock of this machine, or a little before. Its end on the server's clock is computed from that,
    /// so that it is never too early: nobody tries a job that failed too soon.
    began: Moment,
    has_ended: bool,
}

impl Run {
    /// A run that begins now. Fails if its lock is lost already.
    pub(super) fn begin(handle: &Handle, guard: Guard, entry: Entry, began: Moment) -> Result<Run> {
        let handle = handle.clone();
        // Until the record tells of it there is no end to record.
        let mut run = Run { handle, guard, entry, began, has_ended: true };
        run.write(&End::Running, "the record may tell of a run that did not begin")?;
        run.has_ended = false;
        Ok(run)
    }

    /// The guard of the lock, which the run has until its end: its token, what remains of its lease, a watch for other
    /// threads.
    ///
    /// ```
    /// # fn demo(run: &leasehold::Run) {
    /// let watch = run.guard().lease_watch();
    /// println!("{:?} remain, with token {}", watch.remaining(), watch.token());
    /// # }
    /// ```
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The period that the run is for, on the server's clock: when it begins and when the next one does.
    ///
    /// ```
    /// # fn demo(run: &leasehold::Run) {
    /// let period = run.period();
    /// println!("for {:?} up to {:?}", period.start, period.end);
    /// # }
    /// ```
    pub fn period(&self) -> Range<SystemTime> {
        self.entry.mark.period()
    }

    /// Records that the job succeeded: its period is done. Then releases the lock.
    ///
    /// If Redis does not reply, this tries again for [`give_up_after`](crate::LockClientBuilder::give_up_after), while the
    /// lease is valid or may be again.
    ///
    /// # Errors
    ///
    /// - [`is_lost`](crate::Error::is_lost) if the lock was lost. Nothing is recorded, and another may run the job for the
    ///   same period: what this run did may have collided with that.
    /// - [`is_unknown_outcome`](crate::Error::is_unknown_outcome) if a request had no reply and no later one showed what became
    ///   of it: the success may be recorded. If the lock was lost meanwhile, that loss is the
    ///   [source](std::error::Error::source) of the error.
    /// - [`is_not_replicated`](crate::Error::is_not_replicated) and [`is_not_fsynced`](crate::Error::is_not_fsynced) if the
    ///   options ask for replicas or disks and too few had the record in time. The period is done, unless a fail-over or a
    ///   restart loses that.
    /// - Any other error if the success could not be recorded.
    ///
    /// ```
    /// # fn demo(run: leasehold::Run) -> leasehold::Result<()> {
    /// // … the work …
    /// run.succeed()
    /// # }
    /// ```
    pub fn succeed(mut self) -> Result<()> {
        self.has_ended = true;
        // Without the record, a job of hours would be done once more for a short outage.
        self.write(&End::Succeeded(self.server_time()), "the success may be recorded")?;
        durability::confirm_written(self.guard.holding()).map_err(|error| {
            error.with_consequence(
                "the success is recorded, and a fail-over or a restart may lose it",
            )
        })
    }

    /// Records that the job failed, and why: up to 512 bytes of the reason, for people to read. Its period is not done. Then
    /// releases the lock. Like [`succeed`](Run::succeed), this rides out an outage.
    ///
    /// # Errors
    ///
    /// [`is_lost`](crate::Error::is_lost) if the lock was lost, and any other if the failure could not be recorded, or may not
    /// have been. The period is not done in any case.
    ///
    /// ```
    /// # fn demo(run: leasehold::Run) -> leasehold::Result<()> {
    /// run.fail("the disk is full")
    /// # }
    /// ```
    pub fn fail(mut self, reason: impl fmt::Display) -> Result<()> {
        self.has_ended = true;
        self.write(&self.failed(&reason), "the failure may be recorded")
    }

    fn failed(&self, reason: &dyn fmt::Display) -> End {
        End::Failed(self.server_time(), reason.to_string())
    }

    /// Writes an end, in spite of an outage that is shorter than the lease, with its tail.
    fn write(&self, end: &End, consequence: &str) -> Result<()> {
        let lease_end = || self.guard.holding().hold.lost_at();
        ride_out_writing(&self.handle, lease_end, consequence, || {
            record::write(&self.handle, &self.guard, &self.entry, end)
        })
    }

    fn server_time(&self) -> i64 {
        let elapsed = micros(self.handle.now().since(self.began));
        self.entry.mark.began.saturating_add(elapsed)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let end = self.failed(&if panicking() { "it panicked" } else { "it was given up" });
        // Once: a drop takes no longer than it must.
        if let Err(error) = record::write(&self.handle, &self.guard, &self.entry, &end) {
            log!(warn, "{error}; the failure of a run was not recorded");
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("period", &self.period()).finish_non_exhaustive()
    }
}

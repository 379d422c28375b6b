//! A run of a job, and what becomes of it.

use std::convert::Infallible;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use crate::base::error::Result;
use crate::base::inspection::Holder;
use crate::base::sync::{panicking, sleep};
use crate::base::time::Moment;
use crate::engine::durability;
use crate::kind::once::period::micros;
use crate::kind::once::record::{self, End, Mark};
use crate::kind::{Guard, Handle};

/// How long a run pauses before it tries again to record its success.
const PAUSE: Duration = Duration::from_millis(50);

/// What came of a call to run a job.
///
/// ```
/// use leasehold::{Once, Result, RunOutcome};
/// use std::io;
///
/// # fn write_report() -> io::Result<u64> { Ok(0) }
/// fn report(job: &Once) -> Result<()> {
///     match job.run(|_guard| write_report())? {
///         RunOutcome::Ran(bytes) => println!("wrote {bytes} bytes"),
///         RunOutcome::Failed(error) => eprintln!("will be tried again: {error}"),
///         RunOutcome::Skipped { by, .. } => println!("{by} has done it"),
///         other => println!("{other:?}"),
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it has the value of the job, or its error"]
#[non_exhaustive]
pub enum RunOutcome<T, E = Infallible> {
    /// The job ran, and its period is done.
    Ran(T),
    /// The job ran and failed. It is due again at once.
    Failed(E),
    /// The period is done, so the job did not run.
    Skipped {
        /// When the successful run of that period began, on the server's clock.
        ran_at: SystemTime,
        /// Who made it.
        by: Holder,
    },
    /// Another had the lock for as long as this call was to wait: it runs the job at this moment.
    Running {
        /// Who it is, if the last reply told.
        by: Option<Holder>,
    },
}

/// What came of a call to begin a run.
///
/// ```
/// use leasehold::{Begun, Once, Result};
///
/// # fn demo(job: &Once) -> Result<()> {
/// match job.begin()? {
///     Begun::Run(run) => run.succeed()?,
///     Begun::Skipped { by, .. } => println!("{by} has done it"),
///     Begun::Running { by: Some(by) } => println!("{by} is at it"),
///     _ => println!("another is at it"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a run that is not ended has failed"]
#[non_exhaustive]
pub enum Begun {
    /// The job is due, and this call has its lock.
    Run(Run),
    /// The period is done.
    Skipped {
        /// When the successful run of that period began, on the server's clock.
        ran_at: SystemTime,
        /// Who made it.
        by: Holder,
    },
    /// Another had the lock for as long as this call was to wait: it runs the job at this moment.
    Running {
        /// Who it is, if the last reply told.
        by: Option<Holder>,
    },
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for () {}
    impl<T, E> Sealed for Result<T, E> {}
}

/// What a job may return: nothing, or a [`Result`](std::result::Result) whose error can be shown.
///
/// A job that returns nothing fails by a panic alone. Another value is returned in an `Ok`, so that no error is taken for
/// a success.
///
/// ```
/// # use leasehold::{Once, Result};
/// # fn demo(job: &Once) -> Result<()> {
/// let _nothing = job.run(|_guard| println!("the work"))?;
/// let _parsed = job.run(|_guard| "42".parse::<u32>())?;
/// # Ok(())
/// # }
/// ```
pub trait RunResult: sealed::Sealed {
    /// The value of a job that succeeded.
    type Value;
    /// The error of a job that failed. Its text becomes the reason in the record.
    type Failure: fmt::Display;

    /// The value or the error.
    #[doc(hidden)]
    fn into_result(self) -> Result<Self::Value, Self::Failure>;
}

impl RunResult for () {
    type Value = ();
    type Failure = Infallible;

    fn into_result(self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl<T, E: fmt::Display> RunResult for Result<T, E> {
    type Value = T;
    type Failure = E;

    fn into_result(self) -> Result<T, E> {
        self
    }
}

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
    mark: Mark,
    keep: Duration,
    /// When it began, by the clock of this machine. Its end on the server's clock is computed from that.
    began: Moment,
    has_ended: bool,
}

impl Run {
    /// A run that begins now. Fails if its lock is lost already.
    pub(super) fn begin(handle: &Handle, guard: Guard, mark: Mark, keep: Duration) -> Result<Run> {
        record::write(handle, &guard, &mark, &End::Running, keep)?;
        let handle = handle.clone();
        let began = handle.now();
        Ok(Run { handle, guard, mark, keep, began, has_ended: false })
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
        self.mark.period()
    }

    /// Records that the job succeeded: its period is done. Then releases the lock.
    ///
    /// If Redis does not reply, this tries again for [`give_up_after`](crate::LockClientBuilder::give_up_after), while the
    /// lease is valid.
    ///
    /// # Errors
    ///
    /// - [`is_lost`](crate::Error::is_lost) if the lock was lost. Nothing is recorded, and another may run the job for the
    ///   same period: what this run did may have collided with that.
    /// - [`is_not_replicated`](crate::Error::is_not_replicated) and [`is_not_fsynced`](crate::Error::is_not_fsynced) if the
    ///   options ask for replicas or disks and too few had the record in time. The period is done, unless a fail-over or a
    ///   restart loses that.
    /// - Any other error if the success could not be recorded. [`is_unknown_outcome`](crate::Error::is_unknown_outcome) if
    ///   it may have been.
    ///
    /// ```
    /// # fn demo(run: leasehold::Run) -> leasehold::Result<()> {
    /// // … the work …
    /// run.succeed()
    /// # }
    /// ```
    pub fn succeed(mut self) -> Result<()> {
        self.has_ended = true;
        let end = End::Succeeded(self.server_time());
        let context = self.guard.holding().slot.context();
        let last_try = context.now().after(context.bounds.give_up_after);
        loop {
            // It may be repeated, unlike a user's transaction: it sets fields to values, and only while the lock
            // is this run's. Without the record, a job of hours would be done once more for a short outage.
            match self.write(&end) {
                Err(error)
                    if error.is_transient()
                        && self.guard.is_valid()
                        && context.now() < last_try =>
                {
                    sleep(PAUSE);
                }
                outcome => break outcome?,
            }
        }
        durability::confirm_written(self.guard.holding()).map_err(|error| {
            error.with_consequence(
                "the success is recorded, and a fail-over or a restart may lose it",
            )
        })
    }

    /// Records that the job failed, and why: up to 512 bytes of the reason, for people to read. Its period is not done. Then
    /// releases the lock.
    ///
    /// # Errors
    ///
    /// [`is_lost`](crate::Error::is_lost) if the lock was lost, and any other if the failure could not be recorded. The
    /// period is not done in any case.
    ///
    /// ```
    /// # fn demo(run: leasehold::Run) -> leasehold::Result<()> {
    /// run.fail("the disk is full")
    /// # }
    /// ```
    pub fn fail(mut self, reason: impl fmt::Display) -> Result<()> {
        self.end_as_failed(&reason)
    }

    fn end_as_failed(&mut self, reason: &dyn fmt::Display) -> Result<()> {
        self.has_ended = true;
        self.write(&End::Failed(self.server_time(), reason.to_string()))
    }

    fn write(&self, end: &End) -> Result<()> {
        record::write(&self.handle, &self.guard, &self.mark, end, self.keep)
    }

    fn server_time(&self) -> i64 {
        let elapsed = micros(self.handle.now().since(self.began));
        self.mark.began.saturating_add(elapsed)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let reason = if panicking() { "it panicked" } else { "it was given up" };
        if let Err(error) = self.end_as_failed(&reason) {
            log!(warn, "{error}; the failure of a run was not recorded");
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("period", &self.period()).finish_non_exhaustive()
    }
}

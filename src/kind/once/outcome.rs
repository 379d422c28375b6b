//! What comes of a call to run a job.

use std::convert::Infallible;
use std::fmt;
use std::time::SystemTime;

use crate::base::inspection::Holder;
use crate::base::text::{Span, When};
use crate::kind::once::last_run::LastRun;
use crate::kind::once::run::Run;

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
///         // "skipped: ran 8h ago (02:00:03 UTC) on web-3"
///         other => println!("{other}"),
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
    /// The job ran and failed. It is due again at once, or as [`retry_after`](crate::Once::retry_after) and
    /// [`max_tries`](crate::Once::max_tries) say.
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
        /// The one that runs it, if the last reply named it.
        by: Option<Holder>,
    },
    /// The job failed before, and is not to be tried again yet: see [`retry_after`](crate::Once::retry_after) and
    /// [`max_tries`](crate::Once::max_tries).
    Failing {
        /// How many runs have failed in the period of time of the last one.
        tries: u32,
        /// The last of them, with the reason.
        last: LastRun,
        /// When the job is due again, on the server's clock.
        next_at: SystemTime,
    },
}

/// Shows the result of the call: `skipped: ran 8h ago (02:00:03 UTC) on web-3`.
impl<T, E: fmt::Display> fmt::Display for RunOutcome<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunOutcome::Ran(_) => f.write_str("ran"),
            RunOutcome::Failed(error) => write!(f, "failed: {error}"),
            RunOutcome::Skipped { ran_at, by } => skipped(f, *ran_at, by),
            RunOutcome::Running { by } => running(f, by.as_ref()),
            RunOutcome::Failing { last, next_at, .. } => failing(f, last, *next_at),
        }
    }
}

fn skipped(f: &mut fmt::Formatter<'_>, ran_at: SystemTime, by: &Holder) -> fmt::Result {
    write!(f, "skipped: ran {} {}", When::Past(ran_at, by.since()), by.place())
}

fn running(f: &mut fmt::Formatter<'_>, by: Option<&Holder>) -> fmt::Result {
    let Some(by) = by else { return f.write_str("another runs it") };
    match by.since() {
        Some(since) => write!(f, "it has run {} for {}", by.place(), Span(since)),
        None => write!(f, "it runs {}", by.place()),
    }
}

fn failing(f: &mut fmt::Formatter<'_>, last: &LastRun, next_at: SystemTime) -> fmt::Result {
    write!(f, "not due yet: {last}; {}", last.next(next_at))
}

/// What came of a call to begin a run.
///
/// ```
/// use leasehold::{Begun, Once, Result};
///
/// # fn demo(job: &Once) -> Result<()> {
/// match job.begin()? {
///     Begun::Run(run) => run.succeed()?,
///     Begun::Running { by: Some(by) } => println!("{by} is at it"),
///     // "skipped: ran 8h ago (02:00:03 UTC) on web-3"
///     other => println!("{other}"),
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
        /// The one that runs it, if the last reply named it.
        by: Option<Holder>,
    },
    /// The job failed before, and is not to be tried again yet: see [`retry_after`](crate::Once::retry_after) and
    /// [`max_tries`](crate::Once::max_tries).
    Failing {
        /// How many runs have failed in the period of time of the last one.
        tries: u32,
        /// The last of them, with the reason.
        last: LastRun,
        /// When the job is due again, on the server's clock.
        next_at: SystemTime,
    },
}

/// Shows the result of the call: `skipped: ran 8h ago (02:00:03 UTC) on web-3`.
impl fmt::Display for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Begun::Run(_) => f.write_str("begun"),
            Begun::Skipped { ran_at, by } => skipped(f, *ran_at, by),
            Begun::Running { by } => running(f, by.as_ref()),
            Begun::Failing { last, next_at, .. } => failing(f, last, *next_at),
        }
    }
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

//! Jobs that run once in a period: a mutex, and a record beside it.

mod last_run;
mod period;
mod record;
mod run;

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::kind::{Guard, Handle};

use period::Schedule;
use record::{End, Mark, Record};

pub use last_run::{LastRun, RunEnd};
pub use period::{Missed, Period};
pub use run::{Begun, Run, RunOutcome, RunResult};

/// A job that runs successfully at most once in each period, over any number of machines.
///
/// Every machine calls [`run`](Once::run) when it thinks that it is time, and as often as it likes. The first call in a
/// period does the job, under the [`Mutex`](crate::Mutex) of the same name. A call that finds the period done skips
/// it, which is one round trip and takes no lock. A call while another machine does the job waits for its end, and then
/// tries it again if that run has failed or died.
///
/// **What it guarantees.** Of all the runs for one period at most one returns
/// [`Ran`](RunOutcome::Ran). Redis decides which period it is, by its own clock, when a run begins: the clocks of
/// the machines do not matter. A success is recorded only while the lock is still held.
///
/// **What it does not guarantee.** A run that fails, dies or loses its lock may have done a part of the job, and the next
/// one does the job anew: at most one run succeeds, but more may begin. So let the job be one that can be repeated, or give
/// its [token](Guard::fencing_token) to what it writes to.
///
/// **What breaks it.** What breaks the [promise](crate#the-promise) of the lock, and the loss of the record: a
/// fail-over to a replica that has not received it, `FLUSHALL`, an eviction. A server that has lost the record does not
/// know that the period is done. [Limits](crate::guide::limits) has the whole list.
///
/// **The record** tells when the job ran last, who did it, and how it ended: [`last_run`](Once::last_run). Redis keeps it for
/// two periods, those to [catch up](Missed), and a week after the last run.
///
/// Values are cheap to clone and to send. Callers of one name should use one period and one policy. After a change of the
/// period, the new period in which the last successful run began is done, as long as Redis keeps the record.
///
/// ```no_run
/// use leasehold::{LockClient, Period, RunOutcome};
/// use std::time::Duration;
///
/// # fn write_report(token: u64) -> std::io::Result<()> { Ok(()) }
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = LockClient::open("redis://127.0.0.1:6379")?;
///     let nightly = Period::every(Duration::from_secs(86_400));
///     let job = client.once("nightly", nightly)?;
///     match job.run(|guard| write_report(guard.fencing_token().get()))? {
///         RunOutcome::Ran(()) => println!("the report is written"),
///         RunOutcome::Failed(error) => eprintln!("the next call tries it again: {error}"),
///         RunOutcome::Skipped { by, .. } => println!("{by} has written it"),
///         other => println!("{other:?}"),
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Once {
    handle: Handle,
    schedule: Schedule,
    missed: Missed,
    wait: Option<Duration>,
}

impl Once {
    pub(crate) fn new(handle: Handle, period: Period) -> Result<Once> {
        let schedule = period.schedule().map_err(|error| error.of(handle.name()))?;
        Ok(Once { handle, schedule, missed: Missed::Skip, wait: None })
    }

    /// What becomes of periods in which no run succeeded; by default [`Missed::Skip`].
    ///
    /// ```
    /// # fn demo(job: leasehold::Once) {
    /// use leasehold::Missed;
    ///
    /// let job = job.missed(Missed::CatchUp { at_most: 3 });
    /// # }
    /// ```
    #[must_use = "it returns the job"]
    pub fn missed(self, missed: Missed) -> Once {
        Once { missed, ..self }
    }

    /// How long a call waits while another has the lock, which runs the job at this moment; by default without limit.
    ///
    /// Zero is one attempt. If the wait is over, the outcome is [`Running`](RunOutcome::Running).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use leasehold::{Begun, Once, Result};
    /// # fn demo(job: Once) -> Result<()> {
    /// if let Begun::Running { by: Some(by) } = job.wait_at_most(Duration::ZERO).begin()? {
    ///     println!("{by} is at it");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "it returns the job"]
    pub fn wait_at_most(self, wait: Duration) -> Once {
        Once { wait: Some(wait), ..self }
    }

    /// The name, with the client's [`name_prefix`](crate::LockClientBuilder::name_prefix) in front of it.
    ///
    /// ```
    /// # fn demo(job: &leasehold::Once) {
    /// println!("{}", job.name().escape_ascii());
    /// # }
    /// ```
    pub fn name(&self) -> &[u8] {
        self.handle.name().as_bytes()
    }

    /// Runs the job if it is due, and records how it ended.
    ///
    /// The job returns nothing, or a `Result`: with `Err` it has failed, and the error comes back as
    /// [`RunOutcome::Failed`]. A panic is recorded as a failure and goes on.
    ///
    /// # Errors
    ///
    /// Before the job the same as for [`begin`](Once::begin). After it the same as for [`Run::succeed`]: with an error, the
    /// period is not known to be done, whatever the job has done. A failure that could not be recorded is
    /// logged.
    ///
    /// ```
    /// # fn demo(job: &leasehold::Once) -> leasehold::Result<()> {
    /// let outcome = job.run(|guard| println!("the work, with token {}", guard.fencing_token()))?;
    /// println!("{outcome:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<R: RunResult>(
        &self,
        job: impl FnOnce(&Guard) -> R,
    ) -> Result<RunOutcome<R::Value, R::Failure>> {
        let run = match self.begin()? {
            Begun::Run(run) => run,
            Begun::Skipped { ran_at, by } => return Ok(RunOutcome::Skipped { ran_at, by }),
            Begun::Running { by } => return Ok(RunOutcome::Running { by }),
        };
        // If the job panics, the drop of the run records that.
        match job(run.guard()).into_result() {
            Ok(value) => {
                run.succeed()?;
                Ok(RunOutcome::Ran(value))
            }
            Err(failure) => {
                // The error of the job says more than the one of its record.
                if let Err(error) = run.fail(&failure) {
                    log!(warn, "{error}; the failure of a run was not recorded");
                }
                Ok(RunOutcome::Failed(failure))
            }
        }
    }

    /// Begins a run if the job is due, for a job that is no closure.
    ///
    /// # Errors
    ///
    /// - The same as for [`Mutex::lock`](crate::Mutex::lock);
    /// - [`is_config`](crate::Error::is_config) if this thread holds the lock of the job already: a job must not run itself;
    /// - [`is_lost`](crate::Error::is_lost) if the lock was lost before the run could begin;
    /// - [`is_wrong_type`](crate::Error::is_wrong_type) if the key of the record holds something else, or a record of a
    ///   later version of this library. Whether the job is due is not known then. [`forget`](Once::forget) deletes it.
    ///
    /// ```
    /// use leasehold::{Begun, Once, Result};
    ///
    /// # fn demo(job: &Once) -> Result<()> {
    /// match job.begin()? {
    ///     Begun::Run(run) => {
    ///         // … the work, with run.guard() …
    ///         run.succeed()?;
    ///     }
    ///     Begun::Skipped { ran_at, by } => println!("{by} ran it at {ran_at:?}"),
    ///     other => println!("{other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin(&self) -> Result<Begun> {
        // A thread that holds the lock would enter it once more, and succeed twice.
        if self.handle.hold_count() > 0 {
            let wrong = "this thread holds the lock of the job";
            return Err(Error::config("run", wrong, "a thread without it").of(self.handle.name()));
        }
        // Most calls find the period done. They take no lock, and wait for nobody.
        if let Some(skipped) = self.look()?.err() {
            return Ok(skipped);
        }
        let guard = match self.wait {
            None => self.handle.lock()?,
            Some(wait) => match self.handle.try_lock_for(wait)? {
                Some(guard) => guard,
                None => return Ok(Begun::Running { by: self.handle.last_blocker() }),
            },
        };
        // Once more under the lock: another may have done the job meanwhile, and time has passed.
        let (number, began) = match self.look()? {
            Ok(due) => due,
            Err(skipped) => return Ok(skipped),
        };
        let mark = Mark {
            number,
            schedule: self.schedule,
            began,
            token: guard.fencing_token().get(),
            by: guard.owner().to_vec(),
        };
        let keep = self.schedule.keep(self.missed);
        Run::begin(&self.handle, guard, mark, keep).map(Begun::Run)
    }

    /// The period for which a run is due, and the server's time; or that it is not due.
    fn look(&self) -> Result<std::result::Result<(i64, i64), Begun>> {
        let record = Record::read(&self.handle)?;
        let now = record.now;
        Ok(match record.due(self.schedule, self.missed) {
            Ok(number) => Ok((number, now)),
            Err(done) => {
                Err(Begun::Skipped { ran_at: done.began(), by: done.holder(&self.handle, now) })
            }
        })
    }

    /// Asks Redis how the job ran last; `None` if it never did, or the record is over.
    ///
    /// One round trip, and up to two more for a run without an end.
    ///
    /// # Errors
    ///
    /// When Redis cannot be asked, and [`is_wrong_type`](crate::Error::is_wrong_type) if the record cannot be read.
    ///
    /// ```
    /// use leasehold::{Once, Result, RunEnd};
    ///
    /// # fn demo(job: &Once) -> Result<()> {
    /// if let Some(last) = job.last_run()?
    ///     && let RunEnd::Failed(reason) = last.end()
    /// {
    ///     println!("failed on {:?}: {reason}", last.by().host());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn last_run(&self) -> Result<Option<LastRun>> {
        let mut record = Record::read(&self.handle)?;
        let mut is_over = false;
        if let Some((mark, End::Running)) = &record.run
            && !self.handle.is_owned_by(&mark.by)?
        {
            // It may have ended between the two looks. A run writes its end before its release, so the record
            // has it now. If not, there is none.
            let again = Record::read(&self.handle)?;
            is_over = again.run == record.run;
            record = again;
        }
        let now = record.now;
        Ok(record
            .run
            .map(|(mark, end)| LastRun::new(&mark, end, is_over, mark.holder(&self.handle, now))))
    }

    /// Deletes the record, so that the next call runs the job whether or not its period is done. Returns whether there was
    /// a record. For people.
    ///
    /// A run that is under way goes on, and records its end all the same.
    ///
    /// # Errors
    ///
    /// When Redis cannot be asked, or not in time. [`is_unknown_outcome`](crate::Error::is_unknown_outcome) if the record
    /// may be deleted all the same.
    ///
    /// ```
    /// # fn demo(job: &leasehold::Once) -> leasehold::Result<()> {
    /// if job.forget()? {
    ///     println!("it runs once more in this period");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn forget(&self) -> Result<bool> {
        record::forget(&self.handle)
    }
}

//! Jobs that run once in a period: a mutex, and a record beside it.

mod due;
mod last_run;
mod outage;
mod outcome;
mod period;
mod policy;
mod record;
mod run;
mod tally;

use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::time::Moment;
use crate::engine::slot::WaitLimit;
use crate::kind::{Guard, Handle};

use due::Due;
use outage::{ride_out, ride_out_writing};
use period::{Schedule, time};
use policy::Policy;
use record::{Entry, Mark, Record};

pub use last_run::{LastRun, RunEnd};
pub use outcome::{Begun, RunOutcome, RunResult};
pub use period::{Missed, Period};
pub use run::Run;

/// A job that runs successfully at most once in each period, over any number of machines.
///
/// Every machine calls [`run`](Once::run) when it thinks that it is time, and as often as it likes. The first call in a
/// period does the job, under the [`Mutex`](crate::Mutex) of the same name. A call that finds the period done skips
/// it, which is one round trip and takes no lock. A call while another machine does the job waits for its end, and then
/// tries it again if that run has failed or died. Such a call is for the period of the run that it waited for, also if the
/// next period begins meanwhile: it skips where that run succeeded. Where periods are [caught up](Missed::CatchUp), it is for
/// the period in which it gets the lock.
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
/// two periods, those to [catch up](Missed), and a week after the last run; where periods are caught up, for at least 400
/// days.
///
/// Values are cheap to clone and to send. Callers of one name should use one period and the same settings. After a change of the
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
///         other => println!("{other}"), // "skipped: ran 8h ago (02:00:03 UTC) on web-3"
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Once {
    handle: Handle,
    schedule: Schedule,
    policy: Policy,
    wait: Option<Duration>,
}

impl Once {
    pub(crate) fn new(handle: Handle, period: Period) -> Result<Once> {
        let schedule = period.schedule().map_err(|error| error.of(handle.name()))?;
        Ok(Once { handle, schedule, policy: Policy::default(), wait: None })
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
        Once { policy: Policy { missed, ..self.policy }, ..self }
    }

    /// The least time from the end of a run that failed to the next run, whichever machine makes it; by default 0. A call
    /// before that returns [`Failing`](RunOutcome::Failing) and runs nothing. It is allowed up to 3,660 days.
    ///
    /// Without this, each of the machines that wait for a run tries the job when that run fails, one directly after the
    /// other. A run that dies counts as one that fails when the next machine gets its lock.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use leasehold::{Once, Result, RunOutcome};
    /// # fn demo(job: Once) -> Result<()> {
    /// let job = job.retry_after(Duration::from_secs(600));
    /// let outcome = job.run(|_guard| println!("the work"))?;
    /// if let RunOutcome::Failing { .. } = outcome {
    ///     // "not due yet: failed 3m ago (02:00:44 UTC) on web-3, took 41s: no paper; 1 try, due in 7m (02:10:44 UTC)"
    ///     println!("{outcome}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "it returns the job"]
    pub fn retry_after(self, least: Duration) -> Once {
        Once { policy: Policy { retry_after: least, ..self.policy }, ..self }
    }

    /// How many runs may fail or die in one period of time, by default without limit. A later call in that period returns
    /// [`Failing`](RunOutcome::Failing) and runs nothing. At least 1 is allowed.
    ///
    /// A success begins the count anew. With [`Missed::CatchUp`] a period that was missed is tried so often in each
    /// period of time, before later ones, until it is too old to be caught up.
    ///
    /// ```
    /// # use leasehold::Once;
    /// # fn demo(job: Once) {
    /// // Three machines may try it; then somebody has to look.
    /// let job = job.max_tries(3);
    /// # }
    /// ```
    #[must_use = "it returns the job"]
    pub fn max_tries(self, most: u32) -> Once {
        Once { policy: Policy { max_tries: Some(most), ..self.policy }, ..self }
    }

    /// How long a call waits while another has the lock, which runs the job at this moment, or while Redis cannot be reached;
    /// by default without limit, and for an outage up to
    /// [`give_up_after`](crate::LockClientBuilder::give_up_after).
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
    /// println!("{outcome}");
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
            Begun::Failing { tries, last, next_at } => {
                return Ok(RunOutcome::Failing { tries, last, next_at });
            }
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
    ///   and for a [`retry_after`](Once::retry_after) or a [`max_tries`](Once::max_tries) that is not allowed;
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
    ///     other => println!("{other}"), // "skipped: ran 8h ago (02:00:03 UTC) on web-3"
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin(&self) -> Result<Begun> {
        self.policy.check().map_err(|error| error.of(self.handle.name()))?;
        // A thread that holds the lock would enter it once more, and succeed twice.
        if self.handle.has_hold() {
            let wrong = "this thread holds the lock of the job";
            return Err(Error::config("run", wrong, "a thread without it").of(self.handle.name()));
        }
        let limit = self.wait.map_or(WaitLimit::FOR_EVER, |wait| self.handle.until(wait));
        // Most calls find the period done. They take no lock, and wait for nobody.
        let (first, _) = self.look(|| limit.end().unwrap_or(Moment::PAST))?;
        if let Break(undue) = self.judge(&first, None) {
            return Ok(undue);
        }
        let Some(guard) = self.handle.acquire(limit)? else {
            return match self.wait {
                None => Err(self.handle.endless_wait_error()),
                Some(_) => Ok(Begun::Running { by: self.handle.last_blocker() }),
            };
        };
        // Once more under the lock: another may have done the job meanwhile, and time has passed.
        let lease_end = || guard.holding().hold.lost_at();
        let (record, looked) = self.look(lease_end)?;
        let (number, tries) = match self.judge(&record, Some(&first)) {
            Continue(due) => due,
            Break(undue) => {
                if matches!(undue, Begun::Failing { .. }) {
                    self.note_over(&record, &guard)?;
                }
                return Ok(undue);
            }
        };
        let mark = Mark {
            number,
            schedule: self.schedule,
            began: record.now,
            token: guard.fencing_token().get(),
            by: guard.owner().to_vec(),
        };
        let entry = Entry { mark, tries, policy: self.policy };
        Run::begin(&self.handle, guard, entry, looked).map(Begun::Run)
    }

    /// Reads the record, in spite of an outage that ends before that. Also returns a moment at which the server's time was
    /// not yet that of the record.
    fn look(&self, end: impl Fn() -> Moment) -> Result<(Record, Moment)> {
        ride_out(&self.handle, end, || {
            let sent = self.handle.now();
            Ok((Record::read(&self.handle)?, sent))
        })
    }

    /// For which period a run is due, and which try it is; or that it is not due. A call that has the lock tells
    /// what it found first.
    fn judge(&self, record: &Record, first: Option<&Record>) -> ControlFlow<Begun, (i64, u32)> {
        let has_lock = first.is_some();
        match record.due(self.schedule, self.policy, has_lock, first) {
            Due::Now { number, tries } => Continue((number, tries)),
            Due::Done(done) => {
                let by = done.holder(&self.handle, record.now);
                Break(Begun::Skipped { ran_at: done.began(), by })
            }
            Due::Failing { tries, next_at } => {
                // Both are there: only a run that the record tells of has failed, and no number is too far for a time.
                let last = LastRun::of(record, &self.handle, has_lock).zip(time(next_at));
                match last {
                    Some((last, next_at)) => Break(Begun::Failing { tries, last, next_at }),
                    None => Continue((self.schedule.number(record.now), tries)),
                }
            }
        }
    }

    /// Notes that the last run has died, if it has: that counts from now on, and later calls need no lock to see it.
    fn note_over(&self, record: &Record, guard: &Guard) -> Result<()> {
        let Some(mark) = record.without_end() else { return Ok(()) };
        let lease_end = || guard.holding().hold.lost_at();
        ride_out_writing(
            &self.handle,
            lease_end,
            "the record may tell that the last run died",
            || record::write_over(&self.handle, guard, mark, record.now),
        )
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
        if let Some(mark) = record.without_end()
            && !self.handle.is_owned_by(&mark.by)?
        {
            // It may have ended between the two looks. A run writes its end before its release, so the record
            // has it now. If not, there is none.
            let again = Record::read(&self.handle)?;
            is_over = again.run == record.run;
            record = again;
        }
        Ok(LastRun::of(&record, &self.handle, is_over))
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

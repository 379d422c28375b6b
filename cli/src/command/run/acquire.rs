//! Which lock a run takes, and how.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use leasehold::{
    Begun, Lease, LeaseWatch, LockClient, LockOptions, Loss, Missed, Once, OwnedLease, Period,
    Result, Run, RunEnd,
};

use super::claim::Claim;
use super::outcome::Outcome;
use super::report::JobEnd;
use crate::connection::OUTAGE;
use crate::kind::Kind;

/// A key may become another kind of lock before each attempt. If it is none of a run's kinds this often in a row, it is
/// something else.
const ROUNDS: usize = 5;
/// Between two requests in an outage.
const PAUSE: Duration = Duration::from_millis(50);

/// Who may hold the lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Alone,
    /// Others that read, too.
    Reading,
    /// This many of the permits of a semaphore.
    Permits {
        count: u32,
        of: u32,
    },
    /// Nobody, and not again in the same period after a success.
    Once(Job),
}

/// A job that runs once in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) period: Period,
    pub(crate) missed: Missed,
    pub(crate) retry_after: Duration,
    pub(crate) max_tries: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) name: Vec<u8>,
    /// What others see as its name.
    pub(crate) label: String,
    pub(crate) options: LockOptions,
    pub(crate) lease: Duration,
    /// How long the lock may be held.
    pub(crate) max_hold: Option<Duration>,
    pub(crate) share: Share,
    /// How long to wait for the lock; none is for ever.
    pub(crate) wait: Option<Duration>,
    /// The signal that the job gets when somebody asks for the lock.
    pub(crate) on_ask: Option<i32>,
}

/// What came of a request.
pub(crate) enum Acquired {
    Held(Held),
    /// It was not free in time.
    NotHad,
    /// The job is not due.
    Skipped(Undue),
}

/// Why a job is not due.
pub(crate) struct Undue {
    pub(crate) text: String,
    /// Its period is done; else it failed, and is to be tried again later.
    pub(crate) is_done: bool,
}

/// What a job runs under.
pub(crate) enum Held {
    Lease(Kind, OwnedLease),
    Once(Box<Run>),
}

impl Held {
    /// Makes the lease whole. It rides out an outage that is shorter than what is left of the lease and its tail: a blink of
    /// Redis must not end a run that has its lock.
    pub(crate) fn confirm(&self) -> Result<()> {
        let (start, watch) = (Instant::now(), self.watch());
        loop {
            let outcome = match self {
                Held::Lease(_, lease) => lease.confirm(),
                Held::Once(run) => run.guard().confirm(),
            };
            match outcome {
                Err(error)
                    if error.is_transient()
                        && watch.loss().is_none()
                        && start.elapsed() < OUTAGE => {}
                outcome => return outcome,
            }
            sleep(PAUSE);
        }
    }

    pub(crate) fn on_loss(&self, callback: impl FnOnce(&Loss) + Send + 'static) {
        match self {
            Held::Lease(_, lease) => lease.on_loss(callback),
            Held::Once(run) => run.guard().on_loss(callback),
        }
    }

    /// Listens to messages from now on, without waiting until it does: a forced release is one.
    pub(crate) fn listen(&self) {
        // The library listens from the first of these questions on.
        let _ = match self {
            Held::Lease(_, lease) => lease.waiters(),
            Held::Once(run) => run.guard().waiters(),
        };
    }

    pub(crate) fn watch(&self) -> LeaseWatch {
        match self {
            Held::Lease(_, lease) => lease.lease_watch(),
            Held::Once(run) => run.guard().lease_watch(),
        }
    }

    /// What another process can give back in the place of this one.
    pub(crate) fn claim(&self) -> Claim {
        let kind = match self {
            Held::Lease(kind, _) => *kind,
            Held::Once(_) => Kind::Mutex,
        };
        Claim { kind, owner: self.watch().owner().to_vec() }
    }

    /// Whether the lock is given back with the record of a success.
    pub(crate) fn is_success(&self, outcome: Outcome) -> bool {
        matches!(self, Held::Once(_)) && outcome == Outcome::Ended(JobEnd::Exited(0))
    }

    /// Gives the lock back, when no process of the job is left.
    pub(crate) fn give_back(self, outcome: Outcome) -> Result<()> {
        let is_success = self.is_success(outcome);
        match self {
            Held::Lease(_, lease) => lease.release(),
            Held::Once(run) if is_success => run.succeed(),
            Held::Once(run) => run.fail(outcome),
        }
    }
}

/// A lease, and of what kind of lock.
type Taken = (Kind, OwnedLease);

impl From<Option<Taken>> for Acquired {
    fn from(taken: Option<Taken>) -> Acquired {
        taken.map_or(Acquired::NotHad, |(kind, lease)| Acquired::Held(Held::Lease(kind, lease)))
    }
}

impl Request {
    /// Takes the lock.
    pub(crate) fn acquire(&self, client: &LockClient) -> Result<Acquired> {
        let deadline = self.wait.and_then(|wait| Instant::now().checked_add(wait));
        let lease = match self.share {
            Share::Once(job) => return self.once(client, job),
            Share::Permits { count, of } => self.permits(client, deadline, count, of),
            Share::Alone => self
                .of_either_kind(|| self.mutex(client, deadline), || self.write(client, deadline))
                .or_else(|error| match error.is_wrong_type() {
                    // It is neither. Of the two errors, this one says what a sorted set is: a semaphore, for example.
                    true => self.write(client, deadline),
                    false => Err(error),
                }),
            Share::Reading => self.of_either_kind(
                || self.read(client, deadline),
                || loop {
                    // While a run that is alone has the mutex, there is no place for readers.
                    let Some((_, lease)) = self.mutex(client, deadline)? else { return Ok(None) };
                    lease.release()?;
                    match self.read(client, deadline) {
                        // The next run that is alone was faster. The key is a kind of a run's, so that it may go on.
                        Err(error) if error.is_wrong_type() => {}
                        outcome => return outcome,
                    }
                },
            ),
        };
        lease.map(Acquired::from)
    }

    fn once(&self, client: &LockClient, job: Job) -> Result<Acquired> {
        let once = client.once_with(&self.name, job.period, self.options)?;
        let once = once.missed(job.missed).retry_after(job.retry_after);
        let once = job.max_tries.map_or_else(|| once.clone(), |most| once.clone().max_tries(most));
        let once = self.wait.map_or_else(|| once.clone(), |wait| once.clone().wait_at_most(wait));
        Ok(match once.begin()? {
            Begun::Run(run) => Acquired::Held(Held::Once(Box::new(run))),
            undue @ Begun::Skipped { ran_at, .. } => {
                let text = success(&once, ran_at).unwrap_or_else(|| undue.to_string());
                Acquired::Skipped(Undue { text, is_done: true })
            }
            undue @ Begun::Failing { .. } => {
                Acquired::Skipped(Undue { text: undue.to_string(), is_done: false })
            }
            _ => Acquired::NotHad,
        })
    }

    /// A run that is alone takes the mutex, as programs do that use the library. Beside readers, it is the writer.
    /// Both are under one key, and the server tells which of them is there.
    fn of_either_kind(
        &self,
        usual: impl Fn() -> Result<Option<Taken>>,
        other: impl Fn() -> Result<Option<Taken>>,
    ) -> Result<Option<Taken>> {
        let mut outcome = usual();
        for _ in 0..ROUNDS {
            for attempt in [&other as &dyn Fn() -> _, &usual] {
                match &outcome {
                    Err(error) if error.is_wrong_type() => outcome = attempt(),
                    _ => return outcome,
                }
            }
        }
        outcome
    }

    fn mutex(&self, client: &LockClient, deadline: Option<Instant>) -> Result<Option<Taken>> {
        let lock = client.mutex_with(&self.name, self.options)?;
        let guard = match deadline {
            None => Some(lock.lock()?),
            Some(deadline) => lock.try_lock_until(deadline)?,
        };
        // Held once: this thread has no other guard.
        Ok(guard.and_then(|guard| guard.into_owned().ok()).map(|lease| (Kind::Mutex, lease)))
    }

    fn write(&self, client: &LockClient, deadline: Option<Instant>) -> Result<Option<Taken>> {
        // Its leases have no tail.
        let options = self.options.lease(Lease::renewed(self.lease));
        let lock = client.rw_lock_with(&self.name, options)?;
        let guard = match deadline {
            None => Some(lock.write()?),
            Some(deadline) => lock.try_write_until(deadline)?,
        };
        Ok(guard.and_then(|guard| guard.into_owned().ok()).map(|lease| (Kind::ReadWrite, lease)))
    }

    fn read(&self, client: &LockClient, deadline: Option<Instant>) -> Result<Option<Taken>> {
        let lock = client.rw_lock_with(&self.name, self.options)?;
        let guard = match deadline {
            None => Some(lock.read()?),
            Some(deadline) => lock.try_read_until(deadline)?,
        };
        Ok(guard.and_then(|guard| guard.into_owned().ok()).map(|lease| (Kind::ReadWrite, lease)))
    }

    fn permits(
        &self,
        client: &LockClient,
        deadline: Option<Instant>,
        count: u32,
        of: u32,
    ) -> Result<Option<Taken>> {
        let semaphore = client.semaphore_with(&self.name, of, self.options)?;
        let permit = match deadline {
            None => Some(semaphore.acquire_many(count)?),
            Some(deadline) => {
                let wait = deadline.saturating_duration_since(Instant::now());
                semaphore.try_acquire_many_for(count, wait)?
            }
        };
        Ok(permit.and_then(|permit| permit.into_owned().ok()).map(|lease| (Kind::Semaphore, lease)))
    }
}

/// What is known of the success that began at this time. Without it the run is skipped all the same.
fn success(once: &Once, began: SystemTime) -> Option<String> {
    let last = once.last_run().ok().flatten()?;
    let is_it = *last.end() == RunEnd::Succeeded && last.began() == began;
    is_it.then(|| format!("skipped: {last}"))
}

//! How a job ran last, for people to read.

use std::fmt;
use std::ops::Range;
use std::time::SystemTime;

use crate::base::inspection::Holder;
use crate::base::text::{Span, When};
use crate::kind::Handle;
use crate::kind::once::due::Due;
use crate::kind::once::period::time;
use crate::kind::once::record::{End, Mark, Record};

/// How a job ran last, for people to read.
///
/// `{}` shows the run. `{:#}` also shows how many tries have failed, the last success, and when the job is due.
///
/// ```
/// # fn demo(last: &leasehold::LastRun) {
/// println!("{last}"); // "ran 8h ago (02:00:03 UTC) on web-3, took 41s"
/// println!("{last:#}"); // the same with "; due in 15h 59m (02:00:00 UTC)"
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastRun {
    period: Range<SystemTime>,
    began: SystemTime,
    ended: Option<SystemTime>,
    by: Holder,
    end: RunEnd,
    tries: u32,
    succeeded_at: Option<SystemTime>,
    due_at: Option<SystemTime>,
    /// The server's time when it reported the record.
    seen: SystemTime,
}

/// How a run ended.
///
/// ```
/// use leasehold::RunEnd;
///
/// fn shown(end: &RunEnd) -> &str {
///     match end {
///         RunEnd::Succeeded => "done",
///         RunEnd::Failed(reason) => reason,
///         RunEnd::Died => "nobody knows",
///         _ => "under way",
///     }
/// }
/// assert_eq!(shown(&RunEnd::Died), "nobody knows");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunEnd {
    /// It has not ended: it has its lock. It may be dead while Redis still keeps that for it, for the rest of its lease and
    /// of the [tail](crate::Lease::recoverable_for).
    Running,
    /// It has recorded no end and has its lock no more: its process has died, or it has lost the lock.
    Died,
    /// The job succeeded, and its period is done.
    Succeeded,
    /// The job failed, for this reason.
    Failed(String),
}

impl LastRun {
    /// What a record says about the last run. `is_over` says that a run without an end does not go on.
    pub(super) fn of(record: &Record, handle: &Handle, is_over: bool) -> Option<LastRun> {
        let (mark, end) = record.run.as_ref()?;
        let is_over = is_over || record.noticed(mark).is_some();
        let (ended, run_end) = match end {
            End::Running if is_over => (None, RunEnd::Died),
            End::Running => (None, RunEnd::Running),
            End::Succeeded(at) => (Some(*at), RunEnd::Succeeded),
            End::Failed(at, reason) => (Some(*at), RunEnd::Failed(reason.clone())),
        };
        let due_at = match record.due(mark.schedule, record.policy, is_over, None) {
            Due::Now { .. } => None,
            Due::Done(done) => {
                let next = done.number_in(mark.schedule).saturating_add(1);
                Some(mark.schedule.start(next))
            }
            Due::Failing { next_at, .. } => Some(next_at),
        };
        Some(LastRun {
            period: mark.period(),
            began: mark.began(),
            ended: ended.and_then(time),
            by: mark.holder(handle, record.now),
            end: run_end,
            tries: record.tries(),
            succeeded_at: record.done.as_ref().map(Mark::began),
            due_at: due_at.and_then(time),
            seen: time(record.now)?,
        })
    }

    /// The period that it was for, on the server's clock.
    ///
    /// ```
    /// # fn demo(last: &leasehold::LastRun) {
    /// let waited = last.began().duration_since(last.period().start);
    /// println!("it began {waited:?} after its period");
    /// # }
    /// ```
    pub fn period(&self) -> Range<SystemTime> {
        self.period.clone()
    }

    /// When it began, on the server's clock.
    ///
    /// ```
    /// # fn demo(last: &leasehold::LastRun) {
    /// let began = last.began().duration_since(std::time::UNIX_EPOCH);
    /// println!("began {} s after the epoch", began.map_or(0, |it| it.as_secs()));
    /// # }
    /// ```
    pub fn began(&self) -> SystemTime {
        self.began
    }

    /// When it ended, on the server's clock; `None` without an end that was recorded.
    ///
    /// ```
    /// # fn demo(last: &leasehold::LastRun) {
    /// if let Some(took) = last.ended().and_then(|ended| ended.duration_since(last.began()).ok()) {
    ///     println!("it took {took:?}");
    /// }
    /// # }
    /// ```
    pub fn ended(&self) -> Option<SystemTime> {
        self.ended
    }

    /// Who made it, and with which token.
    ///
    /// ```
    /// # fn demo(last: &leasehold::LastRun) {
    /// println!("{}, with token {:?}", last.by(), last.by().token());
    /// # }
    /// ```
    pub fn by(&self) -> &Holder {
        &self.by
    }

    /// How it ended.
    ///
    /// ```
    /// # fn demo(last: &leasehold::LastRun) {
    /// if *last.end() == leasehold::RunEnd::Died {
    ///     println!("look at the log of {}", last.by());
    /// }
    /// # }
    /// ```
    pub fn end(&self) -> &RunEnd {
        &self.end
    }

    /// How many runs have begun in the [period of time](crate::Once::max_tries) of this one without a success, this one
    /// included; 0 after a success.
    ///
    /// ```
    /// # fn demo(last: &leasehold::LastRun) {
    /// if last.tries() > 2 {
    ///     eprintln!("{last}"); // somebody should look
    /// }
    /// # }
    /// ```
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// When the last run that succeeded began, on the server's clock; `None` if the record has none.
    ///
    /// ```
    /// # fn demo(last: &leasehold::LastRun) {
    /// let age = last.succeeded_at().and_then(|at| last.began().duration_since(at).ok());
    /// println!("the last success was {age:?} before that run");
    /// # }
    /// ```
    pub fn succeeded_at(&self) -> Option<SystemTime> {
        self.succeeded_at
    }

    /// When the job is due again, on the server's clock, by the period and the settings of this run's caller; `None` if it
    /// was due already, or ran, when the record was read.
    ///
    /// ```
    /// # fn demo(last: &leasehold::LastRun) {
    /// match last.due_at().map(|at| at.duration_since(last.began())) {
    ///     Some(pause) => println!("{pause:?} after it began"),
    ///     None => println!("at the next call"),
    /// }
    /// # }
    /// ```
    pub fn due_at(&self) -> Option<SystemTime> {
        self.due_at
    }

    /// What is shown of a job that waits for this time after this run failed.
    pub(super) fn next(&self, at: SystemTime) -> impl fmt::Display {
        let tries = match self.tries {
            1 => "1 try".to_owned(),
            tries => format!("{tries} tries"),
        };
        format!("{tries}, due {}", When::seen(at, self.seen))
    }
}

impl fmt::Display for LastRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (began, place) = (When::seen(self.began, self.seen), self.by.place());
        let ended = When::seen(self.ended.unwrap_or(self.began), self.seen);
        match &self.end {
            RunEnd::Running => write!(f, "runs {place}, began {began}")?,
            RunEnd::Died => write!(f, "died {place}, began {began}")?,
            RunEnd::Succeeded => write!(f, "ran {began} {place}")?,
            RunEnd::Failed(_) => write!(f, "failed {ended} {place}")?,
        }
        if let Some(took) = self.ended.and_then(|ended| ended.duration_since(self.began).ok()) {
            write!(f, ", took {}", Span(took))?;
        }
        if let RunEnd::Failed(reason) = &self.end {
            write!(f, ": {reason}")?;
        }
        if !f.alternate() {
            return Ok(());
        }
        if self.end != RunEnd::Succeeded {
            match self.succeeded_at {
                Some(at) => write!(f, "; last success {}", When::seen(at, self.seen))?,
                None => f.write_str("; no success on record")?,
            }
        }
        match (self.due_at, &self.end) {
            (_, RunEnd::Running) => Ok(()),
            (None, _) => f.write_str("; due now"),
            (Some(at), RunEnd::Succeeded) => write!(f, "; due {}", When::seen(at, self.seen)),
            (Some(at), _) => write!(f, "; {}", self.next(at)),
        }
    }
}

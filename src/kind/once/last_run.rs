//! How a job ran last, for people to read.

use std::fmt;
use std::ops::Range;
use std::time::SystemTime;

use crate::base::inspection::Holder;
use crate::base::text::Span;
use crate::kind::once::period::time;
use crate::kind::once::record::{End, Mark};

/// How a job ran last, for people to read.
///
/// ```
/// # fn demo(last: &leasehold::LastRun) {
/// println!("{last}"); // "succeeded after 2.1s, by billing, process 4711 on web-3"
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastRun {
    period: Range<SystemTime>,
    began: SystemTime,
    ended: Option<SystemTime>,
    by: Holder,
    end: RunEnd,
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
    /// It has not ended: it has its lock.
    Running,
    /// It has recorded no end and has its lock no more: its process has died, or it has lost the lock.
    Died,
    /// The job succeeded, and its period is done.
    Succeeded,
    /// The job failed, for this reason.
    Failed(String),
}

impl LastRun {
    pub(super) fn new(mark: &Mark, end: End, is_over: bool, by: Holder) -> LastRun {
        let (ended, end) = match end {
            End::Running if is_over => (None, RunEnd::Died),
            End::Running => (None, RunEnd::Running),
            End::Succeeded(at) => (Some(at), RunEnd::Succeeded),
            End::Failed(at, reason) => (Some(at), RunEnd::Failed(reason)),
        };
        let ended = ended.and_then(time);
        LastRun { period: mark.period(), began: mark.began(), ended, by, end }
    }

    /// The period that it was for, on the server's clock.
    ///
    /// ```
    /// # fn demo(last: &leasehold::LastRun) {
    /// println!("for the period that began at {:?}", last.period().start);
    /// # }
    /// ```
    pub fn period(&self) -> Range<SystemTime> {
        self.period.clone()
    }

    /// When it began, on the server's clock.
    ///
    /// ```
    /// # fn demo(last: &leasehold::LastRun) {
    /// println!("began at {:?}", last.began());
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
}

impl fmt::Display for LastRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.end {
            RunEnd::Running => f.write_str("is running")?,
            RunEnd::Died => f.write_str("died")?,
            RunEnd::Succeeded => f.write_str("succeeded")?,
            RunEnd::Failed(_) => f.write_str("failed")?,
        }
        if let Some(took) = self.ended.and_then(|ended| ended.duration_since(self.began).ok()) {
            write!(f, " after {}", Span(took))?;
        }
        write!(f, ", by {}", self.by)?;
        if let RunEnd::Failed(reason) = &self.end {
            write!(f, ": {reason}")?;
        }
        Ok(())
    }
}

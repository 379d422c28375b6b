//! What came of the locks of a client that was closed.

use std::fmt;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::loss::{Loss, LossCause};
use crate::base::name::Name;
use crate::base::text::Span;

/// What came of the waits and the holds of a client that was closed.
///
/// [`LockClient::close`](crate::LockClient::close) returns it.
///
/// ```
/// # use std::time::Duration;
/// # fn demo(client: &leasehold::LockClient) {
/// let report = client.close(Duration::from_secs(30), Duration::from_secs(2));
/// for loss in report.taken() {
///     eprintln!("its work took longer than the grace: {loss}");
/// }
/// if let Err(error) = report.into_result() {
///     eprintln!("{error}");
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it says which locks were taken away, and which are not released yet"]
pub struct CloseReport {
    cancelled: usize,
    finished: usize,
    taken: Vec<Loss>,
    lost: Vec<Loss>,
    left: Vec<Name>,
    within: Duration,
}

impl CloseReport {
    /// The report on these holds, each with its loss if it was lost.
    pub(crate) fn new(
        cancelled: usize,
        holds: impl IntoIterator<Item = Option<Loss>>,
        mut left: Vec<Name>,
        within: Duration,
    ) -> CloseReport {
        left.sort();
        left.dedup();
        let (mut finished, mut taken, mut lost) = (0, Vec::new(), Vec::new());
        for loss in holds {
            match loss {
                None => finished += 1,
                Some(loss) if loss.cause() == LossCause::ShutDown => taken.push(loss),
                Some(loss) => lost.push(loss),
            }
        }
        CloseReport { cancelled, finished, taken, lost, left, within }
    }

    /// How many waits the call ended. Threads that ask for a lock later are refused, and are not counted.
    ///
    /// ```
    /// # fn demo(report: &leasehold::CloseReport) {
    /// println!("{} threads no longer wait", report.cancelled());
    /// # }
    /// ```
    pub fn cancelled(&self) -> usize {
        self.cancelled
    }

    /// How many holds their holders released within the grace.
    ///
    /// ```
    /// # fn demo(report: &leasehold::CloseReport) {
    /// println!("{} pieces of work were finished", report.finished());
    /// # }
    /// ```
    pub fn finished(&self) -> usize {
        self.finished
    }

    /// The holds that were taken from their holders after the grace: each with the lock's name and its token.
    ///
    /// ```
    /// # fn demo(report: &leasehold::CloseReport) {
    /// let names: Vec<&[u8]> = report.taken().iter().map(|loss| loss.name()).collect();
    /// # }
    /// ```
    pub fn taken(&self) -> &[Loss] {
        &self.taken
    }

    /// The holds that were lost for another cause before they could be released or taken.
    ///
    /// ```
    /// # fn demo(report: &leasehold::CloseReport) {
    /// for loss in report.lost() {
    ///     eprintln!("{loss}");
    /// }
    /// # }
    /// ```
    pub fn lost(&self) -> &[Loss] {
        &self.lost
    }

    /// The names of the locks that could not be released in time, in their order. The client goes on trying, and
    /// each ends with its lease.
    ///
    /// ```
    /// # fn demo(report: &leasehold::CloseReport) {
    /// let names: Vec<&[u8]> = report.not_released().collect();
    /// # }
    /// ```
    pub fn not_released(&self) -> impl Iterator<Item = &[u8]> {
        self.left.iter().map(Name::as_bytes)
    }

    /// An error if a lock could not be released in time. Locks that were [taken](CloseReport::taken) and
    /// released are no error.
    ///
    /// # Errors
    ///
    /// [`is_unreachable`](crate::Error::is_unreachable): the text says how many locks, and names a few.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(client: &leasehold::LockClient) -> leasehold::Result<()> {
    /// client.close(Duration::from_secs(30), Duration::from_secs(2)).into_result()
    /// # }
    /// ```
    pub fn into_result(self) -> Result<()> {
        if self.left.is_empty() {
            return Ok(());
        }
        Err(Error::unreachable(format!(
            "{} could not be released within {} ({}); each ends with its lease, and the release goes on in \
             the background",
            counted(self.left.len(), "lock"),
            Span(self.within),
            Few(&self.left)
        )))
    }
}

impl fmt::Display for CloseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CloseReport { cancelled, finished, taken, lost, left, .. } = self;
        write!(
            f,
            "{} cancelled, {} finished",
            counted(*cancelled, "wait"),
            counted(*finished, "lock")
        )?;
        for (what, losses) in [("taken", taken), ("lost", lost)] {
            if !losses.is_empty() {
                let names: Vec<Name> = losses.iter().map(|loss| loss.lock().clone()).collect();
                write!(f, ", {} {what} ({})", losses.len(), Few(&names))?;
            }
        }
        if !left.is_empty() {
            write!(f, ", {} not released yet ({})", left.len(), Few(left))?;
        }
        Ok(())
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A few of these names.
struct Few<'a>(&'a [Name]);

impl fmt::Display for Few<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FEW: usize = 5;
        for (number, name) in self.0.iter().take(FEW).enumerate() {
            write!(f, "{}\"{name}\"", if number == 0 { "" } else { ", " })?;
        }
        f.write_str(if self.0.len() > FEW { ", …" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::token::FencingToken;

    fn name(name: &str) -> Name {
        Name::new(b"", name.as_bytes()).unwrap()
    }

    fn loss(lock: &str, cause: LossCause) -> Option<Loss> {
        Some(Loss::new(name(lock), FencingToken::new(1), cause, true))
    }

    #[test]
    fn report_tells_what_came_of_each_hold() {
        let holds =
            [None, loss("b", LossCause::ShutDown), None, loss("c\n", LossCause::Deleted), None];
        let left = ["e", "d", "e"].map(name).to_vec();
        let report = CloseReport::new(20, holds, left, Duration::from_secs(1));
        assert_eq!((report.cancelled(), report.finished()), (20, 3));
        assert_eq!(report.taken().iter().map(Loss::name).collect::<Vec<_>>(), [b"b"]);
        assert_eq!(report.lost().iter().map(Loss::cause).collect::<Vec<_>>(), [LossCause::Deleted]);
        assert_eq!(report.not_released().collect::<Vec<_>>(), [b"d", b"e"]);
        assert_eq!(
            report.to_string(),
            "20 waits cancelled, 3 locks finished, 1 taken (\"b\"), 1 lost (\"c\\n\"), \
             2 not released yet (\"d\", \"e\")"
        );
        let error = report.into_result().unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
        assert!(
            error.to_string().starts_with("2 locks could not be released within 1s"),
            "{error}"
        );
    }

    #[test]
    fn report_without_a_rest_is_no_error() {
        let report = CloseReport::new(0, [None], Vec::new(), Duration::ZERO);
        assert_eq!(report.to_string(), "0 waits cancelled, 1 lock finished");
        report.into_result().unwrap();
    }

    #[test]
    fn only_a_few_names_are_shown() {
        let left = (0..7).map(|number| name(&format!("x{number}"))).collect();
        let error = CloseReport::new(0, [], left, Duration::ZERO).into_result().unwrap_err();
        assert!(
            error.to_string().contains("(\"x0\", \"x1\", \"x2\", \"x3\", \"x4\", …)"),
            "{error}"
        );
    }
}

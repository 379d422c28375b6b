//! The log lines of a turn of the worker.
//!
//! In an outage all leases of a client fail together, and again at each retry. A line for each of them
//! would be thousands a second, written by the thread that must renew. So a turn writes one warning for
//! all renewals that failed and one for each cause of losses, and the rest only at the level `debug`.
//!
//! It writes at its end, when everything is done: a logger is code of the user, and may be slow or panic.

use std::fmt;
use std::time::Duration;

use crate::base::loss::Loss;
use crate::base::sync::Arc;
use crate::base::text::Span;
use crate::base::time::Moment;
use crate::engine::lease::Lease;
use crate::protocol::target::Target;
use crate::wire::failure::Failure;

/// The renewals that failed in a turn, and the leases that it found lost.
#[derive(Default)]
pub(crate) struct Report {
    /// Each with the moment of its retry.
    failed: Vec<(Failed, Moment)>,
    /// Renewals that failed and are not needed: their leases are over, or are being released.
    over: Vec<Failed>,
    lost: Vec<Loss>,
}

/// A renewal that failed.
struct Failed {
    target: Arc<Target>,
    failure: Failure,
}

impl Report {
    /// A renewal failed. It is repeated at `again`; `None` if the lease does not need it any more.
    pub(super) fn failed(&mut self, lease: &Lease, failure: Failure, again: Option<Moment>) {
        let failed = Failed { target: Arc::clone(&lease.value.target), failure };
        match again {
            Some(again) => self.failed.push((failed, again)),
            None => self.over.push(failed),
        }
    }

    /// A lease was lost.
    pub(crate) fn lost(&mut self, loss: Loss) {
        self.lost.push(loss);
    }

    /// Writes it, the warnings first.
    pub(crate) fn log(self, now: Moment) {
        let Report { failed, over, lost } = self;
        if let Some((first, again)) = failed.first() {
            let again = failed.iter().map(|(_, again)| *again).min().unwrap_or(*again);
            // Whole milliseconds: the rest would only be noise in the line.
            let millis = u64::try_from(again.since(now).as_millis()).unwrap_or(u64::MAX);
            let again = Span(Duration::from_millis(millis));
            match failed.len() {
                1 => log!(warn, "{first}; retry in {again}"),
                count => log!(warn, "{count} locks: {first}; first retry in {again}"),
            }
        }

        // One line for each cause, because each has a remedy of its own. There are few causes, so a
        // linear search in `logged` is enough.
        let mut rest: &[Loss] = &lost;
        let mut logged = Vec::new();
        while let Some((first, others)) = rest.split_first() {
            rest = others;
            if logged.contains(&first.cause()) {
                continue;
            }
            logged.push(first.cause());
            match lost.iter().filter(|loss| loss.cause() == first.cause()).count() {
                1 => log!(warn, "{first}"),
                count => log!(warn, "{count} locks: {first}"),
            }
        }
        // A single one was named in the warning.
        if failed.len() > 1 {
            failed.iter().for_each(|(failed, _)| log!(debug, "{failed}"));
        }
        over.iter().for_each(|failed| log!(debug, "{failed}; its lease is over or being released"));
        if lost.len() > logged.len() {
            lost.iter().for_each(|loss| log!(debug, "{loss}"));
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock {:?} was not renewed: {}", self.target.name(), self.failure)
    }
}

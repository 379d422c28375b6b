//! The log lines of a turn of the worker.
//!
//! In an outage all leases of a client fail together, and again at each retry. A line for each of them
//! would be thousands a second. So there is one warning for each outage of a lease: a turn writes one for all renewals
//! that failed for the first time, and one for each cause of losses. The rest is written at the level `debug`. When a lease
//! is renewed again, or lost, the line has the number of renewals that failed.
//!
//! It writes at its end, when everything is done: a logger is code of the user, and may be slow or panic.

use std::fmt;
use std::time::Duration;

use crate::base::loss::Loss;
use crate::base::sync::Arc;
use crate::base::text::Span;
use crate::base::time::Moment;
use crate::engine::lease::{Lease, Silence};
use crate::protocol::target::Target;
use crate::wire::failure::Failure;

/// The renewals that failed in a turn, and the leases that it found lost.
#[derive(Default)]
pub(crate) struct Report {
    /// Each with the moment of its retry.
    failed: Vec<(Failed, Moment)>,
    /// Renewals that failed and are not needed: their leases are over, or are being released.
    over: Vec<Failed>,
    /// Leases that were renewed again, each with the number of failures before.
    renewed: Vec<(Arc<Target>, u32)>,
    /// The losses, each with the number of renewals that failed before.
    lost: Vec<(Loss, u32)>,
    /// Leases that are over and may come back, and those that have.
    silences: Vec<(Arc<Target>, Silence)>,
}

/// A renewal that failed.
struct Failed {
    target: Arc<Target>,
    failure: Failure,
    /// Whether the last renewal of the lease before this one was confirmed.
    is_first: bool,
}

impl Report {
    /// A renewal failed, the last of so many `failures`. It is repeated at `again`; `None` if the lease does not need it
    /// any more.
    pub(super) fn failed(
        &mut self,
        lease: &Lease,
        failure: Failure,
        failures: u32,
        again: Option<Moment>,
    ) {
        let target = Arc::clone(&lease.value.target);
        let failed = Failed { target, failure, is_first: failures == 1 };
        match again {
            Some(again) => self.failed.push((failed, again)),
            None => self.over.push(failed),
        }
    }

    /// A lease was renewed after so many failures.
    pub(super) fn renewed(&mut self, lease: &Lease, failures: u32) {
        if failures > 0 {
            self.renewed.push((Arc::clone(&lease.value.target), failures));
        }
    }

    /// A lease has become silent, or has come back.
    pub(super) fn silence(&mut self, lease: &Lease, silence: Silence) {
        self.silences.push((Arc::clone(&lease.value.target), silence));
    }

    /// A hold was lost after so many failures of renewals.
    pub(crate) fn lost(&mut self, loss: Loss, failures: u32) {
        self.lost.push((loss, failures));
    }

    /// Writes it, the warnings first.
    pub(crate) fn log(self, now: Moment) {
        let Report { failed, over, renewed, lost, silences } = self;
        // Few locks have a tail, and what it costs when it is needed is that its holder must know.
        for (target, silence) in &silences {
            match silence {
                Silence::Begun(unheard) => log!(
                    warn,
                    "lock {:?}: not confirmed for {}, so its lease is over; it may come back as long as nobody else \
                     takes it",
                    target.name(),
                    Span(*unheard)
                ),
                Silence::Over(unheard) => log!(
                    info,
                    "lock {:?}: confirmed again after {}; nobody else has had it",
                    target.name(),
                    Span(*unheard)
                ),
            }
        }
        let (new, known): (Vec<_>, Vec<_>) = failed.into_iter().partition(|(it, _)| it.is_first);
        if let Some((first, again)) = new.first() {
            let again = new.iter().map(|(_, again)| *again).min().unwrap_or(*again);
            // Whole milliseconds: the rest would only be noise in the line.
            let millis = u64::try_from(again.since(now).as_millis()).unwrap_or(u64::MAX);
            let again = Span(Duration::from_millis(millis));
            match new.len() {
                1 => log!(warn, "{first}; retry in {again}"),
                count => log!(warn, "{count} locks: {first}; first retry in {again}"),
            }
        }
        if let Some((target, failures)) = renewed.first() {
            let name = target.name();
            match renewed.len() {
                1 => log!(info, "lock {name:?} is renewed again, after {failures} failures"),
                count => log!(
                    info,
                    "{count} locks are renewed again, {name:?} after {failures} failures"
                ),
            }
        }

        // One line for each cause, because each has a remedy of its own. There are few causes, so a
        // linear search in `logged` is enough.
        let mut logged = Vec::new();
        for (first, failures) in &lost {
            if logged.contains(&first.cause()) {
                continue;
            }
            logged.push(first.cause());
            let why = match first.source() {
                Some(last) => format!("; {failures} renewals failed, the last one: {last}"),
                None => String::new(),
            };
            match lost.iter().filter(|(loss, _)| loss.cause() == first.cause()).count() {
                1 => log!(warn, "{first}{why}"),
                count => log!(warn, "{count} locks: {first}{why}"),
            }
        }
        // A single one was named in the warning.
        if new.len() > 1 {
            new.iter().for_each(|(failed, _)| log!(debug, "{failed}"));
        }
        known.iter().for_each(|(failed, _)| log!(debug, "{failed}"));
        over.iter().for_each(|failed| log!(debug, "{failed}; its lease is over or being released"));
        if lost.len() > logged.len() {
            lost.iter().for_each(|(loss, _)| log!(debug, "{loss}"));
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock {:?} was not renewed: {}", self.target.name(), self.failure)
    }
}

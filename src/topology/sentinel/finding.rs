//! The reports of several sentinels, and the master that they lead to.
//!
//! The reports of the highest rank decide, because every fail-over raises the rank. The first row that applies:
//!
//! | reports of that rank | the client |
//! | --- | --- |
//! | at least one says that the master is up | uses the address |
//! | at least one says that a quorum considers it down (`o_down`) | does not use it: another server may take its place at any moment |
//! | each says that its sentinel alone considers it down (`s_down`) | tries the address |
//!
//! A sentinel with an old password of the master cannot reach it, and reports `s_down` of a server that
//! works. A server that is really down is `o_down` a moment later, and an attempt before that fails. In each
//! case, the server must confirm that it is the master.

use redis::RedisError;

use crate::topology::sentinel::locate_error::LocateErrors;
use crate::topology::sentinel::master_report::MasterReport;
use crate::wire::endpoint::Endpoint;

/// A sentinel's report about the master, and whether the sentinel can reach it.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) master: MasterReport,
    pub(super) state: MasterState,
}

/// Whether a sentinel considers the master to be up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MasterState {
    /// Down for this sentinel alone: it cannot reach the master (`s_down`).
    Doubted,
    /// Down for a quorum of sentinels (`o_down`).
    Down,
    Up,
}

/// The reports so far.
pub(super) struct Findings<'a> {
    known: Option<&'a MasterReport>,
    reports: Vec<(usize, Report)>,
    pub(super) errors: LocateErrors,
}

impl<'a> Findings<'a> {
    /// `known` is the last report that was believed, if any. Older reports do not count.
    pub(super) fn new(known: Option<&'a MasterReport>) -> Findings<'a> {
        Findings { known, reports: Vec::new(), errors: LocateErrors::default() }
    }

    pub(super) fn add(
        &mut self,
        node: &Endpoint,
        number: usize,
        outcome: Result<Report, RedisError>,
    ) {
        match outcome {
            Ok(report) => self.reports.push((number, report)),
            Err(error) => self.errors.note(node, error),
        }
    }

    /// The report that decides, and the sentinel that made it.
    fn deciding(&self) -> Option<&(usize, Report)> {
        let new = self.reports.iter().filter(|(_, it)| it.master.is_as_new_as(self.known));
        new.max_by_key(|(_, report)| (report.master.rank, report.state))
    }

    /// The master to try, and the sentinel that named it.
    pub(super) fn found(&self) -> Option<(usize, MasterReport)> {
        let (number, report) = self.deciding()?;
        (report.state != MasterState::Down).then(|| (*number, report.master.clone()))
    }

    /// Whether a master was found that no sentinel doubts.
    pub(super) fn has_found(&self) -> bool {
        self.deciding().is_some_and(|(_, report)| report.state == MasterState::Up)
    }

    pub(super) fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    /// The master that a quorum considers down, if that report decides.
    pub(super) fn down(&self) -> Option<&MasterReport> {
        let (_, report) = self.deciding()?;
        (report.state == MasterState::Down).then_some(&report.master)
    }

    /// The newest of the reports that are older than the known one, and how many there are.
    pub(super) fn older(&self) -> (usize, Option<MasterReport>) {
        let is_old = |report: &&Report| {
            report.state != MasterState::Down && !report.master.is_as_new_as(self.known)
        };
        let older = || self.reports.iter().map(|(_, report)| report).filter(is_old);
        let newest = older().map(|report| &report.master).max_by_key(|master| master.rank);
        (older().count(), newest.cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::sentinel::master_report::Rank;
    use crate::wire::endpoint;

    const OLD: &str = "10.0.0.1";
    const NEW: &str = "10.0.0.2";

    fn report(epoch: u64, host: &str, state: MasterState) -> Report {
        let rank = Rank { epoch, is_ahead: false };
        Report { master: MasterReport { rank, address: (host.to_owned(), 6379) }, state }
    }

    fn found(known: Option<&Report>, reports: &[Report]) -> Option<String> {
        let known = known.map(|known| &known.master);
        let node = endpoint::parse("redis://sentinel").unwrap();
        // The order of the reports does not matter.
        let of = |reports: &mut dyn Iterator<Item = &Report>| {
            let mut findings = Findings::new(known);
            for (number, report) in reports.enumerate() {
                findings.add(&node, number, Ok(report.clone()));
            }
            findings.found().map(|(_, master)| master.address.0)
        };
        let found = of(&mut reports.iter());
        assert_eq!(of(&mut reports.iter().rev()), found);
        found
    }

    #[test]
    fn highest_rank_decides_and_a_master_that_most_consider_down_is_not_tried() {
        use MasterState::{Doubted, Down, Up};
        for (reports, master) in [
            (vec![report(1, OLD, Up), report(2, NEW, Up), report(1, OLD, Up)], Some(NEW)),
            // The client uses the master even if one sentinel, or each of them, cannot reach it.
            (vec![report(2, NEW, Doubted), report(2, NEW, Up)], Some(NEW)),
            (vec![report(2, NEW, Doubted), report(2, NEW, Doubted)], Some(NEW)),
            // A sentinel that missed the fail-over names the demoted master.
            (vec![report(2, NEW, Doubted), report(1, OLD, Up)], Some(NEW)),
            (vec![report(2, NEW, Down), report(1, OLD, Up)], None),
            (vec![report(2, NEW, Down), report(2, NEW, Doubted)], None),
            // The quorum may be wrong: a sentinel that reaches the master knows better.
            (vec![report(2, NEW, Down), report(2, NEW, Up)], Some(NEW)),
            (vec![], None),
        ] {
            assert_eq!(found(None, &reports).as_deref(), master, "{reports:?}");
        }
        let known = report(2, NEW, Up);
        assert_eq!(found(Some(&known), &[report(1, OLD, Doubted), report(1, OLD, Up)]), None);
        let doubted = [report(1, OLD, Up), report(2, NEW, Doubted)];
        assert_eq!(found(Some(&known), &doubted).as_deref(), Some(NEW));
    }
}

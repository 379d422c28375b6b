//! The master's address, as sentinels report it.
//!
//! Sentinels agree on a fail-over one after the other: for some seconds their reports differ. Each
//! report has a rank, which grows with every fail-over, and the highest rank counts. No report is
//! believed without the server's own confirmation (`ROLE`), because a lock at a replica is no lock.

mod finding;
mod follower;
mod locate_error;
mod master_report;
mod panel;
mod query;

use std::fmt;
use std::time::Duration;

use redis::{ConnectionAddr, RedisError};

use crate::base::sync::contended::Mutex;
use crate::base::sync::{Arc, AtomicUsize, Ordering};
use crate::base::thread::Threads;
use crate::base::time::{Clock, Moment};
use crate::topology::sentinel::finding::Findings;
use crate::topology::sentinel::locate_error::master_down;
use crate::topology::sentinel::master_report::{MasterReport, Rank, is_master};
use crate::topology::sentinel::panel::{ALONE, Panel};
use crate::wire::connection::{Connection, Reply};
use crate::wire::endpoint::{self, Endpoint};
use crate::wire::failure::not_a_master;
use crate::wire::locator::{HandshakeCommand, LocateResult, Locator};

pub(crate) use follower::follow;

/// The channel on which a sentinel announces a new master.
const SWITCHES: &[u8] = b"+switch-master";

/// Sentinels exchange their state every two seconds. If most of them still report a lower rank this
/// long after a fail-over, the reports are not late: the sentinels were reset, and count from zero
/// again.
const SETTLED: Duration = Duration::from_secs(10);
/// Sentinels that watch one master.
pub(crate) struct Sentinels {
    panel: Arc<Panel>,
    /// The sentinel to ask first: the last one that reported the master.
    first: AtomicUsize,
    known: Mutex<Option<Known>>,
}

/// The last report that was believed, and since when it holds.
#[derive(Debug)]
struct Known {
    master: MasterReport,
    since: Moment,
}

impl Sentinels {
    /// The host of `template` is the master's name.
    pub(crate) fn new(
        nodes: Vec<Endpoint>,
        template: Endpoint,
        clock: Arc<dyn Clock>,
        threads: Threads,
    ) -> Sentinels {
        let master = match template.addr() {
            ConnectionAddr::Tcp(host, _) => host.clone(),
            _ => String::new(),
        };
        let panel = Arc::new(Panel::new(nodes, master, template, clock, threads));
        Sentinels { panel, first: AtomicUsize::new(0), known: Mutex::new(None) }
    }

    /// Lets any report count again, if the last one was believed long ago. Returns whether it does.
    fn forget(&self) -> bool {
        let mut known = self.known.lock();
        let now = self.panel.clock.now();
        let Some(known) = known.as_mut().filter(|known| now.since(known.since) > SETTLED) else {
            return false;
        };
        // Only the rank is forgotten. The address stays, so that the same one is no news, and the
        // connections to it are kept.
        known.master.rank = Rank { epoch: 0, is_ahead: false };
        true
    }

    /// Notes a report. Returns whether the master was known to be at another address.
    fn note(&self, master: MasterReport) -> bool {
        let mut known = self.known.lock();
        let since = match &*known {
            // Another thread noted a newer report while this one asked its sentinels.
            Some(known) if known.master.rank > master.rank => return false,
            // Keeps `since`: it counts from the first report of this rank, or `SETTLED` would never
            // pass while callers keep connecting.
            Some(known) if known.master == master => return false,
            _ => self.panel.clock.now(),
        };
        let address = master.address.clone();
        let before = known.replace(Known { master, since });
        before.is_some_and(|before| before.master.address != address)
    }

    fn at(&self, (host, port): (String, u16)) -> Endpoint {
        self.panel.template.at(host, port)
    }

    /// Whether a message on [`SWITCHES`] announces another address of this master than the known
    /// one.
    pub(crate) fn is_news(&self, payload: &[u8]) -> bool {
        // `<name> <old ip> <old port> <new ip> <new port>`. A message of another form about this
        // master counts as news: it costs one query, while ignoring it could miss a fail-over.
        let words: Vec<&str> = payload
            .split(|&byte| byte == b' ')
            .map(|word| std::str::from_utf8(word).unwrap_or_default())
            .collect();
        let known = self.known.lock();
        let known = known.as_ref().map(|known| &known.master.address);
        words.first() == Some(&self.panel.master.as_str())
            && !known.is_some_and(|(host, port)| {
                matches!(words[..], [_, _, _, ip, at] if ip == host && at.parse() == Ok(*port))
            })
    }

    /// Whether a sentinel was not silent in the last while.
    pub(crate) fn is_responsive(&self, number: usize) -> bool {
        self.panel.is_responsive(number)
    }

    /// Notes the outcome of a connection to a sentinel.
    pub(crate) fn note_outcome(&self, number: usize, error: Option<&RedisError>) {
        self.panel.note_outcome(number, error);
    }

    /// The number of sentinels.
    pub(crate) fn count(&self) -> usize {
        self.panel.nodes.len()
    }

    /// The sentinel to ask first, and its number.
    pub(crate) fn first(&self) -> (usize, &Endpoint) {
        let number = self.order().0[0];
        (number, &self.panel.nodes[number])
    }

    /// The order in which to ask the sentinels, and how many of them are not avoided.
    fn order(&self) -> (Vec<usize>, usize) {
        self.panel.order(self.first.load(Ordering::Relaxed))
    }

    /// Asks the sentinels until the reports suffice, each for `each` at most.
    fn ask(&self, findings: &mut Findings<'_>, each: Duration, suffices: bool) {
        let (mut order, mut good) = self.order();
        let mut slow = None;
        // A thread is not worth it if there is only one sentinel.
        if let [only] = order[..] {
            findings.add(&self.panel.nodes[only], only, self.panel.ask_noting(only, each));
            return;
        }
        // Nor if one report suffices, as long as the first sentinel replies soon.
        if suffices && good > 0 {
            let (first, node) = (order[0], &self.panel.nodes[order[0]]);
            let outcome = self.panel.ask(node, each.min(ALONE));
            // It may only be slow, so it is asked again together with the others, for the full time.
            let is_slow = outcome.as_ref().is_err_and(RedisError::is_timeout);
            if is_slow {
                slow = Some(first);
            } else {
                self.panel.note_outcome(first, outcome.as_ref().err());
                findings.add(node, first, outcome);
                if findings.has_found() {
                    return;
                }
                order.remove(0);
                good -= 1;
            }
        }
        let silent = self.panel.ask_at_once(&order, good, each, suffices, findings);
        // If one report sufficed, the others had no time to reply.
        let is_late = |number: &&usize| !suffices || slow == Some(**number);
        silent.iter().filter(is_late).for_each(|&number| self.panel.note_late(number));
    }
}

impl Locator for Sentinels {
    /// Asks the sentinels for the master, each for at most `each`, and all within `most`. Returns the
    /// address, and whether it is another one than before.
    ///
    /// After a fail-over some sentinels know the new master seconds before the others do. No report
    /// with a lower rank than the known one is believed, and one report of at least that rank is enough. A
    /// first call has no known report to compare with, so it asks all sentinels at once. A call with `asks_all`
    /// does so too.
    fn locate(&self, each: Duration, most: Duration, asks_all: bool) -> LocateResult {
        // A copy: no lock is held during I/O. What another thread notes meanwhile, `note` compares.
        let known = self.known.lock().as_ref().map(|known| known.master.clone());
        let mut findings = Findings::new(known.as_ref());
        self.ask(&mut findings, each.min(most), known.is_some() && !asks_all);
        let mut best = findings.found().map(|(number, master)| {
            self.first.store(number, Ordering::Relaxed);
            master
        });
        // A reset (`SENTINEL RESET`, or new sentinels) sets the ranks back. A single sentinel with
        // a lower rank is one that was cut off; most of them, for longer than they need to exchange
        // their state, were reset. Without this, the client would believe no sentinel any more.
        let (count, older) = findings.older();
        if best.is_none() && count > self.count() / 2 && self.forget() {
            best = older;
        }
        if let Some(best) = best {
            let info = self.at(best.address.clone());
            return Ok((info, self.note(best)));
        }
        self.suspect();
        if let Some(down) = findings.down() {
            let address = endpoint::address(&self.at(down.address.clone()));
            return Err(master_down(&self.panel.master, &address));
        }
        Err(findings.errors.trouble(self.count(), &self.panel.master))
    }

    /// The last known address of the master.
    fn address(&self) -> String {
        match &*self.known.lock() {
            Some(Known { master, .. }) => endpoint::address(&self.at(master.address.clone())),
            None => format!("the master \"{}\"", self.panel.master),
        }
    }

    fn awaited(&self) -> Option<String> {
        Some(self.panel.silent())
    }

    /// Notes that the reported master is unreachable, so that another sentinel is asked first.
    fn suspect(&self) {
        // It wraps, and `order` takes the remainder. Relaxed: it only rotates an order.
        self.first.fetch_add(1, Ordering::Relaxed);
    }

    fn handshake_command(&self) -> Option<HandshakeCommand> {
        Some(HandshakeCommand { command: &[b"ROLE"], needed: false })
    }

    /// Rejects a server that does not report itself as the master. A sentinel may lag behind a
    /// fail-over, and a demoted master goes on accepting writes that its replication will discard.
    fn check_handshake(
        &self,
        connection: &mut Connection,
        reply: Option<&Reply>,
    ) -> Result<(), RedisError> {
        match reply {
            Some(reply) if !is_master(&reply.value) => {
                let address = connection.address();
                Err(not_a_master(&format!("the sentinel reported {address}, which is a replica")))
            }
            // Without the permission for `ROLE` there is no reply. Such a user still gets a
            // connection: a replica refuses its first write anyway.
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not derived: the endpoints have passwords.
        f.debug_struct("Sentinels").field("master", &self.panel.master).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::BootClock;

    #[test]
    fn switch_message_counts_for_this_master_and_a_new_address() {
        let template = crate::wire::endpoint::parse("redis://one").unwrap();
        let sentinels =
            Sentinels::new(Vec::new(), template, Arc::new(BootClock), Threads::of_a_new_client());
        assert!(sentinels.is_news(b"one 10.0.0.1 1 10.0.0.2 2"));
        let rank = Rank { epoch: 1, is_ahead: true };
        assert!(!sentinels.note(MasterReport { rank, address: ("10.0.0.2".to_owned(), 2) }));
        assert!(!sentinels.is_news(b"one 10.0.0.1 1 10.0.0.2 2"));
        for news in [
            &b"one 10.0.0.1 1 10.0.0.2 3"[..],
            b"one 10.0.0.1 1 10.0.0.3 2",
            b"one 10.0.0.1 1 10.0.0.2",
            b"one \xff",
            b"one",
        ] {
            assert!(sentinels.is_news(news), "{}", news.escape_ascii());
        }
        for other in [&b""[..], b"two 10.0.0.1 1 10.0.0.3 2", b"onetwo 1", b"\xff"] {
            assert!(!sentinels.is_news(other), "{}", other.escape_ascii());
        }
    }

    #[test]
    fn fail_over_under_way_ranks_between_its_two_epochs() {
        let rank = |epoch, is_ahead| Rank { epoch, is_ahead };
        assert!(rank(1, false) < rank(1, true) && rank(1, true) < rank(2, false));
    }
}

//! The master's address, as sentinels report it.
//!
//! Sentinels agree on a fail-over one after the other: for some seconds their reports differ. Each
//! report has a rank, which grows with every fail-over, and the highest rank counts. No report is
//! believed without the server's own confirmation (`ROLE`), because a lock at a replica is no lock.

mod follower;
mod locate_error;
mod master_report;
mod query;

use std::fmt;
use std::time::Duration;

use redis::{ConnectionAddr, RedisError};

use crate::base::sync::{Arc, AtomicUsize, Mutex, Ordering};
use crate::base::time::{Clock, Moment};
use crate::topology::sentinel::locate_error::LocateErrors;
use crate::topology::sentinel::master_report::{MasterReport, Rank, is_master};
use crate::wire::connection::{Connection, Reply};
use crate::wire::endpoint::Endpoint;
use crate::wire::failure::{is_denial, not_a_master};
use crate::wire::locator::{HandshakeCommand, LocateResult, Locator};
use crate::wire::retry::REFUSED;

pub(crate) use follower::follow;

/// The channel on which a sentinel announces a new master.
const SWITCHES: &[u8] = b"+switch-master";

/// Sentinels exchange their state every two seconds. If most of them still report a lower rank this
/// long after a fail-over, the reports are not late: the sentinels were reset, and count from zero
/// again.
const SETTLED: Duration = Duration::from_secs(10);
/// How long a sentinel that was silent is asked last, and only if no other one reports the master.
const SILENT_AVOIDED: Duration = Duration::from_secs(10);
/// A sentinel may use this part of the remaining time, so that a silent one leaves time for two
/// others.
const SHARE: usize = 3;

/// Sentinels that watch one master.
pub(crate) struct Sentinels {
    nodes: Vec<Endpoint>,
    master: String,
    /// The user, the password and the TLS settings of the master.
    template: Endpoint,
    clock: Arc<dyn Clock>,
    /// The sentinel to ask first: the last one that reported the master.
    first: AtomicUsize,
    /// When and why each sentinel was last avoided.
    avoided: Mutex<Vec<Option<(Moment, AvoidReason)>>>,
    known: Mutex<Option<Known>>,
}

/// Why a sentinel is asked last for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AvoidReason {
    Silent,
    Refused,
}

impl AvoidReason {
    fn lasts(self) -> Duration {
        match self {
            AvoidReason::Silent => SILENT_AVOIDED,
            AvoidReason::Refused => REFUSED,
        }
    }
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
    ) -> Sentinels {
        let master = match template.addr() {
            ConnectionAddr::Tcp(host, _) => host.clone(),
            _ => String::new(),
        };
        let (first, known) = (AtomicUsize::new(0), Mutex::new(None));
        let avoided = Mutex::new(vec![None; nodes.len()]);
        Sentinels { nodes, master, template, clock, first, avoided, known }
    }

    /// Lets any report count again, if the last one was believed long ago. Returns whether it does.
    fn forget(&self) -> bool {
        let mut known = self.known.lock();
        let now = self.clock.now();
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
            _ => self.clock.now(),
        };
        let address = master.address.clone();
        let before = known.replace(Known { master, since });
        before.is_some_and(|before| before.master.address != address)
    }

    fn at(&self, (host, port): (String, u16)) -> Endpoint {
        self.template.at(host, port)
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
        words.first() == Some(&self.master.as_str())
            && !known.is_some_and(|(host, port)| {
                matches!(words[..], [_, _, _, ip, at] if ip == host && at.parse() == Ok(*port))
            })
    }

    /// The order in which to ask the sentinels, and how many of them are not avoided.
    fn order(&self) -> (Vec<usize>, usize) {
        let (first, count) = (self.first.load(Ordering::Relaxed), self.nodes.len());
        let all = (0..count).map(|place| first.wrapping_add(place) % count);
        let is_good = |&number: &usize| self.reason(number).is_none();
        let (mut order, avoided): (Vec<_>, Vec<_>) = all.partition(is_good);
        let good = order.len();
        order.extend(avoided);
        (order, good)
    }

    /// Why a sentinel is avoided now, if it is.
    fn reason(&self, number: usize) -> Option<AvoidReason> {
        let now = self.clock.now();
        let (since, reason) = self.avoided.lock()[number]?;
        (now.since(since) <= reason.lasts()).then_some(reason)
    }

    /// Whether a sentinel was not silent in the last while.
    pub(crate) fn is_responsive(&self, number: usize) -> bool {
        self.reason(number) != Some(AvoidReason::Silent)
    }

    /// Notes the outcome of a query. A sentinel that is silent or refuses this user is asked last
    /// for a while.
    pub(crate) fn note_outcome(&self, number: usize, error: Option<&RedisError>) {
        // A refused connection is no reason: it costs no time, and the sentinel may be back at any
        // moment. Silence, as of a host without power, costs a time-out each time.
        let reason = match error {
            Some(error) if error.is_timeout() => Some(AvoidReason::Silent),
            Some(error) if is_denial(error) => Some(AvoidReason::Refused),
            _ => None,
        };
        self.avoided.lock()[number] = reason.map(|reason| (self.clock.now(), reason));
    }

    /// The number of sentinels.
    pub(crate) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The sentinel to ask first, and its number.
    pub(crate) fn first(&self) -> (usize, &Endpoint) {
        let number = self.order().0[0];
        (number, &self.nodes[number])
    }
}

impl Locator for Sentinels {
    /// Asks one sentinel after the other until one reports the master: each for at most `each`, and
    /// all within `most`. Returns the address, and whether it is another one than before.
    ///
    /// After a fail-over some sentinels know the new master seconds before the others do. No report
    /// of a lower rank than the known one is believed. A first call, and one with `asks_all`, asks
    /// all of them.
    fn locate(&self, each: Duration, most: Duration, asks_all: bool) -> LocateResult {
        let deadline = self.clock.now().after(most);
        // A copy: no lock is held during I/O. What another thread notes meanwhile, `note` compares.
        let known = self.known.lock().as_ref().map(|known| known.master.clone());
        let (order, speaking) = self.order();
        let mut errors = LocateErrors::default();
        let (mut best, mut older): (Option<MasterReport>, Vec<MasterReport>) = (None, Vec::new());
        for (place, &number) in order.iter().enumerate() {
            let share = (order.len() - place).min(SHARE);
            let left = deadline.since(self.clock.now()) / u32::try_from(share).unwrap_or(1);
            let left = left.min(each);
            // With a report at hand, the avoided sentinels are not asked at all: each may cost a
            // time-out, and the rank guards against a report that is too old.
            if left.is_zero() || best.is_some() && place >= speaking {
                break;
            }
            let fields = self.ask(&self.nodes[number], left);
            self.note_outcome(number, fields.as_ref().err());
            match fields {
                Ok(None) => errors.note_down(),
                Ok(Some(found)) if found.is_as_new_as(known.as_ref()) => {
                    if best.as_ref().is_none_or(|best| best.rank < found.rank) {
                        self.first.store(number, Ordering::Relaxed);
                        best = Some(found);
                    }
                    // A report as new as the known one is enough. Without a known one there is
                    // nothing to compare with, so the others are asked for a higher rank.
                    if known.is_some() && !asks_all {
                        break;
                    }
                }
                Ok(Some(found)) => older.push(found),
                Err(error) => errors.note(&self.nodes[number], error),
            }
        }
        // A reset (`SENTINEL RESET`, or new sentinels) sets the ranks back. A single sentinel with
        // a lower rank is one that was cut off; most of them, for longer than they need to exchange
        // their state, were reset. Without this, the client would believe no sentinel any more.
        if best.is_none() && older.len() > self.nodes.len() / 2 && self.forget() {
            best = older.iter().max_by_key(|found| found.rank).cloned();
        }
        if let Some(best) = best {
            let info = self.at(best.address.clone());
            return Ok((info, self.note(best)));
        }
        self.suspect();
        Err(errors.trouble(self.nodes.len(), &self.master))
    }

    /// The last known address of the master.
    fn address(&self) -> String {
        match &*self.known.lock() {
            Some(Known { master: MasterReport { address: (host, port), .. }, .. }) => {
                format!("{host}:{port}")
            }
            None => format!("the master \"{}\"", self.master),
        }
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
        f.debug_struct("Sentinels").field("master", &self.master).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::BootClock;

    #[test]
    fn switch_message_counts_for_this_master_and_a_new_address() {
        let template = crate::wire::endpoint::parse("redis://one").unwrap();
        let sentinels = Sentinels::new(Vec::new(), template, Arc::new(BootClock));
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

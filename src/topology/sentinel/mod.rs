//! Where the master is, as sentinels tell.

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

/// The channel on which a sentinel tells that there is a new master.
const SWITCHES: &[u8] = b"+switch-master";

/// Sentinels tell each other of a fail-over every two seconds. An older word that all of them give for
/// so long after it was not late: they were told to watch the master anew, and count from the start.
const SETTLED: Duration = Duration::from_secs(10);
/// For how long one that was silent is asked last, and only where no other tells.
const SILENT_AVOIDED: Duration = Duration::from_secs(10);
/// How many share the time there is, at most.
const SHARE: usize = 3;

/// Sentinels that watch one master.
pub(crate) struct Sentinels {
    nodes: Vec<Endpoint>,
    master: String,
    /// How to speak to the master, wherever it is.
    template: Endpoint,
    clock: Arc<dyn Clock>,
    /// Who is asked first: the one that answered last.
    first: AtomicUsize,
    /// When each of them last gave a reason to ask it last.
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

/// Where the master was last, and since when.
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

    /// Lets an older word count if what is known was known for long. Whether it does.
    fn forget(&self) -> bool {
        let mut known = self.known.lock();
        let now = self.clock.now();
        let Some(known) = known.as_mut().filter(|known| now.since(known.since) > SETTLED) else {
            return false;
        };
        known.master.rank = Rank { epoch: 0, is_ahead: false };
        true
    }

    /// Notes where the master is now. Answers whether it was known to be elsewhere.
    fn note(&self, master: MasterReport) -> bool {
        let mut known = self.known.lock();
        let since = match &*known {
            Some(known) if known.master.rank > master.rank => return false,
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

    /// Whether a message on [`SWITCHES`] tells that this master is elsewhere than is known.
    pub(crate) fn is_news(&self, payload: &[u8]) -> bool {
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

    /// In which order they are asked, and how many of them come before those that are asked last.
    fn order(&self) -> (Vec<usize>, usize) {
        let (first, count) = (self.first.load(Ordering::Relaxed), self.nodes.len());
        let all = (0..count).map(|place| first.wrapping_add(place) % count);
        let is_good = |&number: &usize| self.reason(number).is_none();
        let (mut order, avoided): (Vec<_>, Vec<_>) = all.partition(is_good);
        let good = order.len();
        order.extend(avoided);
        (order, good)
    }

    /// Why one is asked last at the moment, if it is.
    fn reason(&self, number: usize) -> Option<AvoidReason> {
        let now = self.clock.now();
        let (since, reason) = self.avoided.lock()[number]?;
        (now.since(since) <= reason.lasts()).then_some(reason)
    }

    /// Whether one was not silent of late.
    pub(crate) fn is_responsive(&self, number: usize) -> bool {
        self.reason(number) != Some(AvoidReason::Silent)
    }

    /// Notes how one behaved. One that is silent, as a host is that lost its power, or that refuses this
    /// user is asked last for a while.
    pub(crate) fn note_outcome(&self, number: usize, error: Option<&RedisError>) {
        let reason = match error {
            Some(error) if error.is_timeout() => Some(AvoidReason::Silent),
            Some(error) if is_denial(error) => Some(AvoidReason::Refused),
            _ => None,
        };
        self.avoided.lock()[number] = reason.map(|reason| (self.clock.now(), reason));
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The sentinel that is asked first, and its number.
    pub(crate) fn first(&self) -> (usize, &Endpoint) {
        let number = self.order().0[0];
        (number, &self.nodes[number])
    }
}

impl Locator for Sentinels {
    /// Asks one after the other until one knows the master, each for at most `each`, and all within
    /// `most`, of which each has a share. Answers where it is, and whether that is elsewhere than before.
    ///
    /// After a fail-over some sentinels know of the new master seconds before the others do. Who was
    /// told of one believes no older word, and who was told nothing yet, or `asks_all`, asks them all.
    fn locate(&self, each: Duration, most: Duration, asks_all: bool) -> LocateResult {
        let deadline = self.clock.now().after(most);
        let known = self.known.lock().as_ref().map(|known| known.master.clone());
        let (order, speaking) = self.order();
        let mut errors = LocateErrors::default();
        let (mut best, mut older): (Option<MasterReport>, Vec<MasterReport>) = (None, Vec::new());
        for (place, &number) in order.iter().enumerate() {
            let share = (order.len() - place).min(SHARE);
            let left = deadline.since(self.clock.now()) / u32::try_from(share).unwrap_or(1);
            let left = left.min(each);
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
                    if known.is_some() && !asks_all {
                        break;
                    }
                }
                Ok(Some(found)) => older.push(found),
                Err(error) => errors.note(&self.nodes[number], error),
            }
        }
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

    /// Where the master was last.
    fn address(&self) -> String {
        match &*self.known.lock() {
            Some(Known { master: MasterReport { address: (host, port), .. }, .. }) => {
                format!("{host}:{port}")
            }
            None => format!("the master \"{}\"", self.master),
        }
    }

    /// The one that was told of cannot be spoken to: who told it is asked last the next time.
    fn suspect(&self) {
        self.first.fetch_add(1, Ordering::Relaxed);
    }

    fn handshake_command(&self) -> Option<HandshakeCommand> {
        Some(HandshakeCommand { command: &[b"ROLE"], needed: false })
    }

    /// The server that the sentinels named must say itself that it is the master.
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
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The nodes and the template may have passwords.
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

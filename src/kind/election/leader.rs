//! Who leads an election, as Redis tells.

use std::fmt;
use std::time::Duration;

use crate::base::inspection::{Holder, Inspection};
use crate::base::token::FencingToken;

/// Who leads an election, and what the leader says, at one moment.
///
/// Unknown facts are `None`.
///
/// ```
/// # fn demo(election: &leasehold::Election) -> leasehold::Result<()> {
/// if let Some(leader) = election.leader()? {
///     println!("{leader}"); // "billing, process 4711 on web-3, term 1795627722131071, says \"10.0.0.7:8080\""
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    holder: Holder,
    word: Option<Vec<u8>>,
}

impl Leader {
    /// The leader that an inspection found.
    pub(super) fn of(inspection: Inspection) -> Option<Leader> {
        let Inspection { holders, word, .. } = inspection;
        // One whose lease is over does not lead, although it may come back in the same term.
        let leads = |holder: &Holder| holder.overdue.is_none();
        holders.into_iter().next().filter(leads).map(|holder| Leader { holder, word })
    }

    /// Whether it is the same term, in which the leader says the same.
    pub(super) fn says_the_same(&self, other: &Leader) -> bool {
        self.holder.owner == other.holder.owner
            && self.holder.token == other.holder.token
            && self.word == other.word
    }

    /// How long its lease lasts, if it is not renewed.
    pub(super) fn ttl(&self) -> Option<Duration> {
        self.holder.ttl
    }

    /// The term: the [fencing token](crate::Leadership::term) of the leader, greater than that of every leader before.
    /// `None` where Redis has lost the key that keeps it, until the leader or a candidate writes it again.
    ///
    /// ```
    /// # fn demo(leader: &leasehold::Leader, highest: leasehold::FencingToken) {
    /// if leader.term() > Some(highest) {
    ///     println!("a new term");
    /// }
    /// # }
    /// ```
    pub fn term(&self) -> Option<FencingToken> {
        self.holder.token
    }

    /// What the leader [proclaims](crate::Leadership::proclaim); `None` if it has not said anything in its term.
    ///
    /// ```
    /// # fn demo(leader: &leasehold::Leader) {
    /// if let Some(address) = leader.value() {
    ///     println!("connect to {}", String::from_utf8_lossy(address));
    /// }
    /// # }
    /// ```
    pub fn value(&self) -> Option<&[u8]> {
        self.word.as_deref()
    }

    /// The name of the leader's host.
    ///
    /// ```
    /// # fn demo(leader: &leasehold::Leader) {
    /// println!("on {}", leader.host().unwrap_or("an unknown host"));
    /// # }
    /// ```
    pub fn host(&self) -> Option<&str> {
        self.holder.host()
    }

    /// The leader's process id.
    ///
    /// ```
    /// # fn demo(leader: &leasehold::Leader) {
    /// if leader.pid() == Some(std::process::id()) {
    ///     println!("it is this process");
    /// }
    /// # }
    /// ```
    pub fn pid(&self) -> Option<u32> {
        self.holder.pid()
    }

    /// The [label](crate::LockClientBuilder::label) of the leader's client, if it has one.
    ///
    /// ```
    /// # fn demo(leader: &leasehold::Leader) {
    /// println!("{}", leader.label().unwrap_or("no label"));
    /// # }
    /// ```
    pub fn label(&self) -> Option<&str> {
        self.holder.label()
    }

    /// For how long it led, when Redis was asked, on the server's clock.
    ///
    /// Where that clock was set back since, it is too short by that much, or `None`.
    ///
    /// ```
    /// # fn demo(leader: &leasehold::Leader) {
    /// println!("it leads for {:?}", leader.since());
    /// # }
    /// ```
    pub fn since(&self) -> Option<Duration> {
        self.holder.since
    }

    /// Its owner's value in Redis, which is new for every leadership. [`LeaseWatch::owner`](crate::LeaseWatch::owner)
    /// returns the same in the leader's process.
    ///
    /// ```
    /// # fn demo(leader: &leasehold::Leader, mine: &leasehold::Leadership) {
    /// if leader.owner() == mine.lease_watch().owner() {
    ///     println!("it is this leadership");
    /// }
    /// # }
    /// ```
    pub fn owner(&self) -> &[u8] {
        &self.holder.owner
    }
}

impl fmt::Display for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.holder)?;
        if let Some(term) = self.term() {
            write!(f, ", term {term}")?;
        }
        match &self.word {
            Some(word) => write!(f, ", says \"{}\"", word.escape_ascii()),
            None => Ok(()),
        }
    }
}

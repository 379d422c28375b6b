//! The election: one leader at a time, its terms, and who listens to it.

mod leader;
mod leadership;
mod lock_kind;
mod observation;

use std::time::{Duration, Instant};

use crate::base::error::Result;
use crate::base::inspection::{Holder, WaitingProcess};
use crate::base::share::Share;
use crate::engine::slot::WaitLimit;
use crate::kind::Handle;
use crate::kind::method::kind_methods;

pub use leader::Leader;
pub use leadership::Leadership;
pub(crate) use lock_kind::ElectionKind;
pub use observation::{Observation, Observed};

/// One leader among many processes, and everybody knows who.
///
/// Each process that can do the work [campaigns](Election::campaign). One of them leads, the others are candidates and wait.
/// The leader may [say a word](Leadership::proclaim), such as its address, and all can [ask](Election::leader) who leads and
/// what it says, or [observe](Election::observe) each change. When the leader resigns, the next candidate leads at once; when
/// its process dies, after the rest of its lease.
///
/// **What it guarantees.** At most one leadership is inside its validity window at a time, on one Redis that has lost no
/// writes; see the [promise](crate#the-promise). Each [term](Leadership::term) is greater than those before it. Candidates
/// lead in the order in which their processes came. An observer sees changes that have happened, in their order, and the
/// latest of them always: it may miss one that was over soon.
///
/// **What breaks that.** The same as for a [`Mutex`](crate::Mutex): a fail-over to a replica that missed the write,
/// `FLUSHALL`, a forced release, a jump of the server's clock, or a leader that is paused for longer than its lease. Then
/// the term, checked at the resource, protects you. [Limits](crate::guide::limits) has the whole list.
///
/// **How it differs from a mutex.** A [`Leadership`] belongs to no thread: each call is a candidate of its own, nothing
/// enters a leadership that this process has, and it is neither handed to another thread of the process nor kept after its
/// end ([`local_handoffs`](crate::LockOptions::local_handoffs) and [`linger`](crate::LockOptions::linger) have no effect),
/// because Redis, and so every observer, would not learn of the new term. Each change is published, also when nobody
/// waits. A process has one place in the line for all its threads. Do not use a name for an election and for another kind
/// of lock: each finds the key of the other, which is an error here and a wait there.
///
/// It is for one server, with sentinels or not, and for a cluster. A [`QuorumClient`](crate::QuorumClient) has none: no
/// server of several knows who leads, so none could tell the observers.
///
/// Handles are cheap to clone and to send. All handles of one name in one client are one election.
///
/// ```no_run
/// use leasehold::LockClient;
///
/// # fn main() -> leasehold::Result<()> {
/// let client = LockClient::open("redis://127.0.0.1:6379")?;
/// let election = client.election("scheduler")?;
/// let leadership = election.campaign()?;
/// println!("term {}", leadership.term());
/// leadership.resign()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Election(Handle);

kind_methods!(Election, "let lock = client.election(\"orders:42\")?;");

impl Election {
    /// Waits without limit until this process leads.
    ///
    /// # Errors
    ///
    /// The same as for [`Mutex::lock`](crate::Mutex::lock), and [`is_wrong_type`](crate::Error::is_wrong_type) if the name
    /// is held as another kind of lock.
    ///
    /// ```
    /// # fn demo(election: &leasehold::Election) -> leasehold::Result<()> {
    /// let leadership = election.campaign()?;
    /// println!("this process leads, in term {}", leadership.term());
    /// # Ok(())
    /// # }
    /// ```
    pub fn campaign(&self) -> Result<Leadership> {
        self.lead(WaitLimit::FOR_EVER)?.ok_or_else(|| self.0.endless_wait_error())
    }

    /// Tries to lead in one attempt; `None` if somebody leads or is a candidate.
    ///
    /// # Errors
    ///
    /// The same as for [`campaign`](Election::campaign), at the first failure.
    ///
    /// ```
    /// # fn demo(election: &leasehold::Election) -> leasehold::Result<()> {
    /// match election.try_campaign()? {
    ///     Some(leadership) => println!("this process leads, in term {}", leadership.term()),
    ///     None => println!("another one leads"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_campaign(&self) -> Result<Option<Leadership>> {
        self.lead(WaitLimit::TryOnce)
    }

    /// Waits for at most `wait` until this process leads; `None` if others led all the time.
    ///
    /// Zero is one attempt. A wait that is too long for the clock has no end.
    ///
    /// # Errors
    ///
    /// The same as for [`campaign`](Election::campaign), also when the time ends during an outage.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(election: &leasehold::Election, stop: impl Fn() -> bool) -> leasehold::Result<()> {
    /// while !stop() {
    ///     if let Some(leadership) = election.try_campaign_for(Duration::from_secs(2))? {
    ///         println!("term {}", leadership.term());
    ///         // … the work of a leader …
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_campaign_for(&self, wait: Duration) -> Result<Option<Leadership>> {
        self.lead(self.0.until(wait))
    }

    /// Waits until `deadline` at the latest; `None` if others led all the time.
    ///
    /// # Errors
    ///
    /// The same as for [`try_campaign_for`](Election::try_campaign_for).
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # fn demo(election: &leasehold::Election) -> leasehold::Result<()> {
    /// let deadline = Instant::now() + Duration::from_secs(2);
    /// let maybe = election.try_campaign_until(deadline)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_campaign_until(&self, deadline: Instant) -> Result<Option<Leadership>> {
        self.lead(self.0.until_instant(deadline))
    }

    fn lead(&self, wait_limit: WaitLimit) -> Result<Option<Leadership>> {
        Ok(self.0.take(Share::Whole, wait_limit)?.map(Leadership::new))
    }

    /// Asks Redis who leads at this moment, and what the leader says; `None` if nobody leads.
    ///
    /// # Errors
    ///
    /// When Redis cannot be asked; [`is_wrong_type`](crate::Error::is_wrong_type) if the name is held as another kind of
    /// lock.
    ///
    /// ```
    /// # fn demo(election: &leasehold::Election) -> leasehold::Result<()> {
    /// match election.leader()? {
    ///     Some(leader) => println!("{leader}"),
    ///     None => println!("nobody leads"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn leader(&self) -> Result<Option<Leader>> {
        Ok(Leader::of(self.0.inspect_holders()?))
    }

    /// Asks Redis which processes wait to lead, the next one first; the first thousand of them.
    ///
    /// A process has one place for all its threads. One that polls ([`Wait::spin`](crate::Wait::spin)) has none.
    ///
    /// # Errors
    ///
    /// The same as for [`leader`](Election::leader).
    ///
    /// ```
    /// # fn demo(election: &leasehold::Election) -> leasehold::Result<()> {
    /// for candidate in election.candidates()? {
    ///     println!("{}. {candidate}", candidate.place());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn candidates(&self) -> Result<Vec<WaitingProcess>> {
        Ok(self.0.inspect()?.waiters)
    }

    /// Observes who leads and what the leader says: see [`Observation`].
    ///
    /// Each call is an observer of its own. It makes this client listen, and does not yet ask who leads.
    ///
    /// # Errors
    ///
    /// [`is_cancelled`](crate::Error::is_cancelled) if the client was closed.
    ///
    /// ```
    /// # fn demo(election: &leasehold::Election) -> leasehold::Result<()> {
    /// let mut observation = election.observe()?;
    /// loop {
    ///     println!("{}", observation.next()?);
    /// }
    /// # }
    /// ```
    pub fn observe(&self) -> Result<Observation> {
        Observation::new(&self.0)
    }

    /// The leader that was in the way when this thread's last campaign ended without the lead. No I/O.
    ///
    /// ```
    /// # fn demo(election: &leasehold::Election) -> leasehold::Result<()> {
    /// if election.try_campaign()?.is_none()
    ///     && let Some(holder) = election.last_blocker()
    /// {
    ///     println!("{holder} leads");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn last_blocker(&self) -> Option<Holder> {
        self.0.last_blocker()
    }
}

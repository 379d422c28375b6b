//! The changes of an election, one after the other.
//!
//! An observer looks: it asks Redis who leads, and compares that with what it has told last. A message on the channel of
//! the election only says when to look, so no message can invent a change, and one that is lost costs a second. Looks
//! follow one another, so what they see is in the order in which it happened.

use std::fmt;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::acquire::cancelled_error;
use crate::engine::heartbeat::{HEARTBEAT, pause_until_free};
use crate::engine::signal::Signal;
use crate::kind::Handle;
use crate::kind::election::leader::Leader;
use crate::kind::election::lock_kind::channel;

/// How soon an observer asks again while Redis gives no useful reply.
const PAUSE_IN_OUTAGE: Duration = Duration::from_millis(100);

/// The changes of an election, as [`Election::observe`](crate::Election::observe) begins to observe them.
///
/// [`next`](Observation::next) returns first what is so now, and then each change that it learns of: another leader, another
/// term, another word, or that nobody leads. They come in the order in which they happened, and none is invented. One that
/// was over before the observer looked is not seen, but the latest is never missed.
///
/// The scripts that make a change publish it. The observer then asks Redis, which is one command. It also asks once a second,
/// and at the end of the leader's lease: so it finds a change whose message was lost, and a leader that died. All that
/// happens inside `next`: between two calls nothing is sent, and the next call finds what has changed.
///
/// Where the user of Redis may not subscribe, it is the looks alone that find changes.
///
/// ```
/// # use std::time::Duration;
/// # fn demo(election: &leasehold::Election, stop: impl Fn() -> bool) -> leasehold::Result<()> {
/// use leasehold::Observed;
///
/// let mut observation = election.observe()?;
/// while !stop() {
///     match observation.next_timeout(Duration::from_secs(1))? {
///         Some(Observed::Leader(leader)) => println!("{leader}"),
///         Some(_) => println!("nobody leads"),
///         None => {} // nothing has changed
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Observation {
    handle: Handle,
    signal: Arc<Signal>,
    /// What it has returned last.
    last: Option<Observed>,
    /// When to look, also without a message.
    due: Moment,
}

/// What an [`Observation`] has seen.
///
/// ```
/// # fn demo(observed: leasehold::Observed) {
/// match observed.leader() {
///     Some(leader) => println!("{leader}"),
///     None => println!("nobody leads"),
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observed {
    /// This one leads, and says this.
    Leader(Leader),
    /// Nobody leads.
    Nobody,
}

impl Observed {
    /// Who leads; `None` if nobody does.
    ///
    /// ```
    /// # fn demo(observed: &leasehold::Observed) {
    /// let address = observed.leader().and_then(|leader| leader.value());
    /// println!("{address:?}");
    /// # }
    /// ```
    pub fn leader(&self) -> Option<&Leader> {
        match self {
            Observed::Leader(leader) => Some(leader),
            Observed::Nobody => None,
        }
    }

    fn is_the_same(&self, other: &Observed) -> bool {
        match (self, other) {
            (Observed::Leader(one), Observed::Leader(other)) => one.says_the_same(other),
            (Observed::Nobody, Observed::Nobody) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Observed::Leader(leader) => leader.fmt(f),
            Observed::Nobody => f.write_str("nobody leads"),
        }
    }
}

impl Observation {
    pub(super) fn new(handle: &Handle) -> Result<Observation> {
        let context = handle.context();
        if context.is_closing() {
            return Err(cancelled_error(context).of(handle.name()));
        }
        let signal = context.signals.add();
        let deadline = context.exchange_deadline();
        context.listener.wish_for(&channel(handle.name()), &signal, deadline);
        Ok(Observation { handle: handle.clone(), signal, last: None, due: Moment::PAST })
    }

    /// Waits for the next change, without limit, and returns it. The first call returns at once what is so now.
    ///
    /// # Errors
    ///
    /// - [`is_unreachable`](crate::Error::is_unreachable) after an outage of the client's
    ///   [`give_up_after`](crate::LockClientBuilder::give_up_after). The next call goes on;
    /// - [`is_cancelled`](crate::Error::is_cancelled) once the client is closed;
    /// - [`is_denied`](crate::Error::is_denied) and [`is_wrong_type`](crate::Error::is_wrong_type).
    ///
    /// ```
    /// # fn demo(observation: &mut leasehold::Observation) -> leasehold::Result<()> {
    /// println!("{}", observation.next()?);
    /// # Ok(())
    /// # }
    /// ```
    #[expect(
        clippy::should_implement_trait,
        reason = "it fails where an iterator would end, and goes on after that"
    )]
    pub fn next(&mut self) -> Result<Observed> {
        loop {
            if let Some(observed) = self.until(Moment::FAR)? {
                return Ok(observed);
            }
        }
    }

    /// Waits for the next change for at most `wait`; `None` if there was none.
    ///
    /// Zero looks once. The look takes the time of one command at most, also where `wait` is shorter.
    ///
    /// # Errors
    ///
    /// The same as for [`next`](Observation::next), also when the time ends during an outage. So `None` means that Redis was
    /// asked, and nothing had changed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(observation: &mut leasehold::Observation) -> leasehold::Result<()> {
    /// if let Some(observed) = observation.next_timeout(Duration::from_secs(5))? {
    ///     println!("{observed}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn next_timeout(&mut self, wait: Duration) -> Result<Option<Observed>> {
        let end = self.handle.now().after(wait);
        self.until(end)
    }

    fn until(&mut self, end: Moment) -> Result<Option<Observed>> {
        // Since when no look had a useful reply, and why.
        let mut outage: Option<(Moment, Error)> = None;
        let mut has_looked = false;
        loop {
            let now = self.handle.now();
            // Taken before the look, so that a message that comes meanwhile makes it look again.
            // A call without time looks, too: it would see nothing else but what messages tell.
            let is_due = self.signal.take() | (self.due <= now) | (!has_looked && end <= now);
            if self.handle.context().is_closing() {
                return Err(cancelled_error(self.handle.context()).of(self.handle.name()));
            }
            if is_due {
                has_looked = true;
                match self.look(now) {
                    Ok(Some(observed)) => return Ok(Some(observed)),
                    Ok(None) => outage = None,
                    Err(error) if error.is_transient() => {
                        let since = outage.map_or(now, |(since, _)| since);
                        self.due = self.handle.now().after(PAUSE_IN_OUTAGE);
                        let gives_up = since.after(self.handle.context().bounds.give_up_after);
                        if gives_up <= self.handle.now() {
                            return Err(error.in_outage());
                        }
                        outage = Some((since, error));
                    }
                    Err(error) => return Err(error),
                }
            }
            // Not before it has looked: a short time may end between the two looks at the clock.
            if has_looked && end <= self.handle.now() {
                return outage.map_or(Ok(None), |(_, error)| Err(error.in_outage()));
            }
            self.signal.wait(&*self.handle.context().clock, self.due.min(end));
        }
    }

    /// Asks Redis. Returns what it sees if that is not what was returned last.
    fn look(&mut self, now: Moment) -> Result<Option<Observed>> {
        let leader = Leader::of(self.handle.inspect_holders()?);
        // The end of a lease is a change of which no script tells.
        let left = leader.as_ref().and_then(Leader::ttl);
        self.due = now.after(HEARTBEAT.min(pause_until_free(left)));
        let seen = leader.map_or(Observed::Nobody, Observed::Leader);
        if self.last.as_ref().is_some_and(|last| last.is_the_same(&seen)) {
            return Ok(None);
        }
        self.last = Some(seen.clone());
        Ok(Some(seen))
    }
}

// Callbacks of the user, which the client has, take these away otherwise. A panic leaves no observation half changed.
impl std::panic::UnwindSafe for Observation {}
impl std::panic::RefUnwindSafe for Observation {}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observation")
            .field("election", self.handle.name())
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

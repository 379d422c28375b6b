//! The client of several servers.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::option::{LockOptions, ReleaseKind, Wait};
use crate::base::text::Span;
use crate::client::LockClient;
use crate::kind::mutex::quorum::QuorumKind;
use crate::kind::{Handle, Mutex};

/// Makes locks that a majority of several independent servers grants (Redlock).
///
/// **What it guarantees.** A lock is held by at most one holder inside the holder's validity
/// window, while fewer than half of the servers are lost, lose their memory, or disagree about how
/// long a second is by more than 1 % + 2 ms. Locks can be taken as long as a majority of *all*
/// servers can be reached. [Fencing tokens](crate::Guard::fencing_token) grow from hold to hold,
/// whichever majority granted them.
///
/// **What breaks that.** An event at a majority of the servers that breaks a lock on one server:
/// `FLUSHALL`, a `DEL`, eviction, a clock that jumps ahead. Servers that are not independent:
/// replicas of each other, or servers on one disk. A server that [should keep its data][keeps] and
/// does not. And, as everywhere, a holder that is paused for longer than its lease: then only a
/// fencing token checked at the resource protects you.
///
/// **How it differs from [`LockClient`].** It asks all servers at once, in one round trip; a silent
/// server costs one [time-out][timeout], once. It waits by [`Wait::notify`], the default, or by
/// [`Wait::spin`], and has no queue. Two callers that ask at the same moment may split the votes,
/// so that [`try_lock`](Mutex::try_lock) returns `None` to both. There is no
/// [`transaction`](crate::Guard::transaction): the data would have to be on all servers. For the same
/// reason there is no [`once`](LockClient::once): each server could have another record.
/// [Topologies](crate::guide::topologies#several-independent-servers) has the details of waiting
/// and of restarted servers.
///
/// **When a restarted server has a vote again.** A server reports by its own clock how long it has
/// run, and a clock can be wrong. If the client has had replies from an earlier run of the server's
/// process, the next run counts no earlier than the [longest lease][lease] after the last of these
/// replies, whatever it reports. If a run reports a start before that reply, the client does not
/// believe it at all: the run counts the longest lease after its first contact with the client. No
/// later report makes a run count earlier. A *fresh* client has met no earlier run, so it believes
/// the first report: a server that restarted empty, and whose clock was then set ahead by more than
/// the longest lease, has its vote at once. Nor does a client know what happened between the last
/// reply of one run and the start of the next. Set a server's clock before the server starts.
///
/// **Why tokens grow.** Each server keeps the last token that it accepted for a name. The client
/// proposes one token to all servers, above the deadline of its request on the clock of every
/// server. A server accepts the token if the request is not late, if no other owner has the lock
/// there, and if the token is above its own last one. A majority that accepted the same token
/// grants the lock. Let `t` be granted, and `u` later. Their majorities share a server, which
/// accepted `t` and afterwards `u`. If that server remembered `t`, then `u > t`. If the key with
/// `t` had expired there, its clock had passed `t`, and `u` is above its clock. If it had restarted
/// empty, it voted again only after the longest lease, when its clock had passed `t` too, unless
/// `t` was ahead of it by more than that: so the clocks of the servers should agree to within the
/// longest lease. A server that refuses a token returns its last one, and the next proposal, which
/// follows at once, is above that.
///
/// Clones are the same client.
///
/// ```no_run
/// use leasehold::QuorumClient;
///
/// # fn main() -> leasehold::Result<()> {
/// let client = QuorumClient::open(["redis://a:6379", "redis://b:6379", "redis://c:6379"])?;
/// client.mutex("orders:42")?.with(|guard| {
///     println!("token {}", guard.fencing_token());
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// [keeps]: crate::QuorumClientBuilder::keeps_data
/// [timeout]: crate::QuorumClientBuilder::node_timeout
/// [lease]: crate::QuorumClientBuilder::max_lease
#[derive(Clone)]
pub struct QuorumClient {
    pub(super) locks: LockClient,
    max_lease: Duration,
}

impl QuorumClient {
    pub(super) fn new(locks: LockClient, max_lease: Duration) -> QuorumClient {
        QuorumClient { locks, max_lease }
    }

    /// The mutex of this name, with default options. Any bytes are a name, up to 64 KiB.
    ///
    /// # Errors
    ///
    /// [`is_config`](crate::Error::is_config) for an empty or too long name, and for a
    /// [reserved one](crate::LockClient::mutex).
    ///
    /// ```
    /// # fn main() -> leasehold::Result<()> {
    /// # let servers = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];
    /// # let client = leasehold::QuorumClient::builder(servers).build()?;
    /// let lock = client.mutex("orders:42")?;
    /// assert_eq!(lock.name(), b"orders:42");
    /// # Ok(())
    /// # }
    /// ```
    pub fn mutex(&self, name: impl AsRef<[u8]>) -> Result<Mutex> {
        self.mutex_with(name, LockOptions::new())
    }

    /// The mutex of this name, with options. It waits by [`Wait::notify`] or by [`Wait::spin`].
    ///
    /// # Errors
    ///
    /// [`is_config`](crate::Error::is_config) for a name that is not allowed, and for these
    /// options: [`Wait::queue`], [`Release::watch`](crate::Release::watch), `min_replicas`,
    /// `min_fsyncs`, and a lease longer than [`max_lease`](crate::QuorumClientBuilder::max_lease).
    ///
    /// ```
    /// use leasehold::{LockOptions, Wait};
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let servers = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];
    /// # let client = leasehold::QuorumClient::builder(servers).build()?;
    /// let lock = client.mutex_with("orders:42", LockOptions::new().wait(Wait::spin()))?;
    /// // Several queues would split a majority between them.
    /// let queued = LockOptions::new().wait(Wait::queue());
    /// assert!(client.mutex_with("orders:42", queued).unwrap_err().is_config());
    /// # Ok(())
    /// # }
    /// ```
    pub fn mutex_with(&self, name: impl AsRef<[u8]>, options: LockOptions) -> Result<Mutex> {
        // Each of these is refused here, with the reason that concerns a quorum, before the general
        // checks of the options would refuse it with a reason of one server.
        if options.wait == Some(Wait::queue()) {
            return Err(Error::config(
                "wait",
                "Wait::queue() over several servers, whose queues would split the majority",
                "Wait::notify() or Wait::spin()",
            ));
        }
        if options.release.0 == ReleaseKind::Watch {
            return Err(Error::config(
                "release",
                "Release::watch() over several servers",
                "Release::lua()",
            ));
        }
        if let Some(wanted) = options.durabilities().next() {
            return Err(Error::config(
                wanted.field(),
                "set over several servers, where a majority has the lock instead",
                "nothing",
            ));
        }
        // Only here and in `extend` is a lease compared with `max_lease`: the quarantine of
        // restarted servers is made for it, and a longer lease could be forgotten by a server that
        // votes again. A lease that is too long for any client gets the general error first.
        let ttl = options.lease.ttl();
        if ttl > self.max_lease {
            options.check()?;
            return Err(Error::config(
                "lease",
                format_args!("{} is too long", Span(ttl)),
                format_args!("at most max_lease of the client ({})", Span(self.max_lease)),
            ));
        }
        self.locks.handle(&QuorumKind, name.as_ref(), options).map(Mutex::new)
    }

    pub(super) fn key_options(&self) -> LockOptions {
        self.locks.key_options()
    }

    pub(super) fn hold_of(&self, name: &[u8]) -> Result<Handle> {
        self.locks.hold_of(&QuorumKind, name)
    }
}

// For the same reasons as the client of one server.
impl UnwindSafe for QuorumClient {}
impl RefUnwindSafe for QuorumClient {}

impl fmt::Debug for QuorumClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumClient").field("locks", &self.locks).finish_non_exhaustive()
    }
}

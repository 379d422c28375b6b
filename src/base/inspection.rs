//! Who holds a lock, and who waits for it, for people to read.

use std::fmt;
use std::time::Duration;

use crate::base::share::Access;
use crate::base::text::Span;
use crate::base::token::FencingToken;

/// A foreign owner's value may be any bytes; at most this many are shown.
const SHOWN_BYTES: usize = 128;

/// Where an owner or a waiter runs, as far as its value in Redis tells. The text is clean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) host: Option<String>,
    pub(crate) pid: Option<u32>,
    pub(crate) label: Option<String>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(label) = &self.label {
            write!(f, "{label}, ")?;
        }
        match (self.pid, &self.host) {
            (Some(pid), Some(host)) => write!(f, "process {pid} on {host}"),
            (Some(pid), None) => write!(f, "process {pid}"),
            (None, Some(host)) => write!(f, "a process on {host}"),
            (None, None) => f.write_str("a process"),
        }
    }
}

/// A value of Redis as text without control characters, of a bounded length.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(SHOWN_BYTES)];
        write!(f, "{}", shown.escape_ascii())?;
        if shown.len() < self.0.len() { f.write_str("…") } else { Ok(()) }
    }
}

/// The getters that holders and waiters have in common.
macro_rules! origin_methods {
    () => {
        /// The name of its host, if it is known.
        ///
        /// ```
        /// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
        /// let seen = lock.inspect()?;
        /// let here = seen.holders().iter().filter(|holder| holder.host() == Some("web-3"));
        /// println!("{} on web-3", here.count());
        /// # Ok(())
        /// # }
        /// ```
        pub fn host(&self) -> Option<&str> {
            self.origin.as_ref()?.host.as_deref()
        }

        /// Its process id, if it is known.
        ///
        /// ```
        /// # fn demo(holder: &leasehold::Holder) {
        /// if let (Some(pid), Some(host)) = (holder.pid(), holder.host()) {
        ///     println!("to see what it does: ssh {host} ps {pid}");
        /// }
        /// # }
        /// ```
        pub fn pid(&self) -> Option<u32> {
            self.origin.as_ref()?.pid
        }

        /// The [label](crate::LockClientBuilder::label) of its client, if it has one.
        ///
        /// ```
        /// # fn demo(holder: &leasehold::Holder) {
        /// if holder.label() == Some("billing") {
        ///     println!("the bill is being written");
        /// }
        /// # }
        /// ```
        pub fn label(&self) -> Option<&str> {
            self.origin.as_ref()?.label.as_deref()
        }
    };
}

/// Who holds a lock, for people to read.
///
/// Unknown facts are `None`. A [`Mutex`](crate::Mutex) that this library took has everything. The value of a
/// [`ReentrantLock`](crate::ReentrantLock) has no room for host, process and label, which are known of this client's
/// own holds alone. A key of another library has its owner's value and its time to live.
///
/// ```
/// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
/// if let Some(holder) = lock.holder()? {
///     println!("waiting for {holder}"); // "billing, process 4711 on web-3"
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Holder {
    pub(crate) owner: Vec<u8>,
    pub(crate) origin: Option<Origin>,
    pub(crate) token: Option<FencingToken>,
    pub(crate) since: Option<Duration>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) overdue: Option<Duration>,
    pub(crate) part: HeldPart,
}

/// Which part of a lock that several may hold a holder has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum HeldPart {
    /// All of it, or it is not known.
    #[default]
    Whole,
    Permits(Vec<u32>),
    Access(Access),
}

impl Holder {
    /// The owner's value in Redis, which is new for every attempt. Of what another
    /// library wrote it has at most 16 KiB, and as a [blocker](crate::Mutex::last_blocker) 512 bytes. It is
    /// empty for a read-write lock of Redisson with more than 1,000 owners.
    ///
    /// ```
    /// # fn demo(before: &leasehold::Holder, now: &leasehold::Holder) {
    /// if before.owner() == now.owner() {
    ///     println!("the same hold goes on");
    /// }
    /// # }
    /// ```
    pub fn owner(&self) -> &[u8] {
        &self.owner
    }

    origin_methods!();

    /// The token of the hold, or the first of its tokens: a process that passes its lease from thread to thread
    /// gives each a greater one, of which Redis does not hear.
    ///
    /// ```
    /// # fn demo(holder: &leasehold::Holder, guard: &leasehold::Guard) {
    /// if holder.token().is_some_and(|token| token > guard.fencing_token()) {
    ///     println!("a later holder has the lock");
    /// }
    /// # }
    /// ```
    pub fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// How long ago the process got the lock, on the server's clock.
    ///
    /// The token shows it, so it costs nothing. Where that clock was set back since, it is too short by that
    /// much, or `None`. Over several servers it is too short by a
    /// [`node_timeout`](crate::QuorumClientBuilder::node_timeout) at most. A process may have passed its lease from
    /// thread to thread since then.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(holder: &leasehold::Holder) {
    /// if holder.since() > Some(Duration::from_secs(60)) {
    ///     println!("{holder} has it for more than a minute");
    /// }
    /// # }
    /// ```
    pub fn since(&self) -> Option<Duration> {
        self.since
    }

    /// How long the lease lasts from then on, if it is not renewed; `None`: without an end.
    ///
    /// ```
    /// # fn demo(holder: &leasehold::Holder) {
    /// match holder.ttl() {
    ///     Some(ttl) => println!("free in {ttl:?} at the latest, unless it is renewed"),
    ///     None => println!("somebody has to free it"),
    /// }
    /// # }
    /// ```
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl
    }

    /// For how long its lease has been over, where Redis still keeps the lock for it; `None` for nearly all holders.
    ///
    /// So a holder is shown that was not heard of, and whose lease is [recoverable](crate::Lease::recoverable_for). The
    /// lock is free to the next client that asks for it, and the holder's once more if it is heard of before that.
    ///
    /// ```
    /// # fn demo(holder: &leasehold::Holder) {
    /// if let Some(overdue) = holder.overdue() {
    ///     println!("{holder} was not heard of; its lease is over for {overdue:?}");
    /// }
    /// # }
    /// ```
    pub fn overdue(&self) -> Option<Duration> {
        self.overdue
    }

    /// The numbers of its permits of a semaphore; empty for other kinds of lock.
    ///
    /// ```
    /// # fn demo(holder: &leasehold::Holder) {
    /// if holder.slots().contains(&0) {
    ///     println!("{holder} has the first GPU");
    /// }
    /// # }
    /// ```
    pub fn slots(&self) -> &[u32] {
        match &self.part {
            HeldPart::Permits(numbers) => numbers,
            _ => &[],
        }
    }

    /// How it holds a read-write lock; `None` for other kinds of lock.
    ///
    /// ```
    /// # use leasehold::Access;
    /// # fn demo(holder: &leasehold::Holder) {
    /// if holder.access() == Some(Access::Write) {
    ///     println!("{holder} writes");
    /// }
    /// # }
    /// ```
    pub fn access(&self) -> Option<Access> {
        match self.part {
            HeldPart::Access(access) => Some(access),
            _ => None,
        }
    }

    /// Shows all that is known.
    pub(crate) fn details(&self) -> Details<'_> {
        Details(self)
    }

    /// Shows where it is: `on web-3`.
    pub(crate) fn place(&self) -> Place<'_> {
        Place(self)
    }
}

/// Where a holder is; who it is, where its host is not known.
pub(crate) struct Place<'a>(&'a Holder);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.host() {
            Some(host) => write!(f, "on {host}"),
            None => write!(f, "by {}", self.0),
        }
    }
}

/// A holder, and what is known besides who it is.
pub(crate) struct Details<'a>(&'a Holder);

impl fmt::Display for Details<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { since, token, ttl, overdue, part, .. } = self.0;
        write!(f, "{}", self.0)?;
        match part {
            HeldPart::Whole => {}
            HeldPart::Permits(numbers) => write!(f, ", slots {numbers:?}")?,
            HeldPart::Access(access) => write!(f, ", {access}")?,
        }
        if let Some(since) = since {
            write!(f, ", for {}", Span(*since))?;
        }
        if let Some(token) = token {
            write!(f, ", token {token}")?;
        }
        match (overdue, ttl) {
            (Some(span), _) => {
                write!(
                    f,
                    "; its lease ended {} ago, and the next client that asks gets it",
                    Span(*span)
                )
            }
            (None, Some(ttl)) => write!(f, "; its lease ends in {}", Span(*ttl)),
            (None, None) => f.write_str("; its lease has no end"),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) if *origin != Origin::default() => origin.fmt(f),
            _ => Shown(&self.owner).fmt(f),
        }
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Holder(\"{self}\")")
    }
}

/// A process that stands in the queue of a lock, for people to read. Unknown facts are `None`.
///
/// ```
/// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
/// for waiter in lock.inspect()?.waiters() {
///     println!("{}. {waiter}, for {:?}", waiter.place(), waiter.since());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct WaitingProcess {
    pub(crate) owner: Vec<u8>,
    pub(crate) origin: Option<Origin>,
    pub(crate) place: usize,
    pub(crate) since: Option<Duration>,
}

impl WaitingProcess {
    /// The owner's value with which it will hold the lock.
    ///
    /// ```
    /// # fn demo(waiter: &leasehold::WaitingProcess) {
    /// println!("{}", waiter.owner().escape_ascii());
    /// # }
    /// ```
    pub fn owner(&self) -> &[u8] {
        &self.owner
    }

    origin_methods!();

    /// Its place, from 1: the first is next.
    ///
    /// ```
    /// # fn demo(waiter: &leasehold::WaitingProcess) {
    /// if waiter.place() == 1 {
    ///     println!("{waiter} is next");
    /// }
    /// # }
    /// ```
    pub fn place(&self) -> usize {
        self.place
    }

    /// How long ago it took its place, on the server's clock. A process has one place for all its threads, and
    /// keeps it while they take turns. Where that clock was set back since, this is too short by that much, or
    /// `None`.
    ///
    /// ```
    /// # fn demo(waiter: &leasehold::WaitingProcess) {
    /// println!("{waiter} waits for {:?}", waiter.since());
    /// # }
    /// ```
    pub fn since(&self) -> Option<Duration> {
        self.since
    }
}

impl fmt::Display for WaitingProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) if *origin != Origin::default() => origin.fmt(f),
            _ => Shown(&self.owner).fmt(f),
        }
    }
}

impl fmt::Debug for WaitingProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitingProcess({}, \"{self}\")", self.place)
    }
}

/// Who holds a lock, and who waits for it, at one moment. Its [`Display`](fmt::Display) is for people.
///
/// ```
/// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
/// println!("{}", lock.inspect()?);
/// // held by billing, process 4711 on web-3, for 12.3s, token 1795627722131071; its lease ends in 27.6s
/// // 1 waits:
/// //   1. billing, process 98 on web-4, for 2.1s
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    pub(crate) holders: Vec<Holder>,
    pub(crate) waiters: Vec<WaitingProcess>,
    pub(crate) waiting: Option<usize>,
    pub(crate) permits: Option<PermitCount>,
    pub(crate) word: Option<Vec<u8>>,
    pub(crate) servers: Vec<ServerInspection>,
}

impl Inspection {
    /// Who holds the lock. A [`Mutex`](crate::Mutex) has one holder at most; a read-write lock of Redisson, which a
    /// [`ReentrantLock`](crate::ReentrantLock) of its name shows, may have many.
    ///
    /// Over several servers, this is who has a majority. [`servers`](Inspection::servers) has the rest.
    ///
    /// ```
    /// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
    /// for holder in lock.inspect()?.holders() {
    ///     println!("{holder}, with token {:?}", holder.token());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// The processes that wait, the next one first; the first thousand of them.
    ///
    /// Those that [queue](crate::Wait::queue) for a mutex on one server can be seen, and those that wait for
    /// Redisson's fair lock. Processes that were silent for too long, and are passed over, are left out. Others wait
    /// unseen.
    ///
    /// ```
    /// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
    /// if let Some(next) = lock.inspect()?.waiters().first() {
    ///     println!("next: {next}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn waiters(&self) -> &[WaitingProcess] {
        &self.waiters
    }

    /// How many processes wait in the queue; `None` for a lock whose waiters cannot all be seen.
    ///
    /// ```
    /// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
    /// match lock.inspect()?.waiting() {
    ///     Some(count) => println!("{count} processes wait"),
    ///     None => println!("those who wait cannot be counted"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn waiting(&self) -> Option<usize> {
        self.waiting
    }

    /// How many permits a semaphore has, and how many of them are held; `None` for other kinds of lock, and for a
    /// semaphore that is not in use.
    ///
    /// ```
    /// # fn demo(gpus: &leasehold::Semaphore) -> leasehold::Result<()> {
    /// if let Some(permits) = gpus.inspect()?.permits() {
    ///     println!("{} of {} permits are held", permits.used(), permits.limit());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn permits(&self) -> Option<PermitCount> {
        self.permits
    }

    /// What the leader of an election [proclaims](crate::Leadership::proclaim); `None` for other kinds of lock, and while
    /// nobody leads or the leader has not said anything in its term.
    ///
    /// ```
    /// # fn demo(election: &leasehold::Election) -> leasehold::Result<()> {
    /// if let Some(word) = election.inspect()?.word() {
    ///     println!("the leader says {}", String::from_utf8_lossy(word));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn word(&self) -> Option<&[u8]> {
        self.word.as_deref()
    }

    /// What each server of a [`QuorumClient`](crate::QuorumClient) says, in the order of its addresses; empty for
    /// any other client.
    ///
    /// ```
    /// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
    /// for server in lock.inspect()?.servers() {
    ///     println!("{}: {:?}", server.address(), server.holders());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn servers(&self) -> &[ServerInspection] {
        &self.servers
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(permits) = self.permits {
            writeln!(f, "{} of {} permits are held", permits.used, permits.limit)?;
        }
        if self.holders.is_empty() {
            let silent = self.servers.iter().any(|server| server.failure.is_some());
            f.write_str(if silent { "no holder is known" } else { "free" })?;
        }
        for (number, holder) in self.holders.iter().enumerate() {
            let by = if number == 0 { "held by" } else { "\nand by" };
            write!(f, "{by} {}", holder.details())?;
        }
        if let Some(word) = &self.word {
            write!(f, "\nsays \"{}\"", Shown(word))?;
        }
        match self.waiting {
            Some(0) => f.write_str("\nnobody waits")?,
            Some(1) => f.write_str("\n1 waits:")?,
            Some(count) => write!(f, "\n{count} wait:")?,
            None if self.waiters.is_empty() => f.write_str("\nwho waits cannot be seen")?,
            None => write!(f, "\n{} wait, and maybe others unseen:", self.waiters.len())?,
        }
        for waiter in &self.waiters {
            write!(f, "\n  {}. {waiter}", waiter.place)?;
            if let Some(since) = waiter.since {
                write!(f, ", for {}", Span(since))?;
            }
        }
        match self.waiting {
            Some(count) if count > self.waiters.len() => f.write_str("\n  …")?,
            _ => {}
        }
        self.servers.iter().try_for_each(|server| write!(f, "\n{server}"))
    }
}

/// The permits of a semaphore: how many there are, and how many are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitCount {
    pub(crate) limit: u32,
    pub(crate) used: u32,
}

impl PermitCount {
    /// The limit in force.
    ///
    /// ```
    /// # fn demo(permits: leasehold::PermitCount) {
    /// println!("{} permits in all", permits.limit());
    /// # }
    /// ```
    pub fn limit(self) -> u32 {
        self.limit
    }

    /// How many are held. It is above the limit after a `resize` to fewer permits than were held.
    ///
    /// ```
    /// # fn demo(permits: leasehold::PermitCount) {
    /// println!("{} free", permits.limit().saturating_sub(permits.used()));
    /// # }
    /// ```
    pub fn used(self) -> u32 {
        self.used
    }
}

/// "2 of 4 permits are held".
impl fmt::Display for PermitCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} permits are held", self.used, self.limit)
    }
}

/// What one server of a [`QuorumClient`](crate::QuorumClient) says of a lock.
///
/// ```
/// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
/// for server in lock.inspect()?.servers() {
///     println!("{server}"); // "10.0.0.1:6379: held by billing, process 4711 on web-3, …"
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInspection {
    pub(crate) address: String,
    pub(crate) holders: Vec<Holder>,
    pub(crate) failure: Option<String>,
}

impl ServerInspection {
    /// Its address, without user information.
    ///
    /// ```
    /// # fn demo(server: &leasehold::ServerInspection) {
    /// println!("{}", server.address());
    /// # }
    /// ```
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Who has its vote.
    ///
    /// ```
    /// # fn demo(server: &leasehold::ServerInspection) {
    /// println!("{:?}", server.holders().first());
    /// # }
    /// ```
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// Why it could not be asked, if so.
    ///
    /// ```
    /// # fn demo(server: &leasehold::ServerInspection) {
    /// if let Some(failure) = server.failure() {
    ///     println!("{}: {failure}", server.address());
    /// }
    /// # }
    /// ```
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

impl fmt::Display for ServerInspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}: ", self.address)?;
        match (&self.failure, self.holders.first()) {
            (Some(failure), _) => f.write_str(failure),
            (None, Some(holder)) => write!(f, "held by {}", holder.details()),
            (None, None) => f.write_str("free"),
        }
    }
}

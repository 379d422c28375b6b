//! The builder of a client of several servers.

use std::fmt;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::option::check_span;
use crate::base::sync::Arc;
use crate::base::time::{BootClock, Clock, drift_allowance};
use crate::client::QuorumClient;
use crate::client::servers;
use crate::client::setter::setters;
use crate::client::settings::Settings;
use crate::topology::quorum::{Node, NodeSettings};
use crate::topology::quorum::{Quorum, QuorumRules};
use crate::wire::endpoint::{ConnectionInfo, Endpoint, GivenServer};
use crate::wire::fork_guard;
use crate::wire::manager::Timeouts;
use crate::wire::pool::check_timeout;
use crate::wire::server_clock::ServerClocks;

impl QuorumClient {
    /// Connects to these servers with default settings. It succeeds if a majority can be reached.
    ///
    /// # Errors
    ///
    /// The same as for [`QuorumClientBuilder::build`] with `connect_now`.
    ///
    /// ```
    /// use leasehold::QuorumClient;
    ///
    /// # fn demo() {
    /// let servers = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];
    /// match QuorumClient::open(servers) {
    ///     Ok(client) => println!("a majority is there: {client:?}"),
    ///     Err(error) => eprintln!("{error}"),
    /// }
    /// # }
    /// ```
    pub fn open<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<QuorumClient> {
        QuorumClient::builder(urls).connect_now(true).build()
    }

    /// Begins to build a client of these servers. It connects only when it first needs to.
    ///
    /// Each URL is one that [`LockClient::builder`](crate::LockClient::builder) takes. An odd
    /// number of servers is best: of four servers no more may fail than of three, and three must
    /// agree instead of two.
    ///
    /// ```
    /// use leasehold::QuorumClient;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let servers = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];
    /// let client = QuorumClient::builder(servers).label("billing").build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> QuorumClientBuilder {
        QuorumClientBuilder::new(urls.into_iter().map(GivenServer::url).collect())
    }

    /// The same for servers that [`redis::ConnectionInfo`](crate::redis::ConnectionInfo) describes. Each is
    /// checked as that of [`LockClient::builder_with_info`](crate::LockClient::builder_with_info) is.
    ///
    /// ```
    /// use leasehold::QuorumClient;
    /// use leasehold::redis::IntoConnectionInfo;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = |host: &str| (host, 6379).into_connection_info();
    /// let servers = [server("a")?, server("b")?, server("c")?];
    /// let client = QuorumClient::builder_with_info(servers).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder_with_info(
        infos: impl IntoIterator<Item = ConnectionInfo>,
    ) -> QuorumClientBuilder {
        QuorumClientBuilder::new(
            infos.into_iter().map(|info| GivenServer::Info(Box::new(info))).collect(),
        )
    }
}

/// Settings of a [`QuorumClient`]. [Options](crate::guide::options) has all of them in a table.
///
/// ```
/// use leasehold::QuorumClient;
/// use std::time::Duration;
///
/// # fn main() -> leasehold::Result<()> {
/// let client = QuorumClient::builder(["redis://a:6379", "redis://b:6379", "redis://c:6379"])
///     .node_timeout(Duration::from_millis(100))
///     .max_lease(Duration::from_secs(60))
///     .name_prefix("shop:")
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until it is built"]
pub struct QuorumClientBuilder {
    servers: Vec<GivenServer>,
    node_timeout: Duration,
    max_lease: Duration,
    quorum: Option<usize>,
    keeps_data: bool,
    settings: Settings,
}

impl QuorumClientBuilder {
    pub(crate) fn new(servers: Vec<GivenServer>) -> QuorumClientBuilder {
        QuorumClientBuilder {
            servers,
            node_timeout: Duration::from_millis(200),
            max_lease: Duration::from_secs(30),
            quorum: None,
            keeps_data: false,
            settings: Settings::default(),
        }
    }

    /// How long one server may take to connect, or to reply; default 200 ms, from 1 ms to 365 days.
    ///
    /// It bounds how long a silent server holds up a call, so keep it far below the lease: the
    /// client logs a warning about a lease shorter than twenty times this. A call takes twice this
    /// time at most, once to ask and once to withdraw.
    ///
    /// ```
    /// use leasehold::QuorumClient;
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let servers = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];
    /// // All servers are near: one that needs longer than this is down.
    /// let client = QuorumClient::builder(servers)
    ///     .node_timeout(Duration::from_millis(50))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn node_timeout(mut self, timeout: Duration) -> QuorumClientBuilder {
        self.node_timeout = timeout;
        self
    }

    /// The longest lease that any client of these servers asks for; default 30 s, allowed from 1 ms
    /// to 30 days. This client refuses a longer one.
    ///
    /// A server that restarted has a vote again when it has run for longer than this. All clients
    /// of these servers need the same value, or at least one as great as the longest lease in use.
    ///
    /// ```
    /// use leasehold::{Lease, LockOptions, QuorumClient};
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let servers = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];
    /// let client = QuorumClient::builder(servers).max_lease(Duration::from_secs(60)).build()?;
    /// let minute = LockOptions::new().lease(Lease::renewed(Duration::from_secs(60)));
    /// let lock = client.mutex_with("orders:42", minute)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_lease(mut self, longest: Duration) -> QuorumClientBuilder {
        self.max_lease = longest;
        self
    }

    /// Whether a restarted server has kept all of its data; default no.
    ///
    /// If so, it has a vote at once. This is true only of servers with `appendonly yes` and
    /// `appendfsync always` on a disk that is never lost.
    ///
    /// ```
    /// use leasehold::QuorumClient;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let servers = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];
    /// // All have `appendonly yes` and `appendfsync always`.
    /// let client = QuorumClient::builder(servers).keeps_data(true).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn keeps_data(mut self, keeps: bool) -> QuorumClientBuilder {
        self.keeps_data = keeps;
        self
    }

    /// How many servers must agree; default and minimum the smallest majority of all, at most all.
    ///
    /// ```
    /// use leasehold::QuorumClient;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let servers = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];
    /// let client = QuorumClient::builder(servers).quorum(3).build()?;
    /// // One of three is not a majority.
    /// assert!(QuorumClient::builder(servers).quorum(1).build().unwrap_err().is_config());
    /// # Ok(())
    /// # }
    /// ```
    pub fn quorum(mut self, servers: usize) -> QuorumClientBuilder {
        self.quorum = Some(servers);
        self
    }

    setters! {
        client: QuorumClient,
        open: r#"QuorumClient::builder(["redis://a:6379", "redis://b:6379", "redis://c:6379"])"#,
        open_tls: r#"QuorumClient::builder(["rediss://a:6380", "rediss://b:6380", "rediss://c:6380"])"#,
        outage: "the loss of the majority",
        ridden_out: "10 s",
        connects: "cannot connect to as many servers as must agree, or may not run scripts there",
        needs_tls: "`rediss://` URLs only",
        skew: "zero, because a lock does not move to another server",
    }

    /// Makes the client. It connects when it first needs connections, unless
    /// [`connect_now`](QuorumClientBuilder::connect_now) is set.
    ///
    /// It logs a warning about an even number of servers. With `connect_now` it also logs one if so
    /// many servers have run for less than the longest lease that the others are too few to grant a
    /// lock.
    ///
    /// # Errors
    ///
    /// - [`is_config`](crate::Error::is_config) for a setting that is not allowed, before any I/O;
    ///   among these are an empty list and a server that is named twice.
    /// - [`is_refused`](crate::Error::is_refused) in a fork of a process that had built a client,
    ///   or tried to.
    /// - [`is_unreachable`](crate::Error::is_unreachable) if the threads that connect cannot be
    ///   started.
    ///
    /// With `connect_now` also:
    ///
    /// - [`is_unreachable`](crate::Error::is_unreachable) if it cannot connect to a majority;
    /// - [`is_denied`](crate::Error::is_denied) if a majority refuses this user, or to run scripts;
    /// - [`is_config`](crate::Error::is_config) for two addresses of one server.
    ///
    /// ```
    /// use leasehold::QuorumClient;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let servers = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];
    /// let client = QuorumClient::builder(servers).build()?;
    /// // Two databases of one server are one server.
    /// let twice = QuorumClient::builder(["redis://a/0", "redis://a/1", "redis://b"]);
    /// assert!(twice.build().unwrap_err().is_config());
    /// # Ok(())
    /// # }
    /// ```
    pub fn build(mut self) -> Result<QuorumClient> {
        let (servers, need) = self.check()?;
        fork_guard::check()?;
        // No lock moves between these servers, so it does no harm where their clocks differ.
        let skew = self.settings.max_clock_skew.unwrap_or_default();
        self.settings.pool.clocks = ServerClocks::new(skew, false);
        // Allowed: a group of five that lost one server for good goes on with four until it has a
        // new one.
        if servers.len().is_multiple_of(2) {
            log!(
                warn,
                "{} servers survive the loss of no more servers than {} would",
                servers.len(),
                servers.len() - 1
            );
        }

        let clock: Arc<dyn Clock> = Arc::new(BootClock);
        // With the drift allowance: a forgotten lease ends by the clock of its holder, and the time
        // since the restart is measured by that of the server.
        let quarantine = if self.keeps_data {
            Duration::ZERO
        } else {
            self.max_lease + drift_allowance(self.max_lease)
        };
        let identity = self.settings.identity();
        let settings = NodeSettings {
            pool: self.settings.pool.clone(),
            timeouts: Timeouts {
                connect: self.node_timeout,
                command: self.node_timeout,
                settings: ["node_timeout"; 2],
            },
            quarantine: Some(quarantine),
            threads: identity.threads(),
        };
        let nodes: Vec<Node> = servers
            .into_iter()
            .map(|info| Node::new(info, &clock, &settings))
            .collect::<Result<_, _>>()?;
        let address = nodes.iter().map(|node| node.address()).collect::<Vec<_>>().join(", ");

        let rules = QuorumRules { need, timeout: self.node_timeout, longest: self.max_lease };
        let quorum = Arc::new(Quorum::new(nodes, rules, identity, Arc::clone(&clock)));
        if self.settings.connect_now {
            quorum.check()?;
        }
        // A round takes one time-out, and the withdrawal of its votes another one.
        let bounds = (self.node_timeout * 2, self.node_timeout * 2);
        let locks = self.settings.client(quorum, clock, bounds, address);
        Ok(QuorumClient::new(locks, self.max_lease))
    }

    /// Checks every setting. Returns the servers, and how many of them must agree.
    fn check(&self) -> Result<(Vec<Endpoint>, usize)> {
        self.settings.check()?;
        check_timeout("node_timeout", self.node_timeout)?;
        check_span("max_lease", self.max_lease)?;
        let servers = servers::servers(&self.settings, &self.servers)?;
        let all = servers.len();
        let majority = all / 2 + 1;
        let need = self.quorum.unwrap_or(majority);
        // Fewer than a majority would let two clients hold the lock at once. More is safe and less
        // available.
        if !(majority..=all).contains(&need) {
            return Err(Error::config(
                "quorum",
                format_args!("{need} of {all} servers"),
                format_args!("a majority, {majority} to {all}"),
            ));
        }
        Ok((servers, need))
    }
}

impl fmt::Debug for QuorumClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not derived: the URLs may contain passwords.
        f.debug_struct("QuorumClientBuilder")
            .field("servers", &self.servers.len())
            .finish_non_exhaustive()
    }
}

//! The builder of a client.

mod pool;
mod topology;

use std::fmt;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::sync::Arc;
use crate::base::time::{BootClock, Clock, Moment};
use crate::client::LockClient;
use crate::client::setter::setters;
use crate::client::settings::{GIVE_UP_AFTER_FAIL_OVER, Settings};
use crate::protocol::Protocol;
use crate::protocol::script_protocol::ScriptProtocol;
#[cfg(any(test, feature = "testing"))]
use crate::topology::memory::{backend::MemoryBackend, link::FaultyLink, server::MemoryServer};
use crate::wire::endpoint::{self, AddressMapper, ConnectionInfo, Endpoint, GivenServer};
use crate::wire::fork_guard;
use crate::wire::manager::Timeouts;
use crate::wire::pool::check_timeout;
use crate::wire::server_clock::ServerClocks;

/// The default of `max_clock_skew` for servers that replace each other. NTP keeps clocks within a few milliseconds of
/// each other, so this is ample.
const SKEW_OF_SEVERAL: Duration = Duration::from_millis(500);

impl LockClient {
    /// Connects to a server with default settings, or says clearly why it cannot.
    ///
    /// The URL is `redis://[user][:password@]host[:port][/database]`, whose only parameter is
    /// `?protocol=resp2` or `resp3`; or `unix:///path/to/socket`, whose parameters are `db`,
    /// `user`, `pass` and `protocol`. Any other parameter, and a fragment, are
    /// [refused](crate::Error::is_config), because the driver would ignore them.
    ///
    /// # Errors
    ///
    /// The same as for [`LockClientBuilder::build`] with `connect_now`.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn demo() {
    /// match LockClient::open("redis://127.0.0.1:6379") {
    ///     Ok(client) => println!("connected: {client:?}"),
    ///     Err(error) => eprintln!("{error}"),
    /// }
    /// # }
    /// ```
    pub fn open(url: impl AsRef<str>) -> Result<LockClient> {
        LockClient::builder(url).connect_now(true).build()
    }

    /// Begins to build a client. It connects only when it first needs to, so Redis may still be
    /// down.
    ///
    /// The URL is `redis://[user][:password@]host[:port][/database]`, or
    /// `unix:///path[?db=N&user=…&pass=…]`. Special characters in user and password are written as
    /// `%` and two digits.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let remote = LockClient::builder("redis://locks:p%40ss@localhost:6379/2").build()?;
    /// let near = LockClient::builder("unix:///run/redis.sock?db=2").build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(url: impl AsRef<str>) -> LockClientBuilder {
        LockClientBuilder::new(GivenServer::url(url))
    }

    /// Begins to build a client of a server that [`redis::ConnectionInfo`](crate::redis::ConnectionInfo)
    /// describes, for programs that have one, or a password that they do not want to write into a URL.
    ///
    /// It is checked as a URL is, and [refused](crate::Error::is_config) where a part of it would have no
    /// effect here. Of its TCP settings only `nodelay` may be set, which is always on; a `lib_name` is
    /// refused, because [`label`](LockClientBuilder::label) names the connections. `TcpTls` needs the
    /// feature `tls`, and its `insecure` and its own certificates are refused:
    #[cfg_attr(feature = "tls", doc = "[`ca_certificate`](LockClientBuilder::ca_certificate)")]
    #[cfg_attr(not(feature = "tls"), doc = "`ca_certificate`")]
    /// says whom to trust.
    ///
    /// With [sentinels](LockClientBuilder::sentinels) its host is the name of the master.
    ///
    /// ```
    /// use leasehold::LockClient;
    /// use leasehold::redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let login = RedisConnectionInfo::default().set_username("locks").set_password("p@ss/word");
    /// let address = ConnectionAddr::Tcp("localhost".to_owned(), 6379);
    /// let info = address.into_connection_info()?.set_redis_settings(login);
    /// let client = LockClient::builder_with_info(info).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder_with_info(info: ConnectionInfo) -> LockClientBuilder {
        LockClientBuilder::new(GivenServer::Info(Box::new(info)))
    }
}

/// Settings of a [`LockClient`]. [Options](crate::guide::options) has all of them in a table.
///
/// ```
/// use leasehold::LockClient;
/// use std::time::Duration;
///
/// # fn main() -> leasehold::Result<()> {
/// let client = LockClient::builder("redis://:secret@localhost:6379/2")
///     .max_size(16)
///     .command_timeout(Duration::from_millis(500))
///     .name_prefix("shop:")
///     .label("billing")
///     .on_loss(|loss| eprintln!("{loss}"))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until it is built"]
pub struct LockClientBuilder {
    server: GivenServer,
    sentinels: Option<Vec<GivenServer>>,
    cluster: Option<Vec<GivenServer>>,
    mapper: Option<AddressMapper>,
    connect_timeout: Duration,
    command_timeout: Duration,
    settings: Settings,
}

impl LockClientBuilder {
    pub(crate) fn new(server: GivenServer) -> LockClientBuilder {
        LockClientBuilder {
            server,
            sentinels: None,
            cluster: None,
            mapper: None,
            connect_timeout: Duration::from_secs(1),
            command_timeout: Duration::from_secs(1),
            settings: Settings { announce: true, ..Settings::default() },
        }
    }

    setters! {
        client: LockClient,
        open: r#"LockClient::builder("redis://127.0.0.1:6379")"#,
        open_tls: r#"LockClient::builder("rediss://redis.example:6380")"#,
        outage: "an outage of Redis",
        ridden_out: "10 s, and 60 s with sentinels or a cluster, which need such a time to replace a server",
        connects: "cannot connect or may not run scripts",
        needs_tls: "a `rediss://` URL, of the client or of a sentinel",
        skew: "500 ms with [sentinels](Self::sentinels) or in a [cluster](Self::cluster), zero with one server",
    }

    /// How long connecting may take, for each address that the host's name has; default 1 s, from 1
    /// ms to 365 days. The next address is tried when the one before it fails or has been silent for
    /// 250 ms, and the first that accepts is used. Each address has the whole time, which includes the log-in.
    ///
    /// A call waits that long for a connection that is being made. Name look-ups have no time-out
    /// of their own, and happen on another thread: a connection that comes too late serves the next
    /// call.
    ///
    /// A failed attempt is repeated at once for the next caller. While nobody asks, it is repeated
    /// after pauses that grow from 0.1 s to 5 s, and not at all if the server refused the user or
    /// TLS failed. Where a program provides [`credentials`](LockClientBuilder::credentials), each of these
    /// attempts asks for them anew.
    ///
    /// ```
    /// use leasehold::LockClient;
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let client = LockClient::builder("redis://127.0.0.1:6379")
    ///     .connect_timeout(Duration::from_millis(300))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_timeout(mut self, timeout: Duration) -> LockClientBuilder {
        self.connect_timeout = timeout;
        self
    }

    /// How long the reply to a command may take; default 1 s, from 1 ms to 365 days. A reply that
    /// comes in pieces may take that long for each piece, and the
    /// [test](LockClientBuilder::test_on_borrow) of a connection may take that long too.
    ///
    /// Before that, a call waits for a connection: for the
    /// [`connect_timeout`](LockClientBuilder::connect_timeout) while one is being made, and for
    /// [`max_wait`](LockClientBuilder::max_wait) while others use all of them. So a call takes no
    /// longer than this time-out plus the longer of those two.
    ///
    /// ```
    /// use leasehold::LockClient;
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// // A lease should be ten times that or longer: 5 s.
    /// let client = LockClient::builder("redis://127.0.0.1:6379")
    ///     .command_timeout(Duration::from_millis(500))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn command_timeout(mut self, timeout: Duration) -> LockClientBuilder {
        self.command_timeout = timeout;
        self
    }

    /// A callback with the lock's name in Redis, for when somebody asks for a lock that a thread of
    /// this client holds ([`request_release`](crate::Mutex::request_release)); default none.
    ///
    /// The holder decides whether to let go. The callback runs on a thread of its own; a panic in
    /// it is logged. It must not own the client. A request that is made while the connection for
    /// messages is broken is lost. One that the nodes of a cluster forward very late may arrive
    /// twice.
    ///
    /// ```
    /// use leasehold::LockClient;
    /// use std::sync::mpsc;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let (sender, requests) = mpsc::channel();
    /// let client = LockClient::builder("redis://127.0.0.1:6379")
    ///     .on_release_request(move |name| _ = sender.send(name.to_vec()))
    ///     .build()?;
    /// // The work looks at `requests` between two steps.
    /// assert!(requests.try_recv().is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_release_request(
        mut self,
        callback: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> LockClientBuilder {
        self.settings.callbacks.on_release_request = Some(Arc::new(callback));
        self
    }

    /// Whether this client announces the locks that it holds or waits for longer than a second, so that
    /// [`locks`](LockClient::locks) shows them; default yes.
    ///
    /// That takes at most one command a second, and none while nothing lasts so long. A server that
    /// [denies](crate::guide::operations#permissions) it is warned about once, and not asked again.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let client = LockClient::builder("redis://127.0.0.1:6379").announce(false).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn announce(mut self, announce: bool) -> LockClientBuilder {
        self.settings.announce = announce;
        self
    }

    /// Makes the client. It connects when it first needs a connection, unless
    /// [`connect_now`](LockClientBuilder::connect_now) is set. Idle connections that the pool
    /// [keeps ready](LockClientBuilder::min_idle), and those to
    /// [sentinels](LockClientBuilder::sentinels), are made in the background from the start.
    ///
    /// # Errors
    ///
    /// - [`is_config`](crate::Error::is_config) for a setting that is not allowed, before any I/O;
    ///   also if the machine's certificates are to be trusted and there are none.
    /// - [`is_refused`](crate::Error::is_refused) in a fork of a process that had built a client,
    ///   or tried to.
    /// - [`is_unreachable`](crate::Error::is_unreachable) if the thread that connects cannot be
    ///   started.
    ///
    /// With `connect_now`, within the time-outs, also:
    ///
    /// - [`is_unreachable`](crate::Error::is_unreachable) if it cannot connect;
    /// - [`is_denied`](crate::Error::is_denied) if the server refuses the user, or to run scripts;
    /// - [`is_refused`](crate::Error::is_refused) for a fault of TLS;
    /// - [`is_config`](crate::Error::is_config) if no sentinel knows the master.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let client = LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// // This URL has no scheme, which is refused before any I/O.
    /// assert!(LockClient::builder("127.0.0.1:6379").build().unwrap_err().is_config());
    /// # Ok(())
    /// # }
    /// ```
    pub fn build(mut self) -> Result<LockClient> {
        // The settings first: a wrong one is reported before any I/O, and also in a fork.
        let info = self.check()?;
        fork_guard::check()?;
        let clock: Arc<dyn Clock> = Arc::new(BootClock);
        self.settings.pool.clocks = self.clocks();
        let identity = self.settings.identity();
        let address = endpoint::shown(&info);
        let protocol: Arc<dyn Protocol> = match &self.cluster {
            Some(nodes) => {
                Arc::new(ScriptProtocol::new(self.in_cluster(info, nodes, &clock, identity)?))
            }
            None => Arc::new(ScriptProtocol::new(self.single(info, &clock, identity)?)),
        };
        // A call waits either for a connection that is being made or for one that others use, never
        // for both in turn. Whichever it is, the whole command time-out is left for the reply.
        let wait = self.settings.pool.max_wait.max(self.connect_timeout);
        let exchange = self.command_timeout.saturating_add(wait);
        let bounds = (self.command_timeout, exchange);
        Ok(self.into_settings().client(protocol, clock, bounds, address))
    }

    /// The settings, with the defaults that depend on the topology.
    fn into_settings(self) -> Settings {
        let max_clock_skew = Some(self.skew());
        let patience = self.is_of_several().then_some(GIVE_UP_AFTER_FAIL_OVER);
        let give_up_after = self.settings.give_up_after.or(patience);
        Settings { max_clock_skew, give_up_after, ..self.settings }
    }

    /// Whether a lock can come from one server to another: a replica takes the place of its master, or a slot moves.
    fn is_of_several(&self) -> bool {
        self.sentinels.is_some() || self.cluster.is_some()
    }

    fn skew(&self) -> Duration {
        // A lock that stays on one server ends by the clock of that server.
        let usual = if self.is_of_several() { SKEW_OF_SEVERAL } else { Duration::ZERO };
        self.settings.max_clock_skew.unwrap_or(usual)
    }

    fn clocks(&self) -> Arc<ServerClocks> {
        ServerClocks::new(self.skew(), true)
    }

    fn timeouts(&self) -> Timeouts {
        Timeouts {
            connect: self.connect_timeout,
            command: self.command_timeout,
            settings: ["connect_timeout", "command_timeout"],
        }
    }

    /// The deadline of the connection attempt in `build`.
    fn limit(&self, clock: &Arc<dyn Clock>) -> Moment {
        clock.now().after(self.connect_timeout + self.command_timeout)
    }

    fn check(&self) -> Result<Endpoint> {
        self.settings.check()?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        check_timeout("command_timeout", self.command_timeout)?;
        let server = match self.sentinels {
            // Sentinels may use TLS while the master does not, and the other way round. The use of
            // the certificates is checked when both are known.
            Some(_) => self.settings.master(&self.server),
            None => self.settings.server(&self.server),
        }?;
        let Some(mapper) = &self.mapper else { return Ok(server) };
        // The mapper would never be called, and the user would believe that it is.
        if self.sentinels.is_none() && self.cluster.is_none() {
            let allowed = "sentinels or a cluster, which announce addresses";
            return Err(Error::config("map_address", "set for one server", allowed));
        }
        Ok(server.set_mapper(Arc::clone(mapper)))
    }

    /// Makes a client of a server in memory. Returns the link between them too.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn build_over(
        mut self,
        server: &Arc<MemoryServer>,
    ) -> Result<(LockClient, Arc<FaultyLink>)> {
        self.check()?;
        self.settings.pool.clocks = self.clocks();
        let memory = MemoryBackend::new(Arc::clone(server), self.settings.identity());
        let memory = memory.timed(&self.settings.pool.clocks);
        let link = Arc::clone(memory.link());
        let (clock, address) = (Arc::clone(server.clock()), "a server in memory".to_owned());
        // There are no connections to wait for.
        let bounds = (self.command_timeout, self.command_timeout);
        let protocol = Arc::new(ScriptProtocol::new(memory));
        let client = self.into_settings().client(protocol, clock, bounds, address);
        Ok((client, link))
    }
}

impl fmt::Debug for LockClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not derived: the URL may contain a password.
        f.debug_struct("LockClientBuilder")
            .field("pool", &self.settings.pool)
            .finish_non_exhaustive()
    }
}

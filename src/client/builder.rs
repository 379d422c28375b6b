//! How a client is built.

use std::fmt;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::id::Identity;
use crate::base::loss::Loss;
use crate::base::sync::Arc;
use crate::base::time::{BootClock, Clock, Moment};
use crate::client::LockClient;
use crate::client::address;
use crate::client::settings::Settings;
use crate::protocol::Protocol;
#[cfg(any(test, feature = "testing"))]
use crate::protocol::memory::{client::Memory, link::Link, server::Server};
use crate::protocol::scripted::Scripted;
use crate::topology::cluster::{Cluster, ClusterSettings, Directory};
use crate::topology::single::Single;
use crate::wire::endpoint::{self, Endpoint};
use crate::wire::manager::{Source, Timeouts};
use crate::wire::pool::{check_timeout, connector};
use crate::wire::process::Process;
use crate::wire::sentinel::Sentinels;
use crate::wire::transport::Transport;

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
    url: String,
    sentinels: Option<Vec<String>>,
    cluster: Option<Vec<String>>,
    connect_timeout: Duration,
    command_timeout: Duration,
    settings: Settings,
}

impl LockClientBuilder {
    pub(crate) fn new(url: &str) -> LockClientBuilder {
        LockClientBuilder {
            url: url.to_owned(),
            sentinels: None,
            cluster: None,
            connect_timeout: Duration::from_secs(1),
            command_timeout: Duration::from_secs(1),
            settings: Settings::default(),
        }
    }

    /// How many connections the pool has at most (Jedis: max total); default 10, from 1 to 65,536.
    ///
    /// Two more connections are not counted: one renews, one listens. A thread that waits for a lock uses
    /// none.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// // Sixteen threads may talk to Redis at once.
    /// let client = LockClient::builder("redis://127.0.0.1:6379").max_size(16).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_size(mut self, connections: u32) -> LockClientBuilder {
        self.settings.pool.max_size = connections;
        self
    }

    /// How many idle connections the pool keeps ready; default 0, at most `max_size`.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn demo() -> leasehold::Result<()> {
    /// // Two are ready before the first lock is taken.
    /// let client = LockClient::builder("redis://127.0.0.1:6379").min_idle(2).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn min_idle(mut self, connections: u32) -> LockClientBuilder {
        self.settings.pool.min_idle = connections;
        self
    }

    /// How many idle connections the pool keeps at most; default all, from `min_idle` to `max_size`.
    ///
    /// Set it above `min_idle` by as many connections as are in use at once: the pool makes one more
    /// whenever fewer than `min_idle` are idle, and closes those beyond `max_idle`.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// // Four of the sixteen stay open while nobody needs them.
    /// let client = LockClient::builder("redis://127.0.0.1:6379")
    ///     .max_size(16)
    ///     .max_idle(4)
    ///     .build()?;
    /// let builder = LockClient::builder("redis://127.0.0.1:6379").max_size(4).max_idle(16);
    /// assert!(builder.build().unwrap_err().is_config());
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_idle(mut self, connections: u32) -> LockClientBuilder {
        self.settings.pool.max_idle = Some(connections);
        self
    }

    /// How long a call waits while others use all connections; default 1 s, from 1 ms to 365 days.
    ///
    /// A call for which a connection is being made waits for the
    /// [`connect_timeout`](LockClientBuilder::connect_timeout) instead. It then has all of the
    /// [`command_timeout`](LockClientBuilder::command_timeout) for its reply. A caller that waits for less time
    /// than that, for example with [`try_lock_for`](crate::Mutex::try_lock_for), gets less.
    ///
    /// ```
    /// use leasehold::LockClient;
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// // If all connections are in use, a call fails soon.
    /// let client = LockClient::builder("redis://127.0.0.1:6379")
    ///     .max_wait(Duration::from_millis(200))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_wait(mut self, wait: Duration) -> LockClientBuilder {
        self.settings.pool.max_wait = wait;
        self
    }

    /// After how long an idle connection is closed; default 10 minutes, from 1 ms to 365 days, `None` for
    /// never. The pool looks every 30 s.
    ///
    /// ```
    /// use leasehold::LockClient;
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// // A load balancer on the way drops connections that are idle for two minutes.
    /// let client = LockClient::builder("redis://127.0.0.1:6379")
    ///     .idle_timeout(Some(Duration::from_secs(60)))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn idle_timeout(mut self, timeout: Option<Duration>) -> LockClientBuilder {
        self.settings.pool.idle_timeout = timeout;
        self
    }

    /// After how long a connection is replaced; default 30 minutes, from 1 ms to 365 days, `None` for never.
    /// The pool looks every 30 s.
    ///
    /// ```
    /// use leasehold::LockClient;
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// // A proxy that was added gets its share of the connections within five minutes.
    /// let client = LockClient::builder("redis://127.0.0.1:6379")
    ///     .max_lifetime(Some(Duration::from_secs(300)))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_lifetime(mut self, lifetime: Option<Duration>) -> LockClientBuilder {
        self.settings.pool.max_lifetime = lifetime;
        self
    }

    /// Whether the pool tests a connection with a `PING` before each use; default no.
    ///
    /// This doubles the round trips and is seldom needed: a connection that failed is never used again, and
    /// a command that met a dead one is safely repeated.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// // The same as `testOnBorrow` in Jedis.
    /// let client = LockClient::builder("redis://127.0.0.1:6379")
    ///     .test_on_borrow(true)
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn test_on_borrow(mut self, test: bool) -> LockClientBuilder {
        self.settings.pool.test_on_borrow = test;
        self
    }

    /// How long connecting may take, for each address that the host's name has; default 1 s, from 1 ms to
    /// 365 days. The addresses are tried in turn until one can be connected to, and each of them has all of
    /// this time, with the log-in.
    ///
    /// A call waits that long for a connection that is being made. Name look-ups have no time-out of their own,
    /// and happen on another thread: a connection that comes too late serves the next call.
    ///
    /// A failed attempt is repeated at once for the next caller. While nobody asks, it is repeated after pauses
    /// that grow from 0.1 s to 5 s, and not at all if the server refused the user or TLS failed.
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

    /// How long the reply to a command may take; default 1 s, from 1 ms to 365 days. A reply that comes in
    /// pieces may take that long for each piece, and the [test](LockClientBuilder::test_on_borrow) of a
    /// connection may take that long too.
    ///
    /// Before that, a call waits for a connection: for the
    /// [`connect_timeout`](LockClientBuilder::connect_timeout) while one is being made, and for
    /// [`max_wait`](LockClientBuilder::max_wait) while others use all of them. So a call takes no longer than
    /// this time-out plus the longer of those two.
    ///
    /// Before that, a call waits for a connection: for the
    /// [`connect_timeout`](LockClientBuilder::connect_timeout) while one is being made, and for
    /// [`max_wait`](LockClientBuilder::max_wait) while others use all of them. So a call takes no longer
    /// than this time-out and the longer of those two.
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

    /// How long a wait for a lock rides out an outage of Redis; default 10 s, from 1 ms to
    /// 365 days.
    ///
    /// ```
    /// use leasehold::LockClient;
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// // Here a restart of Redis takes up to half a minute.
    /// let client = LockClient::builder("redis://127.0.0.1:6379")
    ///     .give_up_after(Duration::from_secs(30))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn give_up_after(mut self, outage: Duration) -> LockClientBuilder {
        self.settings.give_up_after = outage;
        self
    }

    /// The sentinels that know where the master is; default none.
    ///
    /// The host of the client's URL is then the name that the sentinels have for the master. The user, the
    /// password, the database and the scheme of that URL are those of the master. Each sentinel's URL has its
    /// own: sentinels may speak plain text beside a master over TLS (`redis://` beside `rediss://`), and the
    /// other way round.
    ///
    /// `build` rejects an empty list, duplicate addresses, a client's URL that is a socket, and a
    /// [`cluster`](LockClientBuilder::cluster) at the same time.
    ///
    /// **How the client follows the master.** It asks the sentinels at every new connection, and the server
    /// that they name must confirm that it is the master. A thread listens to one sentinel and asks another
    /// every 500 ms; when one names another master, the client never uses a connection to the former one
    /// again. During a fail-over the client uses the chosen replica as soon as it confirms that it is the
    /// master, which is about a second before the sentinels announce it.
    ///
    /// **Permissions.** The user needs `SENTINEL` at the sentinels, and should have `SUBSCRIBE` there and
    /// `ROLE` at the servers; without them the client notices a change later.
    ///
    /// **What remains of a former master.** It may still take itself for the master. With the default
    /// time-outs, the client sends nothing to it from one second after a sentinel named another master. A
    /// former master that hung may still run what it was sent before: a request to take a lock is too late by
    /// then and does nothing; renewals and releases change its own copy, which it throws away as soon as it
    /// becomes a replica. A client that is cut off together with the former master and one of its sentinels
    /// goes on with that master; `min-replicas-to-write` with `min-replicas-max-lag` at the servers bounds
    /// this.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn demo() -> leasehold::Result<()> {
    /// let client = LockClient::builder("redis://:secret@mymaster/0")
    ///     .sentinels(["redis://10.0.0.1:26379", "redis://10.0.0.2:26379", "redis://10.0.0.3:26379"])
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sentinels<U: AsRef<str>>(
        mut self,
        urls: impl IntoIterator<Item = U>,
    ) -> LockClientBuilder {
        self.sentinels = Some(urls.into_iter().map(|url| url.as_ref().to_owned()).collect());
        self
    }

    /// Makes this a client of a Redis Cluster; by default it is not.
    ///
    /// The client's URL names one node, and these URLs name others; `.cluster([""; 0])` names none. Any node
    /// knows where all nodes are.
    ///
    /// The user, the password and the scheme of the client's URL are used for every node, also for nodes
    /// that the client learns of later. `build` rejects URLs with others, a socket, a database other than 0,
    /// and [`sentinels`](LockClientBuilder::sentinels) at the same time. The bounds of the pool apply to each
    /// node.
    ///
    /// [Topologies](crate::guide::topologies#redis-cluster) says which names a cluster takes, and what happens
    /// when nodes fail or slots move.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn demo() -> leasehold::Result<()> {
    /// let client = LockClient::builder("redis://:secret@10.0.0.1:7000")
    ///     .cluster(["redis://10.0.0.2:7000", "redis://10.0.0.3:7000"])
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cluster<U: AsRef<str>>(
        mut self,
        urls: impl IntoIterator<Item = U>,
    ) -> LockClientBuilder {
        self.cluster = Some(urls.into_iter().map(|url| url.as_ref().to_owned()).collect());
        self
    }

    /// CA certificates to trust, in PEM, and no others; default those of the machine.
    ///
    /// The machine's certificates, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name, are read when the
    /// client is built, and never again. This needs a `rediss://` URL, of the client or of a sentinel, and the
    /// feature `tls`.
    ///
    /// The cryptography is what the process has chosen for rustls
    /// (`rustls::crypto::CryptoProvider::install_default`), and *ring* if it has chosen nothing. The library
    /// chooses nothing for the process.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn demo(pem: &[u8]) -> leasehold::Result<()> {
    /// let client = LockClient::builder("rediss://redis.example:6380").ca_certificate(pem).build()?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn ca_certificate(mut self, pem: impl AsRef<[u8]>) -> LockClientBuilder {
        self.settings.trust(pem.as_ref());
        self
    }

    /// The client's certificate with its chain, and its key, in PEM, for mutual TLS; default none. Needs a
    /// `rediss://` URL, of the client or of a sentinel, and the feature `tls`.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn demo(pem: &[u8], chain: &[u8], key: &[u8]) -> leasehold::Result<()> {
    /// let client = LockClient::builder("rediss://redis.example:6380")
    ///     .ca_certificate(pem)
    ///     .client_certificate(chain, key)
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn client_certificate(
        mut self,
        chain: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
    ) -> LockClientBuilder {
        self.settings.identify(chain.as_ref(), key.as_ref());
        self
    }

    /// Whether [`build`](LockClientBuilder::build) connects, and fails if it cannot connect or may not run
    /// scripts; default no.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn demo() -> leasehold::Result<()> {
    /// // Without Redis this process need not start.
    /// let client = LockClient::builder("redis://127.0.0.1:6379").connect_now(true).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_now(mut self, connect: bool) -> LockClientBuilder {
        self.settings.connect_now = connect;
        self
    }

    /// What every lock's name begins with in Redis; default nothing.
    ///
    /// A name and its prefix may have 64 KiB together. A longer name is refused when the lock is made, and so
    /// is one that is [reserved](crate::LockClient::mutex) together with its prefix. So no prefix can begin
    /// with `leasehold:`.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let client = LockClient::builder("redis://127.0.0.1:6379")
    ///     .name_prefix("shop:")
    ///     .build()?;
    /// assert_eq!(client.mutex("orders:42")?.name(), b"shop:orders:42");
    /// # Ok(())
    /// # }
    /// ```
    pub fn name_prefix(mut self, prefix: impl AsRef<[u8]>) -> LockClientBuilder {
        self.settings.name_prefix = prefix.as_ref().to_vec();
        self
    }

    /// What [`holder`](crate::Mutex::holder) shows others about this client besides its host and its process;
    /// default nothing. Control characters are left out, and anything beyond 128 bytes.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let client = LockClient::builder("redis://127.0.0.1:6379").label("billing").build()?;
    /// // Others see that the lock is held by "billing, process 4711 on web-3".
    /// # Ok(())
    /// # }
    /// ```
    pub fn label(mut self, label: impl AsRef<str>) -> LockClientBuilder {
        self.settings.label = label.as_ref().to_owned();
        self
    }

    /// A callback for every lock of this client that is lost before its release; default none.
    ///
    /// The guard is invalid by then. The callback runs on a thread of its own, so it may take its time; a
    /// panic in it is logged. It must not own the client, which would then never end. For the loss of one
    /// hold use [`Guard::on_loss`](crate::Guard::on_loss); threads that wait for losses use
    /// [`LockClient::losses`].
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// let client = LockClient::builder("redis://127.0.0.1:6379")
    ///     .on_loss(|loss| {
    ///         eprintln!("{loss}");
    ///         std::process::abort();
    ///     })
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_loss(
        mut self,
        callback: impl Fn(&Loss) + Send + Sync + 'static,
    ) -> LockClientBuilder {
        self.settings.callbacks.on_loss = Some(Arc::new(callback));
        self
    }

    /// A callback with the lock's name in Redis, for when somebody asks for a lock that a thread of this
    /// client holds ([`request_release`](crate::Mutex::request_release)); default none.
    ///
    /// The holder decides whether to let go. The callback runs on a thread of its own; a panic in it is
    /// logged. It must not own the client. A request that is made while the listening connection is broken is
    /// not heard. One that the nodes of a cluster pass on very late may be heard twice.
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

    /// Makes the client. It connects when it first needs a connection, unless
    /// [`connect_now`](LockClientBuilder::connect_now) is set. Idle connections that the pool
    /// [keeps ready](LockClientBuilder::min_idle), and those to
    /// [sentinels](LockClientBuilder::sentinels), are made in the background from the start.
    ///
    /// # Errors
    ///
    /// - [`is_config`](crate::Error::is_config) for a setting that is not allowed, before any I/O; also if the
    ///   machine's certificates are to be trusted and there are none.
    /// - [`is_refused`](crate::Error::is_refused) in a fork of a process that had built a client, or tried to.
    /// - [`is_unreachable`](crate::Error::is_unreachable) if the thread that connects cannot be started.
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
    pub fn build(self) -> Result<LockClient> {
        let info = self.check()?;
        Process::settle()?;
        let clock: Arc<dyn Clock> = Arc::new(BootClock);
        let identity = self.settings.identity();
        let address = endpoint::shown(&info);
        let protocol: Arc<dyn Protocol> = match &self.cluster {
            Some(urls) => Arc::new(Scripted::new(self.in_cluster(info, urls, &clock, identity)?)),
            None => Arc::new(Scripted::new(self.single(info, &clock, identity)?)),
        };
        // Whatever a call waits for first, it has all of its time for the reply left.
        let wait = self.settings.pool.max_wait.max(self.connect_timeout);
        let exchange = if mutated!("wait-and-reply-share-their-time") {
            self.command_timeout
        } else {
            self.command_timeout.saturating_add(wait)
        };
        let bounds = (self.command_timeout, exchange);
        Ok(self.settings.client(protocol, clock, bounds, address))
    }

    fn timeouts(&self) -> Timeouts {
        Timeouts {
            connect: self.connect_timeout,
            command: self.command_timeout,
            settings: ["connect_timeout", "command_timeout"],
        }
    }

    /// When what is tried in `build` is given up.
    fn limit(&self, clock: &Arc<dyn Clock>) -> Moment {
        clock.now().after(self.connect_timeout + self.command_timeout)
    }

    fn single(
        &self,
        info: Endpoint,
        clock: &Arc<dyn Clock>,
        identity: Arc<Identity>,
    ) -> Result<Single> {
        let source = match &self.sentinels {
            Some(urls) => {
                let sentinels = address::sentinels(&self.settings, &info, urls)?;
                Source::Sentinels(Sentinels::new(sentinels, info, Arc::clone(clock)))
            }
            None => Source::Fixed(info),
        };
        let transport = Arc::new(Transport::new(
            source,
            Arc::clone(clock),
            &self.settings.pool,
            self.timeouts(),
            connector(identity.threads())?,
            identity.threads(),
        ));
        if self.settings.connect_now {
            transport.check(self.limit(clock))?;
        }
        Ok(Single::new(transport, identity))
    }

    fn in_cluster(
        &self,
        info: Endpoint,
        urls: &[String],
        clock: &Arc<dyn Clock>,
        identity: Arc<Identity>,
    ) -> Result<Cluster> {
        if self.sentinels.is_some() {
            let allowed = "one of the two, as the nodes of a cluster watch each other";
            return Err(Error::config("cluster", "set beside sentinels", allowed));
        }
        let seeds = address::seeds(&self.settings, &info, urls)?;
        let settings = ClusterSettings {
            pool: self.settings.pool.clone(),
            timeouts: self.timeouts(),
            threads: identity.threads(),
        };
        let directory = Directory::new(seeds, info, settings, Arc::clone(clock));
        let cluster = Cluster::new(directory, identity);
        if self.settings.connect_now {
            cluster.check(self.limit(clock))?;
        }
        Ok(cluster)
    }

    fn check(&self) -> Result<Endpoint> {
        self.settings.check()?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        check_timeout("command_timeout", self.command_timeout)?;
        match self.sentinels {
            // Either may speak TLS without the other.
            Some(_) => self.settings.one_of_several(&self.url),
            None => self.settings.server(&self.url),
        }
    }

    /// Makes a client of a server in memory, and tells what lies between them.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn build_over(self, server: &Arc<Server>) -> Result<(LockClient, Arc<Link>)> {
        self.check()?;
        let memory = Memory::new(Arc::clone(server), self.settings.identity());
        let link = Arc::clone(memory.link());
        let (clock, address) = (Arc::clone(server.clock()), "a server in memory".to_owned());
        // Nobody waits for a connection there.
        let bounds = (self.command_timeout, self.command_timeout);
        let client = self.settings.client(Arc::new(memory), clock, bounds, address);
        Ok((client, link))
    }
}

impl fmt::Debug for LockClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may contain a password.
        f.debug_struct("LockClientBuilder")
            .field("pool", &self.settings.pool)
            .finish_non_exhaustive()
    }
}

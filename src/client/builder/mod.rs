//! How a client is built.

mod pool;
mod topology;

use std::fmt;
use std::time::Duration;

use crate::base::error::Result;
use crate::base::loss::Loss;
use crate::base::sync::Arc;
use crate::base::time::{BootClock, Clock, Moment};
use crate::client::LockClient;
use crate::client::settings::Settings;
use crate::protocol::Protocol;
#[cfg(any(test, feature = "testing"))]
use crate::protocol::memory::{client::Memory, link::Link, server::Server};
use crate::wire::endpoint::{self, Endpoint};
use crate::wire::manager::Timeouts;
use crate::wire::pool::check_timeout;
use crate::wire::process::Process;

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
            Some(urls) => Arc::new(self.in_cluster(info, urls, &clock, identity)?),
            None => Arc::new(self.single(info, &clock, identity)?),
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

//! The setters that both builders have.

/// Writes the setters of a builder that has `settings`.
///
/// `open` and `open_tls` are the first lines of the examples, with and without TLS; the other texts
/// complete sentences of the documentation.
macro_rules! setters {
    (
        client: $client:ident,
        open: $open:literal,
        open_tls: $open_tls:literal,
        outage: $outage:literal,
        ridden_out: $ridden_out:literal,
        connects: $connects:literal,
        needs_tls: $needs_tls:literal,
        skew: $skew:literal $(,)?
    ) => {
        /// The largest number of connections to each server (Jedis: max total); default 10, from 1
        /// to 65,536.
        ///
        /// Two more connections to each server are not counted: one for renewals, one for messages.
        /// A thread that waits for a lock uses none.
        ///
        /// ```
        #[doc = concat!("use leasehold::", stringify!($client), ";")]
        ///
        /// # fn main() -> leasehold::Result<()> {
        /// // Sixteen threads may talk to Redis at once.
        #[doc = concat!("let client = ", $open, ".max_size(16).build()?;")]
        /// # Ok(())
        /// # }
        /// ```
        pub fn max_size(mut self, connections: u32) -> Self {
            self.settings.pool.max_size = connections;
            self
        }

        #[doc = concat!("How long a wait for a lock rides out ", $outage, "; default ", $ridden_out, ", from 1 ms to 365 days.")]
        ///
        /// ```
        #[doc = concat!("use leasehold::", stringify!($client), ";")]
        /// use std::time::Duration;
        ///
        /// # fn main() -> leasehold::Result<()> {
        /// // Here a restart of Redis takes up to half a minute.
        /// let restart = Duration::from_secs(30);
        #[doc = concat!("let client = ", $open, ".give_up_after(restart).build()?;")]
        /// # Ok(())
        /// # }
        /// ```
        pub fn give_up_after(mut self, outage: Duration) -> Self {
            self.settings.give_up_after = Some(outage);
            self
        }

        /// How long a wait for a lock takes before it is logged; default 10 s, from 1 ms to 365 days, `None` for
        /// never.
        ///
        /// Each wait logs one line, as a warning: the lock, how long it has taken, the place in the queue, and the
        /// holder with its age and token. It asks Redis nothing for that, so the line comes up to a heartbeat of one
        /// second later.
        ///
        /// ```
        #[doc = concat!("use leasehold::", stringify!($client), ";")]
        /// use std::time::Duration;
        ///
        /// # fn main() -> leasehold::Result<()> {
        /// // Nobody should have to wait for a minute here.
        /// let minute = Some(Duration::from_secs(60));
        #[doc = concat!("let client = ", $open, ".slow_wait(minute).build()?;")]
        /// # Ok(())
        /// # }
        /// ```
        pub fn slow_wait(mut self, wait: Option<Duration>) -> Self {
            self.settings.slow_wait = wait;
            self
        }

        #[doc = concat!("The largest difference between the clocks of servers that can take over each other's locks; default ", $skew, ". At most 30 days.")]
        ///
        /// A lease ends at a fixed time, by the clock of the server. A replica that replaces its master, or a
        /// node to which a slot moves, ends it at that time by its own clock: earlier, if that clock is ahead.
        /// So the client ends a hold earlier by this much, or by a tenth of the lease if that is less. With
        /// 500 ms, a lease of 30 s is valid for 500 ms less, and one of 1 s for 100 ms less. There is no other
        /// cost. A lease that is shorter than ten times the real difference is not protected.
        ///
        /// A server's time that differs by more than this, or than 100 ms if that is greater, from what the client expects
        /// is logged as a warning, and the client asks at once about the leases there:
        /// [Limits](crate::guide::limits#clock-jumps).
        ///
        /// The setting does not cover a write that replication lost, a clock that is set while locks are held,
        /// or clocks that differ by more: against those only a fencing token helps. If one address stands for
        /// several servers that replace each other, as that of a managed service or a proxy does, set it for
        /// that address too. [Topologies](crate::guide::topologies#clocks-that-differ) shows measurements.
        ///
        /// ```
        #[doc = concat!("use leasehold::", stringify!($client), ";")]
        /// use std::time::Duration;
        ///
        /// # fn main() -> leasehold::Result<()> {
        /// // An alert is raised when the clocks here differ by more than 50 ms.
        /// let skew = Duration::from_millis(50);
        #[doc = concat!("let client = ", $open, ".max_clock_skew(skew).build()?;")]
        /// # Ok(())
        /// # }
        /// ```
        pub fn max_clock_skew(mut self, skew: Duration) -> Self {
            self.settings.max_clock_skew = Some(skew);
            self
        }

        #[doc = concat!("Whether [`build`](Self::build) connects, and fails if it ", $connects, "; default no.")]
        ///
        /// ```
        #[doc = concat!("use leasehold::", stringify!($client), ";")]
        ///
        /// # fn demo() -> leasehold::Result<()> {
        /// // Without Redis this process need not start.
        #[doc = concat!("let client = ", $open, ".connect_now(true).build()?;")]
        /// # Ok(())
        /// # }
        /// ```
        pub fn connect_now(mut self, connect: bool) -> Self {
            self.settings.connect_now = connect;
            self
        }

        /// Whether a thread that has a lock by key may take it again, without waiting; default yes.
        ///
        /// It is [`LockOptions::reentrant`](crate::LockOptions::reentrant) for
        /// [`DistributedLock`](crate::DistributedLock) and for `with_lock`, which have no options. With `false` the
        /// thread that has the lock gets `false` from `try_lock` at once, and from `with_lock` an error
        /// ([`is_config`](crate::Error::is_config)).
        ///
        /// ```
        #[doc = concat!("use leasehold::{DistributedLock, Lease, ", stringify!($client), "};")]
        /// use std::time::Duration;
        ///
        /// # fn demo() -> leasehold::Result<()> {
        /// // The sections run in a pool that steals work.
        #[doc = concat!("let client = ", $open, ".reentrant_by_key(false).build()?;")]
        /// assert!(client.try_lock("orders:42", Duration::ZERO, Lease::default())?);
        /// assert!(!client.try_lock("orders:42", Duration::ZERO, Lease::default())?);
        /// client.unlock("orders:42")
        /// # }
        /// ```
        pub fn reentrant_by_key(mut self, reentrant: bool) -> Self {
            self.settings.key_options = self.settings.key_options.reentrant(reentrant);
            self
        }

        /// A prefix for the name of every lock in Redis; default none.
        ///
        /// A name and its prefix may have 64 KiB together. A longer name is refused when the lock
        /// is made, and so is one that is [reserved](crate::LockClient::mutex) together with its
        /// prefix. So no prefix can begin with `leasehold:`.
        ///
        /// ```
        #[doc = concat!("use leasehold::", stringify!($client), ";")]
        ///
        /// # fn main() -> leasehold::Result<()> {
        #[doc = concat!("let client = ", $open, ".name_prefix(\"shop:\").build()?;")]
        /// assert_eq!(client.mutex("orders:42")?.name(), b"shop:orders:42");
        /// # Ok(())
        /// # }
        /// ```
        pub fn name_prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
            self.settings.name_prefix = prefix.as_ref().to_vec();
            self
        }

        /// A text that [`inspect`](crate::Mutex::inspect) shows to others, besides this client's host
        /// and process; default none. Control characters are removed, and the text is cut at 128
        /// bytes. It is also in the name that the client gives its connections, which `CLIENT LIST`
        /// shows as `leasehold:billing`.
        ///
        /// ```
        #[doc = concat!("use leasehold::", stringify!($client), ";")]
        ///
        /// # fn main() -> leasehold::Result<()> {
        #[doc = concat!("let client = ", $open, ".label(\"billing\").build()?;")]
        /// // Others see that the lock is held by "billing, process 4711 on web-3".
        /// # Ok(())
        /// # }
        /// ```
        pub fn label(mut self, label: impl AsRef<str>) -> Self {
            self.settings.label = label.as_ref().to_owned();
            self
        }

        /// A callback for every lock of this client that is lost before its release; default none.
        ///
        /// The guard is invalid by then. The callback runs on a thread of its own, so it may take
        /// its time; a panic in it is logged. It must not own the client, which would then never
        /// end. For the loss of one hold use [`Guard::on_loss`](crate::Guard::on_loss). For a
        /// thread that waits for losses, send them to a
        /// [channel of your own](crate::guide::recipes#wait-for-losses-in-a-thread).
        ///
        /// ```
        #[doc = concat!("use leasehold::", stringify!($client), ";")]
        ///
        /// # fn main() -> leasehold::Result<()> {
        #[doc = concat!("let client = ", $open)]
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
            callback: impl Fn(&crate::base::loss::Loss) + Send + Sync + 'static,
        ) -> Self {
            self.settings.callbacks.on_loss = Some(Arc::new(callback));
            self
        }

        /// An observer, which learns of what this client does with its locks; default none. Called more than once, it
        /// adds another one. [`observe`](crate::observe) says which events there are, and on which threads they come.
        ///
        /// An observer must not own the client, which would then never end. Without one nothing is measured.
        ///
        /// ```
        #[doc = concat!("use leasehold::{", stringify!($client), ", Observer, observe::NotAcquired};")]
        ///
        /// struct Printer;
        ///
        /// impl Observer for Printer {
        ///     fn not_acquired(&self, event: &NotAcquired<'_>) {
        ///         println!("{} is busy: {:?}", event.name.escape_ascii(), event.blocker);
        ///     }
        /// }
        ///
        /// # fn main() -> leasehold::Result<()> {
        #[doc = concat!("let client = ", $open, ".observer(Printer).build()?;")]
        /// # Ok(())
        /// # }
        /// ```
        pub fn observer(mut self, observer: impl crate::observe::Observer + 'static) -> Self {
            self.settings.pool.observers.add(Arc::new(observer));
            self
        }

        /// Provides the user and the password of each new connection; default those of the URL, which then must
        /// have none. So a password can be rotated while the client goes on.
        ///
        /// The provider is called on a thread that connects, at each connection, and on several threads at once.
        /// While it runs, callers wait as for a connection that is being made, and no longer. If it returns an
        /// error or panics, no connection is made, and that is
        /// [`is_unreachable`](crate::Error::is_unreachable): it is tried again as if the server was down. The
        /// text of its error is shown, so it must have no secret in it.
        ///
        /// A connection that is open stays open when the password changes. Credentials that the server refuses
        /// are [`is_denied`](crate::Error::is_denied), as always. Each later call that needs a connection, and
        /// each renewal, asks the provider again, so a held lock survives if the provider has the new password
        /// before the lease ends. [Operations](crate::guide::operations#rotating-a-password) has the steps.
        ///
        /// They are for the servers and the nodes of a cluster. Sentinels have those of their URLs.
        ///
        /// ```
        #[doc = concat!("use leasehold::{Credentials, ", stringify!($client), "};")]
        ///
        /// # fn main() -> leasehold::Result<()> {
        #[doc = concat!("let client = ", $open)]
        ///     .credentials(|| {
        ///         let password = std::fs::read_to_string("/run/secrets/redis")?;
        ///         Ok(Credentials::new("locks", password.trim_end()))
        ///     })
        ///     .build()?;
        /// # Ok(())
        /// # }
        /// ```
        pub fn credentials(
            mut self,
            provider: impl Fn() -> std::result::Result<
                crate::base::credentials::Credentials,
                Box<dyn std::error::Error + Send + Sync>,
            > + Send
            + Sync
            + 'static,
        ) -> Self {
            self.settings.credentials = Some(Arc::new(provider));
            self
        }

        /// CA certificates to trust, in PEM, and no others; default those of the machine.
        ///
        /// The machine's certificates, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name, are
        /// read when the client is built, and never again.
        #[doc = concat!("This needs the feature `tls` and ", $needs_tls, ".")]
        ///
        /// The cryptography is the provider that the process has installed for rustls
        /// (`rustls::crypto::CryptoProvider::install_default`), or *ring* if there is none. The
        /// library installs no provider for the process.
        ///
        /// ```
        #[doc = concat!("use leasehold::", stringify!($client), ";")]
        ///
        /// # fn demo(pem: &[u8]) -> leasehold::Result<()> {
        #[doc = concat!("let client = ", $open_tls, ".ca_certificate(pem).build()?;")]
        /// # Ok(())
        /// # }
        /// ```
        #[cfg(feature = "tls")]
        #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
        pub fn ca_certificate(mut self, pem: impl AsRef<[u8]>) -> Self {
            let certificates = std::mem::take(&mut self.settings.tls.certificates);
            self.settings.tls.certificates = certificates.ca_certificate(pem);
            self
        }

        /// The client's certificate with its chain, and its key, in PEM, for mutual TLS; default
        /// none.
        #[doc = concat!("This needs the feature `tls` and ", $needs_tls, ".")]
        ///
        /// ```
        #[doc = concat!("use leasehold::", stringify!($client), ";")]
        ///
        /// # fn demo(pem: &[u8], chain: &[u8], key: &[u8]) -> leasehold::Result<()> {
        #[doc = concat!("let client = ", $open_tls)]
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
        ) -> Self {
            let certificates = std::mem::take(&mut self.settings.tls.certificates);
            self.settings.tls.certificates = certificates.client_certificate(chain, key);
            self
        }

        /// Provides the certificates of each new connection; default those of
        /// [`ca_certificate`](Self::ca_certificate) and [`client_certificate`](Self::client_certificate), which
        /// cannot be set together with a provider. So a client can outlive certificates that are valid for hours
        /// or a day.
        #[doc = concat!("This needs the feature `tls` and ", $needs_tls, ".")]
        ///
        /// The client calls the provider on a thread that connects, like that of [`credentials`](Self::credentials). If
        /// the provider fails or panics, or its certificates cannot be parsed, the error is
        /// [`is_unreachable`](crate::Error::is_unreachable), because a file may just be in the middle of a write. An
        /// open connection stays open when its certificate expires. If the server refuses a certificate, the error is
        /// [`is_refused`](crate::Error::is_refused), as always, and each later call that needs a connection calls the
        /// provider again. [Operations](crate::guide::operations#short-lived-certificates) says when to renew them.
        ///
        /// The certificates are used for all servers that speak TLS, sentinels included. As long as they do not
        /// change, TLS sessions are resumed. The CA certificates of the machine are read once, when they are first
        /// needed.
        ///
        /// ```
        #[doc = concat!("use leasehold::{Certificates, ", stringify!($client), "};")]
        /// use std::fs::read;
        ///
        /// # fn main() -> leasehold::Result<()> {
        #[doc = concat!("let client = ", $open_tls)]
        ///     .certificates(|| {
        ///         let trusted = Certificates::new().ca_certificate(read("/run/tls/ca.pem")?);
        ///         Ok(trusted.client_certificate(read("/run/tls/chain.pem")?, read("/run/tls/key.pem")?))
        ///     })
        ///     .build()?;
        /// # Ok(())
        /// # }
        /// ```
        #[cfg(feature = "tls")]
        #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
        pub fn certificates(
            mut self,
            provider: impl Fn() -> std::result::Result<
                crate::base::certificates::Certificates,
                Box<dyn std::error::Error + Send + Sync>,
            > + Send
            + Sync
            + 'static,
        ) -> Self {
            self.settings.tls.provider = Some(Arc::new(provider));
            self
        }
    };
}

pub(super) use setters;

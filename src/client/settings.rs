//! The settings of every client, whatever servers it has.

use std::time::Duration;

use crate::base::credentials::CredentialsProvider;
use crate::base::error::{Error, Result};
use crate::base::id::Identity;
use crate::base::option::{LockOptions, check_skew};
use crate::base::sync::Arc;
use crate::base::time::Clock;
use crate::client::LockClient;
use crate::engine::{Bounds, Callbacks, Engine};
use crate::protocol::Protocol;
use crate::wire::endpoint::{Endpoint, GivenServer};
use crate::wire::pool::{PoolSettings, check_timeout};
#[cfg(feature = "tls")]
use crate::wire::tls::TlsSettings;

/// How long a wait rides out an outage: a restart of a server takes no longer.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);
/// The same where another server takes the place of one that is down. Sentinels wait for 30 s before they
/// begin with that, and the nodes of a cluster for 15 s, if nobody has set another time.
pub(super) const GIVE_UP_AFTER_FAIL_OVER: Duration = Duration::from_secs(60);

/// The settings that both builders have.
pub(super) struct Settings {
    pub(super) pool: PoolSettings,
    /// `None` is the usual time for these servers.
    pub(super) give_up_after: Option<Duration>,
    pub(super) slow_wait: Option<Duration>,
    /// The largest difference between the clocks of any two servers; `None` for the default of the topology.
    pub(super) max_clock_skew: Option<Duration>,
    /// Whether locks that are in use are announced in the index.
    pub(super) announce: bool,
    pub(super) connect_now: bool,
    /// The options of locks by key, to which each call adds its lease.
    pub(super) key_options: LockOptions,
    pub(super) name_prefix: Vec<u8>,
    pub(super) label: String,
    pub(super) callbacks: Callbacks,
    pub(super) credentials: Option<CredentialsProvider>,
    #[cfg(feature = "tls")]
    pub(super) tls: TlsSettings,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            pool: PoolSettings::default(),
            give_up_after: None,
            slow_wait: Some(Duration::from_secs(10)),
            max_clock_skew: None,
            announce: false,
            connect_now: false,
            key_options: LockOptions::new(),
            name_prefix: Vec::new(),
            label: String::new(),
            callbacks: Callbacks::default(),
            credentials: None,
            #[cfg(feature = "tls")]
            tls: TlsSettings::default(),
        }
    }
}

impl Settings {
    pub(super) fn check(&self) -> Result<()> {
        self.pool.check()?;
        self.give_up_after.map_or(Ok(()), |span| check_timeout("give_up_after", span))?;
        self.slow_wait.map_or(Ok(()), |slow| check_timeout("slow_wait", slow))?;
        self.max_clock_skew.map_or(Ok(()), check_skew)
    }

    /// A server that a user gave, with the certificates and the credentials for it.
    pub(super) fn server(&self, given: &GivenServer) -> Result<Endpoint> {
        let server = self.master(given)?;
        self.check_certificates([&server])?;
        Ok(server)
    }

    /// The same for the master of sentinels, which have log-ins of their own.
    pub(super) fn master(&self, given: &GivenServer) -> Result<Endpoint> {
        let server = self.one_of_several(given)?;
        let Some(provider) = &self.credentials else { return Ok(server) };
        if server.redis_settings().password().is_some() {
            let allowed = "one of the two: no user and no password in the URL";
            return Err(Error::config("credentials", "set beside a password", allowed));
        }
        Ok(server.set_credentials(Arc::clone(provider)))
    }

    /// One server of several, without credentials. The caller must check the use of the certificates for
    /// all together.
    pub(super) fn one_of_several(&self, given: &GivenServer) -> Result<Endpoint> {
        // Certificates with a plain URL are an error, since the user would believe in TLS that is
        // not there. With sentinels, either side may be the one with TLS, so a single server cannot
        // decide it.
        let server = given.endpoint()?.set_name(&self.label);
        #[cfg(feature = "tls")]
        let server = self.tls.equip(server)?;
        Ok(server)
    }

    /// Checks that at least one of these servers uses the given certificates, if there are any.
    #[cfg_attr(not(feature = "tls"), allow(clippy::unused_self, unused_variables))]
    pub(super) fn check_certificates<'a>(
        &self,
        servers: impl IntoIterator<Item = &'a Endpoint>,
    ) -> Result<()> {
        #[cfg(feature = "tls")]
        self.tls.check_use(servers.into_iter().any(Endpoint::is_secure))?;
        Ok(())
    }

    pub(super) fn identity(&self) -> Arc<Identity> {
        Arc::new(Identity::new(&self.label))
    }

    /// A client over this protocol. The pair limits the reply to a request, and a whole exchange.
    pub(super) fn client(
        self,
        protocol: Arc<dyn Protocol>,
        clock: Arc<dyn Clock>,
        (reply, exchange): (Duration, Duration),
        address: String,
    ) -> LockClient {
        let slow_wait = self.slow_wait;
        let give_up_after = self.give_up_after.unwrap_or(GIVE_UP_AFTER);
        let max_clock_skew = self.max_clock_skew.unwrap_or_default();
        let bounds = Bounds { reply, exchange, give_up_after, slow_wait };
        let callbacks = Callbacks { observers: self.pool.observers, ..self.callbacks };
        let engine = Engine::new(protocol, clock, bounds, callbacks);
        engine.watch_servers(&self.pool.clocks);
        if self.announce {
            engine.worker.begin_announcing();
        }
        LockClient::new(engine, self.name_prefix, address, max_clock_skew)
            .with_key_options(self.key_options)
    }
}

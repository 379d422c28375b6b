//! One server, the master that sentinels name, or a cluster.

use super::LockClientBuilder;
use crate::base::error::{Error, Result};
use crate::base::id::Identity;
use crate::base::sync::Arc;
use crate::base::time::Clock;
use crate::client::servers;
use crate::topology::cluster::{Cluster, Directory, NodeSettings};
use crate::topology::sentinel::{self, Sentinels};
use crate::topology::single::Single;
use crate::wire::endpoint::{ConnectionInfo, Endpoint, GivenServer};
use crate::wire::locator::{FixedServer, Locator};
use crate::wire::pool::connector;
use crate::wire::transport::Transport;

impl LockClientBuilder {
    /// The sentinels of the master; default none.
    ///
    /// The host of the client's URL is then the name that the sentinels have for the master. The
    /// user, the password, the database and the scheme of that URL are those of the master. Each
    /// sentinel's URL has its own: sentinels may speak plain text beside a master over TLS
    /// (`redis://` beside `rediss://`), and the other way round.
    ///
    /// `build` rejects an empty list, duplicate addresses, a client's URL that is a socket, and a
    /// [`cluster`](LockClientBuilder::cluster) at the same time.
    ///
    /// **How the client follows the master.** It asks the sentinels at every new connection, and
    /// the server that they name must confirm that it is the master. The first time it asks all of them at
    /// once, and does not wait for silent ones once another has named the master. A thread subscribes to one
    /// sentinel and asks another every 500 ms; when one names another master, the client never uses
    /// a connection to the former one again. During a fail-over the client uses the chosen replica
    /// as soon as it confirms that it is the master, which is about a second before the sentinels
    /// announce it.
    ///
    /// **Permissions.** The user needs `SENTINEL` at the sentinels, and should have `SUBSCRIBE`
    /// there and `ROLE` at the servers; without them the client notices a change later.
    ///
    /// **Limits.** A former master may still consider itself the master. With the default
    /// time-outs, the client sends nothing to it from one second after a sentinel named another
    /// master. A former master that hung may still run earlier requests: a request to take a lock
    /// is too late by then and does nothing; renewals and releases change its own copy, which it
    /// discards as soon as it becomes a replica. A client that is cut off together with the former
    /// master and one of its sentinels goes on with that master; `min-replicas-to-write` with
    /// `min-replicas-max-lag` at the servers bounds this.
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
        self.sentinels = Some(urls.into_iter().map(GivenServer::url).collect());
        self
    }

    /// The same for sentinels that [`redis::ConnectionInfo`](crate::redis::ConnectionInfo) describes. Each is
    /// checked as that of [`builder_with_info`](crate::LockClient::builder_with_info) is.
    ///
    /// ```
    /// use leasehold::LockClient;
    /// use leasehold::redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};
    ///
    /// # fn demo() -> Result<(), Box<dyn std::error::Error>> {
    /// let login = RedisConnectionInfo::default().set_username("watch").set_password("p@ss/word");
    /// let address = ConnectionAddr::Tcp("10.0.0.1".to_owned(), 26379);
    /// let sentinel = address.into_connection_info()?.set_redis_settings(login);
    /// let client =
    ///     LockClient::builder("redis://:secret@mymaster").sentinels_with_info([sentinel]).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sentinels_with_info(
        mut self,
        infos: impl IntoIterator<Item = ConnectionInfo>,
    ) -> LockClientBuilder {
        self.sentinels =
            Some(infos.into_iter().map(|info| GivenServer::Info(Box::new(info))).collect());
        self
    }

    /// Makes this a client of a Redis Cluster; by default it is not.
    ///
    /// The client's URL, or its [`ConnectionInfo`](crate::redis::ConnectionInfo), names one node, and these
    /// URLs name others; `.cluster([""; 0])` names none.
    /// Any node knows the addresses of all nodes.
    ///
    /// The user, the password and the scheme of the client's URL are used for every node, also for
    /// nodes that the client learns of later. `build` rejects URLs with others, a socket, a
    /// database other than 0, and [`sentinels`](LockClientBuilder::sentinels) at the same time. The
    /// bounds of the pool apply to each node.
    ///
    /// [Topologies](crate::guide::topologies#redis-cluster) says which names a cluster takes, and
    /// what happens when nodes fail or slots move.
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
        self.cluster = Some(urls.into_iter().map(GivenServer::url).collect());
        self
    }

    /// Maps announced addresses that cannot be reached from here, such as those behind a NAT, a forwarded port
    /// or a container network, to addresses that can; default the announced addresses.
    ///
    /// The function gets each host and port that [`sentinels`](LockClientBuilder::sentinels) or the nodes of a
    /// [`cluster`](LockClientBuilder::cluster) announce, and returns the host and port to connect to. It returns
    /// its arguments if the address needs no mapping. It is not called for the addresses in URLs.
    ///
    /// The client calls it on several threads, whenever it learns of an address. So the function must not use
    /// the client, should be quick, and should always return the same for one address. Over TLS the certificate
    /// must be for the host that it returns. If it panics, the panic is logged, and the announced address is
    /// used.
    ///
    /// Errors name both addresses. `build` rejects it for a client of one server, which announces no address.
    ///
    /// ```
    /// use leasehold::LockClient;
    ///
    /// # fn demo() -> leasehold::Result<()> {
    /// // Each node at port 7001 and up is forwarded from this machine.
    /// let client = LockClient::builder("redis://localhost:7001")
    ///     .cluster([""; 0])
    ///     .map_address(|host, port| match host {
    ///         "10.0.0.1" => ("localhost".to_owned(), port),
    ///         _ => (host.to_owned(), port),
    ///     })
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn map_address(
        mut self,
        mapper: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
    ) -> LockClientBuilder {
        self.mapper = Some(Arc::new(mapper));
        self
    }

    pub(super) fn single(
        &self,
        info: Endpoint,
        clock: &Arc<dyn Clock>,
        identity: Arc<Identity>,
    ) -> Result<Single> {
        let sentinels = match &self.sentinels {
            Some(sentinels) => {
                let nodes = servers::sentinels(&self.settings, &info, sentinels)?;
                let (clock, threads) = (Arc::clone(clock), identity.threads());
                Some(Arc::new(Sentinels::new(nodes, info.clone(), clock, threads)))
            }
            None => None,
        };
        let source: Arc<dyn Locator> = match &sentinels {
            Some(sentinels) => Arc::clone(sentinels) as Arc<dyn Locator>,
            None => Arc::new(FixedServer::new(info)),
        };
        let transport = Arc::new(Transport::new(
            source,
            Arc::clone(clock),
            &self.settings.pool,
            self.timeouts(),
            connector(identity.threads())?,
        ));
        // Before the first connection, so that a switch during `connect_now` is not missed.
        if let Some(sentinels) = sentinels {
            sentinel::follow(sentinels, transport.manager(), identity.threads());
        }
        if self.settings.connect_now {
            transport.check(self.limit(clock))?;
        }
        Ok(Single::new(transport, identity))
    }

    pub(super) fn in_cluster(
        &self,
        info: Endpoint,
        nodes: &[GivenServer],
        clock: &Arc<dyn Clock>,
        identity: Arc<Identity>,
    ) -> Result<Cluster> {
        if self.sentinels.is_some() {
            let allowed = "one of the two, as the nodes of a cluster watch each other";
            return Err(Error::config("cluster", "set beside sentinels", allowed));
        }
        let seeds = servers::seeds(&self.settings, &info, nodes)?;
        let settings = NodeSettings {
            pool: self.settings.pool.clone(),
            timeouts: self.timeouts(),
            quarantine: None,
            threads: identity.threads(),
        };
        let directory = Directory::new(seeds, info, settings, Arc::clone(clock));
        let cluster = Cluster::new(directory, identity);
        if self.settings.connect_now {
            cluster.check(self.limit(clock))?;
        }
        Ok(cluster)
    }
}

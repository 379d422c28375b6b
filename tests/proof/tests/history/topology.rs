//! Where the locks of a round are: one server, or several.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use leasehold_proof::trial::until;
use leasehold_support::{Cluster, Group, Server, ServerBuilder};

use crate::nemesis::Nemesis;
use crate::workload::Workload;

/// Those of a cluster, with one replica each.
const MASTERS: usize = 3;
const REPLICAS: usize = 2;
const VOTES: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topology {
    Server,
    /// A master with two replicas, and three sentinels.
    Sentinel,
    /// Three masters with a replica each.
    Cluster,
    /// Five servers, a majority of which decides.
    Quorum,
}

impl Topology {
    pub(crate) const ALL: [Topology; 4] =
        [Topology::Server, Topology::Sentinel, Topology::Cluster, Topology::Quorum];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Topology::Server => "server",
            Topology::Sentinel => "sentinel",
            Topology::Cluster => "cluster",
            Topology::Quorum => "quorum",
        }
    }

    /// Whether it has the locks of a workload.
    pub(crate) fn is_for(self, workload: Workload) -> bool {
        self != Topology::Quorum || matches!(workload, Workload::Mutex | Workload::Set)
    }
}

/// How clients reach the servers: a line of text, which other processes are given.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) topology: Topology,
    pub(crate) urls: Vec<String>,
}

impl Display for Address {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.topology.name(), self.urls.join(" "))
    }
}

impl Address {
    pub(crate) fn parse(text: &str) -> Address {
        let (name, urls) = text.split_once(' ').expect("a topology and its URLs");
        let topology = Topology::ALL.into_iter().find(|topology| topology.name() == name);
        let urls = urls.split(' ').map(str::to_owned).collect();
        Address { topology: topology.expect("a topology"), urls }
    }
}

/// The servers of a round.
#[derive(Debug)]
pub(crate) enum Place {
    Server(Box<Server>),
    Sentinel(Group),
    Cluster(Cluster),
    Quorum(Vec<Server>),
}

impl Place {
    /// Starts them, fit for what is to go wrong. One server is started as this arranges it.
    ///
    /// # Panics
    ///
    /// If one does not start, or they do not agree in time.
    pub(crate) fn start(topology: Topology, nemesis: Nemesis, one: ServerBuilder) -> Place {
        let dead_after = nemesis.dead_after();
        match topology {
            Topology::Server => Place::Server(Box::new(one.start().expect("a server"))),
            Topology::Sentinel => {
                Place::Sentinel(Group::start(REPLICAS, dead_after).expect("a group"))
            }
            Topology::Cluster => {
                let millis = dead_after.as_millis().to_string();
                let words = ["--cluster-node-timeout", &millis];
                Place::Cluster(Cluster::start_with(MASTERS, 1, &words).expect("a cluster"))
            }
            Topology::Quorum => {
                let start = |_| Server::builder().tcp().start().expect("a server");
                let servers: Vec<Server> = (0..VOTES).map(start).collect();
                servers.iter().for_each(await_vote);
                Place::Quorum(servers)
            }
        }
    }

    pub(crate) fn topology(&self) -> Topology {
        match self {
            Place::Server(_) => Topology::Server,
            Place::Sentinel(_) => Topology::Sentinel,
            Place::Cluster(_) => Topology::Cluster,
            Place::Quorum(_) => Topology::Quorum,
        }
    }

    pub(crate) fn address(&self) -> Address {
        let urls = match self {
            Place::Server(server) => vec![server.url()],
            Place::Sentinel(group) => group.sentinel_urls(),
            Place::Cluster(cluster) => cluster.urls(),
            Place::Quorum(servers) => servers.iter().map(Server::tcp_url).collect(),
        };
        Address { topology: self.topology(), urls }
    }

    /// All that may have locks.
    pub(crate) fn servers(&self) -> &[Server] {
        match self {
            Place::Server(server) => std::slice::from_ref(&**server),
            Place::Sentinel(group) => &group.servers,
            Place::Cluster(cluster) => cluster.nodes(),
            Place::Quorum(servers) => servers,
        }
    }

    /// Those of them that take writes. All of them live.
    pub(crate) fn masters(&self) -> impl Iterator<Item = &Server> {
        self.servers().iter().filter(|server| server.is_master())
    }

    /// The number of one that has a lock of this name. All of them live.
    pub(crate) fn home(&self, lock: &str) -> usize {
        let mut home = None;
        until("a server has the lock's name", || {
            home = self.servers().iter().position(|server| match self {
                Place::Cluster(_) => server.serves(lock),
                _ => server.is_master(),
            });
            home.is_some()
        });
        home.expect("it was found")
    }
}

/// How long a server of a quorum has run when it has a vote: longer than any lease, by its clock, which tells seconds.
const VOTES_AFTER: Duration = Duration::from_secs(2);

/// Waits until a server of a quorum has a vote.
pub(crate) fn await_vote(server: &Server) {
    until("it has run for longer than a lease", || {
        let info = redis::cmd("INFO").arg("server").query::<String>(&mut server.connection());
        let info = info.expect("a server replies");
        let ran = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        ran.and_then(|ran| ran.parse::<u64>().ok()) >= Some(VOTES_AFTER.as_secs())
    });
}

//! Two servers, each with a wall clock of its own, and the ways in which a lock comes from one to the other.

use std::thread::sleep;
use std::time::{Duration, Instant};

use leasehold::LockClient;
use leasehold_support::{Cluster, Group, Server, WallClock, until};
use redis::{FromRedisValue, RedisResult};

/// Longer than any clock here is put forward, in milliseconds: the nodes must not take each other for dead.
const DEAD: &str = "100000";
const SOON: Duration = Duration::from_secs(30);
/// When a fail-over that was asked for is over, be it given up.
const GIVEN_UP: Duration = Duration::from_secs(7);
const POLL: Duration = Duration::from_millis(2);

pub(crate) trait Arena: Sized {
    const NAME: &'static str;

    /// Whether the keys of a mutex and of a reentrant lock come with the time that is left of them, and not with a time
    /// of the clock. A semaphore and a read-write lock store times of the clock.
    const SENDS_WHAT_IS_LEFT: bool = false;

    /// Whether renewals go on at the other server at once.
    const IS_FOLLOWED: bool = true;

    /// `None` where the server cannot do it.
    fn start() -> Option<Self>;

    /// The clocks right, but for that of the server to which locks come next; and a prefix for the names of those.
    fn prepare(&mut self, ahead: Duration) -> String;

    /// A client with default settings.
    fn holder(&self) -> LockClient;

    /// Brings the locks of the last prefix to the other server, with all writes so far. Returns whether they came.
    fn bring(&mut self) -> bool;

    /// A client that asks at the other server.
    fn rival(&self) -> LockClient;

    /// Sets the other server's clock.
    fn put_forward(&self, ahead: Duration);

    /// The other server.
    fn target(&self) -> &Server;
}

fn micros(ahead: Duration) -> i64 {
    i64::try_from(ahead.as_micros()).expect("less than an age")
}

fn tell<T: FromRedisValue>(server: &Server, words: &[&str]) -> RedisResult<T> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command.query(&mut server.connection())
}

/// Waits until a replica has all that its master has written.
fn replicate(master: &Server, name: &str) {
    let mut connection = master.connection();
    let write = redis::cmd("SET").arg(name).arg("").arg("PX").arg(60_000).exec(&mut connection);
    write.expect("a write");
    let wait = redis::cmd("WAIT").arg(1).arg(5_000).query::<u32>(&mut connection);
    assert!(wait.expect("a reply") >= 1, "no replica has it");
}

fn clock() -> WallClock {
    WallClock::new().expect("a clock")
}

/// Two masters with a replica each. The locks are those of one slot, which the first node has at the start.
struct Nodes {
    cluster: Cluster,
    clocks: Vec<WallClock>,
    /// The nodes between which the locks of the last prefix come and go.
    from: usize,
    to: usize,
    prefix: String,
    rounds: usize,
}

impl Nodes {
    fn start(to: usize) -> Nodes {
        let clocks: Vec<_> = (0..4).map(|_| clock()).collect();
        let cluster = Cluster::start_each(2, 1, |number, node| {
            node.arg("--cluster-node-timeout").arg(DEAD).envs(clocks[number].variables())
        });
        let cluster = cluster.expect("a cluster");
        Nodes { cluster, clocks, from: 0, to, prefix: String::new(), rounds: 0 }
    }

    fn prepare(&mut self, ahead: Duration) -> String {
        self.set(self.from, Duration::ZERO);
        self.set(self.to, ahead);
        // Another slot each time, which the first node still has.
        self.rounds += 1;
        let tag = self.cluster.name_at(0, &format!("r{}-", self.rounds));
        self.prefix = format!("{{{tag}}}-");
        self.prefix.clone()
    }

    fn set(&self, node: usize, ahead: Duration) {
        self.clocks[node].set(micros(ahead)).expect("a clock");
    }

    fn client(&self) -> LockClient {
        let urls = self.cluster.urls();
        LockClient::builder(&urls[0]).cluster(&urls[1..]).build().expect("a client")
    }

    fn slot(&self) -> usize {
        self.cluster.slot(&self.prefix)
    }

    fn target(&self) -> &Server {
        &self.cluster.nodes()[self.to]
    }

    /// Whether the other node serves the slot.
    fn serves(&self) -> bool {
        let name = format!("{}none", self.prefix);
        tell::<String>(self.target(), &["INFO", "replication"])
            .is_ok_and(|info| info.contains("role:master"))
            && tell::<i64>(self.target(), &["EXISTS", &name]).is_ok()
    }

    fn arrived(&self) -> bool {
        until("the other node serves it", || self.serves());
        true
    }
}

macro_rules! nodes {
    () => {
        fn prepare(&mut self, ahead: Duration) -> String {
            self.0.prepare(ahead)
        }

        fn holder(&self) -> LockClient {
            self.0.client()
        }

        fn rival(&self) -> LockClient {
            self.0.client()
        }

        fn put_forward(&self, ahead: Duration) {
            self.0.set(self.0.to, ahead);
        }

        fn target(&self) -> &Server {
            self.0.target()
        }
    };
}

/// `CLUSTER SETSLOT` and `MIGRATE`.
pub(crate) struct Migrate(Nodes);

impl Arena for Migrate {
    const NAME: &'static str = "MIGRATE";
    const SENDS_WHAT_IS_LEFT: bool = true;

    fn start() -> Option<Migrate> {
        Some(Migrate(Nodes::start(1)))
    }

    nodes!();

    fn bring(&mut self) -> bool {
        self.0.cluster.migrate(self.0.slot(), 0, 1);
        self.0.arrived()
    }
}

/// `CLUSTER MIGRATESLOTS` of Valkey 9, `CLUSTER MIGRATION` of Redis 8.4.
pub(crate) struct Atomic(Nodes);

impl Arena for Atomic {
    const NAME: &'static str = "atomic migration";

    fn start() -> Option<Atomic> {
        let nodes = Nodes::start(1);
        let help: Vec<String> =
            tell(&nodes.cluster.nodes()[0], &["CLUSTER", "HELP"]).expect("a reply");
        let can = |line: &String| line.contains("MIGRATESLOTS") || line.starts_with("MIGRATION");
        help.iter().any(can).then_some(Atomic(nodes))
    }

    nodes!();

    fn bring(&mut self) -> bool {
        let (nodes, slot) = (&self.0, self.0.slot().to_string());
        let source = &nodes.cluster.nodes()[0];
        let words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &slot, &slot, "NODE"];
        let target = nodes.cluster.id(1);
        let valkey = [&words[..], &[&target]].concat();
        if tell::<()>(source, &valkey).is_err() {
            let redis = ["CLUSTER", "MIGRATION", "IMPORT", &slot, &slot];
            tell::<redis::Value>(nodes.target(), &redis).expect("it imports a slot");
        }
        nodes.arrived()
    }
}

/// `CLUSTER FAILOVER`: a node and its replica change places.
pub(crate) struct Failover(Nodes);

impl Arena for Failover {
    const NAME: &'static str = "CLUSTER FAILOVER";

    fn start() -> Option<Failover> {
        // The replica of the first master.
        Some(Failover(Nodes::start(2)))
    }

    fn prepare(&mut self, ahead: Duration) -> String {
        if self.0.rounds > 0 {
            // Nodes vote for one replica of a master in so long a time.
            self.0 = Nodes::start(2);
        }
        self.0.prepare(ahead)
    }

    fn holder(&self) -> LockClient {
        self.0.client()
    }

    fn bring(&mut self) -> bool {
        let nodes = &self.0;
        replicate(&nodes.cluster.nodes()[nodes.from], &format!("{}none", nodes.prefix));
        tell::<()>(nodes.target(), &["CLUSTER", "FAILOVER"]).expect("it begins");
        // It is given up after five seconds, where the machine is slow.
        let begin = Instant::now();
        while !nodes.serves() {
            if begin.elapsed() > GIVEN_UP {
                return false;
            }
            sleep(POLL);
        }
        true
    }

    fn rival(&self) -> LockClient {
        self.0.client()
    }

    fn put_forward(&self, ahead: Duration) {
        self.0.set(self.0.to, ahead);
    }

    fn target(&self) -> &Server {
        self.0.target()
    }
}

/// Sentinels make a replica the master.
pub(crate) struct Promotion {
    group: Option<Group>,
    clocks: [WallClock; 2],
}

impl Promotion {
    fn group(&self) -> &Group {
        self.group.as_ref().expect("a round has begun")
    }
}

impl Arena for Promotion {
    const NAME: &'static str = "Sentinel";
    const IS_FOLLOWED: bool = false;

    fn start() -> Option<Promotion> {
        Some(Promotion { group: None, clocks: [clock(), clock()] })
    }

    fn prepare(&mut self, ahead: Duration) -> String {
        // A group of its own for each round: sentinels make pauses between two fail-overs.
        self.group = None;
        for (clock, ahead) in self.clocks.iter().zip([Duration::ZERO, ahead]) {
            clock.set(micros(ahead)).expect("a clock");
        }
        let group = Group::start_each(1, SOON, |number, server| {
            server.envs(self.clocks[number].variables())
        });
        self.group = Some(group.expect("a group"));
        "r-".to_owned()
    }

    fn holder(&self) -> LockClient {
        let builder = LockClient::builder(format!("redis://{}", Group::MASTER));
        builder.sentinels(self.group().sentinel_urls()).build().expect("a client")
    }

    fn bring(&mut self) -> bool {
        let Group { servers, sentinels } = self.group();
        replicate(&servers[0], "r-none");
        // As if it had died: renewals that it would take now would be lost, which is another matter.
        servers[0].pause();
        tell::<()>(&sentinels[0], &["SENTINEL", "FAILOVER", Group::MASTER]).expect("it begins");
        until("the replica is the master", || {
            tell::<String>(&servers[1], &["INFO", "replication"])
                .is_ok_and(|info| info.contains("role:master"))
        });
        true
    }

    /// It is there as early as any client of the sentinels can be.
    fn rival(&self) -> LockClient {
        LockClient::open(self.group().servers[1].tcp_url()).expect("a client")
    }

    fn put_forward(&self, ahead: Duration) {
        self.clocks[1].set(micros(ahead)).expect("a clock");
    }

    fn target(&self) -> &Server {
        &self.group().servers[1]
    }
}

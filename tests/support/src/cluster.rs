//! A private cluster per test.

use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, RedisResult};

use crate::lag;
use crate::server::{Server, ServerBuilder};

/// How long the nodes may take to agree.
const AGREE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
/// A replica may take so long to take over before it is asked once more.
const TRY: Duration = Duration::from_millis(500);
/// How many slots a cluster has.
const SLOTS: usize = 16384;
/// After so much silence, in milliseconds, the others take a node for dead.
const DEAD: &str = "2000";

/// Masters that share the slots evenly, and their replicas.
///
/// A node that dies is replaced by a replica of its own after some three seconds. All nodes die
/// with their owner, as a [`Server`] does.
#[derive(Debug)]
pub struct Cluster {
    /// The masters first, then the replicas of the first master, and so on.
    nodes: Vec<Server>,
    masters: usize,
}

impl Cluster {
    /// Starts a cluster with these numbers of masters and of replicas of each, and waits until all
    /// of them know each other and serve.
    ///
    /// # Errors
    ///
    /// If a node does not start, or they do not agree within a minute.
    pub fn start(masters: usize, replicas: usize) -> io::Result<Cluster> {
        Cluster::start_with(masters, replicas, &[])
    }

    /// The same where every node is given these arguments too.
    ///
    /// # Errors
    ///
    /// As [`Cluster::start`].
    pub fn start_with(masters: usize, replicas: usize, arguments: &[&str]) -> io::Result<Cluster> {
        Cluster::start_each(masters, replicas, |_, node| {
            arguments.iter().fold(node, |node, argument| node.arg(argument))
        })
    }

    /// The same where each node is started as this arranges it, by its number among the
    /// [nodes](Cluster::nodes).
    ///
    /// # Errors
    ///
    /// As [`Cluster::start`].
    pub fn start_each(
        masters: usize,
        replicas: usize,
        arrange: impl Fn(usize, ServerBuilder) -> ServerBuilder,
    ) -> io::Result<Cluster> {
        lag::watch();
        let start = |number| {
            let node = Server::builder().cluster().arg("--cluster-node-timeout").arg(DEAD);
            // A replica that lags is better than none, and copying begins without a delay.
            let node = node.arg("--cluster-replica-validity-factor").arg("0");
            let node = node.arg("--repl-diskless-sync-delay").arg("0");
            arrange(number, node).start()
        };
        let nodes = (0..masters * (1 + replicas)).map(start).collect::<io::Result<Vec<_>>>()?;
        let cluster = Cluster { nodes, masters };
        cluster.join().map_err(io::Error::other)?;
        cluster.replicate(replicas)?;
        cluster.agree(replicas)?;
        Ok(cluster)
    }

    fn join(&self) -> RedisResult<()> {
        for (number, master) in self.masters().iter().enumerate() {
            let first = number * SLOTS / self.masters;
            let last = (number + 1) * SLOTS / self.masters - 1;
            let mut add = redis::cmd("CLUSTER");
            add.arg("ADDSLOTSRANGE").arg(first).arg(last).exec(&mut master.connection())?;
        }
        for (number, node) in self.nodes.iter().enumerate() {
            let mut epoch = redis::cmd("CLUSTER");
            epoch.arg("SET-CONFIG-EPOCH").arg(number + 1).exec(&mut node.connection())?;
        }
        // All of them to all, as gossip takes longer.
        for (number, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[..number] {
                let (address, bus) = (other.addr(), other.bus());
                let mut meet = redis::cmd("CLUSTER");
                meet.arg("MEET").arg(address.ip().to_string()).arg(address.port()).arg(bus);
                meet.exec(&mut node.connection())?;
            }
        }
        Ok(())
    }

    fn replicate(&self, replicas: usize) -> io::Result<()> {
        for (number, replica) in self.nodes[self.masters..].iter().enumerate() {
            let master = self.id(number / replicas);
            let follow = || tell::<()>(replica, &["CLUSTER", "REPLICATE", &master]);
            // It is refused until the replica knows its master.
            let why = || follow().map_or_else(|error| error.to_string(), |()| "late".to_owned());
            wait(why, || follow().is_ok())?;
        }
        Ok(())
    }

    /// Waits until every node knows all others, and all serve.
    fn agree(&self, replicas: usize) -> io::Result<()> {
        let count = self.nodes.len();
        for node in &self.nodes {
            let reply = |command: &[&str]| tell::<String>(node, command).unwrap_or_default();
            let all = || reply(&["CLUSTER", "NODES"]);
            wait(all, || {
                let nodes = all();
                let known = |word: &str| nodes.lines().filter(|line| line.contains(word)).count();
                known(" connected") == count
                    && known("slave") == self.masters * replicas
                    && known("handshake") + known("fail") == 0
                    && reply(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
            })?;
        }
        for replica in &self.nodes[self.masters..] {
            let reply = || tell::<String>(replica, &["INFO", "replication"]).unwrap_or_default();
            wait(reply, || reply().contains("master_link_status:up"))?;
        }
        Ok(())
    }

    /// Returns all nodes: the masters, then the replicas of the first master, and so on.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// Returns the nodes that were masters at the start.
    pub fn masters(&self) -> &[Server] {
        &self.nodes[..self.masters]
    }

    /// Returns the URLs of all nodes.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::tcp_url).collect()
    }

    /// Returns a node's own id in the cluster.
    ///
    /// # Panics
    ///
    /// If it does not reply.
    pub fn id(&self, node: usize) -> String {
        tell(&self.nodes[node], &["CLUSTER", "MYID"]).expect("a node knows its id")
    }

    /// Returns the slot of a key.
    pub fn slot(&self, key: &str) -> usize {
        let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        let hashed = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key);
        usize::from(crc(hashed.as_bytes())) % SLOTS
    }

    /// Returns which of the first masters has a key's slot as the cluster was started.
    pub fn home(&self, key: &str) -> usize {
        let slot = self.slot(key);
        (0..self.masters).rfind(|number| number * SLOTS / self.masters <= slot).unwrap_or(0)
    }

    /// Returns a name whose slot the given master has as the cluster was started.
    pub fn name_at(&self, master: usize, word: &str) -> String {
        let mut names = (0..).map(|number| format!("{word}{number}"));
        names.find(|name| self.home(name) == master).expect("names without end")
    }

    /// Begins to move a slot: from then on the source redirects requests for missing keys to the
    /// target.
    ///
    /// # Panics
    ///
    /// If a node refuses it.
    pub fn open(&self, slot: usize, from: usize, to: usize) {
        let (source, target, slot) = (self.id(from), self.id(to), slot.to_string());
        let set = |node: usize, words: [&str; 2]| {
            tell::<()>(&self.nodes[node], &["CLUSTER", "SETSLOT", &slot, words[0], words[1]])
                .unwrap_or_else(|error| panic!("SETSLOT {slot} {words:?}: {error}"));
        };
        set(to, ["IMPORTING", &source]);
        set(from, ["MIGRATING", &target]);
    }

    /// Moves up to a number of keys of a slot that is being moved, and returns how many there were.
    ///
    /// # Panics
    ///
    /// If a node refuses it.
    pub fn carry(&self, slot: usize, from: usize, to: usize, most: usize) -> usize {
        let most = most.to_string();
        let words = ["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &most];
        let keys: Vec<Vec<u8>> = tell(&self.nodes[from], &words).expect("the keys of a slot");
        if !keys.is_empty() {
            let address = self.nodes[to].addr();
            let mut migrate = redis::cmd("MIGRATE");
            migrate.arg(address.ip().to_string()).arg(address.port()).arg("").arg(0).arg(5000);
            migrate.arg("KEYS").arg(&keys);
            let moved: String =
                migrate.query(&mut self.nodes[from].connection()).expect("the keys move");
            assert!(moved == "OK" || moved == "NOKEY", "{moved}");
        }
        keys.len()
    }

    /// Ends the move of a slot: all masters are told its new master.
    ///
    /// # Panics
    ///
    /// If a node refuses it, or the target does not learn of the earlier moves within a minute.
    pub fn close(&self, slot: usize, from: usize, to: usize) {
        self.catch_up(to);
        let (target, slot) = (self.id(to), slot.to_string());
        let others = (0..self.masters).filter(|&node| node != to && node != from);
        for node in [to, from].into_iter().chain(others) {
            tell::<()>(&self.nodes[node], &["CLUSTER", "SETSLOT", &slot, "NODE", &target])
                .unwrap_or_else(|error| panic!("SETSLOT {slot} NODE: {error}"));
        }
    }

    /// Waits until a node knows the newest epoch. Before that, a slot given to it would have an
    /// older epoch than the source's last announcement, and a node that receives that late would
    /// believe the source.
    fn catch_up(&self, node: usize) {
        let epoch = |node: usize, name: &str| {
            let info = tell::<String>(&self.nodes[node], &["CLUSTER", "INFO"]).unwrap_or_default();
            let value = info.lines().find_map(|line| line.strip_prefix(name));
            value.and_then(|value| value.trim_start_matches(':').parse::<u64>().ok())
        };
        let newest = (0..self.nodes.len()).filter_map(|node| epoch(node, "cluster_my_epoch")).max();
        let newest = newest.expect("a node tells its epoch");
        let heard = || epoch(node, "cluster_current_epoch");
        let why = || format!("a slot's target knows epoch {:?}, not {newest}", heard());
        wait(why, || heard() >= Some(newest)).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Moves a slot with all that is in it from one master to another.
    ///
    /// # Panics
    ///
    /// As [`Cluster::close`].
    pub fn migrate(&self, slot: usize, from: usize, to: usize) {
        self.open(slot, from, to);
        while self.carry(slot, from, to, 100) > 0 {}
        self.close(slot, from, to);
    }

    /// Lets a replica take the place of its master by `CLUSTER FAILOVER` and these words, and waits until it has.
    ///
    /// # Panics
    ///
    /// If it has not within a minute.
    pub fn fail_over(&self, master: usize, replica: usize, how: &[&str]) {
        let [old, new] = [master, replica].map(|node| &self.nodes[node]);
        let words = [&["CLUSTER", "FAILOVER"][..], how].concat();
        let why = || "a replica does not take over".to_owned();
        let taken_over = wait(why, || {
            // It is given up after a while where the machine is slow, and asked for again.
            let _ = tell::<()>(new, &words);
            sleep(TRY);
            new.is_master() && !old.is_master()
        });
        taken_over.unwrap_or_else(|error| panic!("{error}"));
    }
}

impl Server {
    /// Returns whether it is a node of a cluster that has the slot of a key, and serves it as a master.
    ///
    /// # Panics
    ///
    /// If it was killed.
    pub fn serves(&self, key: &str) -> bool {
        tell::<i64>(self, &["EXISTS", key]).is_ok() && self.is_master()
    }
}

/// CRC-16/XMODEM.
fn crc(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0_u16, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

fn tell<T: FromRedisValue>(node: &Server, words: &[&str]) -> RedisResult<T> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command.query(&mut node.connection())
}

fn wait(seen: impl Fn() -> String, mut done: impl FnMut() -> bool) -> io::Result<()> {
    let end = Instant::now() + AGREE;
    while !done() {
        if Instant::now() >= end {
            let text = format!("the nodes of a cluster do not agree: {}", seen());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        sleep(POLL);
    }
    Ok(())
}

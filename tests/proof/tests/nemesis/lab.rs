//! A process of its own for each test, with a network of its own; and servers in it.

use std::process::Stdio;
use std::time::Duration;

use leasehold::LockClientBuilder;
pub(crate) use leasehold_proof::trial::until;
use leasehold_support::{Host, Network, Server, ServerBuilder, lag, skip};
use redis::{FromRedisValue, RedisResult};

/// Says to a process that it has a network of its own.
const IN_LAB: &str = "LEASEHOLD_LAB";
/// How long what must come may take: many servers share few processors.
pub(crate) const SOON: Duration = Duration::from_secs(90);
/// After so much silence a server counts as dead, in milliseconds.
pub(crate) const DEAD: u64 = 1_500;
/// How long a command may take.
const PATIENCE: Duration = Duration::from_millis(700);

/// Ends the calling test here, having run it in a process with a network of its own, where this does nothing.
macro_rules! in_lab {
    () => {{
        fn here() {}
        if !crate::lab::is_in(std::any::type_name_of_val(&here)) {
            return;
        }
    }};
}
pub(crate) use in_lab;

/// Whether this process has a network of its own. If not, it starts one that runs this test, and waits for it.
#[track_caller]
pub(crate) fn is_in(place: &str) -> bool {
    if std::env::var_os(IN_LAB).is_some() {
        return true;
    }
    let (_, test) = place.split_once("::").expect("the program's name comes first");
    let (test, _) = test.rsplit_once("::").expect("the item's name comes last");
    let mut command = match Network::command() {
        Ok(command) => command,
        Err(error) => {
            skip(format_args!("no network can be made here: {error}"));
            return false;
        }
    };
    command.arg(std::env::current_exe().expect("this program"));
    command.args([test, "--exact", "--include-ignored", "--nocapture", "--test-threads", "1"]);
    let output = command.env(IN_LAB, "1").stdin(Stdio::null()).output().expect("a process");
    let said = String::from_utf8_lossy(&output.stdout);
    let went_wrong = String::from_utf8_lossy(&output.stderr);
    // The harness may have begun the line.
    for row in said.lines().filter_map(|line| line.find('|').map(|at| &line[at..])) {
        println!("{row}");
    }
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{went_wrong}");
    for line in went_wrong.lines().filter_map(|line| line.strip_prefix("SKIPPED: ")) {
        skip(line);
    }
    false
}

/// A server, and its place in the network.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) server: Server,
    pub(crate) host: Host,
}

impl Node {
    pub(crate) fn start(network: &Network, builder: ServerBuilder) -> Node {
        let server = builder.apart().start().expect("a server");
        let host = network.join(&server).expect("a place in the network");
        Node { server, host }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}:{}", self.host.ip(), self.port())
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.addr().port()
    }

    /// Asks it past the network.
    pub(crate) fn try_ask<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| _ = command.arg(*word));
        command.query(&mut self.server.connection())
    }

    #[track_caller]
    pub(crate) fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_ask(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub(crate) fn info(&self, section: &str) -> String {
        self.try_ask(&["INFO", section]).unwrap_or_default()
    }

    pub(crate) fn is_master(&self) -> bool {
        self.server.is_master()
    }

    /// Waits until it has all that its master has written, and hears it.
    pub(crate) fn follows(&self) -> bool {
        self.server.follows()
    }
}

/// A master with replicas, and three sentinels.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) network: Network,
    pub(crate) servers: Vec<Node>,
    pub(crate) sentinels: Vec<Node>,
}

pub(crate) const MASTER: &str = "mymaster";

impl Group {
    /// The servers get these arguments too.
    pub(crate) fn start(arguments: &[&str]) -> Group {
        lag::watch();
        let network = Network::start().expect("a network");
        let server = || {
            let server = arguments.iter().fold(Server::builder(), |server, word| server.arg(word));
            // Who is cut off is known soon.
            let server = server.arg("--repl-timeout").arg("3").arg("--repl-ping-replica-period");
            Node::start(&network, server.arg("1").arg("--repl-diskless-sync-delay").arg("0"))
        };
        let servers: Vec<Node> = (0..3).map(|_| server()).collect();
        let (ip, port) = (servers[0].host.ip(), servers[0].port().to_string());
        for replica in &servers[1..] {
            replica.ask::<()>(&["REPLICAOF", &ip, &port]);
        }
        let configuration = format!(
            "sentinel monitor {MASTER} {ip} {port} 2\n\
             sentinel down-after-milliseconds {MASTER} {DEAD}\n\
             sentinel failover-timeout {MASTER} 5000\n"
        );
        let sentinel = || Node::start(&network, Server::builder().sentinel(&configuration));
        let sentinels = (0..3).map(|_| sentinel()).collect();
        let group = Group { network, servers, sentinels };
        group.is_whole();
        group
    }

    /// Waits until all know each other, and the replicas follow one master.
    pub(crate) fn is_whole(&self) {
        until("there is one master, and the others follow it", || {
            let masters = self.servers.iter().filter(|server| server.is_master()).count();
            masters == 1 && self.servers.iter().all(|server| server.is_master() || server.follows())
        });
        for sentinel in &self.sentinels {
            until("the sentinels know all others", || {
                let info = sentinel.info("sentinel");
                info.contains("status=ok") && info.contains("slaves=2,sentinels=3")
            });
        }
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = Host> {
        self.servers.iter().chain(&self.sentinels).map(|node| node.host)
    }

    /// Cuts each of these off from each of those.
    pub(crate) fn part(&self, these: &[Host], those: &[Host]) {
        these.iter().for_each(|one| those.iter().for_each(|other| self.network.cut(*one, *other)));
    }

    pub(crate) fn heal(&self, these: &[Host], those: &[Host]) {
        these.iter().for_each(|one| those.iter().for_each(|other| self.network.heal(*one, *other)));
    }

    /// A client that asks these sentinels.
    pub(crate) fn client_of(&self, sentinels: &[Node]) -> LockClientBuilder {
        let urls = sentinels.iter().map(Node::url);
        patient(leasehold::LockClient::builder(format!("redis://{MASTER}")).sentinels(urls))
    }

    pub(crate) fn client(&self) -> LockClientBuilder {
        self.client_of(&self.sentinels)
    }

    pub(crate) fn master(&self) -> &Node {
        let master = self.servers.iter().find(|server| server.is_master());
        master.expect("there is a master")
    }
}

pub(crate) fn patient(builder: LockClientBuilder) -> LockClientBuilder {
    let builder = builder.command_timeout(PATIENCE).connect_timeout(PATIENCE).max_wait(PATIENCE);
    builder.give_up_after(SOON)
}

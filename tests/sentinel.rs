//! A master with replicas and sentinels: where the lock goes when the master does.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{SOON, ask, exists, ms, names, renewed, until, within};
use leasehold::{LockClient, LockClientBuilder, LossCause};
use leasehold_support::Server;

/// After so much silence the sentinels take a master for dead.
const DEAD: &str = "700";

struct Topology {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Topology {
    /// A master, replicas that have caught up, and three sentinels that know of each other.
    fn start(replicas: usize) -> Topology {
        let master = Server::builder().tcp().arg("--repl-diskless-sync-delay").arg("0");
        let mut servers = vec![master.start().expect("a master")];
        let port = servers[0].addr().port();
        for _ in 0..replicas {
            let replica = Server::builder().tcp().arg("--replicaof");
            let replica =
                replica.arg(format!("127.0.0.1 {port}")).arg("--repl-diskless-sync-delay");
            servers.push(replica.arg("0").start().expect("a replica"));
        }
        until("the replicas are online", || {
            ask::<String>(&servers[0], &["INFO", "replication"]).matches("state=online").count()
                == replicas
        });
        let configuration = format!(
            "sentinel monitor mymaster 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds mymaster {DEAD}\n\
             sentinel failover-timeout mymaster 5000\n"
        );
        let sentinels: Vec<Server> = (0..3)
            .map(|_| Server::builder().sentinel(&configuration).start().expect("a sentinel"))
            .collect();
        for sentinel in &sentinels {
            until("the sentinels know all others", || {
                let known: String = ask(sentinel, &["INFO", "sentinel"]);
                known.contains(&format!("slaves={replicas},sentinels=3"))
            });
        }
        Topology { servers, sentinels }
    }

    fn builder(&self) -> LockClientBuilder {
        let urls: Vec<String> = self.sentinels.iter().map(Server::tcp_url).collect();
        LockClient::builder("redis://mymaster/0").sentinels(urls)
    }

    fn client(&self) -> LockClient {
        // Not at once: a sentinel that is late may still tell of a master that hangs.
        self.builder().give_up_after(SOON * 3).build().expect("a client")
    }

    /// The server that says that it is the master now, once one other than this does.
    fn promoted(&self, old: usize) -> (usize, Instant) {
        let mut found = None;
        until("a replica was promoted", || {
            found = (0..self.servers.len())
                .find(|&number| number != old && is(&self.servers[number], "role:master"));
            found.is_some()
        });
        (found.expect("found"), Instant::now())
    }
}

#[test]
fn the_master_is_found_and_locks_work_there() {
    let topology = Topology::start(1);
    let (one, other) = (topology.client(), topology.client());
    let guard = one.mutex("x").unwrap().lock().unwrap();
    assert!(exists(&topology.servers[0], "x"));
    assert!(other.mutex("x").unwrap().try_lock().unwrap().is_none());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| other.mutex("x").unwrap().lock().unwrap().release().unwrap());
        until("it waits", || ask::<u32>(&topology.servers[0], &["ZCARD", "{x}:queue"]) == 1);
        guard.release().unwrap();
        waiting.join().unwrap();
    });
    // A sentinel less changes nothing.
    topology.sentinels[0].kill();
    topology.client().mutex("x").unwrap().lock().unwrap().release().unwrap();
}

/// Waits for the lock through a fail-over that `depose` starts, and looks how long after the
/// promotion it was granted.
fn fail_over(depose: impl Fn(&Server)) -> Topology {
    let topology = Topology::start(2);
    let client = topology.client();
    client.mutex("warm").unwrap().lock().unwrap().release().unwrap();
    depose(&topology.servers[0]);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let guard = client.mutex("y").unwrap().lock().unwrap();
            let at = Instant::now();
            guard.release().unwrap();
            at
        });
        let (master, promoted) = topology.promoted(0);
        let granted = waiting.join().unwrap();
        let late = granted.saturating_duration_since(promoted);
        // One second is promised; the rest is for a noisy machine.
        assert!(late < Duration::from_millis(2500), "{late:?}");
        let guard = client.mutex("z").unwrap().lock().unwrap();
        assert!(exists(&topology.servers[master], "z"));
        guard.release().unwrap();
    });
    topology
}

#[test]
fn a_killed_master_is_replaced() {
    fail_over(Server::kill);
}

#[test]
fn a_hung_master_is_replaced_and_is_sent_nothing_when_it_wakes() {
    let topology = fail_over(Server::pause);
    let old = &topology.servers[0];
    let client = topology.client();
    // Whatever had been sent to it while it hung has been read when it answers.
    old.resume();
    until("it answers", || is(old, "role:"));
    let before = scripts(old);
    for _ in 0..200 {
        client.mutex("x").unwrap().lock().unwrap().release().unwrap();
    }
    within(SOON * 4, "it is a replica", || is(old, "role:slave"));
    assert_eq!(scripts(old), before);
}

/// How the server counts the scripts that it was told to run.
fn scripts(server: &Server) -> Vec<String> {
    let mut lines = Vec::new();
    until("it tells", || {
        let mut info = redis::cmd("INFO");
        let info = info.arg("commandstats").query::<String>(&mut server.connection());
        let Ok(info) = info else { return false };
        let counts = info.lines().filter(|line| line.starts_with("cmdstat_eval"));
        lines = counts.filter_map(|line| Some(line.split_once(',')?.0.to_owned())).collect();
        true
    });
    lines
}

/// Whether a server says so of itself. One that changes its role hangs up on its clients.
fn is(server: &Server, role: &str) -> bool {
    let mut info = redis::cmd("INFO");
    let info = info.arg("replication").query::<String>(&mut server.connection());
    info.is_ok_and(|info| info.contains(role))
}

#[test]
fn a_holder_keeps_what_reached_the_new_master_and_is_told_of_the_loss_of_what_did_not() {
    let topology = Topology::start(1);
    let client = topology.client();
    let options = |name: &str| client.mutex_with(name, renewed(6_000)).unwrap();
    let (kept, lost) = (options("kept").lock().unwrap(), options("lost").lock().unwrap());
    until("it is at the replica", || exists(&topology.servers[1], "lost"));
    topology.servers[0].kill();
    let (master, _) = topology.promoted(0);
    ask::<()>(&topology.servers[master], &["DEL", "lost"]);
    until("the holder is told", || lost.loss().is_some());
    assert!(!lost.is_valid());
    assert_eq!(lost.loss().unwrap().cause(), LossCause::Deleted);
    kept.check().unwrap();
    kept.release().unwrap();
}

/// Sentinels that watch a master anew count its fail-overs from the start.
#[test]
fn sentinels_that_begin_anew_are_believed_after_a_while() {
    let topology = Topology::start(1);
    let client = topology.client();
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
    ask::<()>(&topology.sentinels[0], &["SENTINEL", "FAILOVER", "mymaster"]);
    let (master, _) = topology.promoted(0);
    let port = topology.servers[master].addr().port().to_string();
    within(SOON * 2, "all know of the new one", || {
        topology.sentinels.iter().all(|sentinel| {
            let of = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"];
            ask::<Vec<String>>(sentinel, &of)[1] == port
        })
    });
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
    for sentinel in &topology.sentinels {
        ask::<()>(sentinel, &["SENTINEL", "REMOVE", "mymaster"]);
        ask::<()>(sentinel, &["SENTINEL", "MONITOR", "mymaster", "127.0.0.1", &port, "2"]);
    }
    ask::<()>(&topology.servers[master], &["CLIENT", "KILL", "TYPE", "normal"]);
    let lock = client.mutex("x").unwrap();
    within(SOON * 4, "they are believed", || lock.try_lock().is_ok_and(|guard| guard.is_some()));
}

#[test]
fn without_any_sentinel_the_error_says_so_in_time() {
    let client = LockClient::builder("redis://mymaster")
        .sentinels(["redis://127.0.0.1:1", "redis://127.0.0.1:2"])
        .give_up_after(ms(300))
        .build()
        .unwrap();
    let begin = Instant::now();
    let error = client.mutex("x").unwrap().try_lock().unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    assert!(error.to_string().contains("of 2 sentinels none told it"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn settings_that_cannot_be_are_refused_before_any_io() {
    let builder = |url: &str, urls: &[&str]| LockClient::builder(url).sentinels(urls.to_vec());
    let none: &[&str] = &[];
    for (builder, parts) in [
        (builder("redis://mymaster", none), ["sentinels", "[]", "at least one"]),
        (
            builder("redis://mymaster", &["redis://a:1", "redis://b:1", "redis://a:1"]),
            ["sentinels", "redis://a:1", "once"],
        ),
        (builder("unix:///socket", &["redis://a:1"]), ["url", "a socket", "name-of-the-master"]),
        (builder("redis://mymaster", &["redis://a:99999"]), ["url port", "99999", "65535"]),
    ] {
        names(&builder.build().unwrap_err(), parts);
    }
}

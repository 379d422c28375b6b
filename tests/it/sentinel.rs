//! A master with replicas and sentinels: where the lock goes when the master does.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, SOON, ask, exists, ms, names, patient, until, within};
use leasehold::{LockClient, LockClientBuilder};
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Fault, Group, Proxy, Server};

/// After so much silence the sentinels take a master for dead.
const DEAD: Duration = ms(700);

struct Topology {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Topology {
    fn start(replicas: usize) -> Topology {
        let Group { servers, sentinels } = Group::start(replicas, DEAD).expect("a group");
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
    fn promoted(&self, old: usize) -> usize {
        let mut found = None;
        until("a replica was promoted", || {
            found = (0..self.servers.len())
                .find(|&number| number != old && is(&self.servers[number], "role:master"));
            found.is_some()
        });
        found.expect("found")
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

/// Whether a server says so of itself. One that changes its role hangs up on its clients.
fn is(server: &Server, role: &str) -> bool {
    let mut info = redis::cmd("INFO");
    let info = info.arg("replication").query::<String>(&mut server.connection());
    info.is_ok_and(|info| info.contains(role))
}

/// Sentinels that watch a master anew count its fail-overs from the start.
#[test]
fn reset_sentinels_are_believed_after_a_while() {
    let topology = Topology::start(1);
    let client = topology.client();
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
    ask::<()>(&topology.sentinels[0], &["SENTINEL", "FAILOVER", "mymaster"]);
    let master = topology.promoted(0);
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

/// What a sentinel tells, field by field.
fn reply(fields: &[&str]) -> String {
    let fields: Vec<String> =
        fields.iter().map(|field| format!("${}\r\n{field}\r\n", field.len())).collect();
    format!("*{}\r\n{}", fields.len(), fields.concat())
}

/// The sentinel never learns that the replica which it chose is the master by now.
#[test]
fn chosen_replica_is_used_once_its_role_is_master() {
    let topology = Topology::start(1);
    let (old, new) = (&topology.servers[0], &topology.servers[1]);
    let proxy = Proxy::to_addr(topology.sentinels[0].addr()).unwrap();
    let port = |server: &Server| server.addr().port().to_string();
    let flags = "master,s_down,o_down,failover_in_progress";
    let master =
        reply(&["ip", "127.0.0.1", "port", &port(old), "flags", flags, "config-epoch", "0"]);
    let replica = reply(&["ip", "127.0.0.1", "port", &port(new), "flags", "slave,promoted"]);
    let says = |pattern: &str, text: String| {
        proxy.add(Fault::reply(pattern, Action::Garbage(text.into())).sticky())
    };
    let says = [says("config-epoch", master), says("slave-priority", format!("*1\r\n{replica}"))];
    // As the guide tells.
    let allow = |words: &[&str]| {
        let begin = ["ACL", "SETUSER", "locks", "reset", "resetchannels", "on", ">secret"];
        let rule = ["&+switch-master", "+sentinel|master", "+subscribe"];
        ask::<()>(&topology.sentinels[0], &[&begin[..], &rule, words].concat());
    };
    allow(&["+sentinel|replicas"]);
    let url = proxy.url().replace("redis://", "redis://locks:secret@");
    let build = || LockClient::builder("redis://mymaster").sentinels([&url]);
    let hasty = build().give_up_after(ms(300)).build().unwrap().mutex("x").unwrap();
    until("it has asked for both, and says that the master is down", || {
        let error = hasty.try_lock().unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
        error.to_string().contains("down") && says.iter().all(|says| says.fired() > 0)
    });
    assert!(!exists(old, "x") && !exists(new, "x"));
    ask::<()>(new, &["REPLICAOF", "NO", "ONE"]);
    // Who may not ask for it waits until the sentinels tell.
    allow(&[]);
    assert!(hasty.try_lock().unwrap_err().is_unreachable());
    allow(&["+sentinel|replicas"]);
    let lock = build().build().unwrap().mutex("x").unwrap();
    let guard = lock.try_lock_for(SOON).unwrap().expect("free");
    assert!(exists(new, "x") && !exists(old, "x"));
    guard.release().unwrap();
}

#[test]
fn no_reachable_sentinel_is_an_error_in_time() {
    let client = LockClient::builder("redis://mymaster")
        .sentinels(["redis://127.0.0.1:1", "redis://127.0.0.1:2"])
        .give_up_after(ms(300))
        .build()
        .unwrap();
    let begin = Instant::now();
    let error = client.mutex("x").unwrap().try_lock().unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    assert!(
        error.to_string().contains("none of 2 sentinels reported the master \"mymaster\""),
        "{error}"
    );
    assert!(begin.spent() < Duration::from_secs(5));
}

#[test]
fn impossible_settings_are_rejected_before_any_io() {
    let builder = |url: &str, urls: &[&str]| LockClient::builder(url).sentinels(urls.to_vec());
    let none: &[&str] = &[];
    for (builder, parts) in [
        (builder("redis://mymaster", none), ["sentinels", "empty", "at least one"]),
        (
            builder("redis://mymaster", &["redis://a:1", "redis://b:1", "redis://a:1"]),
            ["sentinels", "a:1 twice", "once"],
        ),
        (builder("unix:///socket", &["redis://a:1"]), ["url", "a socket", "name-of-the-master"]),
        (builder("redis://mymaster", &["redis://a:99999"]), ["url port", "99999", "65535"]),
    ] {
        names(&builder.build().unwrap_err(), parts);
    }
}

/// The sentinel that leads a fail-over counts it already when the promoted replica says that it is the
/// master, some time before it calls the fail-over done.
#[test]
fn fail_over_counted_early_is_believed_at_its_end() {
    let topology = Topology::start(1);
    let new = &topology.servers[1];
    let proxy = Proxy::to_addr(topology.sentinels[0].addr()).unwrap();
    let port = |server: &Server| server.addr().port().to_string();
    let says = |pattern: &str, text: String| {
        proxy.add(Fault::reply(pattern, Action::Garbage(text.into())).sticky())
    };
    let master = |server: &Server, flags: &str| {
        reply(&["ip", "127.0.0.1", "port", &port(server), "flags", flags, "config-epoch", "1"])
    };
    let replica = reply(&["ip", "127.0.0.1", "port", &port(new), "flags", "slave,promoted"]);
    let down = "master,s_down,o_down,failover_in_progress";
    let before = says("config-epoch", master(&topology.servers[0], down));
    says("slave-priority", format!("*1\r\n{replica}"));
    ask::<()>(new, &["REPLICAOF", "NO", "ONE"]);
    let builder = LockClient::builder("redis://mymaster").sentinels([proxy.url()]);
    let lock = builder.give_up_after(SOON).build().unwrap().mutex("x").unwrap();
    lock.lock().unwrap().release().unwrap();
    let after = says("config-epoch", master(new, "master"));
    before.remove();
    assert!(after.wait_fired(SOON));
    ask::<()>(new, &["CLIENT", "KILL", "TYPE", "normal"]);
    until("it is found again", || lock.try_lock().is_ok_and(|guard| guard.is_some()));
}

/// A host that lost its power refuses nothing: a client that asks there waits for as long as it has time.
#[test]
fn silent_sentinel_is_not_waited_for_again() {
    let topology = Topology::start(1);
    let proxy = Proxy::to_addr(topology.sentinels[0].addr()).unwrap();
    proxy.black_hole();
    let others = topology.sentinels[1..].iter().map(Server::tcp_url);
    let urls: Vec<String> = std::iter::once(proxy.url()).chain(others).collect();
    let builder = patient(LockClient::builder("redis://mymaster").sentinels(urls));
    let lock = builder.build().unwrap().mutex("x").unwrap();
    lock.lock().unwrap().release().unwrap();
    let asked = proxy.accepted();
    assert!(asked > 0);
    for _ in 0..12 {
        thread::sleep(ms(500));
        // A sentinel that was cut off might take the master for dead; it tells its name.
        let clients = ask::<String>(&topology.servers[0], &["CLIENT", "LIST", "TYPE", "normal"]);
        for client in clients.lines().filter(|client| client.contains(" name= ")) {
            let id = client.split(' ').next().and_then(|id| id.strip_prefix("id=")).unwrap();
            ask::<u64>(&topology.servers[0], &["CLIENT", "KILL", "ID", id]);
        }
        let begin = Instant::now();
        lock.lock().unwrap().release().unwrap();
        assert!(begin.spent() < PATIENCE / 2, "{:?}", begin.spent());
    }
    assert!(proxy.accepted() <= asked + 2, "{} after {asked}", proxy.accepted());
}

/// It asks twice a second for as long as it lives.
#[test]
fn idle_client_keeps_its_connections_to_sentinels() {
    let topology = Topology::start(1);
    let proxies: Vec<Proxy> = topology
        .sentinels
        .iter()
        .map(|sentinel| Proxy::to_addr(sentinel.addr()).unwrap())
        .collect();
    let urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
    let builder = patient(LockClient::builder("redis://mymaster").sentinels(urls));
    let client = builder.build().unwrap();
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
    let accepted = || proxies.iter().map(Proxy::accepted).sum::<u64>();
    // Its subscription, and one for each of them.
    until("all are asked", || accepted() >= 4);
    // On a busy machine one may time out, or still be made.
    let is_steady = || {
        let before = accepted();
        thread::sleep(ms(4_000));
        accepted() == before
    };
    assert!((0..5).any(|_| is_steady()), "it asked eight times in between, each time");
}

/// Nobody who waits helps against these: they are told at once, and for what they are.
#[test]
fn refusal_by_all_sentinels_is_reported_without_password() {
    let topology = Topology::start(1);
    let urls = |user: &str| -> Vec<String> {
        let url = |sentinel: &Server| format!("redis://{user}{}", sentinel.addr());
        topology.sentinels.iter().map(url).collect()
    };
    let fails = |name: &str, urls: Vec<String>| {
        let client =
            LockClient::builder(format!("redis://{name}")).sentinels(urls).build().unwrap();
        let begin = Instant::now();
        let error = client.mutex("x").unwrap().lock().unwrap_err();
        assert!(begin.spent() < ms(2_000), "{:?}", begin.spent());
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        error
    };
    names(&fails("others", urls("")), ["url", "\"others\"", "sentinels"]);
    let wrong = fails("mymaster", urls("locks:hunter2@"));
    assert!(wrong.is_denied() && wrong.to_string().contains("sentinel at 127.0.0.1"), "{wrong:?}");
    // One that is denied something is not heeded while another tells.
    let mut mixed = urls("locks:hunter2@");
    mixed[2] = topology.sentinels[2].tcp_url();
    let client = LockClient::builder("redis://mymaster").sentinels(mixed).build().unwrap();
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
    // Nor while others may tell soon.
    let mut alone = urls("locks:hunter2@");
    for (number, url) in alone.iter_mut().enumerate().skip(1) {
        *url = format!("redis://127.0.0.1:{number}");
    }
    let client = LockClient::builder("redis://mymaster").sentinels(alone).build().unwrap();
    let error = client.mutex("x").unwrap().try_lock().unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    for sentinel in &topology.sentinels {
        ask::<()>(sentinel, &["ACL", "SETUSER", "locks", "on", ">hunter2", "+ping"]);
    }
    assert!(fails("mymaster", urls("locks:hunter2@")).is_denied());
    for sentinel in &topology.sentinels {
        ask::<()>(sentinel, &["ACL", "SETUSER", "default", "resetpass", ">hunter2"]);
    }
    assert!(fails("mymaster", urls("")).is_denied());
}

//! Faults of a master's replicas and of its sentinels.

use std::sync::{Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{LockClient, LockClientBuilder, LossCause};
use leasehold_support::fault::network::{BlackHole, Refused};
use leasehold_support::fault::server::{Killed, Stopped};
use leasehold_support::fault::{Injector, Site};
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Direction, Fault, Group, Proxy, Server};

use crate::common::{SLACK, SOON, ask, exists, fixed, ms, renewed, until, within};
use crate::kind::kinds;
use crate::trial::{COMMAND, KEY, LEASE, Trial, shared};

/// How long a command may take: many servers share few processors.
const PATIENCE: Duration = ms(1_000);

/// How long the sentinels may take to agree: each that was kept from its processor for two seconds
/// does nothing for half a minute.
const VOTE: Duration = ms(120_000);

kinds! {
    master_killed_at_hold "master-killed@hold" "S,L" = master_fails(&Killed);
    master_stopped_at_wait "master-stopped@wait" "S,L" = master_fails(&Stopped);
    master_killed_at_lag "master-killed@replica-behind" "S,L";
    master_demoted_at_hold "master-demoted@hold" "S,L";
    sentinel_refuses_at_connect "sentinel-refused@connect" "E"
        = one_sentinel_fails(&Refused { cut: true });
    sentinel_partitioned_at_connect "sentinel-partitioned@connect" "E"
        = one_sentinel_fails(&BlackHole);
    sentinel_lies_at_connect "sentinel-lies@connect" "S";
    sentinels_gone_at_hold "sentinels-gone@hold" "S";
    sentinels_gone_at_connect "sentinels-gone@connect" "E";
    replica_stopped_at_acquire "replica-stopped@acquire" "E" = replica_fails(&Stopped);
    replicas_gone_at_acquire "replicas-gone@acquire" "E" = replica_fails(&Killed);
    disk_not_synced_at_acquire "disk-not-synced@acquire" "E"
        ["--appendonly", "yes", "--appendfsync", "no"];
}

/// After so much silence the sentinels take a master for dead.
const DEAD: Duration = ms(700);

fn group() -> Group {
    Group::start(1, DEAD).expect("a group")
}

/// The group of the trials that leave one behind as they found it; one of them at a time.
fn common() -> MutexGuard<'static, Group> {
    static GROUP: OnceLock<Mutex<Group>> = OnceLock::new();
    shared(&GROUP, group)
}

fn client(urls: impl IntoIterator<Item = String>) -> LockClientBuilder {
    let builder = LockClient::builder("redis://mymaster").sentinels(urls);
    builder.command_timeout(PATIENCE).connect_timeout(PATIENCE).max_wait(PATIENCE)
}

fn is(server: &Server, role: &str) -> bool {
    let mut info = redis::cmd("INFO");
    let info = info.arg("replication").query::<String>(&mut server.connection());
    info.is_ok_and(|info| info.contains(role))
}

fn master_of(group: &Group) -> &Server {
    group.servers.iter().find(|server| is(server, "role:master")).expect("a master")
}

/// A proxy before each sentinel.
fn before_sentinels(group: &Group) -> Vec<Proxy> {
    let proxy = |sentinel: &Server| Proxy::to_addr(sentinel.addr()).expect("a proxy");
    group.sentinels.iter().map(proxy).collect()
}

/// The master fails while a client holds a lock that the replica has, and another waits for it: the
/// holder keeps it, and the waiter gets it at the release, at the promoted replica.
fn master_fails(trial: &Trial, injector: &dyn Injector) {
    let group = group();
    let [old, new] = &group.servers[..] else { unreachable!("a master and a replica") };
    let proxy = Proxy::start(old).expect("a proxy");
    let build = || client(group.sentinel_urls()).give_up_after(VOTE).build().unwrap();
    // A fail-over may take long where much else runs.
    let lock = |client: &LockClient| client.mutex_with(KEY, renewed(40_000)).unwrap();
    let (one, other) = (lock(&build()), lock(&build()));
    let held = one.lock().unwrap();
    let token = held.fencing_token();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = other.lock().unwrap();
            let granted = Instant::now();
            assert!(guard.fencing_token() > token && guard.is_valid());
            guard.release().unwrap();
            granted
        });
        until("it waits there too", || {
            exists(new, KEY) && ask::<u32>(new, &["ZCARD", "{k}:queue"]) == 1
        });
        let active = injector.inject(&Site::new(old, &proxy, KEY));
        within(VOTE, "the replica is the master", || is(new, "role:master"));
        let promoted = Instant::now();
        until("the holder is heard there", || held.check().is_ok());
        // A second is promised for the first command, and the rest is a machine's that runs much
        // else.
        assert!(promoted.spent() < ms(1_000) + SLACK * 3, "{:?}", promoted.spent());
        assert!(!waiter.is_finished());
        let released = Instant::now();
        held.release().unwrap();
        let took = waiter.join().unwrap().spent_since(released);
        assert!(took < ms(1_300) + SLACK, "{took:?}");
        trial.prove(&active);
        // Its behaviour after its return is no matter of this trial.
        std::mem::forget(active);
    });
    until("it is given back", || !exists(new, KEY));
}

/// The promoted replica does not have the lock: the holder learns of the loss, and the next token
/// is higher.
fn master_killed_at_lag(trial: &Trial) {
    let group = group();
    let [old, new] = &group.servers[..] else { unreachable!("a master and a replica") };
    let proxy = Proxy::start(old).expect("a proxy");
    let client = client(group.sentinel_urls()).give_up_after(VOTE).build().unwrap();
    client.mutex("warm").unwrap().lock().unwrap().release().unwrap();
    new.pause();
    ask::<u64>(old, &["CLIENT", "KILL", "TYPE", "replica"]);
    let lock = client.mutex_with(KEY, renewed(24_000)).unwrap();
    let guard = lock.lock().unwrap();
    let active = Killed.inject(&Site::new(old, &proxy, KEY));
    new.resume();
    within(VOTE, "the replica is the master", || is(new, "role:master"));
    assert!(!exists(new, KEY), "it has heard of it");
    until("the holder is told", || !guard.is_valid());
    assert_eq!(guard.loss().expect("a loss").cause(), LossCause::Deleted);
    let token = guard.fencing_token();
    assert!(guard.release().unwrap_err().is_lost());
    let next = lock.try_lock_for(SOON).unwrap().expect("free");
    assert!(next.fencing_token() > token);
    next.release().unwrap();
    trial.prove(&active);
    std::mem::forget(active);
}

/// Somebody makes the replica the master while the old one lives: the hold goes on there.
fn master_demoted_at_hold(trial: &Trial) {
    let group = common();
    let client = client(group.sentinel_urls()).give_up_after(VOTE).build().unwrap();
    let guard = client.mutex_with(KEY, renewed(6_000)).unwrap().lock().unwrap();
    let old = master_of(&group);
    let new = group.servers.iter().find(|server| !std::ptr::eq(*server, old)).unwrap();
    until("the replica has it", || exists(new, KEY));
    within(VOTE, "a fail-over is begun", || {
        // Not so soon after another, nor while one of them is not known to be well.
        let mut order = redis::cmd("SENTINEL");
        order.arg("FAILOVER").arg("mymaster");
        order.query::<()>(&mut group.sentinels[0].connection()).is_ok()
    });
    within(VOTE, "the replica is the master", || is(new, "role:master"));
    trial.witnessed(1, 1, "INFO replication");
    until("the holder is heard there", || guard.check().is_ok());
    let other = client.mutex_with("other", fixed(LEASE)).unwrap();
    until("locks are taken there", || {
        let guard = other.try_lock();
        guard.is_ok_and(|guard| guard.is_some() && exists(new, "other"))
    });
    assert!(guard.is_valid(), "{:?}", guard.loss());
    guard.release().unwrap();
    assert!(!exists(new, KEY));
    // As it was: one master, and a replica that follows it.
    within(VOTE, "the old one follows", || {
        ask::<String>(new, &["INFO", "replication"]).contains("state=online")
    });
}

/// One of the sentinels is unreachable: the others are asked, and no call waits long.
fn one_sentinel_fails(trial: &Trial, injector: &dyn Injector) {
    let group = common();
    let proxies = before_sentinels(&group);
    let active = injector.inject(&Site::new(&group.sentinels[0], &proxies[0], KEY));
    // Each new client asks that one first.
    for _ in 0..2 {
        let client = client(proxies.iter().map(Proxy::url)).build().unwrap();
        let lock = client.mutex_with(KEY, renewed(LEASE)).unwrap();
        // Nobody waits for it for longer than it may take to connect to one, and to be answered.
        let guard = trial.timed(PATIENCE * 3, || lock.try_lock_for(SOON)).unwrap().expect("free");
        trial.minted(&guard);
        assert!(exists(master_of(&group), KEY));
        guard.release().unwrap();
    }
    let mut active = active;
    thread::sleep(ms(30));
    active.heal();
    trial.prove(&active);
}

/// A stray sentinel reports the replica as the master after a fail-over that no other sentinel
/// knows: the server reports its own role, and nothing is written there.
fn sentinel_lies_at_connect(trial: &Trial) {
    let group = common();
    let proxies = before_sentinels(&group);
    let replica = group.servers.iter().find(|server| is(server, "role:slave")).expect("a replica");
    let port = replica.addr().port().to_string();
    let fields = ["ip", "127.0.0.1", "port", &port, "flags", "master", "config-epoch", "0"];
    let parts = fields.map(|field| format!("${}\r\n{field}\r\n", field.len()));
    let lie = format!("*{}\r\n{}", parts.len(), parts.concat());
    let lies = proxies[0].add(Fault::reply("config-epoch", Action::Garbage(lie.into())).sticky());
    let before = ask::<String>(replica, &["INFO", "errorstats"]).len();
    let client = client(proxies[..1].iter().map(Proxy::url)).give_up_after(ms(600)).build();
    let lock = client.unwrap().mutex_with(KEY, renewed(LEASE)).unwrap();
    for _ in 0..3 {
        let error = trial.timed(PATIENCE * 2, || lock.try_lock()).unwrap_err();
        assert!(
            error.is_unreachable() && error.to_string().contains("which is a replica"),
            "{error:?}"
        );
    }
    // The thread that follows the master polls all the time.
    let (injected, altered) = (lies.fired(), || proxies[0].tally_all(Direction::Reply).altered);
    until("the journal has all of them", || altered() >= injected);
    trial.witnessed(injected, altered(), "the proxy's journal");
    // Not even tried: it would have refused, and counted that.
    assert_eq!(ask::<String>(replica, &["INFO", "errorstats"]).len(), before);
    lies.remove();
    let guard = lock.try_lock_for(SOON).unwrap().expect("free");
    trial.minted(&guard);
    assert!(exists(master_of(&group), KEY));
    guard.release().unwrap();
}

/// No sentinel is there any more: connections that exist go on.
fn sentinels_gone_at_hold(trial: &Trial) {
    let group = common();
    let proxies = before_sentinels(&group);
    let client = client(proxies.iter().map(Proxy::url)).build().unwrap();
    let lock = client.mutex_with(KEY, renewed(LEASE * 2)).unwrap();
    let guard = lock.lock().unwrap();
    trial.minted(&guard);
    // The worker has a connection of its own once it has renewed.
    let mut last = guard.remaining();
    until("it is renewed", || {
        let left = guard.remaining();
        left > std::mem::replace(&mut last, left)
    });
    let refused = Refused { cut: true };
    let sites = group.sentinels.iter().zip(&proxies);
    let active: Vec<_> =
        sites.map(|(sentinel, proxy)| refused.inject(&Site::new(sentinel, proxy, KEY))).collect();
    let begin = Instant::now();
    while begin.elapsed() < ms(LEASE * 2 + 500) {
        assert!(guard.is_valid(), "{:?}", guard.loss());
        thread::sleep(ms(5));
    }
    active.iter().for_each(|active| trial.prove(active));
    guard.check().unwrap();
    trial.timed(PATIENCE, || guard.release()).unwrap();
    trial.timed(PATIENCE, || lock.try_lock()).unwrap().expect("free").release().unwrap();
}

/// All sentinels are unreachable, and there is no connection yet: that is reported in time.
fn sentinels_gone_at_connect(trial: &Trial) {
    let group = common();
    let proxies = before_sentinels(&group);
    let client = client(proxies.iter().map(Proxy::url)).give_up_after(ms(600)).build().unwrap();
    let lock = client.mutex_with(KEY, renewed(LEASE)).unwrap();
    let sites = group.sentinels.iter().zip(&proxies);
    let mut active: Vec<_> =
        sites.map(|(sentinel, proxy)| BlackHole.inject(&Site::new(sentinel, proxy, KEY))).collect();
    let error = trial.timed(PATIENCE * 2, || lock.try_lock()).unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    let error = trial.timed(ms(600) + PATIENCE * 2, || lock.lock()).unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    thread::sleep(ms(30));
    active[0].heal();
    trial.prove(&active[0]);
    // Those that are silent cost their time each time, and it is given up soon.
    let mut guard = None;
    until("one sentinel is enough", || {
        guard = lock.try_lock().ok().flatten();
        guard.is_some()
    });
    let guard = guard.expect("had");
    trial.minted(&guard);
    guard.release().unwrap();
}

/// A master and one replica that is up to date.
fn replicated() -> [Server; 2] {
    let builder = || Server::builder().tcp().arg("--repl-diskless-sync-delay").arg("0");
    let master = builder().start().expect("a server");
    let of = format!("127.0.0.1 {}", master.addr().port());
    let replica = builder().arg("--replicaof").arg(of).start().expect("a server");
    until("the replica is online", || {
        ask::<String>(&master, &["INFO", "replication"]).contains("state=online")
    });
    [master, replica]
}

/// Too few replicas have the lock in time: it is not granted, and released.
fn replica_fails(trial: &Trial, injector: &dyn Injector) {
    let [master, replica] = replicated();
    let proxy = Proxy::start(&replica).expect("a proxy");
    let client = LockClient::builder(master.url()).command_timeout(COMMAND).build().unwrap();
    let options = renewed(LEASE).min_replicas(1, COMMAND / 2);
    let lock = client.mutex_with(KEY, options).unwrap();
    until("a replica has it", || lock.try_lock().is_ok_and(|guard| guard.is_some()));
    let mut active = injector.inject(&Site::new(&replica, &proxy, KEY));
    for _ in 0..2 {
        let error = trial.timed(COMMAND, || lock.try_lock()).unwrap_err();
        assert!(error.is_not_replicated(), "{error:?}");
        assert!(!exists(&master, KEY) && !lock.is_held_by_current_thread());
    }
    active.heal();
    trial.prove(&active);
    until("it has caught up", || {
        let guard = lock.try_lock();
        guard.is_ok_and(|guard| {
            let guard = guard.expect("free");
            trial.minted(&guard);
            exists(&replica, KEY)
        })
    });
    until("it is given back", || !exists(&master, KEY));
}

/// The disk seems not to accept the server's writes.
fn disk_not_synced_at_acquire(trial: &Trial) {
    let options = renewed(LEASE).min_fsyncs(true, 0, COMMAND / 2);
    let lock = trial.client().mutex_with(KEY, options).unwrap();
    let before = trial.server.commands();
    for _ in 0..2 {
        let error = trial.timed(COMMAND, || lock.try_lock()).unwrap_err();
        // Redis before 7.2 lacks the command.
        assert!(error.is_not_fsynced() || error.is_config(), "{error:?}");
        trial.stays_away();
    }
    let touched = trial.server.commands().since(&before).calls("pexpire");
    trial.witnessed(2, touched, "INFO commandstats");
    let plain = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    trial.granted(&plain.try_lock().unwrap().expect("free"));
}

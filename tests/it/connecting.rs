//! Attempts to connect: how often, for how long, and who is told.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{SOON, ask, ms, patient, until};
use leasehold::redis::{ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo};
use leasehold::{Error, LockClient, QuorumClient};
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Cluster, Fault, Group, Proxy, Server};

/// For so long nobody asks for anything.
const REST: Duration = ms(3_000);

fn tcp() -> Server {
    Server::builder().tcp().start().expect("a server")
}

/// Makes the password of a user whom a client gives the password `wrong`.
fn set_password(server: &Server, password: &str) {
    let password = format!(">{password}");
    ask::<()>(server, &["ACL", "SETUSER", "locks", "reset", "on", &password, "~*", "&*", "+@all"]);
}

fn url(server: &Server) -> String {
    format!("redis://locks:wrong@{}", server.addr())
}

fn refused(server: &Server) -> u64 {
    server.error_count("WRONGPASS")
}

/// How many sign-ins each server refuses within this time, while nobody asks.
fn refused_within(rest: Duration, servers: &[Server]) -> Vec<u64> {
    servers.iter().for_each(Server::reset_stats);
    thread::sleep(rest);
    servers.iter().map(refused).collect()
}

/// Asks until the user is denied; a first attempt to connect may take longer than the caller waits.
fn denied<T: std::fmt::Debug>(mut attempt: impl FnMut() -> Result<T, Error>) {
    until("the user is denied", || attempt().is_err_and(|error| error.is_denied()));
}

#[test]
fn refused_password_is_not_sent_again_unprompted() {
    let server = tcp();
    set_password(&server, "right");
    let client = patient(LockClient::builder(url(&server))).min_idle(2).build().unwrap();
    let lock = client.mutex("x").unwrap();
    denied(|| lock.try_lock());
    let servers = [server];
    let counts = refused_within(REST, &servers);
    let [server] = servers;
    assert!(counts[0] <= 1, "{counts:?} refused sign-ins");
    // Each caller has one attempt, and its answer at once.
    server.reset_stats();
    for _ in 0..5 {
        assert!(lock.try_lock().unwrap_err().is_denied());
    }
    let count = refused(&server);
    assert!((5..=11).contains(&count), "{count} refused sign-ins");
    set_password(&server, "wrong");
    lock.try_lock().unwrap().expect("its own").release().unwrap();
}

#[test]
fn refused_password_is_not_repeated_at_any_of_several() {
    let servers: Vec<Server> = (0..3).map(|_| tcp()).collect();
    servers.iter().for_each(|server| set_password(server, "right"));
    let builder = QuorumClient::builder(servers.iter().map(url)).keeps_data(true);
    let client = builder.node_timeout(SOON).build().unwrap();
    let lock = client.mutex("x").unwrap();
    denied(|| lock.try_lock());
    let counts = refused_within(REST, &servers);
    assert!(counts.iter().all(|&count| count <= 1), "{counts:?} refused sign-ins");
    servers.iter().for_each(|server| set_password(server, "wrong"));
    lock.try_lock().unwrap().expect("its own").release().unwrap();
}

#[test]
fn refused_password_is_not_repeated_in_a_cluster() {
    let cluster = Cluster::start(3, 0).unwrap();
    cluster.masters().iter().for_each(|server| set_password(server, "right"));
    let urls: Vec<String> = cluster.masters().iter().map(url).collect();
    let client = patient(LockClient::builder(&urls[0]).cluster(&urls[1..])).build().unwrap();
    let lock = client.mutex("x").unwrap();
    denied(|| lock.try_lock());
    // A listener that retries unasked pauses for at most five seconds, so that this is time for two sign-ins.
    let counts = refused_within(ms(11_000), cluster.masters());
    assert!(counts.iter().all(|&count| count <= 1), "{counts:?} refused sign-ins");
    cluster.masters().iter().for_each(|server| set_password(server, "wrong"));
    until("it works", || lock.try_lock().is_ok());
}

#[test]
fn refused_password_is_not_repeated_at_sentinels() {
    let group = Group::start(0, ms(5_000)).unwrap();
    group.sentinels.iter().for_each(|sentinel| set_password(sentinel, "right"));
    let proxies: Vec<Proxy> =
        group.sentinels.iter().map(|it| Proxy::to_addr(it.addr()).unwrap()).collect();
    let urls = proxies.iter().map(|proxy| format!("redis://locks:wrong@{}", proxy.addr()));
    let builder = LockClient::builder("redis://mymaster/0").sentinels(urls);
    let client = patient(builder).build().unwrap();
    let lock = client.mutex("x").unwrap();
    denied(|| lock.try_lock());
    let accepted = || proxies.iter().map(Proxy::accepted).sum::<u64>();
    // The thread that listens to sentinels may ask each of them once more.
    thread::sleep(ms(1_500));
    let before = accepted();
    thread::sleep(REST);
    let count = accepted() - before;
    assert!(count <= 1, "{count} connections to sentinels");
    group.sentinels.iter().for_each(|sentinel| set_password(sentinel, "wrong"));
    lock.try_lock().unwrap().expect("its own").release().unwrap();
    until("it listens to a sentinel", || {
        let listens = |sentinel| {
            ask::<String>(sentinel, &["CLIENT", "LIST", "TYPE", "PUBSUB"]).contains("user=locks")
        };
        group.sentinels.iter().any(listens)
    });
}

/// One node refuses the user that listens at all of them.
#[test]
fn refusing_node_is_not_subscribed_to_unprompted() {
    let cluster = Cluster::start(3, 0).unwrap();
    cluster.masters().iter().for_each(|server| set_password(server, "wrong"));
    let urls: Vec<String> = cluster.masters().iter().map(url).collect();
    let builder = patient(LockClient::builder(&urls[0]).cluster(&urls[1..]));
    let client = builder.build().unwrap();
    let other =
        patient(LockClient::builder(cluster.urls().remove(0)).cluster([""; 0])).build().unwrap();
    let name = cluster.name_at(2, "x");
    let listens = |server: &Server| {
        ask::<String>(server, &["CLIENT", "LIST", "TYPE", "PUBSUB"]).contains("user=locks")
    };
    let held = other.mutex(&name).unwrap().lock().unwrap();
    let lock = client.mutex(&name).unwrap();
    until("it is refused", || matches!(lock.try_lock_for(ms(500)), Ok(None)));
    until("it listens at all", || cluster.masters().iter().all(listens));
    held.release().unwrap();
    let node = &cluster.masters()[2];
    set_password(node, "right");
    node.reset_stats();
    ask::<()>(node, &["CLIENT", "KILL", "USER", "locks"]);
    until("it is refused", || refused(node) > 0);
    thread::sleep(ms(3_000));
    // A listener that retries unasked pauses for at most five seconds, so that this is time for two sign-ins.
    let counts = refused_within(ms(11_000), cluster.masters());
    assert!(counts.iter().all(|&count| count <= 1), "{counts:?} refused sign-ins");
    set_password(node, "wrong");
    until("it works", || lock.try_lock().is_ok());
    until("it listens again", || listens(node));
}

#[test]
fn server_that_is_down_is_tried_ever_less_often() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&accepted);
    // It hangs up at once.
    thread::spawn(move || {
        while listener.accept().is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let client = LockClient::builder(url).build().unwrap();
    let lock = client.mutex("x").unwrap();
    assert!(lock.try_lock().unwrap_err().is_unreachable());
    let before = accepted.load(Ordering::SeqCst);
    thread::sleep(REST);
    let count = accepted.load(Ordering::SeqCst) - before;
    assert!(count <= 8, "{count} attempts in {REST:?}");
    // A caller does not wait for the end of a pause.
    let begin = Instant::now();
    assert!(lock.try_lock().unwrap_err().is_unreachable());
    assert!(begin.spent() < ms(300), "{:?}", begin.spent());
}

/// A server whose user has to sign in, and a proxy before it.
fn behind_sign_in() -> (Server, Proxy, String) {
    let server = tcp();
    set_password(&server, "wrong");
    let proxy = Proxy::start(&server).unwrap();
    let url = format!("redis://locks:wrong@{}", proxy.addr());
    (server, proxy, url)
}

#[test]
fn slow_connection_may_take_connect_timeout() {
    let (_server, proxy, url) = behind_sign_in();
    let slow = proxy.add(Fault::request("AUTH", Action::Delay(ms(4_500))));
    // Longer than the longest wait for a free connection and for a reply.
    let builder = LockClient::builder(url).max_wait(ms(3_000)).command_timeout(ms(3_000));
    let client = builder.connect_timeout(SOON).build().unwrap();
    client.mutex("x").unwrap().try_lock().unwrap().expect("its own").release().unwrap();
    assert_eq!(slow.fired(), 1);
}

/// While the only connection is stuck, and then while another is made, more time passes than a reply may
/// take.
#[test]
fn wait_for_a_free_connection_lasts_max_wait() {
    let (_server, proxy, url) = behind_sign_in();
    let builder = LockClient::builder(url).max_size(1).max_wait(SOON).connect_timeout(SOON);
    let client = builder.command_timeout(ms(3_000)).build().unwrap();
    client.mutex("x").unwrap().try_lock().unwrap().expect("its own").release().unwrap();
    let stuck = proxy.add(Fault::request("stuck", Action::Hold));
    let slow = proxy.add(Fault::request("AUTH", Action::Delay(ms(700))).sticky());
    thread::scope(|scope| {
        let lock = client.mutex("stuck").unwrap();
        let other = scope.spawn(move || lock.try_lock().map(drop));
        assert!(stuck.wait_fired(SOON));
        client.mutex("x").unwrap().try_lock().unwrap().expect("its own").release().unwrap();
        assert!(other.join().unwrap().unwrap_err().is_unknown_outcome());
    });
    assert!(slow.fired() > 0);
}

#[test]
fn connecting_time_does_not_count_as_max_wait() {
    let (_server, proxy, url) = behind_sign_in();
    let slow = proxy.add(Fault::request("AUTH", Action::Delay(ms(4_500))));
    // Less than it takes to connect: that time does not count as waiting for others.
    let builder = patient(LockClient::builder(url)).max_wait(ms(3_000));
    let client = builder.max_size(4).build().unwrap();
    thread::scope(|scope| {
        for number in 0..32 {
            let lock = client.mutex(format!("x{number}")).unwrap();
            scope.spawn(move || lock.try_lock().unwrap().expect("its own").release().unwrap());
        }
    });
    assert_eq!(slow.fired(), 1);
}

/// The thread that connects waits with the pool in its hands.
#[test]
fn dropped_client_closes_its_connections_while_refused() {
    let (server, proxy, url) = behind_sign_in();
    let client = LockClient::builder(url).max_wait(ms(300)).command_timeout(SOON).build().unwrap();
    client.mutex("x").unwrap().try_lock().unwrap().expect("its own").release().unwrap();
    set_password(&server, "right");
    let stuck = proxy.add(Fault::request("stuck", Action::Hold));
    thread::scope(|scope| {
        let lock = client.mutex("stuck").unwrap();
        let other = scope.spawn(move || lock.try_lock().map(drop));
        assert!(stuck.wait_fired(SOON));
        // It needs a second connection.
        assert!(client.mutex("x").unwrap().try_lock().unwrap_err().is_denied());
        stuck.release();
        other.join().unwrap().unwrap();
    });
    assert!(proxy.connections() > 0);
    drop(client);
    until("all are closed", || proxy.connections() == 0);
}

#[test]
fn connection_info_logs_in_and_selects_its_database() {
    let server = tcp();
    set_password(&server, "p@ss/word");
    let settings =
        || RedisConnectionInfo::default().set_username("locks").set_password("p@ss/word").set_db(3);
    let (host, port) = (server.addr().ip().to_string(), server.addr().port());
    for address in
        [ConnectionAddr::Tcp(host, port), ConnectionAddr::Unix(server.socket().to_owned())]
    {
        let info = address.into_connection_info().unwrap();
        let info = info.set_redis_settings(settings());
        let builder = LockClient::builder_with_info(info.clone());
        let builder = patient(builder).connect_now(true);
        assert!(!format!("{builder:?}").contains("p@ss"), "{builder:?}");
        let guard = builder.build().unwrap().mutex("x").unwrap().lock().unwrap();
        assert_eq!(ask::<String>(&server, &["INFO", "keyspace"]).matches("db3:").count(), 1);
        guard.release().unwrap();

        let one = QuorumClient::builder_with_info([info.clone()]).keeps_data(true).build().unwrap();
        one.mutex("y").unwrap().lock().unwrap().release().unwrap();
        let wrong = info.set_redis_settings(settings().set_password("s3cret"));
        let error = LockClient::builder_with_info(wrong).connect_now(true).build().unwrap_err();
        assert!(error.is_denied(), "{error:?}");
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }
}

/// How often a client connects in an outage of this length, which has waited before and may wait during it.
fn connects_in_outage(waits: bool, span: Duration) -> u64 {
    let server = tcp();
    let proxy = Proxy::start(&server).unwrap();
    let builder = LockClient::builder(proxy.url()).give_up_after(span * 10);
    let client = builder.build().unwrap();
    let (held, lock) =
        (crate::common::open(&server).mutex("x").unwrap(), client.mutex("x").unwrap());
    let guard = held.lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lock.lock().map(drop));
        until("it waits", || guard.waiters() == 1);
        if !waits {
            lock.cancel_waits();
            until("it has ended", || waiting.is_finished());
        }
        // The proxy goes on accepting connections, and ends each when it finds nobody behind it.
        let before = proxy.accepted();
        server.kill();
        thread::sleep(span);
        let count = proxy.accepted() - before;
        lock.cancel_waits();
        count
    })
}

#[test]
fn client_connects_less_often_the_longer_an_outage_lasts() {
    let span = ms(12_000);
    let [idle, waiting] = thread::scope(|scope| {
        [false, true]
            .map(|waits| scope.spawn(move || connects_in_outage(waits, span)))
            .map(|thread| thread.join().unwrap())
    });
    // Ten and more a second at first, as for a restart; then one every few seconds.
    assert!(idle <= 50 && waiting <= 110, "idle {idle}, waiting {waiting}");
}

/// The long round.
#[test]
#[ignore = "takes a minute"]
fn connects_in_an_outage_of_a_minute() {
    thread::scope(|scope| {
        for waits in [false, true] {
            scope.spawn(move || {
                let count = connects_in_outage(waits, ms(60_000));
                writeln!(std::io::stderr(), "waits: {waits}, {count} connects in 60 s").unwrap();
            });
        }
    });
}

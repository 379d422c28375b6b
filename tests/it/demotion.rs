//! A master becomes a replica, and its address leads to the new master, while connections to the old one
//! stay open.
//!
//! A replica passes on what its master publishes. A listener that stays there hears grants of which the
//! new master does not know that anybody hears them.

use std::sync::Mutex as Shared;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::queue::{listens, wait_for, waiting};
use crate::common::{
    AtLast, SOON, ask, exists, ms, open, open_at, patient, pttl, renewed, server, until, within,
};
use leasehold::{Guard, LockClient, LockClientBuilder, LockOptions, QuorumClient, Wait};
use leasehold_support::fault::{Direction, Operation};
use leasehold_support::lag::{self, Spent as _};
use leasehold_support::{Action, Cluster, Fault, Group, Proxy, Server};

/// A listener knows of a demotion that another connection of its client saw within half a second. It
/// takes ten for a sign of life.
const SEEN: Duration = ms(5_000);
/// So often is tried what only a machine with other work can delay.
const TRIALS: u32 = 4;
/// A listener asks after three seconds if it heard a message, or its client made another connection.
const ASKED: Duration = ms(6_000);
/// A silent listener asks after fifteen seconds.
const ASKED_IN_SILENCE: Duration = ms(18_000);
/// How a listener asks. Other connections send `HELLO` without a version.
const LISTENER_ASKS: &str = "HELLO\r\n$1\r\n3";
/// A wake-up came with a message, not with the next heartbeat.
const AT_ONCE: Duration = ms(700);

/// A master with one replica, and the address at which clients reach the master.
struct Pair {
    old: Server,
    new: Server,
    address: Proxy,
}

impl Pair {
    fn start() -> Pair {
        lag::watch();
        let start = |builder: leasehold_support::ServerBuilder| {
            builder.tcp().arg("--repl-diskless-sync-delay").arg("0").start().expect("a server")
        };
        let old = start(Server::builder());
        let of = format!("127.0.0.1 {}", old.addr().port());
        let new = start(Server::builder().arg("--replicaof").arg(of));
        follows(&new);
        let address = Proxy::start(&old).expect("a proxy");
        Pair { old, new, address }
    }

    fn client(&self) -> LockClientBuilder {
        patient(LockClient::builder(self.address.url())).give_up_after(SOON * 3)
    }

    /// A client that listens to the master.
    fn listening(&self) -> LockClient {
        let client = self.client().build().expect("a client");
        let before = listeners(&self.old);
        listens(&self.old, &client);
        assert_eq!(listeners(&self.old), before + 1);
        client
    }

    /// The replica becomes the master, and the master its replica. New connections reach the new master,
    /// and open ones stay.
    fn swap(&self) {
        let before = listeners(&self.old);
        ask::<()>(&self.new, &["REPLICAOF", "NO", "ONE"]);
        let port = self.new.addr().port().to_string();
        ask::<()>(&self.old, &["REPLICAOF", "127.0.0.1", &port]);
        self.address.lead_to(&self.new);
        follows(&self.old);
        assert_eq!(listeners(&self.old), before, "a listener left with the change of roles");
    }

    /// Waits until nobody listens to the replica any more, and `count` clients listen to the master.
    #[track_caller]
    fn moved(&self, count: usize) {
        until("the replica is left", || listeners(&self.old) == 0);
        until("the master is listened to", || listeners(&self.new) == count);
    }
}

/// Hands a lock over to a thread of the client, which hears of it at once.
#[track_caller]
fn hand_over(server: &Server, client: &LockClient) {
    let guard = open(server).mutex("handed").unwrap().lock().unwrap();
    let lock = client.mutex("handed").unwrap();
    thread::scope(|scope| {
        let waiter = wait_for(scope, &lock);
        until("it waits", || waiting(server, "handed") == 1);
        let begin = Instant::now();
        guard.release().unwrap();
        let took = waiter.join().unwrap().0.spent_since(begin);
        assert!(took < AT_ONCE, "{took:?}");
    });
}

/// Waits until a replica has all that its master has.
fn follows(replica: &Server) {
    until("it replicates", || {
        ask::<String>(replica, &["INFO", "replication"]).contains("master_link_status:up")
    });
}

fn channels(server: &Server) -> Vec<String> {
    ask(server, &["PUBSUB", "CHANNELS", "leasehold:*"])
}

/// A listener that hears a message asks within three seconds.
fn make_it_ask(server: &Server) {
    for channel in channels(server) {
        ask::<()>(server, &["PUBLISH", &channel, "n"]);
    }
}

/// How many clients listen to a server.
fn listeners(server: &Server) -> usize {
    channels(server).len()
}

/// A client meets the demotion, in whatever way, and no listener asks: it knows from the other connections. `meet` returns
/// whether the client has met it, and a guard that it has then.
///
/// Where the machine has other work for seconds, that takes longer; then it is tried again.
#[track_caller]
fn moves_when_it_is_seen(meet: impl Fn(&Pair, &LockClient) -> (bool, Option<Guard>)) {
    let moves = || {
        let pair = Pair::start();
        let client = pair.listening();
        let unasked = pair.address.add(Fault::request(LISTENER_ASKS, Action::Drop).sticky());
        let (is_met, held) = meet(&pair, &client);
        let moved = leaves_soon(|| listeners(&pair.old));
        unasked.remove();
        pair.moved(1);
        if let Some(held) = held {
            held.check().unwrap();
            held.release().unwrap();
        }
        hand_over(&pair.new, &client);
        is_met && moved
    };
    assert!((0..TRIALS).any(|_| moves()), "the listener leaves for want of a reply");
}

/// Waits until the replica is left, and returns whether that was sooner than a listener that asked would leave.
#[track_caller]
fn leaves_soon(listeners: impl Fn() -> usize) -> bool {
    within(SOON, "the replica is left", || listeners() == 0) < SEEN
}

#[test]
fn a_refused_script_moves_the_listener() {
    moves_when_it_is_seen(|pair, client| {
        pair.swap();
        match client.mutex("x").unwrap().try_lock() {
            Err(error) => {
                assert!(error.is_unreachable(), "{error:?}");
                (true, None)
            }
            // On a machine that stands still the connection was doubted, and the next one leads to the new master.
            Ok(guard) => (false, guard),
        }
    });
}

#[test]
fn a_refused_batch_moves_the_listener() {
    moves_when_it_is_seen(|pair, client| {
        pair.swap();
        thread::scope(|scope| {
            for number in 0..8 {
                let lock = client.mutex(format!("x{number}")).unwrap();
                scope.spawn(move || drop(lock.try_lock()));
            }
        });
        (true, None)
    });
}

#[test]
fn a_refused_transaction_moves_the_listener() {
    moves_when_it_is_seen(|pair, client| {
        // It is not renewed meanwhile.
        let guard = client.mutex_with("x", renewed(600_000)).unwrap().lock().unwrap();
        until("it is replicated", || exists(&pair.new, "x"));
        pair.swap();
        guard.transaction(|pipe| _ = pipe.set("{x}:stock", 7)).unwrap_err();
        // What is refused is the transaction, not a release.
        std::mem::forget(guard);
        (true, None)
    });
}

#[test]
fn a_refused_renewal_moves_the_listener() {
    moves_when_it_is_seen(|pair, client| {
        let guard = client.mutex_with("x", renewed(9_000)).unwrap().lock().unwrap();
        // By then the worker has its connection.
        let mut left = pttl(&pair.old, "x");
        until("it is renewed", || std::mem::replace(&mut left, pttl(&pair.old, "x")) < left);
        until("it is replicated", || exists(&pair.new, "x"));
        pair.swap();
        (true, Some(guard))
    });
}

/// A client that sends nothing on its other connections has nothing but the listener's own question.
#[track_caller]
fn finds_out(pair: &Pair, client: &LockClient, while_it_hears: bool) {
    let over = AtomicBool::new(false);
    let channel = channels(&pair.old).remove(0);
    thread::scope(|scope| {
        let end = AtLast(&over);
        pair.swap();
        if while_it_hears {
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(&channel).arg("n");
            let (mut connection, over) = (pair.new.connection(), &over);
            let heard = || pair.address.tally(Direction::Reply, Operation::Message).seen;
            let before = heard();
            scope.spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    publish.exec(&mut connection).expect("an answer");
                    thread::sleep(ms(20));
                }
            });
            until("the replica passes messages on", || heard() > before + 10);
        }
        let limit = if while_it_hears { ASKED } else { ASKED_IN_SILENCE };
        within(limit, "the replica is left", || listeners(&pair.old) == 0);
        pair.moved(1);
        drop(end);
    });
    hand_over(&pair.new, client);
}

#[test]
fn idle_listener_at_a_replica_finds_out() {
    let pair = Pair::start();
    finds_out(&pair, &pair.listening(), false);
}

#[test]
fn a_busy_listener_at_a_replica_finds_out() {
    let pair = Pair::start();
    finds_out(&pair, &pair.listening(), true);
}

#[test]
fn a_listener_of_a_user_without_role_finds_out() {
    let pair = Pair::start();
    for server in [&pair.old, &pair.new] {
        let all = ["ACL", "SETUSER", "locks", "on", ">secret", "~*", "&*", "+@all"];
        ask::<()>(server, &[&all[..], &["-hello", "-role", "-info", "-client"]].concat());
        let reply = ask::<String>(server, &["ACL", "DRYRUN", "locks", "ROLE"]);
        assert!(reply.contains("no permissions"), "{reply}");
    }
    let url = pair.address.url().replace("redis://", "redis://locks:secret@");
    let client = patient(LockClient::builder(url)).give_up_after(SOON).build().unwrap();
    listens(&pair.old, &client);
    finds_out(&pair, &client, true);
}

/// The other connections are lost, so no write is refused. Those that replace them reach the new master.
#[test]
fn new_connection_makes_an_idle_listener_ask_soon() {
    let pair = Pair::start();
    let client = pair.listening();
    // So one that waits for no reply is there.
    assert!(!client.mutex("x").unwrap().is_locked().unwrap());
    pair.swap();
    let killed: u64 = ask(&pair.old, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert!(killed > 0);
    let lock = client.mutex("x").unwrap();
    until("the client writes at the new master", || lock.try_lock().is_ok());
    within(ASKED, "the replica is left", || listeners(&pair.old) == 0);
    pair.moved(1);
    hand_over(&pair.new, &client);
}

/// Several reads time out before the reply comes.
#[test]
fn a_slow_reply_keeps_the_listener() {
    let server = server();
    let proxy = Proxy::start(&server).unwrap();
    let client = open_at(proxy.url());
    listens(&server, &client);
    let asked = || server.commands().calls("hello");
    let connection = || {
        let listening = ask::<String>(&server, &["CLIENT", "LIST", "TYPE", "pubsub"]);
        listening.split(' ').next().map(str::to_owned)
    };
    let before = connection();
    make_it_ask(&server);
    proxy.delay(ms(2_000));
    // Without a reply it would leave after thirteen seconds.
    let begin = (Instant::now(), asked());
    while begin.0.elapsed() < ms(15_000) {
        assert_eq!(connection(), before, "it has left");
        thread::sleep(ms(100));
    }
    let asked = asked() - begin.1;
    assert!((1..=6).contains(&asked), "it asked {asked} times");
    proxy.heal();
    hand_over(&server, &client);
}

/// Where the address still leads to the replica, nobody listens there.
#[test]
fn a_replica_is_refused_as_a_place_to_listen() {
    let pair = Pair::start();
    let client = pair.listening();
    ask::<()>(&pair.new, &["REPLICAOF", "NO", "ONE"]);
    let port = pair.new.addr().port().to_string();
    ask::<()>(&pair.old, &["REPLICAOF", "127.0.0.1", &port]);
    follows(&pair.old);
    make_it_ask(&pair.old);
    within(ASKED, "the replica is left", || listeners(&pair.old) == 0);
    let accepted = pair.address.accepted();
    until("it has tried again", || {
        assert_eq!(listeners(&pair.old), 0);
        pair.address.accepted() > accepted + 2
    });
    pair.address.lead_to(&pair.new);
    pair.moved(1);
    hand_over(&pair.new, &client);
}

/// Two clients wait at the old master when it is demoted. Whatever they hear, and wherever, one of them
/// has the lock at a time, and hand-overs work again in the end.
#[test]
fn waiters_of_a_demoted_master_never_hold_together() {
    let pair = Pair::start();
    let holder = pair.client().build().unwrap().mutex_with("x", renewed(60_000)).unwrap();
    let waiters = [pair.listening(), pair.listening()];
    let guard = holder.lock().unwrap();
    let (holds, over) = (Shared::new(Vec::new()), AtomicBool::new(false));
    thread::scope(|scope| {
        let end = AtLast(&over);
        for client in &waiters {
            let (lock, holds, over) = (client.mutex("x").unwrap(), &holds, &over);
            scope.spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    let guard = lock.lock().unwrap();
                    let begin = Instant::now();
                    thread::sleep(ms(40));
                    let (end, token) = (Instant::now(), guard.fencing_token().get());
                    if guard.is_valid() {
                        holds.lock().unwrap().push((begin, end, token));
                    }
                    let _ = guard.release();
                }
            });
        }
        until("both wait", || waiting(&pair.new, "x") == 2);
        pair.swap();
        // By then both have asked at the new master.
        thread::sleep(ms(2_500));
        until("its holder has moved", || guard.extend(ms(60_000)).is_ok());
        guard.release().unwrap();
        within(SOON, "they have it again and again", || holds.lock().unwrap().len() > 30);
        drop(end);
    });
    let mut holds = holds.into_inner().unwrap();
    holds.sort_unstable();
    for pair in holds.windows(2) {
        let late = pair[0].1.saturating_duration_since(pair[1].0);
        assert!(late.is_zero(), "two held it for {late:?}: {pair:?}");
        assert!(pair[0].2 < pair[1].2, "tokens must grow: {pair:?}");
    }
    pair.moved(2);
    hand_over(&pair.new, &waiters[0]);
}

/// The same for a server of several.
#[test]
fn quorum_listener_leaves_a_demoted_server() {
    assert!(
        (0..TRIALS).any(|_| quorum_listener_leaves()),
        "the listener leaves for want of a reply"
    );
}

/// Returns whether it left soon.
fn quorum_listener_leaves() -> bool {
    let pair = Pair::start();
    let others = [server(), server()];
    let client = |url: String| {
        let urls = [url, others[0].unix_url(), others[1].unix_url()];
        QuorumClient::builder(urls).keeps_data(true).node_timeout(SOON).build().unwrap()
    };
    let lock = |client: &QuorumClient| {
        client.mutex_with("x", LockOptions::new().wait(Wait::notify())).unwrap()
    };
    let (holder, waiter) = (client(pair.old.unix_url()), client(pair.address.url()));
    let guard = lock(&holder).lock().unwrap();
    let released = |server: &Server| {
        let (_, count): (String, usize) =
            ask(server, &["PUBSUB", "NUMSUB", "leasehold:released:x"]);
        count
    };
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lock(&waiter).lock().unwrap().release());
        until("it listens there, and asks there", || {
            released(&pair.old) == 1 && pair.address.connections() >= 2
        });
        let unasked = pair.address.add(Fault::request(LISTENER_ASKS, Action::Drop).sticky());
        pair.swap();
        // A replica can say that another holds a lock. It cannot write one.
        drop(waiter.mutex("y").unwrap().try_lock());
        let moved = leaves_soon(|| released(&pair.old));
        unasked.remove();
        until("the master is listened to", || released(&pair.new) == 1);
        guard.release().unwrap();
        waiting.join().unwrap().unwrap();
        moved
    })
}

/// How many `HELLO` each of them is sent in seven seconds in which no message is published: at most three.
#[track_caller]
fn asks_seldom(servers: &[Server]) {
    let asked = || servers.iter().map(|server| server.commands().calls("hello"));
    let (begin, before) = (Instant::now(), asked().collect::<Vec<_>>());
    thread::sleep(ms(7_000));
    let counts: Vec<_> = asked().zip(before).map(|(after, before)| after - before).collect();
    let most = 1 + begin.elapsed().as_secs() / 3;
    assert!(counts.iter().all(|count| *count <= most), "{counts:?} of at most {most}");
}

#[test]
fn idle_listener_asks_seldom() {
    let servers = [server()];
    let client = open(&servers[0]);
    listens(&servers[0], &client);
    asks_seldom(&servers);
}

#[test]
fn idle_listener_of_a_quorum_asks_seldom() {
    let servers = [server(), server(), server()];
    let lock = || {
        let builder = QuorumClient::builder(servers.iter().map(Server::unix_url));
        let client = builder.keeps_data(true).node_timeout(SOON).build().unwrap();
        client.mutex_with("x", LockOptions::new().wait(Wait::notify())).unwrap()
    };
    let (guard, lock) = (lock().lock().unwrap(), lock());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().unwrap().release());
        until("it listens", || servers.iter().all(|server| listeners(server) == 2));
        asks_seldom(&servers);
        guard.release().unwrap();
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn idle_listener_of_a_cluster_asks_seldom() {
    let cluster = Cluster::start(3, 0).unwrap();
    let urls = cluster.urls();
    let client = patient(LockClient::builder(&urls[0]).cluster(&urls[1..])).build().unwrap();
    let guard = client.mutex("x").unwrap().lock().unwrap();
    thread::scope(|scope| {
        let other = patient(LockClient::builder(&urls[0]).cluster(&urls[1..])).build().unwrap();
        let waiter = wait_for(scope, &other.mutex("x").unwrap());
        until("it listens", || cluster.masters().iter().all(|server| listeners(server) > 0));
        asks_seldom(cluster.masters());
        guard.release().unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn idle_listener_with_sentinels_asks_seldom() {
    let group = Group::start(1, ms(5_000)).unwrap();
    let sentinel = Proxy::start(&group.sentinels[0]).unwrap();
    let asked = sentinel.add(Fault::request(LISTENER_ASKS, Action::Delay(Duration::ZERO)).sticky());
    let url = format!("redis://{}", Group::MASTER);
    let client = LockClient::builder(url).sentinels([sentinel.url()]).build().unwrap();
    listens(&group.servers[0], &client);
    let before = asked.fired();
    asks_seldom(&group.servers[..1]);
    let asked = asked.fired() - before;
    assert!(asked <= 3, "the sentinel was asked {asked} times");
}

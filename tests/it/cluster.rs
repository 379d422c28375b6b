//! A cluster: each name on the master that has its slot, wherever that goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::kind::{KINDS, Kind};
use crate::common::{
    AtLast, HASTE, SLACK, SOON, all_renewed, ask, exists, fixed, ms, names, open_at, patient,
    renewed, until, within,
};
use leasehold::{
    Guard, Lease, LockClient, LockClientBuilder, LockOptions, LossCause, Release, Result, Wait,
};
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Cluster, Fault, Proxy, Server};
use redis::{Pipeline, Value};

fn start(masters: usize, replicas: usize) -> Cluster {
    Cluster::start(masters, replicas).expect("a cluster")
}

fn builder(cluster: &Cluster) -> LockClientBuilder {
    let urls = cluster.urls();
    LockClient::builder(&urls[0]).cluster(&urls[1..])
}

/// A client that bears a machine which is slow.
fn client(cluster: &Cluster) -> LockClient {
    patient(builder(cluster)).give_up_after(SOON * 3).build().expect("a client")
}

/// Critical sections of one name, none of which may overlap.
#[derive(Debug, Default)]
struct Sections {
    taken: AtomicBool,
    last: AtomicU64,
    count: AtomicU64,
}

impl Sections {
    fn enter(&self, guard: &Guard) {
        assert!(!self.taken.swap(true, Ordering::SeqCst), "another is inside");
        let token = guard.fencing_token().get();
        let last = self.last.swap(token, Ordering::SeqCst);
        assert!(last < token, "{last}, then {token}");
        thread::sleep(ms(1));
        assert!(guard.is_valid(), "{:?}", guard.loss());
        self.taken.store(false, Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn each_lock_is_at_the_master_of_its_slot() {
    let cluster = start(3, 0);
    let (one, other) = (client(&cluster), client(&cluster));
    for (home, master) in cluster.masters().iter().enumerate() {
        for number in 0..10 {
            let name = cluster.name_at(home, &format!("x{number}-"));
            let guard = one.mutex(&name).unwrap().lock().unwrap();
            assert!(exists(master, &name));
            assert!(other.mutex(&name).unwrap().try_lock().unwrap().is_none());
            assert!(other.mutex(&name).unwrap().holder().unwrap().is_some());
            guard.check().unwrap();
            guard.release().unwrap();
            let guard = other.mutex(&name).unwrap().try_lock().unwrap().expect("it is free");
            assert!(one.mutex(&name).unwrap().force_release().unwrap());
            assert!(guard.release().unwrap_err().is_lost());
            let reentrant = one.reentrant(&name).unwrap().lock().unwrap();
            assert!(other.reentrant(&name).unwrap().try_lock().unwrap().is_none());
            reentrant.release().unwrap();
        }
    }
    let errors =
        |code| cluster.masters().iter().map(|master| master.error_count(code)).sum::<u64>();
    assert_eq!((errors("MOVED"), errors("CROSSSLOT")), (0, 0));
}

#[test]
fn watch_replicas_transactions_work_in_a_cluster() {
    let cluster = start(3, 1);
    let client = client(&cluster);
    let watched = LockOptions::new().wait(Wait::spin()).release(Release::watch());
    for home in 0..3 {
        let name = cluster.name_at(home, "x");
        client.mutex_with(&name, watched).unwrap().lock().unwrap().release().unwrap();
        assert!(!exists(&cluster.nodes()[home], &name));
        let replicated = LockOptions::new().min_replicas(1, ms(20_000));
        let guard = client.mutex_with(&name, replicated).unwrap().lock().unwrap();
        assert_eq!(cluster.nodes()[home].commands().calls("wait"), 1);
        let stock = format!("{{{name}}}:stock");
        let written = guard.transaction(|pipe| _ = pipe.set(&stock, 7).get(&stock)).unwrap();
        assert_eq!(written, [Value::Okay, Value::BulkString(b"7".to_vec())]);
        // A key of another slot, be it of the same node or of another.
        let stranger = cluster.name_at(home, "stranger");
        for key in [stranger, cluster.name_at((home + 1) % 3, "stranger")] {
            let write = |pipe: &mut Pipeline| _ = pipe.set(&stock, 8).set(&key, 1);
            let error = guard.transaction(write).unwrap_err();
            assert!(error.is_refused(), "{error:?}");
            assert!(error.to_string().contains("slot of the lock"), "{error}");
        }
        assert_eq!(ask::<u32>(&cluster.nodes()[home], &["GET", &stock]), 7);
        guard.check().unwrap();
        guard.release().unwrap();
    }
}

#[test]
fn transactions_of_permits_apply_in_the_slot_of_the_lock_alone() {
    let cluster = start(3, 0);
    let client = client(&cluster);
    for home in 0..3 {
        let name = cluster.name_at(home, "x");
        let permit = client.semaphore_with(&name, 2, fixed(600_000)).unwrap().acquire().unwrap();
        let stock = format!("{{{name}}}:stock");
        let write = |third: &[&str]| {
            permit.transaction(|pipe| {
                let (name, rest) = third.split_first().unwrap();
                pipe.set(&stock, 7).cmd(name).arg(rest).get(&stock);
            })
        };
        let channel = format!("{{{name}}}:channel");
        let written = write(&["SPUBLISH", &channel, "message"]).unwrap();
        assert_eq!(written, [Value::Okay, Value::Int(0), Value::BulkString(b"7".to_vec())]);
        ask::<()>(&cluster.nodes()[home], &["SET", &stock, "8"]);
        // Of another slot, be it of the same node or of another.
        let stranger = cluster.name_at(home, "stranger");
        for key in [stranger, cluster.name_at((home + 1) % 3, "stranger")] {
            for third in [&["SET", &key, "1"][..], &["SPUBLISH", &key, "message"]] {
                let error = write(third).unwrap_err();
                assert!(error.is_refused(), "{third:?}: {error:?}");
                assert!(error.to_string().contains("slot of the lock"), "{error}");
                assert_eq!(ask::<u32>(&cluster.nodes()[home], &["GET", &stock]), 8, "{third:?}");
            }
        }
        permit.release().unwrap();
    }
}

/// A node that is moving the slot takes a key that an earlier command has deleted for one that it no longer has.
#[test]
fn transaction_of_a_permit_applies_nothing_while_its_slot_is_being_moved() {
    let cluster = start(3, 0);
    let hasty = builder(&cluster).command_timeout(HASTE).build().unwrap();
    let name = cluster.name_at(0, "x");
    let permit = hasty.semaphore_with(&name, 2, fixed(600_000)).unwrap().acquire().unwrap();
    let stock = format!("{{{name}}}:stock");
    ask::<()>(&cluster.nodes()[0], &["SET", &stock, "8"]);
    let slot = cluster.slot(&name);
    cluster.open(slot, 0, 1);
    let replace = || permit.transaction(|pipe| _ = pipe.del(&stock).set(&stock, 9));
    let error = replace().unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("being moved"), "{error}");
    assert_eq!(ask::<u32>(&cluster.nodes()[0], &["GET", &stock]), 8);
    // A lone command is whole in any case.
    let replies = permit.transaction(|pipe| _ = pipe.incr(&stock, 1)).unwrap();
    assert_eq!(replies, [Value::Int(9)]);
    while cluster.carry(slot, 0, 1, 100) > 0 {}
    cluster.close(slot, 0, 1);
    assert_eq!(replace().unwrap(), [Value::Int(1), Value::Okay]);
    permit.release().unwrap();
}

#[test]
fn a_slot_that_has_moved_is_followed() {
    let cluster = start(3, 0);
    let (holder, other) = (client(&cluster), client(&cluster));
    let name = cluster.name_at(0, "x");
    let guard = holder.mutex(&name).unwrap().lock().unwrap();
    assert!(other.mutex(&name).unwrap().try_lock().unwrap().is_none());
    cluster.migrate(cluster.slot(&name), 0, 2);
    let before = cluster.nodes()[0].error_count("MOVED");
    assert!(other.mutex(&name).unwrap().try_lock().unwrap().is_none());
    guard.extend(ms(60_000)).unwrap();
    assert_eq!(cluster.nodes()[0].error_count("MOVED"), before + 2);
    assert!(exists(&cluster.nodes()[2], &name));
    let token = guard.fencing_token();
    guard.release().unwrap();
    let guard = other.mutex(&name).unwrap().try_lock().unwrap().expect("it is free");
    assert!(guard.fencing_token() > token);
    // A client that was redirected once knows the way.
    assert_eq!(cluster.nodes()[0].error_count("MOVED"), before + 2);
}

/// A slot may be on its way for long. What is there is renewed, on one side and then on the other; all
/// else waits for the end.
#[test]
fn lock_in_a_migrating_slot_is_renewed_and_released() {
    let cluster = start(3, 0);
    let (source, target) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    let (holder, other) = (client(&cluster), client(&cluster));
    let name = cluster.name_at(0, "x");
    let slot = cluster.slot(&name);
    let mutex = holder.mutex_with(&name, renewed(9_000)).unwrap();
    let hash = format!("{{{name}}}:hash");
    let reentrant = holder.reentrant_with(&hash, renewed(9_000)).unwrap();
    // A renewal that named its queue, which is not there, would be refused.
    let lease = Lease::renewed(ms(9_000)).recoverable_for(ms(60_000));
    let options = LockOptions::new().lease(lease);
    let tailed = holder.mutex_with(format!("{{{name}}}:tail"), options).unwrap();
    let guards = [mutex.lock().unwrap(), reentrant.lock().unwrap(), tailed.lock().unwrap()];
    cluster.open(slot, 0, 1);
    // At the source, and then at the target.
    (0..3).for_each(|_| all_renewed(&guards));
    while cluster.carry(slot, 0, 1, 100) > 0 {}
    let before = source.error_count("ASK");
    (0..3).for_each(|_| all_renewed(&guards));
    assert!(source.error_count("ASK") > before);
    assert!(exists_asking(target, &name));
    let hasty = builder(&cluster).command_timeout(HASTE).build().unwrap();
    assert!(hasty.mutex(&name).unwrap().is_locked().unwrap());
    let error = hasty.mutex(&name).unwrap().try_lock().unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("being moved"), "{error}");
    assert!(target.error_count("TRYAGAIN") > 0);
    thread::scope(|scope| {
        let waits = scope.spawn(|| other.mutex(&name).unwrap().lock().unwrap().release());
        let gives = scope.spawn(|| {
            let guard = holder.mutex_with(format!("{{{name}}}:2"), fixed(60_000)).unwrap();
            guard.lock().unwrap().release()
        });
        thread::sleep(ms(300));
        assert!(!waits.is_finished() && !gives.is_finished());
        cluster.close(slot, 0, 1);
        gives.join().unwrap().unwrap();
        for guard in guards {
            guard.check().unwrap();
            guard.release().unwrap();
        }
        waits.join().unwrap().unwrap();
    });
    until("nothing is left behind", || !exists(target, &name) && !exists(target, &hash));
}

/// The word, too, is there for as long as somebody leads, and so a renewal that touches it runs on either side.
#[test]
fn leadership_in_a_migrating_slot_is_renewed_with_its_word() {
    let cluster = start(3, 0);
    let (holder, other) = (client(&cluster), client(&cluster));
    let name = cluster.name_at(0, "x");
    let slot = cluster.slot(&name);
    let election = holder.election_with(&name, renewed(6_000)).unwrap();
    let silent = holder.election_with(format!("{{{name}}}:2"), renewed(6_000)).unwrap();
    let leaderships = [election.campaign().unwrap(), silent.campaign().unwrap()];
    leaderships[0].proclaim("word").unwrap();
    let renewed_again = |what: &str| {
        for leadership in &leaderships {
            let mut before = leadership.remaining();
            until(what, || {
                let now = leadership.remaining();
                now > std::mem::replace(&mut before, now)
            });
        }
    };
    cluster.open(slot, 0, 1);
    for _ in 0..2 {
        renewed_again("renewed at the source");
    }
    // A word is said on the side that has the keys.
    leaderships[0].proclaim("second").unwrap();
    while cluster.carry(slot, 0, 1, 100) > 0 {}
    for _ in 0..2 {
        renewed_again("renewed at the target");
    }
    leaderships[0].proclaim("third").unwrap();
    assert!(exists_asking(&cluster.nodes()[1], &format!("{{{name}}}:word")));
    cluster.close(slot, 0, 1);
    let leader = other.election(&name).unwrap().leader().unwrap().unwrap();
    assert_eq!(leader.term(), Some(leaderships[0].term()));
    assert_eq!(leader.value(), Some(&b"third"[..]));
    for leadership in leaderships {
        leadership.check().unwrap();
        leadership.resign().unwrap();
    }
}

fn exists_asking(node: &Server, key: &str) -> bool {
    let mut connection = node.connection();
    redis::cmd("ASKING").exec(&mut connection).expect("a node of a cluster");
    redis::cmd("EXISTS").arg(key).query(&mut connection).expect("an answer")
}

/// All keys are there, and yet a hand-over would fail half-way: the queue is gone once it has taken
/// the last waiter out.
#[test]
fn hand_over_in_a_migrating_slot_is_whole_or_none() {
    let cluster = start(2, 0);
    let (holder, waiter) = (client(&cluster), client(&cluster));
    let name = cluster.name_at(0, "x");
    let slot = cluster.slot(&name);
    let source = &cluster.nodes()[0];
    let owner = || ask::<Option<String>>(source, &["GET", &name]);
    let lock = holder.mutex(&name).unwrap();
    let (has, go) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let gives = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            has.store(true, Ordering::SeqCst);
            until("it is to give it back", || go.load(Ordering::SeqCst));
            guard.release()
        });
        let wait = |what, flag: &AtomicBool| until(what, || flag.load(Ordering::SeqCst));
        wait("it is held", &has);
        let waits = scope.spawn(|| waiter.mutex(&name).unwrap().lock().unwrap().release());
        let queue = format!("{{{name}}}:queue");
        until("it waits", || ask::<u32>(source, &["ZCARD", &queue]) == 1);
        let before = owner();
        cluster.open(slot, 0, 1);
        let refused = source.error_count("TRYAGAIN");
        go.store(true, Ordering::SeqCst);
        until("it was refused", || source.error_count("TRYAGAIN") > refused + 3);
        assert!(before.is_some() && owner() == before);
        assert!(!gives.is_finished() && !waits.is_finished());
        while cluster.carry(slot, 0, 1, 100) > 0 {}
        cluster.close(slot, 0, 1);
        gives.join().unwrap().unwrap();
        waits.join().unwrap().unwrap();
    });
}

/// The renewal of a lease that is over names the line, to which it yields, and such a node refuses a name that is not there.
/// Nobody who waits can ask it either, so the renewal insists (rule 50).
#[test]
fn hold_comes_back_in_a_migrating_slot() {
    let cluster = start(2, 0);
    let client = builder(&cluster).command_timeout(ms(300)).build().unwrap();
    let name = cluster.name_at(0, "x");
    let (slot, source) = (cluster.slot(&name), &cluster.nodes()[0]);
    let lease = Lease::renewed(ms(1_000)).recoverable_for(SOON * 6);
    let lock = client.mutex_with(&name, LockOptions::new().lease(lease)).unwrap();
    let guard = lock.lock().unwrap();
    let token = guard.fencing_token();
    cluster.open(slot, 0, 1);
    let refused = || source.error_count("TRYAGAIN") > 0;
    // A renewal that was on its way may still be in time there.
    while !refused() {
        source.pause();
        until("its lease is over", || !guard.is_valid());
        thread::sleep(ms(1_000));
        source.resume();
        until("a renewal has come", || refused() || guard.is_valid());
    }
    until("it is confirmed", || guard.is_valid());
    assert_eq!(guard.fencing_token(), token);
    assert_eq!(cluster.carry(slot, 0, 1, 100), 2, "the lock and its fence");
    cluster.close(slot, 0, 1);
    guard.release().unwrap();
}

/// Several clients want one lock while its slot goes round and round.
fn moved_under_load(lock: impl Fn(&LockClient, &str) -> Result<Guard> + Sync) {
    const ROUNDS: usize = 9;
    let cluster = start(3, 0);
    let name = cluster.name_at(0, "x");
    let slot = cluster.slot(&name);
    // What else is in the slot makes the way longer.
    for number in 0..100 {
        let key = format!("{{{name}}}:ballast{number}");
        ask::<()>(&cluster.nodes()[0], &["SET", &key, "x"]);
    }
    let (sections, stop) = (Sections::default(), AtomicBool::new(false));
    let clients: Vec<LockClient> = (0..3).map(|_| client(&cluster)).collect();
    let errors = |code| cluster.masters().iter().map(|node| node.error_count(code)).sum::<u64>();
    thread::scope(|scope| {
        let _end = AtLast(&stop);
        for client in clients.iter().chain(&clients) {
            let (sections, stop, lock, name) = (&sections, &stop, &lock, &name);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let guard = lock(client, name).expect("no error while the slot moves");
                    sections.enter(&guard);
                    guard.release().expect("no error while the slot moves");
                }
            });
        }
        for round in 0.. {
            let count = sections.count.load(Ordering::SeqCst);
            until("they go on", || sections.count.load(Ordering::SeqCst) > count + 20);
            let (from, to) = (round % 3, (round + 1) % 3);
            cluster.open(slot, from, to);
            while cluster.carry(slot, from, to, 3) > 0 {}
            cluster.close(slot, from, to);
            // It may be that nobody came while the keys were here and there, or that all learned of a
            // move by asking for the map, which was due.
            let shown = errors("TRYAGAIN") > 0 && errors("MOVED") >= ROUNDS as u64;
            if round + 1 >= ROUNDS && (shown || round > ROUNDS * 20) {
                break;
            }
        }
    });
    assert!(errors("MOVED") >= ROUNDS as u64, "{}", errors("MOVED"));
    assert!(errors("TRYAGAIN") > 0);
    assert!(sections.count.load(Ordering::SeqCst) > 20 * ROUNDS as u64);
    let nodes = cluster.nodes().iter();
    let scripts = nodes.map(|node| node.log()).filter(|log| log.contains("non local key"));
    assert_eq!(scripts.count(), 0);
}

#[test]
fn slot_moves_under_a_queue() {
    moved_under_load(|client, name| client.mutex(name)?.lock());
}

#[test]
fn slot_moves_under_waiters_of_a_reentrant_lock() {
    moved_under_load(|client, name| client.reentrant(name)?.lock());
}

#[test]
fn slot_moves_under_spinning_waiters() {
    let options = LockOptions::new().wait(Wait::spin()).release(Release::watch());
    moved_under_load(move |client, name| client.mutex_with(name, options)?.lock());
}

/// How many clients listen to their own channel at a node.
fn ears(node: &Server) -> usize {
    ask::<Vec<String>>(node, &["PUBSUB", "CHANNELS", "leasehold:*"]).len()
}

/// So many hand-overs between two clients, by turns; each would take a heartbeat if it were not for the
/// messages.
fn hand_over(cluster: &Cluster, clients: &[LockClient; 2], name: &str, times: u32) {
    let queue = format!("{{{name}}}:queue");
    let home = &cluster.nodes()[cluster.home(name)];
    let mut guard = Some(clients[0].mutex(name).unwrap().lock().unwrap());
    let begin = Instant::now();
    for number in 0..times {
        let next = &clients[usize::from(number % 2 == 0)];
        guard = thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let guard = next.mutex(name).unwrap().lock().unwrap();
                guard.into_owned().unwrap_or_else(|_| panic!("held once"))
            });
            until("it waits", || ask::<u32>(home, &["ZCARD", &queue]) == 1);
            guard.take().expect("somebody has it").release().unwrap();
            Some(waits.join().unwrap().into_guard())
        });
    }
    let took = begin.spent();
    assert!(took < Duration::from_secs(1) * times / 2, "{times} hand-overs took {took:?}");
}

#[test]
fn a_waiter_is_woken_by_a_message_wherever_it_listens() {
    let cluster = start(3, 0);
    let clients = [client(&cluster), client(&cluster)];
    for home in 0..3 {
        let name = cluster.name_at(home, "x");
        hand_over(&cluster, &clients, &name, 10);
        let channel = format!("r{name}");
        let guard = clients[0].reentrant(&channel).unwrap().lock().unwrap();
        thread::scope(|scope| {
            let waits =
                scope.spawn(|| clients[1].reentrant(&channel).unwrap().lock().unwrap().release());
            let heard = format!("redisson_lock__channel:{{{channel}}}");
            until("it listens", || {
                cluster.nodes().iter().any(|node| {
                    !ask::<Vec<String>>(node, &["PUBSUB", "CHANNELS", &heard]).is_empty()
                })
            });
            guard.release().unwrap();
            waits.join().unwrap().unwrap();
        });
    }
}

/// Redisson's waiters listen to the channel of the slot where there is one.
#[test]
fn sharded_subscriber_receives_a_release() {
    let cluster = start(3, 0);
    let name = cluster.name_at(2, "x");
    let lock = client(&cluster).reentrant(&name).unwrap();
    let channel = format!("redisson_lock__channel:{{{name}}}");
    let mut listener = cluster.nodes()[2].connection();
    let subscribe = redis::cmd("SSUBSCRIBE").arg(&channel).get_packed_command();
    listener.send_packed_command(&subscribe).unwrap();
    let mut hear =
        || redis::from_redis_value::<Vec<Value>>(listener.recv_response().unwrap()).unwrap();
    assert_eq!(hear()[2], Value::Int(1));
    let text = |text: &str| Value::BulkString(text.into());
    lock.lock().unwrap().release().unwrap();
    assert_eq!(hear(), [text("smessage"), text(&channel), text("0")]);
    let guard = lock.lock().unwrap();
    assert!(lock.force_release().unwrap());
    assert_eq!(hear(), [text("smessage"), text(&channel), text("0")]);
    assert!(guard.release().is_err());
}

/// The nodes pass on what is published, but that may take them long: a message is heard at once only
/// where it is published.
#[test]
fn client_subscribes_at_every_master_and_at_the_names() {
    let cluster = start(3, 0);
    let clients = [client(&cluster), client(&cluster)];
    let all = |count| cluster.nodes().iter().all(|node| ears(node) == count);
    let name = cluster.name_at(0, "x");
    hand_over(&cluster, &clients, &name, 2);
    until("they listen everywhere", || all(2));
    let channel = format!("redisson_lock__channel:{{{name}r}}");
    let name = format!("{{{name}r}}");
    let home = cluster.home(&name);
    let heard =
        |node: &Server| !ask::<Vec<String>>(node, &["PUBSUB", "CHANNELS", &channel]).is_empty();
    let where_heard =
        || -> Vec<usize> { (0..3).filter(|&number| heard(&cluster.nodes()[number])).collect() };
    let guard = clients[0].reentrant(&name).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| clients[1].reentrant(&name).unwrap().lock().unwrap().release());
        until("it listens", || !where_heard().is_empty());
        // Threads that look every now and then have looked.
        thread::sleep(ms(600));
        assert_eq!(where_heard(), [home]);
        let next = (home + 1) % 3;
        cluster.migrate(cluster.slot(&name), home, next);
        until("it listens where the name is now", || where_heard() == [next]);
        guard.release().unwrap();
        waits.join().unwrap().unwrap();
    });
    drop(clients);
    until("nobody listens any longer", || all(0));
}

#[test]
fn client_subscribes_at_a_promoted_master() {
    let cluster = start(3, 1);
    let clients = [client(&cluster), client(&cluster)];
    let name = cluster.name_at(0, "x");
    hand_over(&cluster, &clients, &name, 2);
    let (old, promoted) = (&cluster.nodes()[0], &cluster.nodes()[3]);
    until("they listen", || ears(old) == 2);
    assert_eq!(ears(promoted), 0);
    let guard = clients[0].mutex(cluster.name_at(1, "kept")).unwrap().lock().unwrap();
    old.kill();
    within(SOON * 4, "they listen to the promoted one", || ears(promoted) == 2);
    guard.release().unwrap();
    let lock = clients[0].mutex(&name).unwrap();
    until("it serves", || lock.try_lock().is_ok_and(|guard| guard.is_some()));
    let queue = format!("{{{name}}}:queue");
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| clients[1].mutex(&name).unwrap().lock().unwrap().release());
        until("it waits", || ask::<u32>(promoted, &["ZCARD", &queue]) == 1);
        guard.release().unwrap();
        waits.join().unwrap().unwrap();
    });
}

#[test]
fn unreachable_master_stops_no_messages_of_the_others() {
    let cluster = Cluster::start_with(3, 0, &["--cluster-require-full-coverage", "no"]).unwrap();
    let clients = [client(&cluster), client(&cluster)];
    hand_over(&cluster, &clients, &cluster.name_at(0, "x"), 2);
    cluster.nodes()[1].kill();
    for home in [0, 2] {
        hand_over(&cluster, &clients, &cluster.name_at(home, "y"), 10);
    }
    // Also those who never heard it.
    let clients = [client(&cluster), client(&cluster)];
    for home in [0, 2] {
        hand_over(&cluster, &clients, &cluster.name_at(home, "z"), 10);
    }
}

/// A cluster, and clients that may not listen at its first master.
fn deaf_at_the_first_master() -> (Cluster, [LockClient; 2]) {
    let cluster = start(3, 0);
    for (number, node) in cluster.nodes().iter().enumerate() {
        let rule = ["ACL", "SETUSER", "locks", "on", ">secret", "~*", "&*", "+@all"];
        ask::<()>(node, &rule);
        if number == 0 {
            ask::<()>(node, &["ACL", "SETUSER", "locks", "-subscribe"]);
        }
    }
    let url = cluster.urls()[0].replace("redis://", "redis://locks:secret@");
    let clients =
        [(); 2].map(|()| patient(LockClient::builder(&url).cluster([""; 0])).build().unwrap());
    (cluster, clients)
}

/// Rule 12: the master of the name counts no listener, and hands over all the same.
#[test]
fn waiter_subscribed_only_elsewhere_is_handed_the_lock() {
    let (cluster, clients) = deaf_at_the_first_master();
    let (home, name) = (&cluster.nodes()[0], cluster.name_at(0, "x"));
    let guard = clients[0].mutex(&name).unwrap().lock().unwrap();
    let looked = AtomicBool::new(false);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let guard = clients[1].mutex(&name).unwrap().lock().unwrap();
            until("what ran was looked at", || looked.load(Ordering::SeqCst));
            guard.release()
        });
        until("it waits", || ask::<u32>(home, &["ZCARD", &format!("{{{name}}}:queue")]) == 1);
        home.reset_stats();
        guard.release().unwrap();
        let ran = home.commands();
        looked.store(true, Ordering::SeqCst);
        assert!(ran.calls("publish") >= 1 && ran.calls("del") == 0, "{ran:?}");
        waits.join().unwrap().unwrap();
    });
}

/// Its releases find nobody who listens there, and wake who waits all the same.
#[test]
fn waiter_refused_at_its_master_is_woken_by_the_others() {
    let (cluster, clients) = deaf_at_the_first_master();
    for home in 0..3 {
        hand_over(&cluster, &clients, &cluster.name_at(home, "x"), 10);
    }
    assert_eq!([0, 1, 2].map(|number| ears(&cluster.nodes()[number])), [0, 2, 2]);
    let name = cluster.name_at(0, "r");
    let guard = clients[0].reentrant(&name).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| clients[1].reentrant(&name).unwrap().lock().unwrap().release());
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let heard = |node| !ask::<Vec<String>>(node, &["PUBSUB", "CHANNELS", &channel]).is_empty();
        until("it listens at another", || cluster.nodes()[1..].iter().any(heard));
        guard.release().unwrap();
        waits.join().unwrap().unwrap();
    });
}

/// Rule 12: what was said while nobody listened is made good by asking.
#[test]
fn waiter_asks_again_after_resubscription_at_its_master() {
    const ROUNDS: u32 = 10;
    let cluster = start(3, 0);
    let (holder, waiter) = (client(&cluster), client(&cluster));
    let (name, other) = (cluster.name_at(0, "x"), cluster.name_at(1, "y"));
    let home = &cluster.nodes()[0];
    let guards = [&name, &other].map(|name| holder.mutex(name).unwrap().lock().unwrap());
    thread::scope(|scope| {
        let waits = [&name, &other].map(|name| {
            let lock = waiter.mutex(name).unwrap();
            scope.spawn(move || lock.lock().unwrap().release())
        });
        let joined = || ask::<u32>(home, &["ZCARD", &format!("{{{name}}}:queue")]) == 1;
        until("it waits", || joined() && cluster.nodes().iter().all(|node| ears(node) == 1));
        let calls = || home.commands().calls("evalsha");
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            let before = calls();
            ask::<()>(home, &["CLIENT", "KILL", "TYPE", "pubsub"]);
            until("it asks again", || calls() > before);
        }
        let took = begin.spent();
        guards.into_iter().for_each(|guard| guard.release().unwrap());
        waits.into_iter().for_each(|waits| waits.join().unwrap().unwrap());
        // Else it asked only because a heartbeat was due.
        assert!(took < Duration::from_secs(1) * ROUNDS / 2, "{ROUNDS} rounds took {took:?}");
    });
}

/// A client that counts how often it is asked to let go.
fn counting(cluster: &Cluster) -> (LockClient, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&asked);
    let builder = builder(cluster).command_timeout(SOON).on_release_request(move |_| {
        counts.fetch_add(1, Ordering::SeqCst);
    });
    (builder.build().expect("a client"), asked)
}

/// What every master tells is told once, and what one is not listened to for the others tell.
#[test]
fn release_request_is_delivered_once_each_time() {
    let cluster = start(3, 0);
    let ((holder, asked), other) = (counting(&cluster), client(&cluster));
    hand_over(&cluster, &[holder.clone(), other.clone()], &cluster.name_at(0, "warm"), 1);
    until("both listen everywhere", || cluster.nodes().iter().all(|node| ears(node) == 2));
    let mut made = 0;
    // Held until all is heard: who holds nothing is asked for nothing.
    let mut guards = Vec::new();
    for (home, node) in cluster.nodes().iter().enumerate() {
        let name = cluster.name_at(home, "x");
        guards.push(holder.mutex(&name).unwrap().lock().unwrap());
        let lock = other.mutex(&name).unwrap();
        for _ in 0..3 {
            lock.request_release().unwrap();
            ask::<()>(node, &["CLIENT", "KILL", "TYPE", "pubsub"]);
            made += 1;
        }
        until("they are told", || asked.load(Ordering::SeqCst) >= made);
        until("they listen there again", || ears(node) == 2);
    }
    // The slowest way between two nodes takes a tenth of this.
    thread::sleep(ms(500));
    assert_eq!(asked.load(Ordering::SeqCst), made);
    guards.into_iter().for_each(|guard| guard.release().unwrap());
}

/// Some are listened to no longer, and others not yet.
#[test]
fn release_request_is_delivered_while_masters_change() {
    let cluster = start(3, 1);
    let ((holder, asked), other) = (counting(&cluster), client(&cluster));
    let name = cluster.name_at(0, "x");
    hand_over(&cluster, &[holder.clone(), other.clone()], &name, 1);
    let lock = other.mutex(&name).unwrap();
    let guard = holder.mutex(&name).unwrap().lock().unwrap();
    let mut made = 0;
    let mut request = |guard: &Guard| {
        lock.request_release().unwrap();
        made += 1;
        // Its client learns where the lock is now.
        guard.check().unwrap();
    };
    for round in 0..4 {
        let [old, heir] = [round % 2, 1 - round % 2].map(|half| &cluster.nodes()[3 * half]);
        // A node that has not heard of the last change may have told one of them an older map, which it keeps
        // until a command is sent elsewhere.
        until("they listen", || {
            guard.check().unwrap();
            lock.is_locked().unwrap();
            ears(old) == 2
        });
        until("the heir has all", || ask::<u32>(old, &["WAIT", "1", "100"]) == 1);
        ask::<()>(heir, &["CLUSTER", "FAILOVER", "TAKEOVER"]);
        until("they listen to the heir", || {
            request(&guard);
            ears(heir) == 2
        });
    }
    until("they are told", || asked.load(Ordering::SeqCst) >= made);
    thread::sleep(ms(500));
    assert_eq!(asked.load(Ordering::SeqCst), made);
    guard.release().unwrap();
}

/// Commands for each time that one lock was taken by one of three clients that want it.
fn price(masters: usize, kind: &Kind) -> f64 {
    const EACH: u32 = 40;
    let cluster = start(masters, 0);
    let clients: [LockClient; 3] = std::array::from_fn(|_| client(&cluster));
    let name = cluster.name_at(0, "x");
    let section = |client: &LockClient| {
        let guard = kind.open(client, &name).lock().expect("it is ridden out");
        thread::sleep(ms(2));
        guard.release().expect("it is still held");
    };
    let contend = |times: u32| {
        thread::scope(|scope| {
            for client in &clients {
                scope.spawn(move || (0..times).for_each(|_| section(client)));
            }
        });
    };
    until("all have waited, and listen", || {
        contend(1);
        cluster.nodes().iter().all(|node| ears(node) == clients.len())
    });
    let count = || -> Vec<_> { cluster.nodes().iter().map(Server::commands).collect() };
    let before = count();
    contend(EACH);
    let sent: u64 = count()
        .iter()
        .zip(&before)
        .map(|(after, before)| after.since(before).client_commands(&["info", "pubsub", "ping"]))
        .sum();
    sent as f64 / f64::from(EACH * 3)
}

#[test]
fn a_lock_costs_no_more_where_there_are_more_masters() {
    for kind in KINDS {
        let (one, five) = (price(1, kind), price(5, kind));
        assert!(five < one * 1.5 + 0.2, "{}: {one:.2}, and {five:.2} at five masters", kind.name);
    }
}

/// A waiter that was killed cannot be told from one that listens on another node. It is handed the
/// lock, which is over when its window is.
#[test]
fn dead_waiter_delays_the_queue_by_its_window_at_most() {
    let cluster = start(3, 0);
    let name = cluster.name_at(0, "x");
    let holder = client(&cluster).mutex(&name).unwrap().lock().unwrap();
    let home = &cluster.nodes()[0];
    let (queue, beats) = (format!("{{{name}}}:queue"), format!("{{{name}}}:beats"));
    let dead = "1q:0123456789abcdef:1:500:1:host:label";
    ask::<()>(home, &["ZADD", &queue, "1", dead]);
    ask::<()>(home, &["ZADD", &beats, "99999999999999999", dead]);
    thread::scope(|scope| {
        let waits =
            scope.spawn(|| client(&cluster).mutex(&name).unwrap().lock().unwrap().release());
        until("it waits", || ask::<u32>(home, &["ZCARD", &queue]) == 2);
        holder.release().unwrap();
        assert_eq!(ask::<Option<String>>(home, &["GET", &name]).as_deref(), Some(dead));
        waits.join().unwrap().unwrap();
    });
}

/// Deposes the first master, and looks what becomes of those who hold and those who wait.
fn fail_over(depose: impl Fn(&Server), refuses: bool) -> Cluster {
    let cluster = start(3, 1);
    let (holder, waiter) = (client(&cluster), client(&cluster));
    // Knows where all slots are, and was never at the first master.
    let stranger = client(&cluster);
    stranger.mutex(cluster.name_at(1, "z")).unwrap().lock().unwrap().release().unwrap();
    let sections = Sections::default();
    let name = cluster.name_at(0, "x");
    let gone = format!("{{{name}}}:gone");
    let replica = &cluster.nodes()[3];
    let kept = holder.mutex_with(&name, renewed(30_000)).unwrap().lock().unwrap();
    let lost = holder.mutex_with(&gone, renewed(30_000)).unwrap().lock().unwrap();
    let elsewhere = holder.mutex(cluster.name_at(1, "y")).unwrap().lock().unwrap();
    thread::scope(|scope| {
        for client in [&waiter, &holder] {
            let (sections, name) = (&sections, &name);
            scope.spawn(move || {
                for _ in 0..10 {
                    let guard = client.mutex(name).unwrap().lock().expect("it rides that out");
                    sections.enter(&guard);
                    guard.release().expect("the new master takes it");
                }
            });
        }
        let queue = format!("{{{name}}}:queue").into_bytes();
        until("the replica knows all", || {
            let keys = replica.keys();
            keys.contains(&queue) && keys.contains(&gone.clone().into_bytes())
        });
        depose(&cluster.nodes()[0]);
        within(SOON * 3, "the replica was promoted", || {
            ask::<String>(replica, &["INFO", "replication"]).contains("role:master")
        });
        within(SOON * 3, "it serves", || {
            ask::<String>(replica, &["CLUSTER", "INFO"]).contains("cluster_state:ok")
        });
        let id = cluster.id(3);
        within(SOON * 3, "all know of it", || {
            [1, 2].iter().all(|&number| {
                let nodes: String = ask(&cluster.nodes()[number], &["CLUSTER", "NODES"]);
                nodes.lines().any(|line| line.contains(&id) && line.contains(" master "))
            })
        });
        if refuses {
            let lock = stranger.mutex(cluster.name_at(0, "z")).unwrap();
            lock.try_lock().unwrap().expect("it is free").release().unwrap();
        }
        ask::<()>(replica, &["DEL", &gone]);
        within(SOON * 2, "the holder is told", || lost.loss().is_some());
        assert_eq!(lost.loss().unwrap().cause(), LossCause::Deleted);
        kept.check().expect("it is renewed on the new master");
        assert!(elsewhere.is_valid());
        assert!(!sections.taken.load(Ordering::SeqCst));
        sections.last.store(kept.fencing_token().get(), Ordering::SeqCst);
        kept.release().expect("the new master takes it");
    });
    assert_eq!(sections.count.load(Ordering::SeqCst), 20);
    elsewhere.release().unwrap();
    cluster
}

#[test]
fn a_replica_takes_the_place_of_a_master_that_was_killed() {
    fail_over(Server::kill, true);
}

#[test]
fn a_replica_takes_the_place_of_a_master_that_hangs() {
    let cluster = fail_over(Server::pause, false);
    let old = &cluster.nodes()[0];
    old.resume();
    within(SOON * 2, "it follows", || {
        let mut info = redis::cmd("INFO");
        let info = info.arg("replication").query::<String>(&mut old.connection());
        info.is_ok_and(|info| info.contains("role:slave"))
    });
    let client = client(&cluster);
    let name = cluster.name_at(0, "x");
    client.mutex(&name).unwrap().lock().unwrap().release().unwrap();
}

#[test]
fn hung_master_does_not_stop_renewals_at_the_others() {
    let cluster = Cluster::start_with(3, 0, &["--cluster-require-full-coverage", "no"]).unwrap();
    let client = builder(&cluster).give_up_after(ms(500)).build().unwrap();
    let guards: Vec<Guard> = (0..3)
        .map(|home| {
            let lock = client.mutex_with(cluster.name_at(home, "x"), renewed(2_500)).unwrap();
            lock.lock().unwrap()
        })
        .collect();
    let silent = &cluster.nodes()[1];
    silent.pause();
    until("it is lost where nobody answers", || guards[1].loss().is_some());
    let renewals: u64 =
        [0, 2].map(|node| cluster.nodes()[node].commands().calls("evalsha")).iter().sum();
    let begin = Instant::now();
    until("the others are renewed many times", || {
        assert!(guards[0].loss().is_none() && guards[2].loss().is_none());
        begin.elapsed() > ms(6_000)
    });
    let now: u64 =
        [0, 2].map(|node| cluster.nodes()[node].commands().calls("evalsha")).iter().sum();
    assert!(now >= renewals + 8, "{renewals}, then {now}");
    let error = client.mutex(cluster.name_at(1, "z")).unwrap().lock().unwrap_err();
    assert!(error.is_unreachable() || error.is_unknown_outcome(), "{error:?}");
    silent.resume();
    let lock = client.mutex(cluster.name_at(1, "z")).unwrap();
    until("it is back", || lock.try_lock().is_ok_and(|guard| guard.is_some()));
    for home in [0, 2] {
        guards[home].check().unwrap();
    }
}

#[test]
fn names_that_break_the_hash_tag_are_refused() {
    let client = LockClient::builder("redis://127.0.0.1:1").cluster([""; 0]).build().unwrap();
    for name in ["a}b", "}", "{}", "a{}b", "{}x{y}", "x}{"] {
        names(&client.mutex(name).unwrap_err(), ["name", name, "one slot"]);
        names(&client.reentrant(name).unwrap_err(), ["name", name, "one slot"]);
    }
    for name in ["x", "{x}", "a{x}b", "a}b{x}", "a{b", "{x}{}", "{{x}}"] {
        client.mutex(name).unwrap();
    }
    // Its channel, which Redisson has named so, would be in another slot.
    names(&client.reentrant("a{b").unwrap_err(), ["name", "a{b", "one slot"]);
    let tagged = LockClient::builder("redis://127.0.0.1:1").cluster([""; 0]).name_prefix("{app}:");
    tagged.build().unwrap().mutex("a}b").unwrap();
}

#[test]
fn impossible_settings_are_rejected_before_any_io() {
    let builder = |url: &str, urls: &[&str]| LockClient::builder(url).cluster(urls.to_vec());
    let with_password = builder("redis://:a@h:1", &["redis://:secret@i:1"]);
    for (builder, parts) in [
        (builder("redis://a:1/1", &[]), ["url database", "1", "0"]),
        (builder("redis://a:1", &["redis://b:1/2"]), ["url database", "2", "0"]),
        (builder("unix:///socket", &[]), ["cluster", "a socket", "redis://host"]),
        (builder("redis://a:1", &["redis://b:99999"]), ["url port", "99999", "65535"]),
        (with_password, ["cluster", "i:1", "client's URL"]),
        (
            builder("redis://a:1", &[]).sentinels(["redis://b:1"]),
            ["cluster", "sentinels", "one of the two"],
        ),
    ] {
        let error = builder.build().unwrap_err();
        names(&error, parts);
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn cluster_without_a_reachable_node_fails_in_time() {
    let dead = ["redis://127.0.0.1:2", "redis://127.0.0.1:3"];
    let builder =
        || LockClient::builder("redis://127.0.0.1:1").cluster(dead).give_up_after(ms(300));
    let begin = Instant::now();
    let client = builder().build().unwrap();
    let error = client.mutex("x").unwrap().try_lock().unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    assert!(client.mutex("x").unwrap().lock().unwrap_err().is_unreachable());
    assert!(builder().connect_now(true).build().unwrap_err().is_unreachable());
    assert!(begin.spent() < Duration::from_secs(5));
    // One of them is enough.
    let cluster = start(3, 0);
    let some = LockClient::builder(dead[0]).cluster([dead[1], &cluster.urls()[2]]);
    let client = some.connect_now(true).build().unwrap();
    client.mutex(cluster.name_at(0, "x")).unwrap().lock().unwrap().release().unwrap();
}

/// The nodes are there, and far away.
#[test]
fn short_callers_timeout_is_not_passed_to_a_longer_one() {
    let cluster = start(1, 0);
    let node = &cluster.nodes()[0];
    let proxy = Proxy::start(node).expect("a proxy");
    proxy.delay(ms(30));
    let builder = LockClient::builder(proxy.url()).cluster([""; 0]);
    let client = builder.command_timeout(SOON).connect_timeout(SOON).build().unwrap();
    let lock = client.mutex("x").unwrap();
    let error = lock.try_lock_for(ms(10)).unwrap_err();
    // Or this process was held up until its time was over.
    assert!(error.is_unreachable() || error.is_timeout(), "{error:?}");
    lock.try_lock().unwrap().expect("free").release().unwrap();
}

#[test]
fn wait_ends_in_time_when_no_node_replies() {
    let cluster = start(3, 0);
    let urls = cluster.urls();
    let build = || LockClient::builder(&urls[0]).cluster(&urls[1..]).build().unwrap();
    let (warm, cold) = (build(), build());
    let names = [0, 1, 2].map(|home| cluster.name_at(home, "x"));
    for name in &names {
        warm.mutex(name).unwrap().lock().unwrap().release().unwrap();
    }
    cluster.nodes().iter().for_each(Server::pause);
    for (client, span) in [(&warm, 300), (&cold, 300), (&warm, 20), (&cold, 20)] {
        for name in &names {
            let lock = client.mutex(name).unwrap();
            let begin = Instant::now();
            let error = lock.try_lock_for(ms(span)).unwrap_err();
            let took = begin.spent();
            // Or this process was held up until its time was over.
            let is_true = error.is_unreachable() || error.is_timeout();
            assert!(is_true || error.is_unknown_outcome(), "{error:?}");
            assert!(took < ms(span) + SLACK, "{took:?} of {span} ms: {error}");
        }
    }
    cluster.nodes().iter().for_each(Server::resume);
    for (client, name) in [&warm, &cold].into_iter().zip(&names) {
        let lock = client.mutex(name).unwrap();
        until("they are back", || lock.try_lock().is_ok_and(|guard| guard.is_some()));
    }
}

#[test]
fn wrong_cluster_setting_is_reported_both_ways() {
    let alone = Server::builder().tcp().start().unwrap();
    let builder = patient(LockClient::builder(alone.tcp_url())).cluster([""; 0]).connect_now(true);
    let error = builder.build().unwrap_err();
    names(&error, ["cluster", &alone.addr().to_string(), "is no node"]);
    let cluster = start(3, 0);
    let plain = open_at(&cluster.urls()[0]);
    plain.mutex(cluster.name_at(0, "x")).unwrap().lock().unwrap().release().unwrap();
    let error = plain.mutex(cluster.name_at(1, "x")).unwrap().lock().unwrap_err();
    assert!(error.is_refused(), "{error:?}");
    assert!(error.to_string().contains("build the client with .cluster("), "{error}");
}

#[test]
fn password_is_used_for_all_nodes() {
    let cluster = start(3, 0);
    let urls = cluster.urls();
    let homes = [0, 1, 2].map(|home| cluster.name_at(home, "x"));
    for node in cluster.nodes() {
        ask::<()>(node, &["CONFIG", "SET", "requirepass", "secret"]);
    }
    let with = |password: &str| {
        let url = urls[0].replace("redis://", &format!("redis://:{password}@"));
        LockClient::builder(url).cluster(&urls[1..]).connect_now(true).build()
    };
    let client = with("secret").unwrap();
    for name in homes {
        client.mutex(name).unwrap().lock().unwrap().release().unwrap();
    }
    let error = with("guess").unwrap_err();
    assert!(error.is_denied(), "{error:?}");
    assert!(!error.to_string().contains("guess"), "{error}");
}

/// A message does not tell by whose clock it was written. Its lease begins when its waiter last asked,
/// and not when it came.
#[test]
fn late_grant_is_not_dated_by_its_receipt() {
    let cluster = start(1, 0);
    let node = &cluster.nodes()[0];
    let proxy = Proxy::start(node).expect("a proxy");
    ask::<()>(node, &["CONFIG", "SET", "cluster-announce-port", &proxy.addr().port().to_string()]);
    let clients =
        [(); 2].map(|()| LockClient::builder(proxy.url()).cluster([""; 0]).build().unwrap());
    hand_over(&cluster, &clients, "warm", 4);
    for _ in 0..5 {
        let guard = clients[0].mutex("x").unwrap().lock().unwrap();
        let late = proxy.add(Fault::reply("\r\ng ", Action::Delay(ms(600))));
        let (waited, left) = thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let begin = Instant::now();
                let guard = clients[1].mutex("x").unwrap().lock().unwrap();
                let left = guard.remaining();
                (begin.elapsed(), left)
            });
            until("it waits", || ask::<u32>(node, &["ZCARD", "{x}:queue"]) == 1);
            guard.release().unwrap();
            waits.join().unwrap()
        });
        assert_eq!(late.fired(), 1);
        // Else a heartbeat came before the message.
        if waited < ms(950) {
            // Two heartbeats and a command time-out are the window.
            assert!(left > ms(1_000) && left < ms(3_000 - 500), "{left:?} after {waited:?}");
            return;
        }
    }
    panic!("this machine is too slow to see it");
}

/// A node may have taken a slot over by the time that it is asked, and then it needs no leave: what it
/// did is told, though this user may not ask for leave.
#[test]
fn outcome_is_returned_where_asking_is_denied() {
    let cluster = start(1, 0);
    let node = &cluster.nodes()[0];
    let proxy = Proxy::start(node).expect("a proxy");
    let port = proxy.addr().port();
    ask::<()>(node, &["CONFIG", "SET", "cluster-announce-port", &port.to_string()]);
    let rule = ["on", ">secret", "~*", "&*", "+@all", "-asking"];
    ask::<()>(node, &[&["ACL", "SETUSER", "locks"], &rule[..]].concat());
    let url = proxy.url().replace("redis://", "redis://locks:secret@");
    let client = LockClient::builder(url).cluster([""; 0]).build().unwrap();
    let elsewhere = format!("-ASK {} 127.0.0.1:{port}\r\n", cluster.slot("x")).into_bytes();
    let fault = proxy.add(Fault::request("\r\ntry\r\n", Action::Garbage(elsewhere)));
    let guard = client.mutex("x").unwrap().try_lock().unwrap().expect("free");
    assert_eq!((fault.fired(), node.error_count("NOPERM")), (1, 1));
    guard.check().unwrap();
    guard.release().unwrap();
    assert!(!exists(node, "x"));
}

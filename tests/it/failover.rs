//! What a fail-over takes, and what it must not let happen.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::common::{AtLast, SOON, ask, exists, heavy, ms, open_at, pttl, renewed, until, within};
use leasehold::{Guard, LockClient, LockClientBuilder, Loss, LossCause};
use leasehold_support::lag::Spent as _;
use leasehold_support::{Group, Line, Monitor, Server};

/// After so much silence the sentinels take a master for dead.
const DEAD: Duration = ms(700);

/// How long they may take to agree: each that was kept from its processor for two seconds does nothing
/// for half a minute, and a vote that was missed is not repeated at once.
const VOTE: Duration = ms(600_000);

fn group(replicas: usize) -> Group {
    Group::start(replicas, DEAD).expect("a group")
}

fn client(group: &Group) -> LockClient {
    builder(group).build().expect("a client")
}

fn builder(group: &Group) -> LockClientBuilder {
    let builder = LockClient::builder("redis://mymaster/0").sentinels(group.sentinel_urls());
    // Not at once: a sentinel that is late may still tell of a master that hangs.
    builder.give_up_after(VOTE)
}

/// Whether a server says so of itself. One that changes its role hangs up on its clients.
fn is(server: &Server, role: &str) -> bool {
    let mut info = redis::cmd("INFO");
    let info = info.arg("replication").query::<String>(&mut server.connection());
    info.is_ok_and(|info| info.contains(role))
}

/// Waits until one of the first's replicas says that it is the master.
fn promoted(group: &Group) -> (&Server, Instant) {
    let mut found = None;
    within(VOTE, "a replica is promoted", || {
        found = group.servers[1..].iter().find(|server| is(server, "role:master"));
        found.is_some()
    });
    (found.expect("found"), Instant::now())
}

/// Listens to all sentinels, and answers when the first of them told of a new master.
fn first_switch(group: &Group) -> JoinHandle<Instant> {
    let listen = |sentinel: &Server| {
        let mut connection = sentinel.connection();
        connection.set_read_timeout(Some(VOTE)).expect("a time-out");
        redis::cmd("SUBSCRIBE").arg("+switch-master").exec(&mut connection).expect("a channel");
        thread::spawn(move || {
            connection.recv_response().expect("a switch");
            Instant::now()
        })
    };
    let listeners: Vec<_> = group.sentinels.iter().map(listen).collect();
    thread::spawn(move || {
        let reports = listeners.into_iter().map(|listener| listener.join().expect("a listener"));
        reports.min().expect("a sentinel")
    })
}

/// How long after the promotion a sentinel told of it, and a thread that waited had its lock.
#[derive(Clone, Copy, Debug)]
struct Took {
    reported: Duration,
    granted: Duration,
}

fn fail_over(depose: impl Fn(&Server)) -> Took {
    let group = group(2);
    let client = client(&group);
    client.mutex("warm").unwrap().lock().unwrap().release().unwrap();
    let switch = first_switch(&group);
    depose(&group.servers[0]);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let guard = client.mutex("y").unwrap().lock().unwrap();
            (Instant::now(), guard.is_valid(), guard.release())
        });
        let (master, at) = promoted(&group);
        let (granted, valid, released) = waiting.join().unwrap();
        assert!(valid);
        released.unwrap();
        let guard = client.mutex("z").unwrap().lock().unwrap();
        assert!(exists(master, "z"));
        guard.release().unwrap();
        Took { reported: switch.join().unwrap().spent_since(at), granted: granted.spent_since(at) }
    })
}

/// One second is promised; the rest is for a noisy machine.
#[track_caller]
fn in_time(took: Took) {
    assert!(took.granted < ms(2_000), "{took:?}");
}

#[test]
fn killed_master_is_replaced_within_a_second_of_promotion() {
    let _turn = heavy();
    in_time(fail_over(Server::kill));
}

#[test]
fn a_hung_master_is_replaced_within_a_second_of_the_promotion() {
    let _turn = heavy();
    in_time(fail_over(Server::pause));
}

/// What one server was told to do, by a connection from before and one from after it hung.
struct Watch {
    monitors: Vec<Monitor>,
}

impl Watch {
    fn begin(server: &Server) -> Watch {
        Watch { monitors: vec![Monitor::start(server)] }
    }

    /// One that changes its role hangs up on those that listen; it is listened to again.
    fn go_on(&mut self, server: &Server) {
        if self.monitors.last().is_none_or(|monitor| !monitor.is_open()) {
            self.monitors.push(Monitor::start(server));
        }
    }

    fn lines(&self, text: &str) -> Vec<Line> {
        self.monitors.iter().flat_map(|monitor| monitor.lines(text)).collect()
    }

    /// Waits until all connections tell of commands that are sent now, one after the other. What had
    /// been sent on connections that the server had already, it has run before the second.
    fn mark(&mut self, server: &Server, mark: &str) -> Instant {
        let mut connection = server.connection();
        let mut round = 0;
        until("it is told", || {
            // It may hang up on those that listen more than once.
            self.go_on(server);
            round += 1;
            let mark = format!("{mark} {round}.");
            for _ in 0..3 {
                redis::cmd("ECHO").arg(&mark).exec(&mut connection).expect("an answer");
                thread::sleep(ms(20));
            }
            let open = self.monitors.iter().filter(|monitor| monitor.is_open());
            open.clone().count() > 0 && open.into_iter().all(|m| m.lines(&mark).len() == 3)
        });
        self.lines(mark).into_iter().map(|line| line.at).max().expect("a mark")
    }
}

/// Since a sentinel told of another master, a client needs no longer than this to use that.
const AFTER_REPORT: Duration = ms(1_000);

/// Renewed every third of it.
const HELD: u64 = 21_000;

/// The master hangs, another is made the master, and then it goes on: until its sentinels reach it,
/// after eight seconds or more, it still takes itself for the master and would do all that it is told.
#[test]
fn woken_demoted_master_is_sent_nothing_after_the_switch() {
    let _turn = heavy();
    let group = group(2);
    let old = &group.servers[0];
    let mut watch = Watch::begin(old);
    let client = client(&group);
    let before = client.mutex_with("held-before", renewed(HELD)).unwrap().lock().unwrap();
    client.mutex("used-before").unwrap().lock().unwrap().release().unwrap();
    // It is seen what this client sends, renewals too.
    within(SOON * 2, "commands are seen", || {
        watch.lines("used-before").len() >= 2 && watch.lines("held-before").len() >= 2
    });
    let switch = first_switch(&group);
    let paused = Instant::now();
    old.pause();
    let reported = switch.join().unwrap();
    let away = paused.elapsed() + AFTER_REPORT;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        while reported.spent() < AFTER_REPORT {
            thread::sleep(ms(5));
        }
        let end = AtLast(&over);
        // From now on nothing may reach the old one, neither by old connections nor by new ones.
        let busy = scope.spawn(|| {
            let (mut holds, mut errors) = (0_u64, Vec::new());
            while !over.load(Ordering::SeqCst) {
                let name = format!("after-{}", holds % 50);
                let mutex = client.mutex(&name).unwrap();
                let reentrant = client.reentrant(format!("{name}-too")).unwrap();
                let done = mutex.lock().and_then(Guard::release);
                let done = done.and_then(|()| reentrant.lock()).and_then(Guard::release);
                errors.extend(done.err());
                holds += 1;
                thread::sleep(ms(2));
            }
            (holds, errors)
        });
        thread::sleep(ms(700));
        old.resume();
        until("it answers", || is(old, "role:master"));
        let held = client.mutex_with("after-held", renewed(2_400)).unwrap().lock().unwrap();
        let awake = watch.mark(old, "it-is-awake");
        watch.monitors.push(Monitor::start(old));
        // One who does not follow is seen, by both: it is sent commands all the time.
        let stray = open_at(old.tcp_url()).mutex("stray").unwrap();
        stray.lock().unwrap().release().unwrap();
        until("who does not follow is seen", || {
            watch.monitors.iter().all(|monitor| monitor.lines("stray").len() >= 2)
        });
        within(VOTE, "it is a replica", || {
            watch.go_on(old);
            is(old, "role:slave")
        });
        watch.go_on(old);
        thread::sleep(ms(500));
        watch.mark(old, "it-is-a-replica");
        drop(end);
        let (holds, errors) = busy.join().unwrap();
        // A replica is told by its master what that does; this is no client's word.
        let masters = group.servers[1..].iter().map(|server| format!(" {}]", server.addr()));
        let masters: Vec<String> = masters.collect();
        let of_client = |line: &Line| !masters.iter().any(|master| line.text.contains(master));
        let new: Vec<Line> = watch.lines("after-").into_iter().filter(of_client).collect();
        assert!(new.is_empty(), "names that were used after the switch: {new:#?}");
        let old: Vec<Line> = watch.lines("held-before").into_iter().filter(of_client).collect();
        assert!(old.iter().all(|line| line.at <= awake), "renewals after it woke: {old:#?}");
        assert!(holds > 100 && errors.is_empty(), "{holds} holds, {errors:?}");
        held.check().unwrap();
        held.release().unwrap();
    });
    // The lock that it had replicated is held by the same holder still, unless the vote took so long that
    // no master could be asked to renew it.
    if away < ms(HELD) / 2 {
        before.check().unwrap();
        before.release().unwrap();
    } else if let Some(loss) = before.loss() {
        assert_eq!(loss.cause(), LossCause::Unreachable, "after {away:?}");
    }
}

/// The replicas have lost the master when one lock is taken, and have the other.
#[test]
fn fail_over_ends_only_holds_the_new_master_lacks() {
    let _turn = heavy();
    let group = group(2);
    let (old, replicas) = (&group.servers[0], &group.servers[1..]);
    let (sender, receiver) = mpsc::channel();
    let on_loss = move |loss: &Loss| sender.send(loss.clone()).unwrap();
    let client = builder(&group).on_loss(on_loss).build().unwrap();
    let lock = |name: &str| client.mutex_with(name, renewed(30_000)).unwrap();
    let kept = lock("kept").lock().unwrap();
    let owned = lock("owned").lock().unwrap().into_owned().unwrap();
    until("it has reached them", || replicas.iter().all(|replica| exists(replica, "owned")));
    // What a stopped process was sent it reads when it wakes; on a connection that is gone it is not.
    replicas.iter().for_each(Server::pause);
    ask::<u64>(old, &["CLIENT", "KILL", "TYPE", "replica"]);
    let lost = lock("lost").lock().unwrap();
    let token = lost.fencing_token();
    old.kill();
    replicas.iter().for_each(Server::resume);
    let (master, _) = promoted(&group);
    assert!(exists(master, "kept") && !exists(master, "lost"));
    within(SOON * 3, "the holder is told", || lost.loss().is_some());
    assert!(!lost.is_valid());
    assert_eq!(lost.loss().unwrap().cause(), LossCause::Deleted);
    let loss = receiver.recv_timeout(SOON).unwrap();
    assert_eq!((loss.fencing_token(), loss.cause()), (token, LossCause::Deleted));
    assert!(lost.release().unwrap_err().is_lost());
    // The next one's token is above, though the new master never heard of it.
    let next = lock("lost").lock().unwrap();
    assert!(next.fencing_token() > token);
    kept.check().unwrap();
    kept.release().unwrap();
    let owned = owned.into_guard();
    owned.check().unwrap();
    owned.release().unwrap();
    assert!(receiver.try_recv().is_err(), "another was told of a loss");
}

/// As many as `LEASEHOLD_FAILOVERS` says, printed:
/// `cargo test --release --test failover -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes"]
#[allow(clippy::print_stdout, reason = "the figures are there to be read")]
fn fail_over_times_are_printed() {
    let count = std::env::var("LEASEHOLD_FAILOVERS").ok().and_then(|text| text.parse().ok());
    let mut all = Vec::new();
    for round in 0..count.unwrap_or(10_u32) {
        let (how, depose): (_, fn(&Server)) =
            if round % 2 == 0 { ("killed", Server::kill) } else { ("stopped", Server::pause) };
        let took = fail_over(depose);
        println!("{how:>8}: told {:?}, granted {:?}", took.reported, took.granted);
        all.push(took.granted);
    }
    all.sort();
    println!("median {:?}, worst {:?}", all[all.len() / 2], all[all.len() - 1]);
}

/// The host fails that has the master and the sentinel which is asked first.
#[test]
fn hung_master_with_its_sentinel_is_left_in_time() {
    let _turn = heavy();
    let group = group(1);
    let [old, new] = &group.servers[..] else { unreachable!("a master and a replica") };
    let (one, other) = (client(&group), client(&group));
    let held = one.mutex_with("y", renewed(24_000)).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let guard = other.mutex("y").unwrap().lock().unwrap();
            (Instant::now(), guard.release())
        });
        until("it waits there too", || {
            exists(new, "y") && ask::<u32>(new, &["ZCARD", "{y}:queue"]) == 1
        });
        let listened = |server| {
            let channels = ask::<Vec<String>>(server, &["PUBSUB", "CHANNELS"]);
            channels.iter().filter(|name| name.starts_with("leasehold")).count()
        };
        let listeners = listened(old);
        assert!(listeners > 0);
        group.sentinels[0].pause();
        old.pause();
        let (_, promoted) = promoted(&group);
        until("it listens there", || listened(new) == listeners);
        let mut before = pttl(new, "y");
        until("it is renewed there", || {
            let left = pttl(new, "y");
            std::mem::replace(&mut before, left) < left
        });
        assert!(held.is_valid(), "{:?}", held.loss());
        let released = Instant::now();
        held.release().unwrap();
        let (granted, outcome) = waiting.join().unwrap();
        outcome.unwrap();
        assert!(granted.spent_since(released) < ms(2_000), "{:?}", promoted.spent());
    });
}

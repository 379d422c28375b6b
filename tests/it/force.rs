//! A forced release evicts the holder of the moment of the call, nobody else, and tells it.

use std::thread;

use crate::common::kind::{KINDS, Kind};
use crate::common::several::{direct, proxies, servers, through};
use crate::common::{SOON, ask, exists, fixed, hasty, ms, open, patient, renewed, server, until};
use leasehold::{Guard, LockClient, LockOptions, LossCause, Wait};
use leasehold_support::fault::Operation;
use leasehold_support::{Action, Fault, Injection, Proxy, Server, WallClock};

/// Far longer than a test waits for anything, and never renewed: only a message can tell of its loss.
fn long() -> LockOptions {
    fixed(600_000)
}

/// Makes the script known to the server: a request that only brings its name does nothing where it is
/// not.
fn warm(server: &Server, kind: &Kind) {
    let guard = kind.with(&open(server), "x", long()).lock().unwrap();
    assert!(kind.open(&open(server), "x").force_release().unwrap());
    assert!(guard.release().unwrap_err().is_lost());
}

fn hold_up(proxy: &Proxy) -> Injection {
    proxy.add(Fault::request("x", Action::Hold).at(Operation::Force))
}

#[test]
fn stuck_force_leaves_a_later_holder_alone() {
    for kind in KINDS {
        let server = server();
        warm(&server, kind);
        let proxy = Proxy::start(&server).expect("a proxy");
        let builder = patient(LockClient::builder(proxy.url())).command_timeout(SOON);
        let forcer = builder.give_up_after(SOON).build().unwrap();
        let guard = kind.with(&open(&server), "x", long()).lock().unwrap();
        let stuck = hold_up(&proxy);
        thread::scope(|scope| {
            let forced = scope.spawn(|| kind.open(&forcer, "x").force_release());
            assert!(stuck.wait_fired(SOON));
            guard.release().unwrap();
            let later = kind.with(&open(&server), "x", long()).lock().unwrap();
            stuck.release();
            assert!(!forced.join().unwrap().unwrap(), "the one that it was aimed at had let go");
            later.check().unwrap();
            later.release().unwrap();
        });
    }
}

#[test]
fn force_past_its_deadline_evicts_nobody() {
    for kind in KINDS {
        let server = server();
        warm(&server, kind);
        let proxy = Proxy::start(&server).expect("a proxy");
        let (forcer, patient) = (hasty(&proxy.url()), open(&server));
        // It knows the server's time from a while ago, as a client does that lives long.
        until("it is connected", || kind.open(&forcer, "x").force_release().is_ok());
        let guard = kind.with(&open(&server), "x", long()).lock().unwrap();
        let stuck = hold_up(&proxy);
        // A machine that stands still may end a call before its request is sent.
        let error = loop {
            let error = kind.open(&forcer, "x").force_release().unwrap_err();
            if stuck.fired() > 0 {
                break error;
            }
        };
        assert!(error.is_unknown_outcome(), "{error:?}");
        let before = server.command_calls(&["evalsha"]);
        stuck.release();
        until("it has come", || server.command_calls(&["evalsha"]) > before);
        guard.check().unwrap();
        // In time it is done.
        assert!(kind.open(&patient, "x").force_release().unwrap());
        assert!(guard.release().unwrap_err().is_lost());
    }
}

/// A request with a deadline by the old time is late at once, and is asked once more by the new.
#[test]
fn clock_set_forward_costs_one_more_request() {
    let clock = WallClock::new().expect("a clock");
    let server = Server::builder().envs(clock.variables()).start().expect("a server");
    for kind in KINDS {
        let (client, forcer) = (open(&server), open(&server));
        let guard = kind.with(&client, "x", long()).lock().unwrap();
        clock.set(60_000_000).unwrap();
        assert!(kind.open(&forcer, "x").force_release().unwrap());
        assert!(guard.release().unwrap_err().is_lost());
        clock.set(0).unwrap();
    }
}

/// A client that listens, since it may be asked for what it holds.
fn listening(server: &Server) -> LockClient {
    let client =
        patient(LockClient::builder(server.url())).on_release_request(|_| {}).build().unwrap();
    let guard = client.mutex("asked for").unwrap().lock().unwrap();
    let other = open(server).mutex("asked for").unwrap();
    until("it listens", || other.request_release().unwrap());
    guard.release().unwrap();
    client
}

#[test]
fn evicted_holder_that_listens_learns_it_at_once() {
    let server = server();
    for kind in KINDS {
        let client = listening(&server);
        let guard = kind.with(&client, "x", long()).lock().unwrap();
        assert!(kind.open(&open(&server), "x").force_release().unwrap());
        until("it is lost", || guard.loss().is_some());
        assert!(!guard.is_valid());
        assert_eq!(guard.loss().unwrap().cause(), LossCause::Deleted);
    }
    // Where somebody waits, another has it then.
    let client = listening(&server);
    let guard = client.mutex_with("w", long()).unwrap().lock().unwrap();
    let waiter = open(&server).mutex("w").unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| waiter.lock().unwrap().release().unwrap());
        until("it waits", || ask::<u32>(&server, &["ZCARD", "{w}:queue"]) == 1);
        assert!(open(&server).mutex("w").unwrap().force_release().unwrap());
        until("it is lost", || guard.loss().is_some());
        waits.join().unwrap();
    });
}

/// Nobody listens for it, so that its next renewal finds out, long before its lease is over.
#[test]
fn evicted_holder_that_spins_learns_it_by_its_renewal() {
    let servers = [server(), server()];
    let held: Vec<Guard> = KINDS
        .iter()
        .zip(&servers)
        .map(|(kind, server)| {
            let options = renewed(15_000).wait(Wait::spin());
            let guard = kind.with(&open(server), "x", options).lock().unwrap();
            assert!(kind.open(&open(server), "x").force_release().unwrap());
            guard
        })
        .collect();
    for guard in held {
        until("it is told", || guard.loss().is_some());
        // A lease that ended by itself would have expired.
        assert_eq!(guard.loss().unwrap().cause(), LossCause::Deleted);
    }
}

/// A lease that lingers is forgotten too, and not passed to the next thread.
#[test]
fn evicted_lease_that_lingers_is_forgotten() {
    let server = server();
    let client = listening(&server);
    let options = crate::common::renewed(600_000).linger(ms(500_000));
    let lock = client.mutex_with("l", options).unwrap();
    until("it lingers", || {
        drop(lock.lock().unwrap());
        exists(&server, "l")
    });
    let rival = open(&server).mutex_with("l", long()).unwrap();
    assert!(rival.force_release().unwrap());
    let other = rival.lock().unwrap();
    until("it is forgotten", || lock.try_lock().unwrap().is_none());
    other.check().unwrap();
}

/// A message is a hint: a client that hears it asks, and believes the server's reply.
#[test]
fn false_eviction_message_costs_no_lock() {
    let server = server();
    for kind in KINDS {
        let client = listening(&server);
        let guard = kind.with(&client, "x", long()).lock().unwrap();
        let holder = kind.open(&client, "x").holder().unwrap().unwrap();
        let owner = String::from_utf8(holder.owner().to_vec()).unwrap();
        let parts: Vec<&str> = owner.split(':').collect();
        let (id, number) = match parts[..] {
            [id, number] => (id.replace('-', ""), format!("{:x}", number.parse::<u64>().unwrap())),
            _ => (parts[1].to_owned(), parts[2].to_owned()),
        };
        let left = crate::common::pttl(&server, "x");
        let asked = server.command_calls(&["evalsha", "eval"]);
        for message in [format!("x {number} x"), format!("x {number} y"), "x 0 x".to_owned()] {
            let heard: u32 = ask(&server, &["PUBLISH", &format!("leasehold:{id}"), &message]);
            assert_eq!(heard, 1, "{owner}");
        }
        until("it has asked", || server.command_calls(&["evalsha", "eval"]) > asked);
        guard.check().unwrap();
        assert!(guard.is_valid() && crate::common::pttl(&server, "x") <= left, "it became longer");
        guard.release().unwrap();
    }
}

#[test]
fn force_aimed_at_a_majority_spares_the_next_one() {
    let servers = servers(3);
    let proxies = proxies(&servers);
    let holder = crate::common::several::open(direct(&servers));
    let forcer = crate::common::several::open(through(&proxies).node_timeout(SOON));
    // The scripts are known to all, and the forcer knows their time.
    let guard = holder.mutex("x").unwrap().lock().unwrap();
    let lock = forcer.mutex("x").unwrap();
    assert!(lock.force_release().unwrap());
    assert!(guard.release().unwrap_err().is_lost());
    let guard = holder.mutex("x").unwrap().lock().unwrap();
    let stuck: Vec<Injection> = proxies.iter().map(hold_up).collect();
    thread::scope(|scope| {
        let forced = scope.spawn(|| lock.force_release());
        assert!(stuck.iter().all(|stuck| stuck.wait_fired(SOON)));
        guard.release().unwrap();
        let later =
            crate::common::several::open(direct(&servers)).mutex("x").unwrap().lock().unwrap();
        stuck.iter().for_each(Injection::release);
        assert!(!forced.join().unwrap().unwrap());
        later.check().unwrap();
        later.release().unwrap();
    });
}

#[test]
fn evicted_holder_of_a_majority_learns_it_at_once() {
    let servers = servers(3);
    let (client, other) = (
        crate::common::several::open(direct(&servers)),
        crate::common::several::open(direct(&servers)),
    );
    let guard = client.mutex_with("x", fixed(25_000)).unwrap().lock().unwrap();
    let before = other.mutex("y").unwrap().lock().unwrap();
    let listens = |server: &Server| {
        !ask::<Vec<String>>(server, &["PUBSUB", "CHANNELS", "leasehold:*"]).is_empty()
    };
    let lock = client.mutex("y").unwrap();
    thread::scope(|scope| {
        // A client listens once it has waited.
        let waits = scope.spawn(|| lock.lock().unwrap().release().unwrap());
        until("it listens", || servers.iter().all(listens));
        before.release().unwrap();
        waits.join().unwrap();
    });
    assert!(other.mutex("x").unwrap().force_release().unwrap());
    until("it is lost", || guard.loss().is_some());
    assert!(guard.release().unwrap_err().is_lost());
}

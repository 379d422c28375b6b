//! What a call asks for by which a thread takes a lock once more, on real servers.

use std::any::Any;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{SOON, ask, behind_proxy, ms, open, open_at, pttl, server, until};
use leasehold::{DistributedLock, Error, Lease, LockClient, LockOptions, Result};
use leasehold_support::child::{hear, role, tell};
use leasehold_support::{Child, Server};

type Held = Box<dyn Any>;
type Take = fn(&LockClient, &'static str, Lease) -> Result<Held>;

/// Each way to take a lock once more: its name, which is that of the lock, the outer call and the inner one.
const WAYS: [(&str, Take, Take); 6] = [
    ("mutex", mutex, mutex),
    ("reentrant", reentrant, reentrant),
    ("writer", writer, writer),
    ("reader in a writer", writer, reader),
    ("part", mutex, |client, name, lease| {
        Ok(Box::new(client.lock_all([&client.mutex_with(name, leased(lease))?])?))
    }),
    ("by key", by_key, by_key),
];

fn leased(lease: Lease) -> LockOptions {
    LockOptions::new().lease(lease)
}

fn mutex(client: &LockClient, name: &'static str, lease: Lease) -> Result<Held> {
    Ok(Box::new(client.mutex_with(name, leased(lease))?.lock()?))
}

fn reentrant(client: &LockClient, name: &'static str, lease: Lease) -> Result<Held> {
    Ok(Box::new(client.reentrant_with(name, leased(lease))?.lock()?))
}

fn writer(client: &LockClient, name: &'static str, lease: Lease) -> Result<Held> {
    Ok(Box::new(client.rw_lock_with(name, leased(lease))?.write()?))
}

fn reader(client: &LockClient, name: &'static str, lease: Lease) -> Result<Held> {
    Ok(Box::new(client.rw_lock_with(name, leased(lease))?.read()?))
}

fn by_key(client: &LockClient, name: &'static str, lease: Lease) -> Result<Held> {
    /// Gives the key up when it is dropped.
    struct Unlock(LockClient, &'static str);

    impl Drop for Unlock {
        fn drop(&mut self) {
            let _ = self.0.unlock(self.1);
        }
    }

    assert!(client.try_lock(name, SOON, lease)?);
    Ok(Box::new(Unlock(client.clone(), name)))
}

/// Another process, which tells whether it can take a lock.
struct Rival(Child);

impl Rival {
    fn of(server: &Server) -> Rival {
        let rival = Child::role("rival").test("inner_call::roles").env("URL", server.url());
        Rival(rival.start().expect("a process"))
    }

    fn takes(&mut self, way: &str) -> bool {
        self.0.say(way);
        self.0.expect_line("took: ", SOON).ends_with("true")
    }
}

#[test]
fn roles() {
    if role().as_deref() != Some("rival") {
        return;
    }
    let client = open_at(std::env::var("URL").expect("the server"));
    while let Some(way) = hear() {
        let taken = match way.as_str() {
            "reentrant" => client.reentrant(&way).unwrap().try_lock().unwrap().is_some(),
            "writer" | "reader in a writer" => {
                client.rw_lock(&way).unwrap().try_write().unwrap().is_some()
            }
            _ => client.mutex(&way).unwrap().try_lock().unwrap().is_some(),
        };
        tell(&format!("took: {taken}"));
    }
}

const OUTER: Duration = ms(4_000);
/// A lease that outlasts the pauses of a machine.
const RENEWED: Duration = ms(9_000);

#[test]
fn renewed_call_inside_a_fixed_hold_keeps_the_lock_from_other_processes() {
    let server = server();
    let client = open(&server);
    thread::scope(|scope| {
        for way in WAYS {
            let (server, client) = (&server, &client);
            scope.spawn(move || {
                // Where the machine stands still for too long, the outer lease is over before.
                while !is_kept_by_an_inner_call(server, client, way) {}
            });
        }
    });
}

/// Returns false if the outer lease was over before the inner call came.
fn is_kept_by_an_inner_call(
    server: &Server,
    client: &LockClient,
    (way, outer, inner): (&'static str, Take, Take),
) -> bool {
    let mut rival = Rival::of(server);
    let began = Instant::now();
    let held = outer(client, way, Lease::fixed(OUTER)).unwrap();
    until("half of it is over", || pttl(server, way) < 2_000);
    let inner = match inner(client, way, Lease::renewed(RENEWED)) {
        Ok(inner) => inner,
        Err(error) => {
            assert!(error.is_lost() && began.elapsed() >= OUTER / 2, "{way}: {error}");
            return false;
        }
    };
    let (mut last, mut renewals) = (pttl(server, way), 0);
    assert!(last > 4_000, "{way}: {last}");
    until("it is renewed beyond the end of the outer lease", || {
        let left = pttl(server, way);
        assert!(left > 0, "{way}: lost {:?} after it began", began.elapsed());
        renewals += u32::from(left > last);
        last = left;
        renewals >= 2 && began.elapsed() > OUTER
    });
    assert!(!rival.takes(way), "{way}");
    drop(inner);
    // It keeps its end, which is ahead by two thirds of the lease.
    let since = Instant::now();
    assert!(!rival.takes(way) || since.elapsed() > RENEWED / 2, "{way}");
    drop(held);
    assert!(rival.takes(way), "{way}");
    true
}

#[test]
fn lease_in_redis_ends_later_and_nobody_renews_a_fixed_one() {
    let server = server();
    let client = open(&server);
    for (way, outer, inner) in WAYS {
        let held = outer(&client, way, Lease::fixed(ms(60_000))).unwrap();
        let equal = inner(&client, way, Lease::fixed(ms(60_000))).unwrap();
        assert!(pttl(&server, way) <= 60_000, "{way}");
        let longer = inner(&client, way, Lease::fixed(ms(600_000))).unwrap();
        let left = pttl(&server, way);
        assert!(left > 60_000 && left <= 600_000, "{way}: {left}");
        drop((longer, equal));
        assert!(pttl(&server, way) > 60_000, "{way}: it keeps its end");
        drop(held);
        assert!(pttl(&server, way) < 0, "{way}");
    }
}

#[test]
fn call_that_fails_inside_leaves_the_hold_and_tells_why() {
    type Fault = fn(&Server, &leasehold_support::Proxy, &str);
    type Is = fn(&Error) -> bool;
    let faults: [(&str, Fault, Is); 4] = [
        (
            "too few replicas",
            |server, _, _| ask(server, &["CONFIG", "SET", "min-replicas-to-write", "1"]),
            |error| error.is_unreachable() && error.to_string().contains("NOREPLICAS"),
        ),
        (
            "denied",
            |server, _, _| ask(server, &["ACL", "SETUSER", "default", "-pexpire", "-zadd", "-set"]),
            |error| error.is_denied(),
        ),
        (
            "no server",
            |_, proxy, _| {
                proxy.refuse();
                proxy.cut();
            },
            // A connection that was cut does not tell whether the request ran.
            |error| error.is_unreachable() || error.is_unknown_outcome(),
        ),
        ("deleted", |server, _, way| ask(server, &["DEL", way]), |error| error.is_lost()),
    ];
    for (what, fault, is_told) in faults {
        let (server, proxy) = behind_proxy();
        let client = open_at(proxy.url());
        for (way, outer, inner) in WAYS {
            let held = outer(&client, way, Lease::fixed(ms(60_000))).unwrap();
            fault(&server, &proxy, way);
            let entered = inner(&client, way, Lease::renewed(ms(600_000))).map(drop);
            let error = entered.expect_err(&format!("{way}, {what}"));
            ask::<()>(&server, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
            ask::<()>(&server, &["ACL", "SETUSER", "default", "+@all"]);
            proxy.heal();
            assert!(is_told(&error), "{way}, {what}: {error}");
            if what == "deleted" {
                continue;
            }
            assert!(error.to_string().contains("holds the lock as before"), "{error}");
            let left = pttl(&server, way);
            assert!(left > 0 && left <= 60_000, "{way}, {what}: {left}");
            // It was not entered, and one that asks for nothing is entered as ever.
            drop(inner(&client, way, Lease::fixed(ms(1_000))).unwrap());
            drop(held);
            until("it is free", || pttl(&server, way) < 0);
        }
    }
}

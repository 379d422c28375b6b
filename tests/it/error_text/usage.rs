//! Locks that are used wrongly, and locks that are lost.

use std::thread;

use leasehold::{
    Begun, DistributedLock as _, Error, Guard, Lease, LockClient, LockOptions, Period, RunEnd,
};
use leasehold_support::child::{hear, role, tell};
use leasehold_support::fault::Operation;
use leasehold_support::{Action, Child, Fault, Proxy, Server};

use super::meant;
use super::row::{Row, fine, predicates, row, row_of_text};
use crate::common::{SOON, ask, fixed, ms, open, renewed, until};

const NAME: &str = "orders:42";

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = holds();
    rows.extend(jobs());
    rows.extend(reentries());
    rows.push(crowded());
    rows.extend(losses());
    rows.extend(waits());
    rows
}

fn jobs() -> Vec<Row> {
    let server = Server::builder().tcp().start().unwrap();
    let client = open(&server);
    let error = client.once(NAME, Period::every(ms(0))).unwrap_err();
    let mut rows = vec![row("a job with a period of zero", "choose a span", error)];
    let job = client.once(NAME, Period::every(SOON)).unwrap();
    let _guard = client.mutex(NAME).unwrap().lock().unwrap();
    let error = job.begin().unwrap_err();
    rows.push(row("a job that runs itself", "run it in another thread", error));
    ask::<()>(&server, &["SET", "{orders:42}:record", "1"]);
    let error = job.last_run().unwrap_err();
    rows.push(row("a string is at the key of a job's record", "look what wrote it", error));
    let error = job.clone().max_tries(0).begin().unwrap_err();
    rows.push(row("a job with `max_tries(0)`", "allow a try", error));
    let error = job.retry_after(ms(86_400_000) * 7_300).begin().unwrap_err();
    rows.push(row("a job with `retry_after` of 20 years", "choose a shorter span", error));
    rows.push(unheard_success());
    rows
}

/// The reply to the record of a success is lost, and then the lock.
fn unheard_success() -> Row {
    let server = Server::builder().tcp().start().unwrap();
    let proxy = Proxy::start(&server).unwrap();
    let client = LockClient::open(proxy.url()).unwrap();
    let job = client.once(NAME, Period::every(SOON * 10_000)).unwrap();
    let Begun::Run(run) = job.begin().unwrap() else { panic!("it is due") };
    // The third is that of `EXEC`. The run does not ask once more before its lock is gone.
    let lost = proxy.add(Fault::reply("", Action::Cut).at(Operation::Transaction).nth(3));
    let again = proxy.add(Fault::request("WATCH", Action::Cut).nth(2).sticky());
    let error = thread::scope(|scope| {
        scope.spawn(|| {
            assert!(lost.wait_fired(SOON));
            ask::<()>(&server, &["DEL", NAME]);
            again.remove();
        });
        run.succeed().unwrap_err()
    });
    assert_eq!(*job.last_run().unwrap().unwrap().end(), RunEnd::Succeeded);
    row(
        "the reply to a job's success is lost, and then its lock",
        "look whether it is recorded",
        error,
    )
}

/// Threads that would wait for themselves.
fn reentries() -> Vec<Row> {
    let server = Server::builder().tcp().start().unwrap();
    let client = LockClient::builder(server.tcp_url()).reentrant_by_key(false).build().unwrap();
    let once = client.mutex_with(NAME, LockOptions::new().reentrant(false)).unwrap();
    let usual = client.mutex(NAME).unwrap();
    let guard = once.lock().unwrap();
    let mut rows = vec![row(
        "`lock` twice in one thread with `reentrant(false)`",
        "release it first, or try",
        usual.lock().unwrap_err(),
    )];
    guard.release().unwrap();
    let guard = usual.lock().unwrap();
    rows.push(row(
        "`lock` through a handle with `reentrant(false)` in a thread that has the lock",
        "release it first, or try",
        once.lock().unwrap_err(),
    ));
    rows.push(row(
        "`lock_owned` in a thread that has a guard of the lock",
        "release it first, or try",
        usual.lock_owned().map(drop).unwrap_err(),
    ));
    guard.release().unwrap();
    let within =
        |work: &dyn Fn() -> Error| client.with_lock(NAME, SOON, Lease::default(), work).unwrap();
    rows.push(row(
        "`with_lock` in itself, with `reentrant_by_key(false)`",
        "call it once",
        within(&|| client.with_lock(NAME, SOON, Lease::default(), || ()).unwrap_err()),
    ));
    let lock = client.rw_lock(NAME).unwrap();
    let guard = lock.read().unwrap();
    rows.push(row(
        "`read_owned` in a thread that reads",
        "release it first, or wait for a limited time",
        lock.read_owned().map(drop).unwrap_err(),
    ));
    guard.release().unwrap();
    let error = client.claim([&open(&server).mutex(NAME).unwrap()], 1).map(drop).unwrap_err();
    rows.push(row("a claim of another client's lock", "ask that client", error));
    rows
}

/// Another program has the lock for ever, and one thread waits.
fn crowded() -> Row {
    let server = Server::builder().tcp().start().unwrap();
    let client = open(&server);
    ask::<()>(&server, &["SET", NAME, "old-worker"]);
    let lock = client.mutex_with(NAME, LockOptions::new().max_waiters(1)).unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| lock.lock().map(drop));
        until("it waits", || ask::<u64>(&server, &["ZCARD", "{orders:42}:queue"]) == 1);
        // After the reply to that thread.
        assert!(lock.try_lock().unwrap().is_none());
        let error = lock.lock().unwrap_err();
        assert_eq!(lock.cancel_waits(), 1);
        assert!(first.join().unwrap().unwrap_err().is_cancelled());
        row("one more thread waits than `max_waiters` allows", "try later, or raise it", error)
    })
}

fn holds() -> Vec<Row> {
    let server = Server::builder().tcp().start().unwrap();
    let (client, other) = (open(&server), open(&server));
    ask::<()>(&server, &["LPUSH", NAME, "1"]);
    let error = client.mutex(NAME).unwrap().try_lock().unwrap_err();
    let mut rows = vec![row("a list is at the lock's key", "choose another name", error)];
    ask::<()>(&server, &["DEL", NAME]);
    ask::<()>(&server, &["HSET", NAME, "email", "a@b.example"]);
    let error = client.reentrant(NAME).unwrap().try_lock().unwrap_err();
    rows.push(row(
        "a hash of data is at the key of a `ReentrantLock`",
        "choose another name",
        error,
    ));
    ask::<()>(&server, &["DEL", NAME]);
    ask::<()>(&server, &["SET", NAME, "a profile"]);
    let error = client.mutex(NAME).unwrap().force_release().unwrap_err();
    rows.push(row("`force_release` of a string that may be data", "say that it is a mutex", error));
    ask::<()>(&server, &["DEL", NAME]);
    for owner in
        ["285475da-9152-4c83-822a-67ee2f116a79:5", "285475da-9152-4c83-822a-67ee2f116a79:6"]
    {
        ask::<()>(&server, &["HSET", NAME, "mode", "read", owner, "1"]);
    }
    let error = client.reentrant(NAME).unwrap().force_release().unwrap_err();
    rows.push(row("`force_release` of a lock of Redisson with two readers", "name one", error));
    ask::<()>(&server, &["DEL", NAME]);
    ask::<()>(&server, &["ZADD", NAME, "1700000000123", "job:1"]);
    let gpus = client.semaphore(NAME, 4).unwrap();
    rows.push(row(
        "a user's sorted set is at the semaphore's key",
        "choose another name",
        gpus.try_acquire().unwrap_err(),
    ));
    ask::<()>(&server, &["DEL", NAME]);
    ask::<()>(&server, &["ZADD", NAME, "4", "declared", "4", "limit", "0", "used"]);
    rows.push(row(
        "a user's sorted set has the members of a free semaphore",
        "choose another name",
        gpus.try_acquire().unwrap_err(),
    ));
    ask::<()>(&server, &["DEL", NAME]);
    let reader = client.rw_lock(NAME).unwrap().read().unwrap();
    rows.push(row(
        "a semaphore of the name of a read-write lock",
        "use one kind for a name",
        gpus.try_acquire().unwrap_err(),
    ));
    reader.release().unwrap();
    let permit = gpus.acquire().unwrap();
    rows.push(row(
        "a read-write lock of the name of a semaphore",
        "use one kind for a name",
        client.rw_lock(NAME).unwrap().try_write().unwrap_err(),
    ));
    permit.release().unwrap();
    ask::<()>(&server, &["DEL", NAME]);
    let error = client.unlock(NAME).unwrap_err();
    rows.push(row("unlock without a lock", "lock first", error));
    assert!(client.try_lock(NAME, SOON, Lease::default()).unwrap());
    let error = thread::scope(|scope| scope.spawn(|| client.unlock(NAME).unwrap_err()).join());
    rows.push(row("unlock in another thread", "unlock in the thread that locked", error.unwrap()));
    client.unlock(NAME).unwrap();
    let lease = client.mutex(NAME).unwrap().lock().unwrap().into_owned().unwrap();
    let error = client.unlock(NAME).unwrap_err();
    rows.push(row(
        "the lease was moved to another thread, unlock in the first",
        "release it there",
        error,
    ));
    lease.release().unwrap();
    let guard = client.mutex(NAME).unwrap().lock().unwrap();
    let error = guard.transaction(|pipe| _ = pipe.cmd("SELECT").arg(2)).unwrap_err();
    rows.push(row("SELECT in a transaction", "use commands on data", error));
    let error = guard.transaction(|pipe| _ = pipe.cmd("GET")).unwrap_err();
    rows.push(row("a command with too few arguments in a transaction", "correct it", error));
    let permit = client.semaphore("gpu", 2).unwrap().acquire().unwrap();
    for (did, words) in [
        ("`EVAL` in a transaction of a permit", &["EVAL", "return 1", "0"][..]),
        ("an unknown command in a transaction of a permit", &["INCREASE", "sales"]),
    ] {
        let error = permit.transaction(|pipe| _ = pipe.cmd(words[0]).arg(&words[1..]));
        rows.push(row(did, "correct it", error.unwrap_err()));
    }
    permit.release().unwrap();
    let error = guard.extend(ms(0)).unwrap_err();
    rows.push(row("`extend` by zero", "choose a span", error));
    let error = guard.keep_for(ms(40 * 86_400_000)).unwrap_err();
    rows.push(row("`keep_for` for 40 days", "choose a span", error));
    guard.release().unwrap();
    let panicked = thread::scope(|scope| {
        let work = || -> () {
            let _guard = client.mutex(NAME).unwrap().lock().unwrap();
            // Not through the hook, which would print it.
            std::panic::resume_unwind(Box::new("the work fails"));
        };
        scope.spawn(work).join()
    });
    assert!(panicked.is_err());
    drop(other.mutex(NAME).unwrap().try_lock_for(SOON).unwrap().expect("released by the panic"));
    rows.push(fine("a panic while a guard lives", "none: the guard releases the lock"));
    rows
}

/// A guard, taken from its holder by `end`, and what its holder is told.
fn lost(options: LockOptions, end: impl FnOnce(&Server)) -> Error {
    // On a socket of its own: a server that was killed leaves its port to others.
    let server = Server::start().unwrap();
    let client = open(&server);
    let guard: Guard = client.mutex_with(NAME, options).unwrap().lock().unwrap();
    end(&server);
    until("it is lost", || {
        let _ = guard.check();
        guard.loss().is_some()
    });
    guard.release().unwrap_err()
}

fn losses() -> Vec<Row> {
    let kept = renewed(30_000);
    thread::scope(|scope| {
        let all = [
            scope.spawn(|| {
                let error = lost(fixed(2_000), |_| {});
                row("the work takes longer than a fixed lease", "use a renewed lease", error)
            }),
            scope.spawn(|| {
                let error = lost(renewed(6_000).max_renewals(1), |_| {});
                row("the work takes longer than `max_renewals` allows", "raise it", error)
            }),
            scope.spawn(|| {
                let error = lost(kept.max_hold(ms(2_000)), |_| {});
                row("the work takes longer than `max_hold`", "raise it or shorten the work", error)
            }),
            scope.spawn(|| {
                let error = lost(kept, |server| ask(server, &["DEL", NAME]));
                row("somebody deletes the key of a held lock", "find out who", error)
            }),
            scope.spawn(|| {
                let error = lost(kept, |server| {
                    assert!(open(server).mutex(NAME).unwrap().force_release().unwrap());
                });
                row("an operator forces the release", "ask the operator", error)
            }),
            scope.spawn(|| {
                let error = lost(kept, |server| ask(server, &["SET", NAME, "mine"]));
                row("somebody overwrites the key of a held lock", "find out who", error)
            }),
            scope.spawn(|| {
                let error = lost(renewed(4_000), |server| server.kill());
                row("Redis is away for longer than the lease", "use a longer lease", error)
            }),
            scope.spawn(paused),
        ];
        all.into_iter().map(|row| row.join().unwrap()).collect()
    })
}

/// The process with the lock is stopped, and goes on when another has the lock.
fn paused() -> Row {
    let server = Server::builder().tcp().start().unwrap();
    let child = Child::role("paused").test("error_text::usage::roles");
    let mut child = child.env("URL", server.tcp_url()).start().expect("a child");
    child.expect_line("held", SOON);
    child.stop();
    let next = open(&server).mutex(NAME).unwrap().try_lock_for(SOON).unwrap().expect("free");
    child.cont();
    child.say("release");
    let text = child.expect_line("text", SOON);
    let predicates = child.expect_line("predicates", SOON);
    next.check().unwrap();
    let did = "the process with a renewed lease is paused for longer than the lease";
    row_of_text(did, "find out why, or use a longer lease", &text, predicates)
}

/// What the child of this file runs; nothing in the process that people started.
#[test]
fn roles() {
    if role().as_deref() != Some("paused") {
        return;
    }
    let client = LockClient::open(std::env::var("URL").expect("the parent's server")).unwrap();
    let guard = client.mutex_with(NAME, renewed(3_000)).unwrap().lock().unwrap();
    tell("held");
    hear();
    let error = guard.release().unwrap_err();
    tell(&format!("text {error}"));
    tell(&format!("predicates {}", predicates(&error)));
}

fn waits() -> Vec<Row> {
    let server = Server::builder().tcp().start().unwrap();
    let (client, other) = (open(&server), open(&server));
    let guard = other.mutex(NAME).unwrap().lock().unwrap();
    let lock = || client.with_lock(NAME, ms(2_000), Lease::default(), || ()).unwrap_err();
    let error = meant(|error| !error.is_unknown_outcome(), lock);
    let mut rows = vec![row("`with_lock` while another has it", "wait longer", error)];
    std::mem::forget(guard);
    let error = meant(|error| !error.is_unknown_outcome(), lock);
    rows.push(row("another forgot its guard (`mem::forget`)", "set max_hold there", error));
    let lock = client.mutex(NAME).unwrap();
    let waiting = client.mutex(NAME).unwrap();
    let error = thread::scope(|scope| {
        let wait = scope.spawn(move || waiting.lock().map(drop).unwrap_err());
        until("it waits", || lock.cancel_waits() > 0);
        wait.join().unwrap()
    });
    rows.push(row("`cancel_waits` while a thread waits", "none", error));
    client.shutdown(SOON).unwrap();
    let error = lock.lock().unwrap_err();
    rows.push(row("a lock after the client's shutdown", "build a new client", error));
    rows
}

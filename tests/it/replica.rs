//! A lock that counts only once replicas have it, or disks.

use std::thread;

use crate::common::{SOON, ask, exists, ms, names, open, server, until};
use leasehold::{Begun, Guard, Lease, LockClient, LockOptions, Period, Wait};
use leasehold_support::{Server, ServerBuilder, or_skip};

fn builder() -> ServerBuilder {
    Server::builder().tcp().arg("--repl-diskless-sync-delay").arg("0")
}

fn master() -> Server {
    builder().start().expect("a server")
}

/// A client that gives replicas time.
fn patient(server: &Server) -> LockClient {
    LockClient::builder(server.url()).command_timeout(SOON).build().expect("a client")
}

/// A replica that has caught up.
fn replica_of(master: &Server) -> Server {
    following(master, builder())
}

fn following(master: &Server, builder: ServerBuilder) -> Server {
    let of = format!("127.0.0.1 {}", master.addr().port());
    let replica = builder.arg("--replicaof").arg(of).start().expect("a server");
    until("the replica is online", || {
        ask::<String>(master, &["INFO", "replication"]).contains("state=online")
    });
    replica
}

fn replicated() -> LockOptions {
    LockOptions::new().min_replicas(1, SOON / 2)
}

fn waits(server: &Server) -> u64 {
    server.commands().calls("wait")
}

#[test]
fn replica_has_the_success_of_a_job_before_it_returns() {
    let master = master();
    let replica = replica_of(&master);
    let client = patient(&master);
    let begun = |within| {
        let options = LockOptions::new().min_replicas(1, within);
        let job = client.once_with("job", Period::every(SOON * 100_000), options).unwrap();
        match job.begin().unwrap() {
            Begun::Run(run) => run,
            other => panic!("it is due: {other:?}"),
        }
    };
    let done = |server: &Server| ask::<Option<String>>(server, &["HGET", "{job}:record", "done"]);
    for _ in 0..20 {
        begun(SOON / 2).succeed().unwrap();
        assert!(done(&replica).is_some());
        ask::<()>(&master, &["DEL", "{job}:record"]);
    }
    let run = begun(ms(2_000));
    replica.pause();
    let error = run.succeed().unwrap_err();
    replica.resume();
    assert!(error.is_not_replicated() && error.to_string().contains("is recorded"), "{error}");
    assert!(done(&master).is_some());
}

#[test]
fn replica_has_the_lock_before_lock_returns() {
    let master = master();
    let replica = replica_of(&master);
    let client = patient(&master);
    for number in 0..20 {
        let name = format!("x{number}");
        let guard = client.mutex_with(&name, replicated()).unwrap().lock().unwrap();
        assert!(exists(&replica, &name), "{name}");
        guard.release().unwrap();
        let guard = client.reentrant(format!("r{name}")).unwrap().lock().unwrap();
        guard.release().unwrap();
        let lock = client.reentrant_with(format!("r{name}"), replicated()).unwrap();
        let guard = lock.lock().unwrap();
        assert!(exists(&replica, &format!("r{name}")));
        guard.release().unwrap();
    }
    assert_eq!(waits(&master), 40);
}

#[test]
fn reentry_and_handles_that_ask_for_none_do_not_wait_for_replicas() {
    let server = server();
    let client = patient(&server);
    let guard = client.mutex("x").unwrap().lock().unwrap();
    let again = client.mutex("x").unwrap().try_lock().unwrap().unwrap();
    assert_eq!(again.hold_count(), 2);
    again.release().unwrap();
    guard.release().unwrap();
    assert_eq!(waits(&server), 0);
}

#[test]
fn lock_without_enough_replicas_is_released_with_an_error() {
    let server = server();
    let client = open(&server);
    for wait in [Wait::queue(), Wait::spin()] {
        let lock =
            client.mutex_with("x", replicated().min_replicas(2, ms(100)).wait(wait)).unwrap();
        let error = lock.lock().unwrap_err();
        assert!(error.is_not_replicated(), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("\"x\"") && text.contains("2 replicas"), "{text}");
        assert!(!exists(&server, "x"));
        assert!(!lock.is_held_by_current_thread());
        assert!(lock.try_lock().unwrap_err().is_not_replicated());
    }
    assert!(client.mutex("x").unwrap().try_lock().unwrap().is_some());
}

/// The lease ends before the replicas' time does.
#[test]
fn lease_shorter_than_the_wait_is_not_replicated() {
    let server = server();
    let client = patient(&server);
    let lease = Lease::fixed(ms(2_000));
    let lock = client.mutex_with("x", replicated().lease(lease)).unwrap();
    let error = lock.lock().unwrap_err();
    assert!(error.is_not_replicated(), "{error:?}");
    assert!(error.to_string().contains("before its lease was nearly over"), "{error}");
    assert!(!exists(&server, "x"));
}

#[test]
fn hung_replica_does_not_count() {
    let master = master();
    let replica = replica_of(&master);
    let client = patient(&master);
    let lock = client.mutex_with("x", replicated()).unwrap();
    lock.lock().unwrap().release().unwrap();
    replica.pause();
    let hasty = client.mutex_with("x", replicated().min_replicas(1, ms(200))).unwrap();
    let error = hasty.lock().unwrap_err();
    replica.resume();
    assert!(error.is_not_replicated(), "{error:?}");
    assert!(!exists(&master, "x"));
    until("it has caught up", || lock.try_lock().is_ok_and(|guard| guard.is_some()));
}

#[test]
fn handed_over_lock_waits_for_the_replicas() {
    let master = master();
    let replica = replica_of(&master);
    let holder = patient(&master).mutex("x").unwrap().lock().unwrap();
    let waiter = patient(&master).mutex_with("x", replicated()).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let guard = waiter.lock().unwrap();
            assert!(exists(&replica, "x"));
            guard.release().unwrap();
        });
        until("it waits", || ask::<u32>(&master, &["ZCARD", "{x}:queue"]) == 1);
        holder.release().unwrap();
        waiting.join().unwrap();
    });
    assert_eq!(waits(&master), 1);
}

/// The grant is not written on the waiter's own connection, where all that it wrote has long been
/// confirmed. Before Redis 7.2, WAIT counted from the last write of all connections.
///
/// Several rounds: in one of them the waiter may write its heartbeat just then.
#[test]
fn replica_without_the_hand_over_does_not_count() {
    let Some(master) = or_skip(builder().since(7, 2).start()) else { return };
    let replica = following(&master, builder().since(7, 2));
    let lock = patient(&master).mutex("x").unwrap();
    let waiter = patient(&master).mutex_with("x", replicated().min_replicas(1, ms(200))).unwrap();
    for _ in 0..3 {
        let holder = lock.lock().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.lock().map(drop));
            until("it waits", || ask::<u32>(&master, &["ZCARD", "{x}:queue"]) == 1);
            let mut connection = master.connection();
            redis::cmd("SET").arg("y").arg("1").exec(&mut connection).unwrap();
            let confirmed: u32 =
                redis::cmd("WAIT").arg(1).arg(5_000).query(&mut connection).unwrap();
            assert_eq!(confirmed, 1);
            replica.pause();
            holder.release().unwrap();
            let error = waiting.join().unwrap().unwrap_err();
            replica.resume();
            assert!(error.is_not_replicated(), "{error:?}");
        });
        until("it is given back", || !exists(&master, "x"));
    }
}

/// The promoted replica has the lock, and a holder elsewhere does not get it.
#[test]
fn a_lock_survives_a_fail_over_to_the_replica_that_has_it() {
    let master = master();
    let replica = replica_of(&master);
    let guard = patient(&master).mutex_with("x", replicated()).unwrap().lock().unwrap();
    master.kill();
    ask::<()>(&replica, &["REPLICAOF", "NO", "ONE"]);
    let other = open(&replica).mutex("x").unwrap();
    assert!(other.try_lock().unwrap().is_none());
    drop(guard);
}

/// As after a fail-over: the master has the lock of another process, or none and no fence.
#[test]
fn passed_on_lease_missing_at_the_master_is_a_loss() {
    let master = master();
    let _replica = replica_of(&master);
    let client = patient(&master);
    let mutex = client.mutex_with("x", replicated()).unwrap();
    lost_when_passed_on(&master, &["SET", "x", "1-:other", "PX", "60000"], || mutex.lock());
    let reentrant = client.reentrant_with("r", replicated()).unwrap();
    lost_when_passed_on(&master, &["HSET", "r", "other", "1"], || reentrant.lock());
}

#[track_caller]
fn lost_when_passed_on(
    master: &Server,
    take: &[&str],
    lock: impl Fn() -> leasehold::Result<Guard> + Sync,
) {
    for (taken, why) in [(true, "another holder got it"), (false, "its key was deleted")] {
        let passed_on = || {
            let guard = lock().unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| lock().map(drop));
                until("it waits", || guard.waiters() == 1);
                // At once: the waiter's heartbeat must not find the lock free between the two.
                let mut pipe = redis::pipe();
                pipe.atomic().cmd("FLUSHALL");
                if taken {
                    pipe.cmd(take[0]).arg(&take[1..]);
                }
                pipe.exec(&mut master.connection()).unwrap();
                let released = guard.release();
                if let Err(error) = released {
                    // Held for so long that the server was to give it to the next, and had it no more.
                    assert!(error.is_lost(), "{error:?}");
                    if taken {
                        // Else the next may have it by now.
                        ask::<()>(master, &["FLUSHALL"]);
                    }
                    waiting.join().unwrap().unwrap();
                    return false;
                }
                let error = waiting.join().unwrap().unwrap_err();
                assert!(error.is_lost() && error.to_string().contains(why), "{error:?}");
                assert_eq!(exists(master, take[1]), taken);
                true
            })
        };
        assert!((0..5).any(|_| passed_on()), "nothing was passed on in the process");
        ask::<()>(master, &["FLUSHALL"]);
        // The next asks the server anew.
        lock().unwrap().release().unwrap();
    }
}

/// A server that knows WAITAOF, which came with Redis 7.2.
fn syncing() -> ServerBuilder {
    builder().since(7, 2)
}

/// The same with an append-only file.
fn appending() -> ServerBuilder {
    syncing().arg("--appendonly").arg("yes")
}

fn fsynced(local: bool, replicas: u32) -> LockOptions {
    LockOptions::new().min_fsyncs(local, replicas, SOON / 2)
}

/// The lock is not had, the error says what to do, and nothing is left.
#[track_caller]
fn is_impossible(server: &Server, options: LockOptions, word: &str) {
    let lock = patient(server).mutex_with("x", options).unwrap();
    for _ in 0..2 {
        let error = lock.try_lock().unwrap_err();
        assert!(error.to_string().starts_with("lock \"x\": "), "{error}");
        names(&error, ["min_fsyncs", "the ", word]);
        assert!(!exists(server, "x"));
        assert!(!lock.is_held_by_current_thread());
    }
}

#[test]
fn a_lock_that_is_on_disk_survives_a_crash_of_the_server() {
    let Some(server) = or_skip(appending().start()) else { return };
    let client = patient(&server);
    let locks = [true, false].map(|queues| {
        let wait = if queues { Wait::queue() } else { Wait::spin() };
        client.mutex_with(format!("x{queues}"), fsynced(true, 0).wait(wait)).unwrap()
    });
    let guards = locks.each_ref().map(|lock| lock.lock().unwrap());
    let reentrant = client.reentrant_with("r", fsynced(true, 0)).unwrap();
    let guard = reentrant.lock().unwrap();
    assert_eq!(server.commands().calls("waitaof"), 3);
    // Reentry costs nothing.
    reentrant.lock().unwrap().release().unwrap();
    assert_eq!(server.commands().calls("waitaof"), 3);
    server.restart();
    let other = open(&server);
    for name in ["xtrue", "xfalse"] {
        assert!(other.mutex(name).unwrap().try_lock().unwrap().is_none(), "{name}");
    }
    assert!(other.reentrant("r").unwrap().try_lock().unwrap().is_none());
    for guard in guards.into_iter().chain([guard]) {
        until("it is the holder's", || guard.check().is_ok());
        guard.release().unwrap();
    }
}

#[test]
fn lock_without_enough_disks_is_released_with_an_error() {
    let server = appending().arg("--appendfsync").arg("no").start();
    let Some(server) = or_skip(server) else { return };
    let client = open(&server);
    for (local, replicas) in [(true, 0), (false, 1), (true, 2)] {
        let options = LockOptions::new().min_fsyncs(local, replicas, ms(150));
        let lock = client.mutex_with("x", options).unwrap();
        let error = lock.lock().unwrap_err();
        assert!(error.is_not_fsynced() && !error.is_not_replicated(), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("\"x\"") && text.contains("within 150ms"), "{text}");
        assert!(text.contains(&format!("the disks of {replicas} replicas must")), "{text}");
        assert!(!exists(&server, "x"));
        assert!(!lock.is_held_by_current_thread());
        assert!(lock.try_lock().unwrap_err().is_not_fsynced());
    }
    assert_eq!(server.commands().calls("waitaof"), 6);
    assert!(client.mutex("x").unwrap().try_lock().unwrap().is_some());
    // The disk is synced now, at once.
    ask::<()>(&server, &["CONFIG", "SET", "appendfsync", "always"]);
    assert!(client.mutex_with("y", fsynced_in_time()).unwrap().try_lock().unwrap().is_some());
}

fn fsynced_in_time() -> LockOptions {
    LockOptions::new().min_fsyncs(true, 0, ms(900))
}

#[test]
fn hung_replica_does_not_count_as_a_disk() {
    let Some(master) = or_skip(appending().start()) else { return };
    let replica = following(&master, appending());
    let client = patient(&master);
    let lock = client.mutex_with("x", fsynced(true, 1).min_replicas(1, SOON / 2)).unwrap();
    let guard = lock.lock().unwrap();
    assert!(exists(&replica, "x"));
    let commands = master.commands();
    assert_eq!((commands.calls("wait"), commands.calls("waitaof")), (1, 1));
    guard.release().unwrap();
    replica.pause();
    let hasty = LockOptions::new().min_fsyncs(true, 1, ms(200));
    let error = client.mutex_with("x", hasty).unwrap().lock().unwrap_err();
    // Its own word for too few replicas comes first.
    let both = hasty.min_replicas(1, ms(200));
    let other = client.mutex_with("x", both).unwrap().lock().unwrap_err();
    replica.resume();
    assert!(error.is_not_fsynced() && other.is_not_replicated(), "{error:?} {other:?}");
    assert!(!exists(&master, "x"));
    until("it has caught up", || lock.try_lock().is_ok_and(|guard| guard.is_some()));
    // A replica that keeps no file never has it on disk, whatever it has in memory.
    ask::<()>(&replica, &["CONFIG", "SET", "appendonly", "no"]);
    let lock = client.mutex_with("z", hasty).unwrap();
    assert!(lock.try_lock().unwrap_err().is_not_fsynced());
    assert!(!exists(&master, "z"));
}

#[test]
fn a_replicas_disk_is_enough_where_the_master_keeps_none() {
    let Some(master) = or_skip(syncing().start()) else { return };
    let replica = following(&master, appending());
    let lock = patient(&master).mutex_with("x", fsynced(false, 1)).unwrap();
    let guard = lock.lock().unwrap();
    master.kill();
    replica.restart();
    ask::<()>(&replica, &["REPLICAOF", "NO", "ONE"]);
    assert!(open(&replica).mutex("x").unwrap().try_lock().unwrap().is_none());
    drop(guard);
}

#[test]
fn server_without_aof_or_waitaof_is_a_setting_error() {
    let Some(server) = or_skip(syncing().start()) else { return };
    is_impossible(&server, fsynced(true, 1), "appendonly yes");
    // As before Redis 7.2.
    let old = syncing().arg("--rename-command").arg("WAITAOF").arg("");
    is_impossible(&old.start().expect("a server"), fsynced(true, 0), "Redis 7.2");
}

#[test]
fn impossible_settings_are_rejected_before_any_io() {
    let client = LockClient::builder("redis://127.0.0.1:1").build().unwrap();
    for (options, parts) in [
        (replicated().min_replicas(0, ms(1)), ["min_replicas", "0", "at least 1"]),
        (replicated().min_replicas(1, ms(0)), ["time-out of min_replicas", "0s", "1ms to"]),
        (
            replicated().min_replicas(1, ms(1000)),
            ["time-out of min_replicas", "1s", "command_timeout"],
        ),
        (fsynced(false, 0), ["min_fsyncs", "no disk", "at least 1 replica"]),
        (fsynced(true, 0).min_fsyncs(true, 0, ms(0)), ["time-out of min_fsyncs", "0s", "1ms to"]),
        (fsynced(true, 0), ["time-out of min_fsyncs", "30s", "command_timeout"]),
    ] {
        names(&client.mutex_with("x", options).unwrap_err(), parts);
    }
}

/// A thread that holds the lock already has to wait for the replica, too, unless it has.
#[test]
fn inner_call_waits_for_the_copies_that_the_hold_does_not_have() {
    let master = master();
    let replica = replica_of(&master);
    let client = patient(&master);
    let lock = |options: LockOptions| client.mutex_with("x", options).unwrap();
    let lease = |span| LockOptions::new().lease(Lease::fixed(span));
    let replicated = |options: LockOptions| options.min_replicas(1, SOON / 2);
    let (short, long) = (SOON * 60, SOON * 120);
    let outer = lock(lease(short)).lock().unwrap();
    let inner = lock(replicated(lease(short))).lock().unwrap();
    assert_eq!(waits(&master), 1);
    drop((inner, outer));
    // Those that it has, it has, but not of a lease that is longer.
    let outer = lock(replicated(lease(short))).lock().unwrap();
    drop(lock(replicated(lease(short))).lock().unwrap());
    assert_eq!(waits(&master), 2);
    let inner = lock(replicated(lease(long))).lock().unwrap();
    assert_eq!(waits(&master), 3);
    until("the replica has the longer lease", || {
        ask::<i64>(&replica, &["PTTL", "x"]) > i64::try_from(short.as_millis()).unwrap()
    });
    drop((inner, outer));
    let outer = lock(lease(short)).lock().unwrap();
    replica.pause();
    let error = lock(lease(short).min_replicas(1, ms(200))).lock().map(drop).unwrap_err();
    replica.resume();
    assert!(error.is_not_replicated(), "{error}");
    assert!(error.to_string().contains("holds the lock as before"), "{error}");
    assert!(outer.is_valid() && outer.hold_count() == 1);
    outer.release().unwrap();
    assert!(!exists(&master, "x"));
}

//! Faults of the server's process and of its connections.

use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{LockClient, LossCause};
use leasehold_support::fault::Injector;
use leasehold_support::fault::server::{
    Busy, ClientsKilled, ClientsPaused, Forgetful, Killed, Loading, MaxClients, Stopped, TailCut,
};

use crate::acquire::{outage, outage_for};
use crate::common::{SOON, exists, ms, renewed, until};
use crate::kind::kinds;
use crate::trial::{CALL, COMMAND, KEY, LEASE, Trial};

kinds! {
    killed_at_acquire "server-killed@acquire" "E,L" = outage(&Killed);
    killed_at_hold "server-killed@hold" "S,L" = lost_its_data(&Killed);
    killed_at_release "server-killed@release" "E,A" = released_later(&Killed);
    tail_cut_at_hold "tail-cut@hold" "S" ["--appendonly", "yes", "--appendfsync", "always"]
        = lost_its_data(&TailCut { bytes: 8 });
    stopped_at_acquire "server-stopped@acquire" "E,A,L" = outage(&Stopped);
    stopped_at_hold "server-stopped@hold" "S" = ended_in_silence(&Stopped, ms(50));
    stopped_at_release "server-stopped@release" "E,A" = released_later(&Stopped);
    busy_at_acquire "busy@acquire" "E,L" = outage(&Busy);
    busy_at_renew "busy@renew" "S" = survived(&Busy);
    busy_at_release "busy@release" "E,A" = released_later(&Busy);
    loading_at_acquire "loading@acquire" "E,L" = outage(&Loading(ms(1_000)));
    no_script_at_all "no-script@every-command" "S,L";
    max_clients_at_connect "max-clients@connect" "E,L";
    backlog_full_at_connect "backlog-full@connect" "E" ["--tcp-backlog", "1"];
    clients_killed_at_hold "clients-killed@hold" "S" = survived(&ClientsKilled { which: "normal" });
    clients_killed_at_acquire "clients-killed@acquire" "A";
    clients_paused_at_acquire "clients-paused@acquire" "E,A";
    clients_paused_at_renew "clients-paused@renew" "S" = survived(&ClientsPaused(ms(LEASE / 2)));
    clients_paused_at_hold "clients-paused@hold" "S"
        = ended_in_silence(&ClientsPaused(ms(LEASE * 3)), ms(LEASE * 2));
}

/// It lost its data: the holder learns that, and the next token is higher.
fn lost_its_data(trial: &Trial, injector: &dyn Injector) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let mut active = trial.inject(injector);
    active.heal();
    trial.prove(&active);
    assert!(!exists(&trial.server, KEY));
    until("the loss is found", || !guard.is_valid());
    assert_eq!(guard.loss().expect("a loss").cause(), LossCause::Deleted);
    assert!(trial.timed(COMMAND, || guard.release()).unwrap_err().is_lost());
    trial.granted(&lock.try_lock_for(SOON).unwrap().expect("free"));
}

/// The release cannot be sent; it is finished once the server is back.
fn released_later(trial: &Trial, injector: &dyn Injector) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let mut active = trial.inject(injector);
    let error = trial.timed(CALL, || guard.release()).unwrap_err();
    assert!(error.is_unknown_outcome() || error.is_unreachable(), "{error:?}");
    active.heal();
    trial.prove(&active);
    trial.given_back();
    trial.granted(&lock.try_lock_for(SOON).unwrap().expect("free"));
}

/// It is silent for longer than the lease: the hold ends in the client no later than at the server,
/// and delayed requests do not affect the next holder.
fn ended_in_silence(trial: &Trial, injector: &dyn Injector, further: Duration) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let end = Instant::now() + guard.remaining();
    let active = trial.inject(injector);
    until("its validity ends", || !guard.is_valid());
    assert!(Instant::now() >= end);
    thread::sleep(further);
    assert_eq!(guard.loss().expect("a loss").cause(), LossCause::Unreachable);
    trial.heal(active);
    let next = trial.rival().try_lock_for(SOON).unwrap().expect("free");
    trial.granted(&next);
    assert!(trial.timed(COMMAND, || guard.release()).unwrap_err().is_lost());
    thread::sleep(ms(100));
    next.check().unwrap();
}

/// It serves no call for a part of the lease: the renewal comes in time afterwards.
fn survived(trial: &Trial, injector: &dyn Injector) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let begin = Instant::now();
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    let mut active = trial.inject(injector);
    thread::sleep(ms(LEASE / 2));
    active.heal();
    while begin.elapsed() < ms(LEASE + 200) {
        assert!(guard.is_valid(), "{:?}", guard.loss());
        thread::sleep(ms(5));
    }
    trial.prove(&active);
    guard.check().unwrap();
    trial.timed(COMMAND, || guard.release()).unwrap();
    trial.stays_away();
}

/// It forgets all scripts again and again, which no caller notices.
fn no_script_at_all(trial: &Trial) {
    let client = trial.client();
    let lock = client.mutex_with(KEY, renewed(LEASE)).unwrap();
    let active = trial.inject(&Forgetful);
    let begin = Instant::now();
    while begin.elapsed() < ms(LEASE / 2) {
        let guard = trial.timed(COMMAND, || lock.try_lock()).unwrap().expect("free");
        trial.granted(&guard);
        guard.check().unwrap();
        assert!(trial.rival().try_lock().unwrap().is_none());
        guard.release().unwrap();
    }
    let guard = lock.lock().unwrap();
    trial.granted(&guard);
    // Renewals too.
    thread::sleep(ms(LEASE + 100));
    assert!(guard.is_valid());
    guard.release().unwrap();
    trial.prove(&active);
    assert!(trial.server.error_count("NOSCRIPT") > 1);
}

fn max_clients_at_connect(trial: &Trial) {
    let client = trial.builder().connect_now(false).build().unwrap();
    outage_for(trial, &client, &MaxClients);
}

/// A Unix socket whose server does not accept keeps those who connect waiting, without a time-out:
/// callers go home in time all the same.
fn backlog_full_at_connect(trial: &Trial) {
    let builder = LockClient::builder(trial.server.url()).command_timeout(COMMAND);
    let client = builder.connect_timeout(COMMAND).max_wait(COMMAND).build().unwrap();
    let lock = client.mutex_with(KEY, renewed(LEASE)).unwrap();
    let active = trial.inject(&Stopped);
    thread::scope(|scope| {
        let crowd = scope.spawn(|| {
            let connect = |_| UnixStream::connect(trial.server.socket());
            (0..8).map(connect).collect::<Vec<_>>()
        });
        thread::sleep(ms(100));
        let stuck = u64::from(!crowd.is_finished());
        trial.witnessed(1, stuck, "a connect that hangs");
        for _ in 0..2 {
            let error = trial.timed(COMMAND, || lock.try_lock()).unwrap_err();
            assert!(error.is_unreachable(), "{error:?}");
        }
        trial.heal(active);
        crowd.join().unwrap();
    });
    trial.granted(&lock.try_lock_for(SOON).unwrap().expect("free"));
}

/// All connections are closed while nothing is under way.
fn clients_killed_at_acquire(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    trial.granted(&lock.lock().unwrap());
    let active = trial.inject(&ClientsKilled { which: "normal" });
    trial.prove(&active);
    let guard = trial.timed(COMMAND, || lock.try_lock()).unwrap().expect("free");
    trial.granted(&guard);
    guard.release().unwrap();
    trial.stays_away();
}

/// Delayed requests run when the pause is over, too late to take the lock.
fn clients_paused_at_acquire(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let active = trial.inject(&ClientsPaused(ms(LEASE * 3 / 2)));
    let error = trial.timed(COMMAND, || lock.try_lock()).unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    thread::sleep(ms(200));
    trial.heal(active);
    trial.given_back();
    trial.granted(&lock.try_lock_for(SOON).unwrap().expect("free"));
}

//! Faults of the network for waiters: heartbeats, wake-ups, hand-overs.

use std::thread;
use std::time::{Duration, Instant};

use leasehold_support::Action;
use leasehold_support::fault::network::{AtOperation, SILENCE};
use leasehold_support::fault::server::ClientsKilled;
use leasehold_support::fault::{Injector, Operation};
use leasehold_support::lag::Spent as _;

use crate::common::{SLACK, SOON, ask, ms, open, renewed, until};
use crate::kind::kinds;
use crate::trial::{CALL, COMMAND, KEY, LEASE, Trial, wait};

kinds! {
    reply_lost_at_join "reply-lost@join" "A,L";
    silent_at_join "silent@join" "A,L";
    request_cut_at_beat "request-cut@beat" "A,L"
        = keeps_its_place(&AtOperation::request("request-cut", Operation::Beat, Action::Cut));
    reply_lost_at_beat "reply-lost@beat" "A,L"
        = keeps_its_place(&AtOperation::request("reply-lost", Operation::Beat, Action::LoseReply));
    dropped_at_message "dropped@message" "L" = hand_over(&message("dropped", Action::Drop), WITHOUT_MESSAGE);
    doubled_at_message "doubled@message" "S,L"
        = hand_over(&message("doubled", Action::Twice), ms(0));
    late_at_message "late@message" "S,L"
        = hand_over(&message("late", Action::Delay(ms(200))), ms(200));
    swapped_at_message "swapped@message" "S,L";
    garbage_at_message "garbage@message" "L"
        = hand_over(&message("garbage", Action::Garbage(b"?!\r\n".to_vec())), WITHOUT_MESSAGE);
    cut_at_message "cut@message" "L" = hand_over(&message("cut", Action::Cut), WITHOUT_MESSAGE);
    half_open_at_wait "half-open@wait" "L";
    // The connection for wake-ups is closed, and comes back.
    subscribers_killed_at_wait "subscribers-killed@wait" "L"
        = hand_over(&ClientsKilled { which: "pubsub" }, WITHOUT_MESSAGE);
    cut_at_subscribe "request-cut@subscribe" "L";
    silent_at_subscribe "silent@subscribe" "L";
    reply_lost_at_hand_over "reply-lost@hand-over" "A,S,L";
    silent_at_hand_over "silent@hand-over" "A,S,L"
        = handed_over(&AtOperation::request("silent", Operation::Release, SILENCE));
    reply_lost_at_known_hand_over "reply-lost@known-hand-over" "A,S,L"
        = handed_over_by_one_who_knows("reply-lost", Action::LoseReply);
    silent_at_known_hand_over "silent@known-hand-over" "A,S,L"
        = handed_over_by_one_who_knows("silent", SILENCE);
    request_cut_at_known_hand_over "request-cut@known-hand-over" "A,S,L"
        = handed_over_by_one_who_knows("request-cut", Action::Cut);
    dropped_at_notify "dropped@notify" "L";
}

/// How soon a waiter gets the lock without a message.
const WITHOUT_MESSAGE: Duration = ms(1_000 + 300);

fn message(name: &'static str, action: Action) -> AtOperation {
    AtOperation::reply(name, Operation::Message, action).containing("\r\ng ")
}

/// Somebody waits in the queue behind the proxy, a fault begins, and the lock is released.
fn hand_over(trial: &Trial, injector: &dyn Injector, bound: Duration) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let held = trial.rival().lock().unwrap();
    trial.granted(&held);
    let active = thread::scope(|scope| {
        let waiter = scope.spawn(|| wait(trial, &lock));
        until("it waits", || trial.waiting() == 1);
        let active = trial.inject(injector);
        let begin = Instant::now();
        held.release().unwrap();
        let took = waiter.join().unwrap().spent_since(begin);
        assert!(took < bound + SLACK, "{took:?}");
        active
    });
    trial.prove(&active);
    drop(active);
    trial.given_back();
}

/// The grant comes after a message that was published later.
fn swapped_at_message(trial: &Trial) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let held = trial.rival().lock().unwrap();
    trial.granted(&held);
    let active = thread::scope(|scope| {
        let waiter = scope.spawn(|| wait(trial, &lock));
        until("it waits", || trial.waiting() == 1);
        let active = trial.inject(&message("swapped", Action::Swap));
        let begin = Instant::now();
        held.release().unwrap();
        let channels: Vec<String> = ask(&trial.server, &["PUBSUB", "CHANNELS", "leasehold:*"]);
        for channel in channels {
            ask::<()>(&trial.server, &["PUBLISH", &channel, "z"]);
        }
        let took = waiter.join().unwrap().spent_since(begin);
        assert!(took < SLACK, "{took:?}");
        active
    });
    trial.prove(&active);
    trial.given_back();
}

/// The connection for wake-ups stays open, and nothing comes on it any more, the sign of life that
/// is wanted neither.
fn half_open_at_wait(trial: &Trial) {
    let silent = AtOperation::reply("half-open", Operation::Message, Action::Drop).sticky();
    hand_over(trial, &silent, WITHOUT_MESSAGE);
}

/// No client can subscribe: none joins without a subscription (rule 12), and yet each gets the
/// lock.
fn unheard(trial: &Trial, injector: &dyn Injector) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let held = trial.rival().lock().unwrap();
    trial.granted(&held);
    let active = trial.inject(injector);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait(trial, &lock));
        trial.prove(&active);
        assert_eq!(trial.waiting(), 0);
        assert!(!waiter.is_finished());
        held.release().unwrap();
        let released = Instant::now();
        let took = waiter.join().unwrap().spent_since(released);
        assert!(took < WITHOUT_MESSAGE + SLACK, "{took:?}");
    });
    drop(active);
    trial.given_back();
}

fn cut_at_subscribe(trial: &Trial) {
    let cut = AtOperation::request("request-cut", Operation::Subscribe, Action::Cut);
    unheard(trial, &cut.sticky());
}

fn silent_at_subscribe(trial: &Trial) {
    let silent = AtOperation::request("silent", Operation::Subscribe, Action::Drop);
    unheard(trial, &silent.sticky());
}

/// A waiter's request or its reply is lost: it has one place, and keeps it.
fn keeps_its_place(trial: &Trial, injector: &dyn Injector) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let held = trial.rival().lock().unwrap();
    trial.granted(&held);
    let active = trial.inject(injector);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait(trial, &lock));
        until("it waits", || trial.waiting() == 1);
        let place = || ask::<Vec<String>>(&trial.server, &["ZRANGE", "{k}:queue", "0", "-1"]);
        let before = place();
        trial.prove(&active);
        // Its next request is answered.
        thread::sleep(COMMAND + ms(100));
        assert_eq!(place(), before, "it lost its place");
        let begin = Instant::now();
        held.release().unwrap();
        let took = waiter.join().unwrap().spent_since(begin);
        assert!(took < WITHOUT_MESSAGE + SLACK, "{took:?}");
    });
    trial.given_back();
}

fn reply_lost_at_join(trial: &Trial) {
    let lost = AtOperation::request("reply-lost", Operation::Acquire, Action::LoseReply);
    keeps_its_place(trial, &lost.containing("\r\njoin\r\n"));
}

fn silent_at_join(trial: &Trial) {
    let silent = AtOperation::request("silent", Operation::Acquire, SILENCE);
    keeps_its_place(trial, &silent.containing("\r\njoin\r\n"));
}

/// The reply to the release is lost: the next client has the lock already, and keeps it.
fn handed_over(trial: &Trial, injector: &dyn Injector) {
    hand_over_by(trial, injector, false);
}

/// Whether the holder knows that somebody waits is what its release depends on.
fn hand_over_by(trial: &Trial, injector: &dyn Injector, knows: bool) {
    let lock = trial.client().mutex_with(KEY, renewed(LEASE)).unwrap();
    let rival = trial.rival();
    let held = lock.lock().unwrap();
    trial.granted(&held);
    if knows {
        assert!(!held.is_contended(), "it listens from now on");
    }
    let active = trial.inject(injector);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = rival.try_lock_for(SOON).unwrap().expect("granted");
            let granted = Instant::now();
            trial.granted(&guard);
            // The repeated release, and the clean-up, must not take it away.
            thread::sleep(COMMAND + ms(200));
            guard.check().unwrap();
            guard.release().unwrap();
            granted
        });
        until("it waits", || trial.waiting() == 1);
        if knows {
            until("the holder knows", || held.is_contended());
        }
        let begin = Instant::now();
        // The release is repeated, and finds the next owner.
        trial.released(trial.timed(CALL, || held.release()));
        let took = waiter.join().unwrap().spent_since(begin);
        assert!(took < SLACK, "{took:?}");
    });
    trial.prove(&active);
    trial.given_back();
}

/// The same where the holder listens, and so knows of the waiter: its release says so to Redis.
fn handed_over_by_one_who_knows(trial: &Trial, fault: &'static str, action: Action) {
    let release = AtOperation::request(fault, Operation::Release, action).containing("wanted");
    hand_over_by(trial, &release, true);
}

fn reply_lost_at_hand_over(trial: &Trial) {
    let lost = AtOperation::request("reply-lost", Operation::Release, Action::LoseReply);
    handed_over(trial, &lost);
}

/// Waiters of a reentrant lock receive no message about its release.
fn dropped_at_notify(trial: &Trial) {
    let lock = trial.client().reentrant_with(KEY, renewed(LEASE)).unwrap();
    let rival = open(&trial.server).reentrant_with(KEY, renewed(LEASE)).unwrap();
    let held = rival.lock().unwrap();
    trial.granted(&held);
    let dropped = AtOperation::reply("dropped", Operation::Message, Action::Drop);
    let active = trial.inject(&dropped.containing("redisson_lock__channel"));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock.try_lock_for(SOON).unwrap().expect("granted");
            let granted = Instant::now();
            trial.granted(&guard);
            guard.release().unwrap();
            granted
        });
        until("it listens", || {
            let channels: Vec<String> = ask(&trial.server, &["PUBSUB", "CHANNELS", "redisson*"]);
            !channels.is_empty()
        });
        thread::sleep(ms(100));
        let begin = Instant::now();
        held.release().unwrap();
        let took = waiter.join().unwrap().spent_since(begin);
        assert!(took < WITHOUT_MESSAGE + SLACK, "{took:?}");
    });
    trial.prove(&active);
    trial.given_back();
}

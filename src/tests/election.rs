//! Leaders, their words, and those who observe them.

use std::time::Duration;

use crate::base::error::Error;
use crate::base::loss::LossCause;
use crate::base::option::{Lease, LockOptions, Wait};
use crate::base::sync::Arc;
use crate::base::sync::channel::{Receiver, unbounded};
use crate::base::sync::spawn;
use crate::client::LockClient;
use crate::kind::{Election, Leadership, Observation, Observed};
use crate::testing::Server;
use crate::tests::double::{listen, until};
use crate::wire::Value;

const SECOND: Duration = Duration::from_secs(1);

fn election(client: &LockClient) -> Election {
    client.election("a").unwrap()
}

/// How many candidates stand in the line.
fn candidates(server: &Server) -> u64 {
    match server.inner().call(&[b"ZCARD", b"{a}:candidates"]) {
        Ok(Value::Int(count)) => count.unsigned_abs(),
        other => panic!("{other:?}"),
    }
}

fn call(server: &Server, words: &[&[u8]]) -> Value {
    server.inner().call(words).unwrap()
}

/// A thread that campaigns, and sends what came of it.
fn campaign(election: &Election) -> Receiver<Result<Leadership, Error>> {
    let (sender, receiver) = unbounded();
    let election = election.clone();
    // A test that does not look any more does not want it either.
    spawn("candidate", move || drop(sender.send(election.campaign()))).unwrap();
    receiver
}

/// The same, which stands in the line by now and hears.
fn candidate(server: &Server, client: &LockClient) -> Receiver<Result<Leadership, Error>> {
    listen(client);
    let before = candidates(server);
    let receiver = campaign(&election(client));
    until(|| candidates(server) == before + 1 && server.has_sleeper());
    receiver
}

/// An observer that has seen what is so now, and hears.
fn observer(client: &LockClient) -> (Observation, Observed) {
    listen(client);
    let mut observation = election(client).observe().unwrap();
    let listener = &client.engine().listener;
    until(|| listener.is_subscribed(b"leasehold:{a}:word"));
    let first = observation.next().unwrap();
    (observation, first)
}

/// What an observer says of a leader: its term, and its word.
fn seen(observed: &Observed) -> Option<(u64, Option<&str>)> {
    let leader = observed.leader()?;
    let word = leader.value().map(|word| std::str::from_utf8(word).unwrap());
    Some((leader.term().unwrap().get(), word))
}

#[test]
fn one_leads_and_the_next_leads_at_once_when_it_resigns() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    assert_eq!(election(&here).leader().unwrap(), None);
    let first = election(&here).campaign().unwrap();
    let other = election(&there);
    assert!(other.try_campaign().unwrap().is_none());
    assert_eq!(other.last_blocker().unwrap().token(), Some(first.term()));
    let waiting = candidate(&server, &there);
    assert_eq!(election(&here).candidates().unwrap().len(), 1);
    let leader = election(&there).leader().unwrap().unwrap();
    assert_eq!((leader.term(), leader.value()), (Some(first.term()), None));
    assert_eq!(leader.pid(), Some(std::process::id()));
    assert_eq!(leader.owner(), first.lease_watch().owner());
    assert_eq!(leader.since(), Some(Duration::ZERO));

    let term = first.term();
    first.resign().unwrap();
    let next = waiting.recv().unwrap().unwrap();
    assert!(next.term() > term && next.is_valid());
    let leader = election(&here).leader().unwrap().unwrap();
    assert_eq!(leader.term(), Some(next.term()));
    drop(next);
    assert_eq!(election(&here).leader().unwrap(), None);
}

#[test]
fn a_word_counts_in_its_term_alone_and_the_latest_stays() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let first = election(&here).campaign().unwrap();
    let value = || {
        let leader = election(&there).leader().unwrap().unwrap();
        leader.value().map(|word| String::from_utf8(word.to_vec()).unwrap())
    };
    assert_eq!(value(), None);
    first.proclaim("one").unwrap();
    assert_eq!(value().as_deref(), Some("one"));
    first.proclaim("").unwrap();
    assert_eq!(value().as_deref(), Some(""));
    first.proclaim("a\0 b\r\n 7 \u{e9}").unwrap();
    assert_eq!(value().as_deref(), Some("a\0 b\r\n 7 \u{e9}"));
    first.proclaim([b'x'; 4_096]).unwrap();
    assert!(first.proclaim([b'x'; 4_097]).unwrap_err().is_config());
    assert_eq!(value().map(|word| word.len()), Some(4_096));
    let shown = election(&there).inspect().unwrap();
    assert_eq!(shown.word().map(<[u8]>::len), Some(4_096));
    assert!(shown.to_string().contains("\nsays \"xxx"), "{shown}");

    let waiting = candidate(&server, &there);
    first.resign().unwrap();
    let second = waiting.recv().unwrap().unwrap();
    assert_eq!(value(), None, "another term");
    second.proclaim("two").unwrap();
    assert_eq!(value().as_deref(), Some("two"));
    // What a term that is over has left says nothing, whatever its number.
    call(&server, &[b"SET", b"{a}:word", b"1 9 old", b"PX", b"60000"]);
    assert_eq!(value(), None);
    second.proclaim("three").unwrap();
    assert_eq!(value().as_deref(), Some("three"));
}

#[test]
fn a_word_that_was_stuck_on_its_way_does_not_replace_a_later_one() {
    let server = Server::standing_still();
    let client = server.client();
    let leadership = Arc::new(election(&client).campaign().unwrap());
    server.link(&client).delay_requests(1, SECOND * 3);
    let (sender, receiver) = unbounded();
    let early = Arc::clone(&leadership);
    spawn("early", move || sender.send(early.proclaim("early")).unwrap()).unwrap();
    until(|| server.has_sleeper());
    server.advance(SECOND * 2);
    let error = receiver.recv().unwrap().unwrap_err();
    assert!(error.is_unknown_outcome() && error.to_string().contains("safe"), "{error}");
    leadership.proclaim("late").unwrap();
    // What was stuck arrives.
    server.advance(SECOND * 3);
    let leader = election(&client).leader().unwrap().unwrap();
    assert_eq!(leader.value(), Some(&b"late"[..]));
}

#[test]
fn observers_hear_of_each_change_while_the_clock_stands_still() {
    let server = Server::standing_still();
    let (here, there, watching) = (server.client(), server.client(), server.client());
    let (mut observation, first) = observer(&watching);
    assert_eq!(first, Observed::Nobody);
    // Without the clock nothing but a message makes it look.
    let one = election(&here).campaign().unwrap();
    let term = one.term().get();
    assert_eq!(seen(&observation.next().unwrap()), Some((term, None)));
    one.proclaim("a").unwrap();
    assert_eq!(seen(&observation.next().unwrap()), Some((term, Some("a"))));
    one.proclaim("a").unwrap();
    assert_eq!(observation.next_timeout(Duration::ZERO).unwrap(), None, "it says the same");
    let waiting = candidate(&server, &there);
    one.resign().unwrap();
    let two = waiting.recv().unwrap().unwrap();
    assert_eq!(seen(&observation.next().unwrap()), Some((two.term().get(), None)));
    assert!(election(&here).force_release().unwrap());
    assert_eq!(observation.next().unwrap(), Observed::Nobody, "a free release is told");
    let three = election(&here).campaign().unwrap();
    assert_eq!(seen(&observation.next().unwrap()).unwrap().0, three.term().get());
    drop(three);
    assert_eq!(observation.next().unwrap(), Observed::Nobody);
    assert_eq!(observation.next_timeout(Duration::ZERO).unwrap(), None);
    // One that begins later sees what is so now.
    assert_eq!(observer(&there).1, Observed::Nobody);
}

#[test]
fn observer_without_messages_looks_once_a_second_and_at_the_end_of_the_lease() {
    let server = Server::standing_still();
    let (here, watching) = (server.client(), server.client());
    let lease = LockOptions::new().lease(Lease::fixed(SECOND * 5));
    let (mut observation, _) = observer(&watching);
    server.link(&watching).lose_messages(u64::MAX);
    let leadership = here.election_with("a", lease).unwrap().campaign().unwrap();
    let (sender, receiver) = unbounded();
    let observing = move || {
        while let Ok(observed) = observation.next() {
            if sender.send(observed).is_err() {
                return;
            }
        }
    };
    spawn("observer", observing).unwrap();
    until(|| server.has_sleeper());
    assert!(receiver.try_recv().is_err());
    server.advance(SECOND);
    let observed = receiver.recv().unwrap();
    assert_eq!(seen(&observed), Some((leadership.term().get(), None)));
    // Its process is silent, and its lease ends after five seconds and not after six.
    server.link(&here).cut();
    server.advance(Duration::from_millis(4_020));
    assert_eq!(receiver.recv().unwrap(), Observed::Nobody);
    assert_eq!(leadership.loss().unwrap().cause(), LossCause::Expired);
}

#[test]
fn observer_rides_out_a_short_outage_and_tells_of_a_long_one() {
    let server = Server::standing_still();
    let (here, watching) = (server.client(), server.client());
    let (mut observation, _) = observer(&watching);
    server.link(&watching).cut();
    let error = observation.next_timeout(Duration::ZERO).unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    let (sender, receiver) = unbounded();
    let observing = move || {
        // Twice: after an error it goes on.
        for _ in 0..2 {
            sender.send(observation.next()).unwrap();
        }
    };
    spawn("observer", observing).unwrap();
    let passed = server.run_until(|| !receiver.is_empty());
    let error = receiver.recv().unwrap().unwrap_err();
    assert!(error.is_unreachable() && passed >= SECOND * 10, "{error} after {passed:?}");
    let leadership = election(&here).campaign().unwrap();
    server.advance(SECOND * 5);
    assert!(receiver.try_recv().is_err());
    server.link(&watching).restore();
    server.run_until(|| !receiver.is_empty());
    let observed = receiver.recv().unwrap().unwrap();
    assert_eq!(seen(&observed).unwrap().0, leadership.term().get());
}

#[test]
fn close_ends_campaigns_and_observations() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let leadership = election(&here).campaign().unwrap();
    // Nobody else waits yet.
    let watching = server.client();
    let (mut observation, _) = observer(&watching);
    let (sender, receiver) = unbounded();
    spawn("observer", move || drop(sender.send(observation.next().unwrap_err()))).unwrap();
    until(|| server.has_sleeper());
    // A thread that waits by this clock looks again and again, and would see the end of its client in any case.
    let signal = watching.engine().signals.add();
    let report = watching.close(Duration::ZERO, SECOND);
    assert_eq!(report.cancelled(), 0);
    assert!(signal.take(), "observers are woken");
    assert!(receiver.recv().unwrap().is_cancelled());
    assert!(election(&watching).observe().unwrap_err().is_cancelled());

    let waiting = candidate(&server, &there);
    let report = there.close(Duration::ZERO, SECOND);
    assert_eq!(report.cancelled(), 1);
    assert!(waiting.recv().unwrap().unwrap_err().is_cancelled());
    // The leader's client goes, and nobody leads at once.
    let report = here.close(Duration::ZERO, SECOND);
    assert_eq!(report.taken().len(), 1);
    assert_eq!(leadership.loss().unwrap().cause(), LossCause::ShutDown);
    until(|| election(&server.client()).leader().unwrap().is_none());
}

#[test]
fn threads_of_one_client_lead_one_after_the_other_and_each_term_is_in_redis() {
    let server = Server::standing_still();
    let (client, watching) = (server.client(), server.client());
    let options = LockOptions::new().local_handoffs(16).linger(SECOND * 5);
    let election = client.election_with("a", options).unwrap();
    let (mut observation, _) = observer(&watching);
    let mut last = None;
    let mut leadership = election.campaign().unwrap();
    for _ in 0..3 {
        assert!(election.try_campaign().unwrap().is_none(), "it does not enter what it has");
        assert!(Some(leadership.term()) > last);
        last = Some(leadership.term());
        let observed = observation.next().unwrap();
        assert_eq!(seen(&observed).unwrap().0, leadership.term().get());
        let next = campaign(&election);
        until(|| leadership.waiters() == 1);
        // Time for another token, with which a lock would be handed on.
        server.advance(SECOND / 100);
        leadership.resign().unwrap();
        leadership = next.recv().unwrap().unwrap();
        let leader = election.leader().unwrap().unwrap();
        assert_eq!(leader.term(), Some(leadership.term()), "Redis knows the term");
    }
    leadership.resign().unwrap();
    while observation.next().unwrap() != Observed::Nobody {}
    assert!(call(&server, &[b"EXISTS", b"a"]) == Value::Int(0), "nothing lingers");
}

#[test]
fn leadership_can_be_sent_and_has_what_guards_have() {
    let server = Server::standing_still();
    let client = server.client();
    let lease = LockOptions::new().lease(Lease::fixed(SECOND * 5));
    let election = client.election_with("a", lease).unwrap();
    let leadership = election.try_campaign_for(SECOND).unwrap().unwrap();
    let (sender, receiver) = unbounded();
    let body = move || {
        leadership.check().unwrap();
        leadership.confirm().unwrap();
        leadership.extend(SECOND * 10).unwrap();
        assert!(leadership.remaining() > SECOND * 9 && leadership.loss().is_none());
        leadership
            .transaction(|pipe| {
                pipe.cmd("SET").arg("led").arg("1");
            })
            .unwrap();
        let watch = leadership.lease_watch();
        assert!(watch.is_valid() && watch.token() == leadership.term());
        leadership.resign().unwrap();
        assert!(!watch.is_valid());
        sender.send(()).unwrap();
    };
    spawn("leader", body).unwrap();
    receiver.recv().unwrap();
    assert_eq!(call(&server, &[b"GET", b"led"]), Value::BulkString(b"1".to_vec()));
}

#[test]
fn leadership_that_was_taken_is_lost_and_says_nothing() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let first = election(&here).campaign().unwrap();
    let owner = first.lease_watch().owner().to_vec();
    assert!(election(&there).release_for(&owner).unwrap());
    let second = election(&there).campaign().unwrap();
    second.proclaim("second").unwrap();
    let error = first.proclaim("first").unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(first.loss().unwrap().cause(), LossCause::Taken);
    let leader = election(&here).leader().unwrap().unwrap();
    assert_eq!(leader.value(), Some(&b"second"[..]));
    assert!(first.resign().unwrap_err().is_lost());
    assert!(second.is_valid());
    second.check().unwrap();
}

#[test]
fn keys_of_an_election_end_by_themselves_and_its_word_lives_as_long_as_it() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let leadership = election(&here).campaign().unwrap();
    leadership.proclaim("x").unwrap();
    let waiting = candidate(&server, &there);
    server.advance(SECOND * 100);
    let leader = election(&there).leader().unwrap().unwrap();
    assert_eq!(leader.value(), Some(&b"x"[..]), "it is renewed");
    assert_eq!(leader.since(), Some(SECOND * 100));
    let mut keys = server.keys();
    // Where it is announced.
    keys.retain(|key| key != b"leasehold:index");
    keys.sort();
    let expected = ["a", "{a}:candidates", "{a}:fence", "{a}:pulses", "{a}:word"];
    assert_eq!(keys, expected.map(|key| key.as_bytes().to_vec()));
    for key in &keys {
        let Value::Int(left) = call(&server, &[b"PTTL", key]) else { panic!("a number") };
        assert!((1..=31_000).contains(&left), "{} {left}", key.escape_ascii());
    }
    leadership.resign().unwrap();
    waiting.recv().unwrap().unwrap().resign().unwrap();
    server.advance(SECOND * 31);
    assert!(!server.keys().iter().any(|key| key.contains(&b'a') && key != b"leasehold:index"));
}

/// Rule 3: a leader that learns of its grant by asking has a whole lease from then on.
#[test]
fn word_of_a_leader_that_asks_again_lives_as_long_as_its_longer_lease() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let first = election(&here).campaign().unwrap();
    let waiting = candidate(&server, &there);
    server.link(&there).lose_messages(u64::MAX);
    first.resign().unwrap();
    let left = |key: &[u8]| match call(&server, &[b"PTTL", key]) {
        Value::Int(left) => left,
        other => panic!("{other:?}"),
    };
    assert!(left(b"a") < 10_000, "a claim");
    server.advance(SECOND);
    let second = waiting.recv().unwrap().unwrap();
    assert!(left(b"a") > 29_000 && second.is_valid(), "a lease");
    assert!(left(b"{a}:word") >= left(b"a"));
}

#[test]
fn a_name_is_of_one_kind() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let mutex = here.mutex("a").unwrap();
    let guard = mutex.lock().unwrap();
    for error in [
        election(&there).try_campaign().unwrap_err(),
        election(&there).leader().unwrap_err(),
        election(&there).is_locked().unwrap_err(),
        election(&there).force_release().unwrap_err(),
        election(&there).observe().unwrap().next().unwrap_err(),
    ] {
        assert!(error.is_wrong_type(), "{error}");
    }
    let listed = there.locks_named("a").unwrap();
    assert_eq!(listed.iter().map(|it| it.kind()).collect::<Vec<_>>(), ["mutex"]);
    guard.release().unwrap();

    let leadership = election(&there).campaign().unwrap();
    leadership.proclaim("x").unwrap();
    assert!(mutex.try_lock().unwrap().is_none());
    assert!(mutex.force_release().unwrap_err().is_wrong_type());
    let listed = here.locks_named("a").unwrap();
    assert_eq!(listed.iter().map(|it| it.kind()).collect::<Vec<_>>(), ["election"]);
    assert_eq!(listed[0].inspection().word(), Some(&b"x"[..]));
    let scanned: Vec<_> = here.locks("*").unwrap().with_scan().map(Result::unwrap).collect();
    assert_eq!(scanned.len(), 1);
    assert!(here.reentrant("a").unwrap().try_lock().unwrap_err().is_wrong_type());
    assert!(here.rw_lock("a").unwrap().try_read().unwrap_err().is_wrong_type());
    leadership.check().unwrap();
}

#[test]
fn candidate_that_polls_leads_too_and_gives_the_lead_to_the_line() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let spinning = here.election_with("a", LockOptions::new().wait(Wait::spin())).unwrap();
    let first = spinning.campaign().unwrap();
    let waiting = candidate(&server, &there);
    assert!(spinning.try_campaign().unwrap().is_none());
    first.resign().unwrap();
    assert!(waiting.recv().unwrap().unwrap().is_valid());
    assert!(here.election_with("a", LockOptions::new().wait(Wait::notify())).is_err());
}

#[test]
fn word_and_term_survive_a_full_memory_and_a_lost_fence() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let first = election(&here).campaign().unwrap();
    let waiting = candidate(&server, &there);
    server.set_out_of_memory(true);
    first.proclaim("full").unwrap();
    let leader = election(&here).leader().unwrap().unwrap();
    assert_eq!(leader.value(), Some(&b"full"[..]));
    first.resign().unwrap();
    let second = waiting.recv().unwrap().unwrap();
    let leader = election(&here).leader().unwrap().unwrap();
    assert_eq!((leader.term(), leader.value()), (Some(second.term()), None));
    server.set_out_of_memory(false);
    server.delete("{a}:fence");
    assert_eq!(election(&here).leader().unwrap().unwrap().term(), None);
    second.proclaim("again").unwrap();
    let leader = election(&here).leader().unwrap().unwrap();
    assert_eq!((leader.term(), leader.value()), (Some(second.term()), Some(&b"again"[..])));
}

/// Whether a leadership survives a silence of the server that begins just before its first renewal.
fn survives(lease: Duration, timeout: Duration, silence: Duration) -> bool {
    let server = Server::standing_still();
    let builder = LockClient::builder("redis://memory").command_timeout(timeout);
    let client = server.connect(builder).unwrap();
    let options = LockOptions::new().lease(Lease::renewed(lease));
    let leadership = client.election_with("a", options).unwrap().campaign().unwrap();
    let until_renewal = leadership.hold().lease.renew_at().since(client.engine().now());
    server.advance(until_renewal - SECOND / 1_000);
    server.link(&client).silence();
    server.advance(silence);
    server.link(&client).restore();
    server.advance(lease);
    leadership.is_valid()
}

/// The first rows of the table in the guide, to a twentieth of a second.
#[test]
fn leadership_survives_a_silence_of_most_of_its_lease() {
    const GUIDE: &str = include_str!("../../docs/limits.md");
    let step = SECOND / 20;
    for (seconds, steps) in [(1, 13), (2, 26), (3, 39)] {
        let row = format!("| {seconds} s | {:.2} s |", f64::from(steps) / 20.0);
        assert!(GUIDE.contains(&row), "{row}");
        for timeout in [SECOND / 4, SECOND] {
            let lease = SECOND * seconds;
            assert!(survives(lease, timeout, step * steps), "{row}");
            assert!(!survives(lease, timeout, step * (steps + 1)), "{row}");
        }
    }
}

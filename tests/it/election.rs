//! Elections on a real server: terms, words, observers, and processes that die.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{Election, Leadership, LockClient, Observation, Observed};
use leasehold_support::Child;
use leasehold_support::child::{hear, role, tell};

use crate::common::{
    SOON, ask, exists, hasty, ms, no_key_is_immortal, open, renewed, server, until,
};

fn election(client: &LockClient) -> Election {
    client.election("{shop}scheduler").expect("an election")
}

/// A thread that campaigns.
fn campaign(client: &LockClient) -> mpsc::Receiver<leasehold::Result<Leadership>> {
    let (sender, receiver) = mpsc::channel();
    let election = election(client);
    thread::spawn(move || drop(sender.send(election.campaign())));
    receiver
}

#[track_caller]
fn in_line(election: &Election, count: usize) {
    until("they stand in the line", || election.candidates().expect("a list").len() == count);
}

/// The term and the word of what is seen next.
#[track_caller]
fn next(observation: &mut Observation) -> Option<(u64, Option<Vec<u8>>)> {
    let observed = observation.next_timeout(SOON * 6).expect("a reply").expect("a change");
    let leader = observed.leader()?;
    Some((leader.term().expect("a term").get(), leader.value().map(<[u8]>::to_vec)))
}

#[test]
fn leader_is_known_to_all_with_its_term_and_its_word() {
    let server = server();
    let (here, there, watching) = (open(&server), open(&server), open(&server));
    let mut observation = election(&watching).observe().expect("an observation");
    assert_eq!(next(&mut observation), None);
    let first = election(&here).campaign().expect("a leadership");
    let term = first.term().get();
    assert_eq!(next(&mut observation), Some((term, None)));
    first.proclaim(b"10.0.0.7:8080\0\xff").expect("a reply");
    let word = Some(b"10.0.0.7:8080\0\xff".to_vec());
    assert_eq!(next(&mut observation), Some((term, word.clone())));
    let leader = election(&there).leader().expect("a reply").expect("a leader");
    assert_eq!((leader.value(), leader.pid()), (word.as_deref(), Some(std::process::id())));
    assert!(leader.to_string().contains("says \"10.0.0.7:8080\\x00\\xff\""), "{leader}");
    assert!(election(&there).try_campaign().expect("a reply").is_none());

    let waiting = campaign(&there);
    in_line(&election(&here), 1);
    no_key_is_immortal(&server);
    first.resign().expect("a reply");
    let second = waiting.recv_timeout(SOON).expect("in time").expect("a leadership");
    assert!(second.term().get() > term);
    assert_eq!(next(&mut observation), Some((second.term().get(), None)));
    second.check().expect("it leads");
    second.confirm().expect("a whole lease");
    second
        .transaction(|pipe| {
            pipe.cmd("SET").arg("{shop}led").arg(1);
        })
        .expect("a reply");
    assert!(election(&here).force_release().expect("a reply"));
    assert_eq!(next(&mut observation), None);
    until("its client has heard", || !second.is_valid());
    assert!(second.proclaim("late").unwrap_err().is_lost());
    assert!(!exists(&server, "{shop}scheduler:tword"));
}

#[test]
fn words_live_for_as_long_as_their_leader() {
    let server = server();
    let client = open(&server);
    let election = client.election_with("x", renewed(6_000)).expect("an election");
    let leadership = election.campaign().expect("a leadership");
    leadership.proclaim("word").expect("a reply");
    for _ in 0..2 {
        let mut left = leadership.remaining();
        until("it is renewed", || {
            let before = std::mem::replace(&mut left, leadership.remaining());
            left > before
        });
    }
    let leader = election.leader().expect("a reply").expect("a leader");
    assert_eq!((leader.term(), leader.value()), (Some(leadership.term()), Some(&b"word"[..])));
    no_key_is_immortal(&server);
    drop(leadership);
    until("nothing is left", || server.keys().iter().all(|key| key == b"leasehold:index"));
}

#[test]
fn free_release_of_a_mutex_publishes_nothing_and_that_of_an_election_does() {
    let server = server();
    let client = open(&server);
    let published = || -> usize {
        let stats: String = ask(&server, &["INFO", "commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_publish:calls="));
        line.map_or(0, |rest| rest.split(',').next().expect("a number").parse().expect("a number"))
    };
    let mutex = client.mutex("m").expect("a lock");
    for _ in 0..3 {
        mutex.lock().expect("a guard").release().expect("a reply");
    }
    assert_eq!(published(), 0);
    election(&client).campaign().expect("a leadership").resign().expect("a reply");
    assert_eq!(published(), 2, "its begin and its end");
}

#[test]
fn observer_asks_once_a_second_and_once_for_each_message() {
    let server = server();
    let (client, watching) = (open(&server), open(&server));
    let mut observation = election(&watching).observe().expect("an observation");
    assert_eq!(next(&mut observation), None);
    let leadership = election(&client).campaign().expect("a leadership");
    assert!(next(&mut observation).is_some());
    server.reset_stats();
    assert!(observation.next_timeout(ms(2_500)).expect("a reply").is_none());
    let stats: String = ask(&server, &["INFO", "commandstats"]);
    let calls = |name: &str| -> usize {
        let line =
            stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.map_or(0, |rest| rest.split(',').next().expect("a number").parse().expect("a number"))
    };
    // Besides, the worker announces the leader in the index.
    assert!((2..=6).contains(&(calls("evalsha") + calls("eval"))), "{stats}");
    drop(leadership);
}

#[test]
fn next_candidate_leads_when_the_lease_of_a_killed_leader_ends() {
    if role().as_deref() == Some("leads") {
        let client = LockClient::open(std::env::var("LEASEHOLD_URL").expect("a URL"));
        let client = client.expect("a client");
        let election = client.election_with("x", renewed(2_000)).expect("an election");
        let leadership = election.campaign().expect("a leadership");
        leadership.proclaim(std::process::id().to_string()).expect("a reply");
        tell("leads");
        hear();
        return;
    }
    let server = server();
    let client = open(&server);
    let election = client.election_with("x", renewed(2_000)).expect("an election");
    let mut observation = election.observe().expect("an observation");
    assert_eq!(next(&mut observation), None);
    let test = "election::next_candidate_leads_when_the_lease_of_a_killed_leader_ends";
    let child = Child::role("leads").test(test).env("LEASEHOLD_URL", server.url().as_str());
    let mut child = child.start().expect("a process");
    child.expect_line("leads", SOON * 6);
    let pid = child.pid().to_string().into_bytes();
    // It may see the leader before its word.
    let term = loop {
        let (term, word) = next(&mut observation).expect("a leader");
        if word.as_ref() == Some(&pid) {
            break term;
        }
    };
    let waiting = {
        let election = election.clone();
        thread::spawn(move || (election.campaign().expect("a leadership"), Instant::now()))
    };
    in_line(&election, 1);
    let killed = Instant::now();
    child.kill9();
    // Nobody, where it looks before the candidate asks.
    let mut seen = next(&mut observation);
    if seen.is_none() {
        seen = next(&mut observation);
    }
    let (leadership, at) = waiting.join().expect("no panic");
    assert_eq!(seen, Some((leadership.term().get(), None)));
    assert!(leadership.term().get() > term);
    assert!(at - killed < SOON * 6);
}

#[test]
fn last_state_is_seen_after_a_server_was_away() {
    let server = server();
    let (client, watching) = (open(&server), open(&server));
    let mut observation = election(&watching).observe().expect("an observation");
    let leadership = election(&client).campaign().expect("a leadership");
    until("it sees the leader", || {
        matches!(observation.next_timeout(ms(100)), Ok(Some(Observed::Leader(_))))
    });
    // Comes back empty.
    server.restart();
    assert_eq!(next(&mut observation), None);
    until("the loss is known", || leadership.loss().is_some());
    let next_one = election(&client).campaign().expect("a leadership");
    assert!(next_one.term() > leadership.term());
    assert_eq!(next(&mut observation), Some((next_one.term().get(), None)));
}

/// However short its time is: no change was looked for, so `None` would say what nobody knows.
#[test]
fn observer_never_says_that_nothing_has_changed_without_a_look() {
    let server = server();
    let watching = hasty(&server.url());
    let mut observation = election(&watching).observe().expect("an observation");
    assert_eq!(next(&mut observation), None);
    server.kill();
    for wait in 0..20 {
        let seen = observation.next_timeout(Duration::from_micros(wait));
        assert!(seen.as_ref().is_err_and(|error| error.is_transient()), "{wait} µs: {seen:?}");
    }
}

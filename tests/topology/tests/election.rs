//! The election over all topologies that have it: all but a quorum.

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use leasehold::{Election, Leadership, LockOptions, LossCause, Observation};
use leasehold_support::Child;
use leasehold_support::child::{hear, role, tell};
use leasehold_topology_test::scene::{SOON, Scene, ms, renewed, tailed, until};
use leasehold_topology_test::{Cluster, Sentinel, Single, Tls, suite};

suite! {
    one_leads_and_the_next_leads_when_it_resigns
    observer_sees_each_leader_and_word_in_order
    word_is_renewed_with_the_lease_and_ends_with_it
    evicted_leader_learns_of_it_and_says_nothing
    commands_apply_only_while_it_leads
    close_resigns
    key_of_another_kind_is_an_error_and_not_touched
    stopped_leader_comes_back_with_its_term
    term_of_a_stopped_leader_is_over_for_a_candidate
}

/// What the children of this file run; nothing in the process that people started.
#[test]
fn roles() {
    fn plays<T: Single>(role: &str) -> bool {
        let is_it = role == std::any::type_name::<T>();
        if is_it {
            play::<T>();
        }
        is_it
    }
    let Some(role) = role() else { return };
    let topologies = [plays::<Tls>, plays::<Sentinel>, plays::<Cluster>];
    assert!(topologies.iter().any(|plays| plays(&role)), "unknown role {role}");
}

/// The test's election, with a client of its own.
fn election_with<T: Single>(scene: &Scene<'_, T>, options: LockOptions) -> Election {
    scene.client().election_with(scene.name("x"), options).expect("an election")
}

fn election<T: Single>(scene: &Scene<'_, T>) -> Election {
    election_with(scene, LockOptions::new())
}

/// A thread that campaigns, and stands in the line by now.
fn candidate(election: &Election) -> Receiver<(Leadership, Instant)> {
    let (sender, receiver) = channel();
    let campaigning = election.clone();
    thread::spawn(move || sender.send((campaigning.campaign().unwrap(), Instant::now())));
    until("it stands in the line", || election.candidates().unwrap().len() == 1);
    receiver
}

/// The term and the word of what is seen next.
#[track_caller]
fn next(observation: &mut Observation) -> Option<(u64, Option<Vec<u8>>)> {
    let observed = observation.next_timeout(SOON).unwrap().expect("a change");
    let leader = observed.leader()?;
    Some((leader.term().unwrap().get(), leader.value().map(<[u8]>::to_vec)))
}

/// Long before the lease of 30 s is over.
fn one_leads_and_the_next_leads_when_it_resigns<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (election(scene), election(scene));
    let first = here.campaign().unwrap();
    assert!(there.try_campaign().unwrap().is_none());
    assert_eq!(there.leader().unwrap().unwrap().term(), Some(first.term()));
    let waiting = candidate(&there);
    let (term, resigned) = (first.term(), Instant::now());
    first.resign().unwrap();
    let (second, led) = waiting.recv_timeout(SOON).unwrap();
    assert!(second.term() > term && led - resigned < SOON);
    second.check().unwrap();
    second.confirm().unwrap();
    assert!(second.remaining() > SOON);
}

fn observer_sees_each_leader_and_word_in_order<T: Single>(scene: &Scene<'_, T>) {
    let (here, there, watching) = (election(scene), election(scene), election(scene));
    let mut observation = watching.observe().unwrap();
    assert_eq!(next(&mut observation), None);
    for round in 0..3 {
        let leadership = if round % 2 == 0 { &here } else { &there }.campaign().unwrap();
        let term = leadership.term().get();
        assert_eq!(next(&mut observation), Some((term, None)));
        for word in ["a", "b"] {
            leadership.proclaim(word).unwrap();
            assert_eq!(next(&mut observation), Some((term, Some(word.into()))));
        }
        leadership.resign().unwrap();
        assert_eq!(next(&mut observation), None);
    }
}

fn word_is_renewed_with_the_lease_and_ends_with_it<T: Single>(scene: &Scene<'_, T>) {
    let election = election_with(scene, renewed(3_000));
    let leadership = election.campaign().unwrap();
    leadership.proclaim("word").unwrap();
    thread::sleep(ms(4_500));
    let leader = election.leader().unwrap().unwrap();
    assert_eq!((leader.term(), leader.value()), (Some(leadership.term()), Some(&b"word"[..])));
    leadership.resign().unwrap();
    assert!(election.leader().unwrap().is_none());
    let again = election.campaign().unwrap();
    assert_eq!(election.leader().unwrap().unwrap().value(), None);
    drop(again);
}

fn evicted_leader_learns_of_it_and_says_nothing<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (election(scene), election(scene));
    // It listens.
    let mut observation = here.observe().unwrap();
    observation.next().unwrap();
    let first = here.campaign().unwrap();
    next(&mut observation);
    assert!(there.force_release().unwrap());
    until("it has heard", || first.loss().is_some());
    assert_eq!(first.loss().unwrap().cause(), LossCause::Deleted);
    assert!(first.proclaim("late").unwrap_err().is_lost());
    assert_eq!(next(&mut observation), None);
}

fn commands_apply_only_while_it_leads<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (election(scene), election(scene));
    // In the slot of the election.
    let key = [b"{", scene.name("x").as_slice(), b"}:data"].concat();
    let first = here.campaign().unwrap();
    let write = |leadership: &Leadership, value: u32| {
        leadership.transaction(|pipe| {
            pipe.cmd("SET").arg(&key[..]).arg(value);
        })
    };
    write(&first, 1).unwrap();
    assert!(there.release_for(first.lease_watch().owner()).unwrap());
    let second = there.campaign().unwrap();
    assert!(write(&first, 2).unwrap_err().is_lost());
    write(&second, 3).unwrap();
}

fn close_resigns<T: Single>(scene: &Scene<'_, T>) {
    let client = scene.client();
    let here = client.election(scene.name("x")).unwrap();
    let leadership = here.campaign().unwrap();
    let there = election(scene);
    let waiting = candidate(&there);
    let report = client.close(ms(0), SOON);
    assert_eq!((report.taken().len(), report.not_released().count()), (1, 0));
    assert_eq!(leadership.loss().unwrap().cause(), LossCause::ShutDown);
    let (next, _) = waiting.recv_timeout(SOON).unwrap();
    assert!(next.term() > leadership.term());
}

fn key_of_another_kind_is_an_error_and_not_touched<T: Single>(scene: &Scene<'_, T>) {
    let client = scene.client();
    let mutex = client.mutex(scene.name("x")).unwrap();
    let guard = mutex.lock().unwrap();
    let election = election(scene);
    assert!(election.try_campaign().unwrap_err().is_wrong_type());
    assert!(election.force_release().unwrap_err().is_wrong_type());
    guard.check().unwrap();
    guard.release().unwrap();
    let leadership = election.campaign().unwrap();
    assert!(mutex.force_release().unwrap_err().is_wrong_type());
    leadership.check().unwrap();
}

/// A process that leads with a lease that has a tail, and its term.
fn stopping<T: Single>(scene: &Scene<'_, T>) -> (Child, u64) {
    let name = String::from_utf8(scene.name("x")).unwrap();
    let child = Child::role(std::any::type_name::<T>()).test("roles");
    let child = child.env("ADDRESS", scene.address()).env("NAME", &name);
    let mut child = child.start().expect("a child");
    let term = child.expect_line("leads", SOON).parse().unwrap();
    (child, term)
}

/// What the child does.
fn play<T: Single>() {
    let variable = |name| std::env::var(name).unwrap();
    let builder = T::builder(&variable("ADDRESS")).command_timeout(ms(3_000));
    let client = builder.give_up_after(SOON * 2).build().unwrap();
    let leadership =
        client.election_with(variable("NAME"), tailed(2_000)).unwrap().campaign().unwrap();
    leadership.proclaim("word").unwrap();
    tell(&format!("leads {}", leadership.term()));
    hear();
    until("it is known", || leadership.is_valid() || leadership.loss().is_some());
    match leadership.loss() {
        None => tell(&format!("valid {}", leadership.term())),
        Some(loss) => tell(&format!("lost {:?}", loss.cause())),
    }
    hear();
}

/// To others nobody leads until it is heard of again, with its word.
fn stopped_leader_comes_back_with_its_term<T: Single>(scene: &Scene<'_, T>) {
    let here = election(scene);
    let (mut child, term) = stopping(scene);
    let leader = || here.leader().unwrap();
    assert_eq!(leader().unwrap().term().map(|term| term.get()), Some(term));
    child.stop();
    until("its lease is over", || leader().is_none());
    child.cont();
    child.say("go on");
    assert_eq!(child.expect_line("valid", SOON), term.to_string());
    let leader = leader().expect("it leads");
    assert_eq!(leader.term().map(|term| term.get()), Some(term));
    assert_eq!(leader.value(), Some(&b"word"[..]));
}

fn term_of_a_stopped_leader_is_over_for_a_candidate<T: Single>(scene: &Scene<'_, T>) {
    let here = election(scene);
    let (mut child, term) = stopping(scene);
    child.stop();
    let next = here.try_campaign_for(SOON).unwrap().expect("its lease is over");
    assert!(next.term().get() > term);
    child.cont();
    child.say("go on");
    assert_eq!(child.expect_line("lost", SOON), "Taken");
    next.check().unwrap();
    assert_eq!(here.leader().unwrap().unwrap().value(), None, "the word of the term before");
}

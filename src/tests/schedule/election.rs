//! Scenarios of an election: an observer hears of each change, and of the end of its client.

use std::time::Duration;

use shuttle::thread::spawn;

use crate::base::sync::channel::unbounded;
use crate::base::sync::time::passed;
use crate::tests::schedule::scenario::Group;
use crate::tests::schedule::world::{NAME, Process, World, eventually, join, released};
use crate::{Election, Observation};

pub(super) const SCENARIOS: Group = &[
    ("an observer of a leader, its word and its end", 0, observed),
    ("an observer while its client closes", 0, observed_while_closing),
    ("candidates of one process and of another", 0, candidates),
];

/// Shorter than a heartbeat.
const AT_ONCE: Duration = Duration::from_millis(400);

fn election(process: &Process) -> Election {
    process.client.election(NAME).expect("allowed")
}

/// An observer that hears, and has seen that nobody leads.
fn observer(process: &Process) -> Observation {
    let mut observation = election(process).observe().expect("it is open");
    assert!(observation.next().expect("a reply").leader().is_none());
    let channel = format!("leasehold:{{{NAME}}}:word").into_bytes();
    eventually("it does not hear", || process.engine.listener.is_subscribed(&channel));
    observation
}

/// Whatever comes between its looks, no change waits for a heartbeat.
fn observed() {
    let world = World::new();
    let processes = [world.process(), world.process()];
    let [leads, watches] = &processes;
    let mut observation = observer(watches);
    let (sender, receiver) = unbounded();
    let (leading, began) = (election(leads), passed());
    let leader = spawn(move || {
        let leadership = leading.campaign().expect("granted");
        leadership.proclaim("word").expect("said");
        receiver.recv().expect("it was seen");
        released(leadership.resign());
    });
    let watcher = spawn(move || {
        let mut last = None;
        loop {
            let observed = observation.next().expect("a reply");
            let Some(leader) = observed.leader() else { break };
            assert!(last.is_none_or(|last| last == leader.term()), "of one term");
            last = Some(leader.term());
            if leader.value() == Some(b"word") {
                sender.send(()).expect("it leads");
            }
        }
        assert!(last.is_some());
    });
    join([leader, watcher]);
    assert!(passed() - began < AT_ONCE, "a change was not told");
    world.end(processes);
}

fn observed_while_closing() {
    let world = World::new();
    let process = world.process();
    let mut observation = observer(&process);
    let (client, began) = (process.client.clone(), passed());
    let watcher = spawn(move || {
        assert!(observation.next().expect_err("closed").is_cancelled());
    });
    let closer = spawn(move || drop(client.close(Duration::ZERO, Duration::from_secs(1))));
    join([watcher, closer]);
    assert!(passed() - began < AT_ONCE, "it was not told");
    world.end([process]);
}

/// Each term is above the one before, whichever thread leads, and none is handed on.
fn candidates() {
    let world = World::new();
    let processes = [world.process(), world.process()];
    let candidate = |process: &Process| {
        let (election, witness) = (election(process), world.witness.clone());
        spawn(move || {
            let leadership = election.campaign().expect("granted");
            witness.enter_by(leadership.hold(), leadership.term().get());
            released(leadership.resign());
        })
    };
    let [one, other] = &processes;
    join([candidate(one), candidate(one), candidate(other)]);
    assert_eq!(world.witness.visits(), 3);
    world.end(processes);
}

//! Jobs whose lease has a tail: a run outlasts an outage that is longer than its lease, if no other has begun.

use super::*;
use crate::testing::Link;

const LEASE: Duration = Duration::from_secs(3);
const TAIL: Duration = Duration::from_secs(27);

fn job(client: &LockClient) -> Once {
    let lease = Lease::renewed(LEASE).recoverable_for(TAIL);
    client.once_with("job", HOURLY, LockOptions::new().lease(lease)).unwrap()
}

/// A run whose process could not reach Redis for so long, and its link.
fn silent(server: &Server, client: &LockClient, span: Duration) -> (Run, Link) {
    let run = begun(&job(client));
    let link = server.link(client);
    link.cut();
    server.advance(span);
    assert!(!run.guard().is_valid() && run.guard().loss().is_none(), "{:?}", run.guard().loss());
    (run, link)
}

#[test]
fn success_after_an_outage_longer_than_the_lease_is_recorded() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let (run, link) = silent(&server, &here, SECOND * 20);
    link.restore();
    run.succeed().unwrap();
    assert!(matches!(job(&there).begin().unwrap(), Begun::Skipped { .. }));
    assert_eq!(*job(&there).last_run().unwrap().unwrap().end(), RunEnd::Succeeded);
}

/// For as long as the lock may come back, and no longer than a client rides out any outage.
#[test]
fn success_in_an_outage_waits_for_its_end() {
    let server = Server::standing_still();
    let here = server.client();
    let run = begun(&job(&here));
    let link = server.link(&here);
    let (sender, outcomes) = unbounded();
    link.cut();
    // A run belongs to its thread, so that the other threads are those that wait.
    let (remote, restoring) = (server.clone(), link.clone());
    sync::spawn("time", move || {
        until(|| restoring.faults() > 0 && remote.has_sleeper());
        (0..80).for_each(|_| remote.advance(SECOND / 10));
        until(|| remote.has_sleeper());
        restoring.restore();
        while outcomes.is_empty() {
            remote.advance(SECOND / 10);
        }
    })
    .unwrap();
    let outcome = run.succeed();
    sender.send(()).unwrap();
    outcome.unwrap();
    assert!(server.elapsed() >= SECOND * 8);
    assert!(!is_due(&job(&here)));
}

/// Another machine has run the job meanwhile: only that run counts.
#[test]
fn silent_run_does_not_succeed_beside_another() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let (run, link) = silent(&server, &here, SECOND * 5);
    let (token, other) = (run.guard().fencing_token(), begun(&job(&there)));
    assert!(other.guard().fencing_token() > token);
    other.succeed().unwrap();
    link.restore();
    let error = run.succeed().unwrap_err();
    assert!(error.is_lost(), "{error}");
    let last = job(&there).last_run().unwrap().unwrap();
    assert_eq!((last.end(), last.tries()), (&RunEnd::Succeeded, 0));
    assert!(last.by().token().is_some_and(|by| by > token));
}

/// It would enter the lock once more, and the job would succeed twice.
#[test]
fn thread_with_a_silent_run_begins_no_other() {
    let server = Server::standing_still();
    let here = server.client();
    let (run, link) = silent(&server, &here, SECOND * 5);
    link.restore();
    let error = job(&here).begin().unwrap_err();
    assert!(error.is_config() && error.to_string().contains("this thread holds"), "{error}");
    run.succeed().unwrap();
    assert!(!is_due(&job(&here)));
}

/// Redis keeps its lock, so nobody knows that it is dead before another has it.
#[test]
fn run_of_a_silent_process_is_shown_as_running_until_another_begins() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let (run, _link) = silent(&server, &here, SECOND * 5);
    let there = job(&there);
    assert_eq!(*there.last_run().unwrap().unwrap().end(), RunEnd::Running);
    let next = begun(&there);
    assert_eq!(*there.last_run().unwrap().unwrap().end(), RunEnd::Running);
    assert_eq!(there.last_run().unwrap().unwrap().tries(), 2);
    next.succeed().unwrap();
    drop(run);
    assert_eq!(*there.last_run().unwrap().unwrap().end(), RunEnd::Succeeded);
}

//! Jobs that run once in a period, over real servers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{SOON, ask, ms, no_key_is_immortal, open, open_at, renewed, server, until};
use leasehold::{Begun, LockClient, Once, Period, Run, RunEnd, RunOutcome};
use leasehold_support::child::{hear, role, tell};
use leasehold_support::{Child, Server, WallClock};

const HOUR: Duration = Duration::from_secs(3_600);
/// No period ends within a test.
const LONG: Period = Period::every(Duration::from_secs(86_400 * 3_660));

fn job(client: &LockClient) -> Once {
    client.once("job", LONG).unwrap()
}

#[track_caller]
fn begun(job: &Once) -> Run {
    match job.begin().unwrap() {
        Begun::Run(run) => run,
        other => panic!("it is due: {other:?}"),
    }
}

#[test]
fn many_clients_at_once_run_the_job_once() {
    let server = server();
    let [tried, ran, skipped] = [(); 3].map(|()| AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            let (job, tried, ran, skipped) = (job(&open(&server)), &tried, &ran, &skipped);
            scope.spawn(move || {
                // Whoever is the first fails, and the next one does the job.
                let outcome = job.run(|_guard| {
                    thread::sleep(ms(20));
                    if tried.fetch_add(1, Ordering::SeqCst) == 0 { Err("no paper") } else { Ok(()) }
                });
                match outcome.unwrap() {
                    RunOutcome::Ran(()) => ran.fetch_add(1, Ordering::SeqCst),
                    RunOutcome::Skipped { .. } => skipped.fetch_add(1, Ordering::SeqCst),
                    RunOutcome::Failed(_) => 0,
                    other => panic!("{other:?}"),
                };
            });
        }
    });
    assert_eq!([tried, ran, skipped].map(AtomicU32::into_inner), [2, 1, 6]);
    no_key_is_immortal(&server);
}

/// The guide says so.
#[test]
fn commands_of_a_run_and_of_a_skipped_call_are_counted() {
    let server = server();
    let client = open(&server);
    let warm = client.once("warm", LONG).unwrap();
    assert_eq!(warm.run(|_guard| {}).unwrap(), RunOutcome::Ran(()));
    let job = job(&client);
    server.reset_stats();
    assert_eq!(job.run(|_guard| {}).unwrap(), RunOutcome::Ran(()));
    assert_eq!(server.command_calls(&["evalsha"]), 4);
    let rest = ["watch", "get", "multi", "hset", "pexpire", "exec"];
    // Two of its scripts have a `GET` within.
    assert!(rest.iter().all(|name| server.command_calls(&[name]) >= 2));
    assert_eq!(server.command_calls(&["watch", "multi", "hset", "exec"]), 8);
    server.reset_stats();
    assert!(matches!(job.run(|_guard| {}).unwrap(), RunOutcome::Skipped { .. }));
    assert_eq!(server.command_calls(&["evalsha"]), 1);
    assert_eq!(server.command_calls(&["eval", "watch", "get", "hset"]), 0);
}

#[test]
fn run_of_a_killed_process_is_tried_again() {
    if role().is_some() {
        let client = open_at(std::env::var("LEASEHOLD_URL").unwrap());
        let _run = begun(&client.once_with("job", LONG, renewed(2_000)).unwrap());
        tell("runs");
        hear();
        return;
    }
    let server = server();
    let job = job(&open(&server));
    let child = Child::role("runner").test("once::run_of_a_killed_process_is_tried_again");
    let mut child = child.env("LEASEHOLD_URL", server.url()).start().unwrap();
    child.expect_line("runs", SOON);
    let last = job.last_run().unwrap().unwrap();
    assert_eq!((last.end(), last.by().pid()), (&RunEnd::Running, Some(child.pid())));
    let hasty = job.clone().wait_at_most(Duration::ZERO);
    let Begun::Running { by: Some(by) } = hasty.begin().unwrap() else { panic!("it runs") };
    assert_eq!((by.pid(), by.token()), (Some(child.pid()), last.by().token()));
    child.kill9();
    until("its lease is over", || *job.last_run().unwrap().unwrap().end() == RunEnd::Died);
    assert_eq!(job.run(|_guard| Ok::<_, String>(7)).unwrap(), RunOutcome::Ran(7));
    assert_eq!(job.last_run().unwrap().unwrap().by().pid(), Some(std::process::id()));
}

/// What counts is the clock of the server, and a period that is done stays done when it is set back.
#[test]
fn period_is_that_of_the_servers_clock() {
    let clock = WallClock::new().expect("a clock");
    let server = Server::builder().envs(clock.variables()).start().expect("a server");
    let hour = i64::try_from(HOUR.as_micros()).unwrap();
    let client = open(&server);
    let seconds = || ask::<(i64, i64)>(&server, &["TIME"]).0;
    let begin = seconds();
    let ran = |hours: i64| {
        clock.set(hours * hour).unwrap();
        // The server looks at its clock now and then.
        until("it is set", || (seconds() - begin - hours * 3_600).abs() < 600);
        let job = client.once("job", Period::every(HOUR)).unwrap();
        matches!(job.run(|_guard| {}).unwrap(), RunOutcome::Ran(()))
    };
    assert_eq!([0, 1, 1, 0, -24, 1, 2].map(ran), [true, true, false, false, false, false, true]);
}

#[test]
fn error_names_the_key_of_the_record() {
    let server = server();
    let job = job(&open(&server));
    ask::<()>(&server, &["SET", "{job}:record", "x"]);
    let error = job.begin().unwrap_err();
    assert!(error.is_wrong_type(), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("lock \"job\": its record, the key \"{job}:record\", "), "{text}");
}

#[test]
fn types_are_shared_as_their_locks_are() {
    fn assert<T: Send + Sync + Clone>() {}
    assert::<Once>();
    assert::<Period>();
    assert::<RunOutcome<u32, String>>();
}

//! Jobs that run once in a period: with the server in memory, whose clock stands still.
//!
//! | module | what it tests |
//! | --- | --- |
//! | `outage` | calls and ends of runs while Redis does not reply |
//! | `retry` | jobs that fail, and when they are tried again |
//! | `tail` | runs that are not heard of for longer than their lease |

mod outage;
mod retry;
mod tail;

use std::fmt::Debug;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::double::until;
use crate::base::option::{Lease, LockOptions};
use crate::base::sync;
use crate::base::sync::channel::{Receiver, unbounded};
use crate::client::LockClient;
use crate::kind::{Begun, Guard, Missed, Once, Period, Run, RunEnd, RunOutcome};
use crate::testing::Server;
use crate::wire::Value;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const HOURLY: Period = Period::every(HOUR);
/// The server begins at a full hour.
const START: Duration = Duration::from_secs(1_701_000_000);
const RECORD: &[u8] = b"{job}:record";

fn job(client: &LockClient) -> Once {
    client.once("job", HOURLY).unwrap()
}

#[track_caller]
fn begun(job: &Once) -> Run {
    match job.begin().unwrap() {
        Begun::Run(run) => run,
        other => panic!("it is due: {other:?}"),
    }
}

#[track_caller]
fn is_due(job: &Once) -> bool {
    match job.begin().unwrap() {
        Begun::Run(run) => {
            run.fail("only asked").unwrap();
            true
        }
        Begun::Skipped { .. } => false,
        other => panic!("{other:?}"),
    }
}

/// Runs the job, and returns in which hour since the start its period begins, if it was due.
#[track_caller]
fn hour_of_run(job: &Once) -> Option<i64> {
    let Begun::Run(run) = job.begin().unwrap() else { return None };
    let start = run.period().start.duration_since(UNIX_EPOCH).unwrap();
    assert_eq!(run.period().end, run.period().start + HOUR);
    run.succeed().unwrap();
    Some((start.as_secs() as i64 - START.as_secs() as i64) / HOUR.as_secs() as i64)
}

fn at(span: Duration) -> SystemTime {
    UNIX_EPOCH + START + span
}

fn call(server: &Server, words: &[&[u8]]) -> Value {
    server.inner().call(words).unwrap()
}

fn set(server: &Server, field: &str, value: &str) {
    call(server, &[b"HSET", RECORD, field.as_bytes(), value.as_bytes()]);
}

fn get(server: &Server, field: &str) -> String {
    match call(server, &[b"HGET", RECORD, field.as_bytes()]) {
        Value::BulkString(text) => String::from_utf8(text).unwrap(),
        other => panic!("{field}: {other:?}"),
    }
}

/// A thread that runs the job and sends what came of it.
fn runner(job: &Once) -> Receiver<RunOutcome<u32>> {
    let (sender, outcomes) = unbounded();
    let job = job.clone();
    sync::spawn("runner", move || {
        let outcome = job.run(|_guard| Ok(7)).unwrap();
        let _ = sender.send(outcome);
    })
    .unwrap();
    outcomes
}

#[test]
fn job_runs_once_in_a_period_and_again_in_the_next() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    server.advance(MINUTE);
    assert_eq!(job(&here).run(|_guard| Ok::<_, String>(42)).unwrap(), RunOutcome::Ran(42));
    for client in [&here, &there] {
        for after in [Duration::ZERO, SECOND] {
            server.advance(after);
            let outcome = job(client).run(undue).unwrap();
            let RunOutcome::Skipped { ran_at, by } = outcome else { panic!("{outcome:?}") };
            assert_eq!((ran_at, by.pid()), (at(MINUTE), Some(std::process::id())));
        }
    }
    server.advance(HOUR);
    assert_eq!(job(&there).run(|_guard| {}).unwrap(), RunOutcome::Ran(()));
}

/// A job that is not due.
fn undue(_: &Guard) {
    panic!("it is not due")
}

#[test]
fn period_begins_at_its_edge_and_not_before() {
    let server = Server::standing_still();
    let job = job(&server.client());
    assert_eq!(hour_of_run(&job), Some(0));
    server.advance(HOUR - Duration::from_micros(1));
    assert_eq!(hour_of_run(&job), None);
    server.advance(Duration::from_micros(1));
    assert_eq!(hour_of_run(&job), Some(1));
}

#[test]
fn offset_moves_the_edges() {
    let server = Server::standing_still();
    let client = server.client();
    // A whole period more changes nothing.
    for (name, offset) in [("a", 10 * MINUTE), ("b", HOUR + 10 * MINUTE)] {
        let job = client.once(name, HOURLY.offset(offset)).unwrap();
        let run = begun(&job);
        assert_eq!(run.period(), at(10 * MINUTE) - HOUR..at(10 * MINUTE));
        run.succeed().unwrap();
    }
    server.advance(10 * MINUTE - Duration::from_micros(1));
    let jobs = ["a", "b"].map(|name| client.once(name, HOURLY.offset(10 * MINUTE)).unwrap());
    assert_eq!(jobs.each_ref().map(is_due), [false, false]);
    server.advance(Duration::from_micros(1));
    assert_eq!(jobs.each_ref().map(is_due), [true, true]);
}

#[test]
fn failed_job_is_tried_again_in_its_period() {
    let server = Server::standing_still();
    let job = job(&server.client());
    let failed = job.run(|_guard| Err::<(), _>("no\u{1b}[31m paper")).unwrap();
    assert_eq!(failed, RunOutcome::Failed("no\u{1b}[31m paper"));
    let last = job.last_run().unwrap().unwrap();
    assert_eq!(*last.end(), RunEnd::Failed(r"no\u{1b}[31m paper".to_owned()));
    assert_eq!(job.run(|_guard| {}).unwrap(), RunOutcome::Ran(()));
    assert!(!is_due(&job));
}

#[test]
fn panic_is_a_failure_and_goes_on() {
    let server = Server::standing_still();
    let client = server.client();
    let job = job(&client);
    let (sender, ended) = unbounded::<()>();
    let body = {
        let job = job.clone();
        move || {
            let _sender = sender;
            let _ = job.run(undue);
        }
    };
    sync::spawn("panics", body).unwrap();
    // Its thread has ended, and released the lock before.
    assert!(ended.recv().is_err());
    let last = job.last_run().unwrap().unwrap();
    assert_eq!(*last.end(), RunEnd::Failed("it panicked".to_owned()));
    assert!(!client.mutex("job").unwrap().is_locked().unwrap());
    assert!(is_due(&job));
}

#[test]
fn run_that_is_dropped_has_failed() {
    let server = Server::standing_still();
    let job = job(&server.client());
    drop(begun(&job));
    let last = job.last_run().unwrap().unwrap();
    assert_eq!(*last.end(), RunEnd::Failed("it was given up".to_owned()));
    assert!(is_due(&job));
}

#[test]
fn last_run_tells_when_by_whom_and_how() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let (job, elsewhere) = (job(&here), job(&there));
    assert!(job.last_run().unwrap().is_none());
    server.advance(MINUTE);
    let run = begun(&job);
    let token = run.guard().fencing_token();
    server.advance(SECOND * 40);
    let seen = elsewhere.last_run().unwrap().unwrap();
    assert_eq!((seen.end(), seen.ended()), (&RunEnd::Running, None));
    run.succeed().unwrap();
    let seen = elsewhere.last_run().unwrap().unwrap();
    assert_eq!(seen.period(), at(Duration::ZERO)..at(HOUR));
    assert_eq!((seen.began(), seen.ended()), (at(MINUTE), Some(at(MINUTE + SECOND * 40))));
    assert_eq!((seen.by().token(), seen.end()), (Some(token), &RunEnd::Succeeded));
    server.advance(MINUTE * 30);
    let seen = elsewhere.last_run().unwrap().unwrap();
    let host = seen.by().host().unwrap();
    let text = format!("ran 30m 40s ago (12:01:00 UTC) on {host}, took 40s");
    assert_eq!(seen.to_string(), text);
    assert_eq!(format!("{seen:#}"), format!("{text}; due in 28m 20s (13:00:00 UTC)"));
}

#[test]
fn died_run_is_tried_again_after_its_lease() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let options = LockOptions::new().lease(Lease::renewed(SECOND * 10));
    let run = begun(&here.once_with("job", HOURLY, options).unwrap());
    // As if its process had died.
    server.link(&here).cut();
    let elsewhere = job(&there);
    let outcome = runner(&elsewhere);
    until(|| server.is_queued_for("job"));
    assert_eq!(*elsewhere.last_run().unwrap().unwrap().end(), RunEnd::Running);
    server.advance(SECOND * 9);
    assert!(outcome.try_recv().is_err(), "its lease has not ended");
    server.advance(SECOND * 2);
    assert_eq!(outcome.recv().unwrap(), RunOutcome::Ran(7));
    drop(run);
}

#[test]
fn died_run_is_told_from_one_that_runs() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let run = begun(&job(&here));
    server.delete("job");
    let last = job(&there).last_run().unwrap().unwrap();
    assert_eq!((last.end(), last.ended()), (&RunEnd::Died, None));
    assert!(run.succeed().unwrap_err().is_lost());
}

#[test]
fn run_that_lost_its_lock_records_no_success() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    // Found at the end of the run, by Redis.
    let run = begun(&job(&here));
    server.steal("job", SECOND);
    assert!(run.succeed().unwrap_err().is_lost());
    assert_eq!(get(&server, "end"), "running");
    server.advance(SECOND * 2);
    // Another runs meanwhile, and its record stays.
    let run = begun(&job(&here));
    server.delete("job");
    assert_eq!(hour_of_run(&job(&there)), Some(0));
    let record = get(&server, "run");
    let error = run.fail("it is late").unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!((get(&server, "run"), get(&server, "done")), (record.clone(), record));
}

#[test]
fn outcome_of_a_run_that_lost_its_lock_is_the_loss() {
    let server = Server::standing_still();
    let job = job(&server.client());
    let outcome = job.run(|_guard| _ = server.delete("job"));
    assert!(outcome.unwrap_err().is_lost());
    assert!(is_due(&job));
    let outcome = job.run(|_guard| {
        server.delete("job");
        Err::<(), _>("no paper")
    });
    assert_eq!(outcome.unwrap(), RunOutcome::Failed("no paper"));
}

#[test]
fn call_waits_for_a_run_that_is_under_way() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    for fails in [true, false] {
        let run = begun(&job(&here));
        let outcome = runner(&job(&there));
        until(|| server.is_queued_for("job"));
        if fails {
            run.fail("no paper").unwrap();
            assert_eq!(outcome.recv().unwrap(), RunOutcome::Ran(7));
            server.advance(HOUR);
        } else {
            run.succeed().unwrap();
            let outcome = outcome.recv().unwrap();
            assert!(matches!(outcome, RunOutcome::Skipped { .. }), "{outcome:?}");
        }
    }
}

#[test]
fn bounded_wait_tells_who_runs_the_job() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let run = begun(&job(&here));
    let elsewhere = job(&there).wait_at_most(Duration::ZERO);
    let outcome = elsewhere.run(undue).unwrap();
    let RunOutcome::Running { by: Some(by) } = outcome else { panic!("{outcome:?}") };
    assert_eq!(by.token(), Some(run.guard().fencing_token()));
    run.succeed().unwrap();
}

#[test]
fn done_period_is_skipped_while_the_lock_is_held() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    assert_eq!(hour_of_run(&job(&here)), Some(0));
    let _guard = here.mutex("job").unwrap().lock().unwrap();
    assert!(!is_due(&job(&there)));
}

#[test]
fn job_that_runs_itself_is_refused() {
    let server = Server::standing_still();
    let job = job(&server.client());
    let outcome = job.run(|_guard| assert!(job.run(|_guard| {}).unwrap_err().is_config()));
    assert_eq!(outcome.unwrap(), RunOutcome::Ran(()));
}

#[test]
fn run_across_an_edge_counts_for_the_period_it_began_in() {
    let server = Server::standing_still();
    let client = server.client();
    let run = begun(&job(&client));
    server.advance(HOUR);
    run.succeed().unwrap();
    assert_eq!(hour_of_run(&job(&client)), Some(1));
}

/// Three machines call the job for one night, just before its edge, and wait for each other.
#[test]
fn call_that_waited_across_an_edge_is_for_the_period_of_the_run() {
    for fails in [false, true] {
        let server = Server::standing_still();
        let clients: Vec<LockClient> = (0..3).map(|_| server.client()).collect();
        server.advance(HOUR - SECOND);
        let run = begun(&job(&clients[0]));
        let before = runner(&job(&clients[1]));
        until(|| server.waiters("job") == 1);
        server.advance(SECOND * 2);
        // Called after the edge, and also for that night.
        let after = runner(&job(&clients[2]));
        until(|| server.waiters("job") == 2);
        server.advance(SECOND);
        let mut outcomes = vec![before, after];
        if fails {
            run.fail("no paper").unwrap();
            let retried = outcomes.remove(0).recv().unwrap();
            assert_eq!(retried, RunOutcome::Ran(7));
            let period = job(&clients[0]).last_run().unwrap().unwrap().period();
            assert_eq!(period.start, at(Duration::ZERO));
        } else {
            run.succeed().unwrap();
        }
        for outcome in outcomes {
            let outcome = outcome.recv().unwrap();
            assert!(matches!(outcome, RunOutcome::Skipped { .. }), "{outcome:?}");
        }
        // The next night is open.
        assert_eq!(hour_of_run(&job(&clients[1])), Some(1));
    }
}

/// The time of its end is an estimate, and may be a little late.
#[test]
fn run_that_ended_before_a_call_says_nothing_about_its_period() {
    let server = Server::standing_still();
    let client = server.client();
    let run = begun(&job(&client));
    server.advance(HOUR);
    run.succeed().unwrap();
    let late = START + HOUR + SECOND;
    set(&server, "end", &format!("succeeded {}", late.as_micros()));
    assert_eq!(hour_of_run(&job(&client)), Some(1));
}

#[test]
fn a_call_that_waited_for_a_run_that_died_is_for_the_period_it_began_in() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    // One that died long before a call is nothing that the call waited for.
    let died = begun(&job(&here));
    server.link(&here).cut();
    server.advance(HOUR * 3 - SECOND);
    let run = begun(&job(&there));
    assert_eq!(run.period().start, at(HOUR * 2));
    let elsewhere = server.client();
    let outcome = runner(&job(&elsewhere));
    until(|| server.waiters("job") == 1);
    server.link(&there).cut();
    server.run_until(|| !outcome.is_empty());
    assert_eq!(outcome.recv().unwrap(), RunOutcome::Ran(7));
    let period = job(&elsewhere).last_run().unwrap().unwrap().period();
    assert_eq!(period.start, at(HOUR * 2));
    assert_eq!(hour_of_run(&job(&elsewhere)), Some(3));
    drop((died, run));
}

/// Its caller goes on until nothing is due, and a skip would end that.
#[test]
fn call_that_catches_up_is_for_the_period_in_which_it_gets_the_lock() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let job = |client: &LockClient| job(client).missed(Missed::CatchUp { at_most: 3 });
    server.advance(HOUR - SECOND);
    let run = begun(&job(&here));
    let outcome = runner(&job(&there));
    until(|| server.waiters("job") == 1);
    server.advance(SECOND * 2);
    run.succeed().unwrap();
    assert_eq!(outcome.recv().unwrap(), RunOutcome::Ran(7));
    assert_eq!(hour_of_run(&job(&here)), None);
}

/// The tries of a period are over with it, also for a call that waited.
#[test]
fn call_that_waited_for_the_last_try_of_a_period_runs_nothing() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let job = |client: &LockClient| job(client).max_tries(1);
    server.advance(HOUR - SECOND);
    let run = begun(&job(&here));
    let outcome = runner(&job(&there));
    until(|| server.waiters("job") == 1);
    server.advance(SECOND * 2);
    run.fail("no paper").unwrap();
    let outcome = outcome.recv().unwrap();
    assert!(matches!(outcome, RunOutcome::Failing { tries: 1, .. }), "{outcome:?}");
    assert_eq!(hour_of_run(&job(&there)), Some(1));
}

/// A time is compared with nothing: after the clock was set back, the numbers of later periods are in the record.
#[test]
fn done_period_stays_done_when_the_clock_is_set_back() {
    let server = Server::standing_still();
    let job = job(&server.client());
    assert_eq!(hour_of_run(&job), Some(0));
    let done = get(&server, "done");
    let hour = START.as_secs() / HOUR.as_secs();
    // The run was made before the clock was set back by two hours.
    set(&server, "done", &done.replacen(&hour.to_string(), &(hour + 2).to_string(), 1));
    for expected in [None, None, None, Some(3)] {
        assert_eq!(hour_of_run(&job), expected);
        server.advance(HOUR);
    }
}

#[test]
fn missed_periods_are_passed_over_by_default() {
    let server = Server::standing_still();
    let job = job(&server.client());
    assert_eq!(hour_of_run(&job), Some(0));
    server.advance(HOUR * 4);
    assert_eq!(hour_of_run(&job), Some(4));
    assert_eq!(hour_of_run(&job), None);
}

#[test]
fn missed_periods_are_caught_up_oldest_first_within_a_bound() {
    let server = Server::standing_still();
    let job = job(&server.client()).missed(Missed::CatchUp { at_most: 2 });
    assert_eq!(hour_of_run(&job), Some(0), "nothing is known of earlier ones");
    assert_eq!(hour_of_run(&job), None);
    server.advance(HOUR * 2);
    assert_eq!([(); 3].map(|()| hour_of_run(&job)), [Some(1), Some(2), None]);
    server.advance(HOUR * 5);
    begun(&job).fail("no paper").unwrap();
    assert_eq!([(); 4].map(|()| hour_of_run(&job)), [Some(5), Some(6), Some(7), None]);
}

#[test]
fn first_period_that_failed_is_caught_up() {
    let server = Server::standing_still();
    let job = job(&server.client()).missed(Missed::CatchUp { at_most: 2 });
    begun(&job).fail("no paper").unwrap();
    server.advance(HOUR);
    begun(&job).fail("no paper").unwrap();
    server.advance(HOUR);
    assert_eq!([(); 4].map(|()| hour_of_run(&job)), [Some(0), Some(1), Some(2), None]);
}

#[test]
fn missed_periods_are_caught_up_after_an_outage_of_a_month() {
    let server = Server::standing_still();
    let job = job(&server.client()).missed(Missed::CatchUp { at_most: 24 });
    assert_eq!(hour_of_run(&job), Some(0));
    server.suspend(DAY * 30);
    let ran: Vec<i64> = std::iter::from_fn(|| hour_of_run(&job)).collect();
    assert_eq!(ran, (30 * 24 - 24..=30 * 24).collect::<Vec<_>>());
}

#[test]
fn record_ends_some_time_after_its_last_run() {
    let week = DAY * 7;
    for (job, keep) in [
        (job as fn(&LockClient) -> Once, HOUR * 2 + week),
        (|client| job(client).missed(Missed::CatchUp { at_most: 5 }), DAY * 400),
        (|client| job(client).missed(Missed::CatchUp { at_most: 9_998 }), HOUR * 10_000 + week),
        (|client| job(client).retry_after(DAY * 30), DAY * 30 + week),
    ] {
        let server = Server::standing_still();
        let job = job(&server.client());
        let run = begun(&job);
        server.advance(SECOND);
        assert_eq!(call(&server, &[b"PTTL", RECORD]), millis(keep - SECOND));
        run.succeed().unwrap();
        assert_eq!(call(&server, &[b"PTTL", RECORD]), millis(keep));
        server.suspend(keep - SECOND);
        assert!(job.last_run().unwrap().is_some());
        server.suspend(SECOND * 2);
        assert!(server.keys().is_empty(), "{:?}", server.keys());
    }
}

fn millis(span: Duration) -> Value {
    Value::Int(span.as_millis().try_into().unwrap())
}

#[test]
fn changed_period_is_done_where_the_last_success_began() {
    let server = Server::standing_still();
    let client = server.client();
    server.advance(MINUTE * 50);
    assert_eq!(hour_of_run(&job(&client)), Some(0));
    let quarter = client.once("job", Period::every(MINUTE * 15)).unwrap();
    let shifted = client.once("job", HOURLY.offset(MINUTE * 30)).unwrap();
    assert_eq!([&quarter, &shifted].map(is_due), [false, false]);
    server.advance(MINUTE * 20);
    assert_eq!([&quarter, &shifted, &job(&client)].map(is_due), [true, false, true]);
}

#[test]
fn forgotten_job_runs_once_more() {
    let server = Server::standing_still();
    let job = job(&server.client());
    assert!(!job.forget().unwrap());
    assert_eq!(hour_of_run(&job), Some(0));
    assert!(job.forget().unwrap() && job.last_run().unwrap().is_none());
    // One that is under way records its end all the same.
    let run = begun(&job);
    assert!(job.forget().unwrap());
    run.succeed().unwrap();
    assert!(!is_due(&job));
    assert!(job.last_run().unwrap().is_some());
}

#[track_caller]
fn is_unreadable<T: Debug>(outcome: crate::Result<T>) {
    let error = outcome.unwrap_err();
    assert!(error.is_wrong_type(), "{error}");
    assert!(error.to_string().contains(r#"its record, the key "{job}:record""#), "{error}");
}

#[test]
fn key_of_another_type_is_an_error_and_stays() {
    let server = Server::standing_still();
    let client = server.client();
    call(&server, &[b"SET", RECORD, b"x"]);
    is_unreadable(job(&client).begin());
    is_unreadable(job(&client).last_run());
    assert_eq!(call(&server, &[b"GET", RECORD]), Value::BulkString(b"x".to_vec()));
    assert!(!client.mutex("job").unwrap().is_locked().unwrap());
    assert!(job(&client).forget().unwrap() && is_due(&job(&client)));
}

#[test]
fn record_that_cannot_be_read_is_an_error_and_stays() {
    let server = Server::standing_still();
    let client = server.client();
    let job = job(&client);
    let sane = |server: &Server| {
        call(server, &[b"DEL", RECORD]);
        assert_eq!(hour_of_run(&job), Some(0));
    };
    let long = "9".repeat(2_000);
    let junk = [
        ("form", "2"),
        ("form", ""),
        ("done", ""),
        ("done", "1"),
        ("done", "1 2 0 4 5 6"),
        ("done", "1 0 0 4 5"),
        ("done", "1 -1 0 4 5"),
        ("done", "1 2 2 4 5"),
        ("done", "1 2 -1 4 5"),
        ("done", "9223372036854775807 2 0 4 5"),
        ("done", "-9223372036854775808 2 1 4 5"),
        ("done", "1 9223372036854775807 0 4 5"),
        ("done", "1 2 0 99999999999999999999 5"),
        ("done", "1 2 0 4 -5"),
        ("done", "1 2 0 4 x"),
        ("done", "1\n2 0 4 5"),
        ("done", &long),
        ("run", "x"),
        ("end", "x"),
        ("end", "succeeded"),
        ("end", "succeeded x"),
        ("end", "failed 99999999999999999999"),
        ("end", "paused 5"),
        ("tries", ""),
        ("tries", "0"),
        ("tries", "1 2"),
        ("over", "1"),
        ("over", "1 x"),
        ("policy", "0 -"),
    ];
    for (field, value) in junk {
        sane(&server);
        set(&server, field, value);
        is_unreadable(job.begin());
        is_unreadable(job.last_run());
        assert_eq!(get(&server, field), value);
    }
    for field in ["form", "done_by", "run", "run_by", "end", "reason", "tries", "policy"] {
        sane(&server);
        call(&server, &[b"HDEL", RECORD, field.as_bytes()]);
        is_unreadable(job.begin());
    }
    call(&server, &[b"DEL", RECORD]);
    set(&server, "stock", "41");
    is_unreadable(job.begin());
    assert!(!client.mutex("job").unwrap().is_locked().unwrap());
}

#[test]
fn foreign_text_in_a_record_is_cleaned_and_bounded() {
    let server = Server::standing_still();
    let job = job(&server.client());
    begun(&job).fail("é".repeat(600)).unwrap();
    assert_eq!(get(&server, "reason"), "é".repeat(256));
    set(&server, "reason", &format!("a\n\u{202e}{}", "x".repeat(9_000)));
    call(&server, &[b"HSET", RECORD, b"run_by", b"\xff\x1b[31m"]);
    let last = job.last_run().unwrap().unwrap();
    let text = last.to_string();
    assert!(text.chars().all(crate::base::text::is_plain) && text.len() < 1_200, "{text}");
    assert!(is_due(&job), "it is for people, and decides nothing");
}

#[test]
fn names_that_contain_each_other_have_records_of_their_own() {
    let server = Server::standing_still();
    let client = server.client();
    let names: [&[u8]; 6] = [b"job", b"job:", b"jobs", b"{job}", b"{job}s", b"j\xff\0"];
    for name in names {
        let job = client.once(name, HOURLY).unwrap();
        assert_eq!(job.name(), name);
        assert_eq!(hour_of_run(&job), Some(0), "{}", name.escape_ascii());
    }
    assert!(client.once("{job}:record", HOURLY).unwrap_err().is_config());
    assert!(client.mutex("{job}:trecord").unwrap_err().is_config());
}

#[test]
fn periods_that_are_not_allowed_are_refused() {
    let client = Server::standing_still().client();
    let day = HOUR * 24;
    for (period, text) in [
        (Period::every(Duration::ZERO), "invalid period: 0s, expected from 1ms to 3660 days"),
        (Period::every(Duration::from_micros(999)), "invalid period: 999µs"),
        (Period::every(day * 3_661), "invalid period: 3661d"),
        (Period::every(Duration::MAX), "invalid period: Duration::MAX"),
        (HOURLY.offset(Duration::MAX), "invalid period offset: Duration::MAX"),
    ] {
        let error = client.once("job", period).unwrap_err();
        assert!(error.is_config() && error.to_string().contains(text), "{error}");
    }
    // The longest, whatever is to be caught up.
    let longest = client.once("job", Period::every(day * 3_660).offset(day * 3_660)).unwrap();
    assert!(is_due(&longest.missed(Missed::CatchUp { at_most: u32::MAX })));
    let shortest = client.once("a", Period::every(Duration::from_millis(1))).unwrap();
    let shortest = shortest.missed(Missed::CatchUp { at_most: u32::MAX });
    assert!(is_due(&shortest) && is_due(&shortest));
}

#[test]
fn run_does_not_begin_where_the_record_cannot_be_written() {
    let server = Server::standing_still();
    let client = server.client();
    let job = job(&client);
    server.set_out_of_memory(true);
    // A lock cannot be taken then, but by who has one.
    assert!(job.begin().unwrap_err().is_refused());
    server.set_out_of_memory(false);
    let run = begun(&job);
    server.set_out_of_memory(true);
    let error = run.succeed().unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("lock \"job\""), "{error}");
    server.set_out_of_memory(false);
    assert!(is_due(&job));
}

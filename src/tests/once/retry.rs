//! Jobs that fail, and when they are tried again.

use super::*;

/// Which call it is that fails, and what it is told.
#[derive(Debug, PartialEq, Eq)]
struct Undue {
    tries: u32,
    next_at: SystemTime,
    end: RunEnd,
}

#[track_caller]
fn undue(job: &Once) -> Undue {
    match job.begin().unwrap() {
        Begun::Failing { tries, last, next_at } => {
            Undue { tries, next_at, end: last.end().clone() }
        }
        other => panic!("it is not due: {other:?}"),
    }
}

#[track_caller]
fn fail(job: &Once) {
    begun(job).fail("no paper").unwrap();
}

fn failed(tries: u32, next_at: SystemTime) -> Undue {
    Undue { tries, next_at, end: RunEnd::Failed("no paper".to_owned()) }
}

#[test]
fn of_twenty_machines_that_wait_for_a_job_that_fails_one_runs_it_in_a_minute() {
    let server = Server::standing_still();
    let clients: Vec<LockClient> = (0..20).map(|_| server.client()).collect();
    let job = |client: &LockClient| job(client).retry_after(MINUTE);
    let run = begun(&job(&clients[0]));
    let outcomes: Vec<_> = clients[1..].iter().map(|client| runner(&job(client))).collect();
    until(|| server.waiters("job") == 19);
    server.advance(SECOND);
    run.fail("no paper").unwrap();
    let next_at = at(SECOND + MINUTE);
    for outcome in outcomes {
        let outcome = outcome.recv().unwrap();
        let RunOutcome::Failing { tries: 1, last, next_at: at } = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!((last.end(), at), (&RunEnd::Failed("no paper".to_owned()), next_at));
    }
    server.advance(MINUTE - Duration::from_micros(1));
    for client in &clients {
        assert_eq!(undue(&job(client)), failed(1, next_at));
    }
    server.advance(Duration::from_micros(1));
    assert_eq!(hour_of_run(&job(&clients[7])), Some(0));
}

#[test]
fn tries_of_a_period_are_counted_and_bounded() {
    let server = Server::standing_still();
    let clients = [server.client(), server.client()];
    let job = |number: usize| job(&clients[number]).max_tries(3);
    for number in [0, 1, 0] {
        fail(&job(number));
    }
    let text = match job(1).run(super::undue).unwrap() {
        outcome @ RunOutcome::Failing { .. } => outcome.to_string(),
        other => panic!("{other:?}"),
    };
    let host = job(1).last_run().unwrap().unwrap().by().host().unwrap().to_owned();
    assert_eq!(
        text,
        format!(
            "not due yet: failed 0s ago (12:00:00 UTC) on {host}, took 0s: no paper; 3 tries, due in 1h (13:00:00 UTC)"
        )
    );
    assert_eq!(undue(&job(0)), failed(3, at(HOUR)));
    server.advance(HOUR);
    assert!(is_due(&job(1)), "the next period begins anew");
    assert_eq!(job(0).last_run().unwrap().unwrap().tries(), 1);
    // Without the limit it is due at all times.
    for _ in 0..5 {
        fail(&super::job(&clients[0]));
    }
    assert_eq!(undue(&job(0)), failed(6, at(HOUR * 2)));
}

#[test]
fn pause_after_a_failure_goes_on_in_the_next_period() {
    let server = Server::standing_still();
    let job = job(&server.client()).retry_after(MINUTE * 10);
    server.advance(MINUTE * 55);
    fail(&job);
    server.advance(MINUTE * 6);
    assert_eq!(undue(&job), failed(1, at(MINUTE * 65)));
    server.advance(MINUTE * 4);
    assert_eq!(hour_of_run(&job), Some(1));
}

#[test]
fn longer_of_the_two_bounds_counts() {
    let server = Server::standing_still();
    let job = job(&server.client()).max_tries(1).retry_after(MINUTE * 90);
    fail(&job);
    assert_eq!(undue(&job), failed(1, at(MINUTE * 90)));
    assert_eq!(undue(&job.retry_after(MINUTE)), failed(1, at(HOUR)));
}

/// A run that dies has no end of its own. It counts from when the next machine gets its lock.
#[test]
fn run_that_dies_counts_as_one_that_fails() {
    let server = Server::standing_still();
    let clients = [server.client(), server.client(), server.client()];
    let job = |number: usize| job(&clients[number]).retry_after(MINUTE).max_tries(2);
    let run = begun(&job(0));
    server.advance(SECOND);
    assert!(server.delete("job"));
    let died = |tries, next_at| Undue { tries, next_at, end: RunEnd::Died };
    assert_eq!(undue(&job(1)), died(1, at(SECOND + MINUTE)));
    server.advance(SECOND);
    {
        // The others see that without the lock.
        let _guard = clients[1].mutex("job").unwrap().lock().unwrap();
        assert_eq!(undue(&job(2)), died(1, at(SECOND + MINUTE)));
        let last = job(2).last_run().unwrap().unwrap();
        assert_eq!((last.end(), last.due_at()), (&RunEnd::Died, Some(at(SECOND + MINUTE))));
    }
    assert!(run.succeed().unwrap_err().is_lost());
    server.advance(MINUTE);
    let run = begun(&job(1));
    // The note is about the run before.
    let hasty = job(2).wait_at_most(Duration::ZERO).begin().unwrap();
    assert!(matches!(hasty, Begun::Running { .. }), "{hasty:?}");
    assert_eq!(*job(2).last_run().unwrap().unwrap().end(), RunEnd::Running);
    assert!(server.delete("job"));
    assert_eq!(undue(&job(2)), died(2, at(HOUR)));
    drop(run);
    // Without these bounds a run that died is tried at once.
    assert_eq!(hour_of_run(&super::job(&clients[2])), Some(0));
}

/// Between the look at the record and the note on it, somebody may have the record forgotten.
#[test]
fn note_of_a_death_makes_no_record() {
    let server = Server::standing_still();
    let (client, other) = (server.client(), server.client());
    let over: &[u8] = include_bytes!("../../kind/once/over.lua");
    let note = |run: &str| call(&server, &[b"EVAL", over, b"1", RECORD, run.as_bytes(), b"1 2"]);
    assert_eq!(note("1 2 0 4 5"), Value::Int(0));
    let run = begun(&job(&client));
    assert_eq!(note("1 2 0 4 5"), Value::Int(0), "it is about another run");
    assert_eq!(note(&get(&server, "run")), Value::Int(1));
    assert!(job(&other).forget().unwrap());
    run.fail("no paper").unwrap();
    assert!(is_due(&job(&other)));
}

#[test]
fn run_under_way_is_waited_for_whatever_its_tries() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let job = |client: &LockClient| job(client).retry_after(MINUTE).max_tries(1);
    let run = begun(&job(&here));
    let outcome = runner(&job(&there));
    until(|| server.is_queued_for("job"));
    run.succeed().unwrap();
    let outcome = outcome.recv().unwrap();
    assert!(matches!(outcome, RunOutcome::Skipped { .. }), "{outcome:?}");
    server.advance(HOUR);
    assert_eq!(hour_of_run(&job(&here)), Some(1), "a success has no retry");
}

#[test]
fn forgotten_failure_is_tried_at_once() {
    let server = Server::standing_still();
    let job = job(&server.client()).retry_after(MINUTE);
    fail(&job);
    assert!(job.forget().unwrap());
    assert_eq!(hour_of_run(&job), Some(0));
}

#[test]
fn missed_period_is_tried_so_often_in_each_period_of_time() {
    let server = Server::standing_still();
    let job = job(&server.client()).missed(Missed::CatchUp { at_most: 5 }).max_tries(2);
    assert_eq!(hour_of_run(&job), Some(0));
    server.advance(HOUR * 3);
    for hour in 3..5 {
        fail(&job);
        fail(&job);
        assert_eq!(undue(&job), failed(2, at(HOUR * (hour + 1))));
        server.advance(HOUR);
    }
    // A success begins the count anew.
    assert_eq!(hour_of_run(&job), Some(1));
    fail(&job);
    assert_eq!(hour_of_run(&job), Some(2));
    fail(&job);
    fail(&job);
    assert_eq!(undue(&job), failed(2, at(HOUR * 6)));
}

/// As the periods up to the latest one are done then.
#[test]
fn clock_that_is_set_back_does_not_free_a_job_that_fails() {
    let server = Server::standing_still();
    let job = job(&server.client()).max_tries(1).retry_after(SECOND);
    server.advance(HOUR * 2);
    fail(&job);
    // The failure was recorded before the clock was set back by two hours.
    let later = |text: &str| {
        let micros = text.rsplit(' ').next().unwrap();
        let two_hours = 2 * HOUR.as_micros();
        text.replace(micros, &(micros.parse::<u128>().unwrap() + two_hours).to_string())
    };
    let (run, end) = (get(&server, "run"), get(&server, "end"));
    let began = run.split(' ').nth(3).unwrap().to_owned();
    set(&server, "run", &run.replace(&began, &later(&began)));
    set(&server, "end", &later(&end));
    assert_eq!(undue(&job), failed(1, at(HOUR * 5)));
    server.advance(HOUR * 3);
    assert_eq!(hour_of_run(&job), Some(5));
}

#[test]
fn last_run_tells_when_a_job_is_due() {
    let server = Server::standing_still();
    let client = server.client();
    let job = job(&client).retry_after(MINUTE).max_tries(2);
    // Another period than the job's: what counts is the period of the run.
    let seen = || client.once("job", Period::every(DAY)).unwrap().last_run().unwrap().unwrap();
    let shown = |last: &crate::LastRun| (last.tries(), last.succeeded_at(), last.due_at());
    server.advance(SECOND);
    let run = begun(&job);
    assert_eq!(shown(&seen()), (1, None, None));
    run.fail("no paper").unwrap();
    assert_eq!(shown(&seen()), (1, None, Some(at(SECOND + MINUTE))));
    let host = seen().by().host().unwrap().to_owned();
    let failed = format!("failed 0s ago (12:00:01 UTC) on {host}, took 0s: no paper");
    assert_eq!(seen().to_string(), failed);
    assert_eq!(
        format!("{:#}", seen()),
        format!("{failed}; no success on record; 1 try, due in 1m (12:01:01 UTC)")
    );
    server.advance(MINUTE);
    assert_eq!(shown(&seen()), (1, None, None));
    assert_eq!(format!("{:#}", seen()).rsplit("; ").next(), Some("due now"));
    begun(&job).succeed().unwrap();
    let began = at(SECOND + MINUTE);
    assert_eq!(shown(&seen()), (0, Some(began), Some(at(HOUR))));
    server.advance(HOUR);
    assert_eq!(shown(&seen()), (0, Some(began), None));
    fail(&job);
    server.advance(MINUTE);
    fail(&job);
    assert_eq!(shown(&seen()), (2, Some(began), Some(at(HOUR * 2))));
    assert!(
        format!("{:#}", seen())
            .contains("; last success 1h 1m ago (12:01:01 UTC); 2 tries, due in ")
    );
}

#[test]
fn bounds_that_are_not_allowed_are_refused() {
    let client = Server::standing_still().client();
    let job = job(&client);
    for (job, text) in [
        (job.clone().max_tries(0), "invalid max_tries: 0, expected at least 1"),
        (
            job.clone().retry_after(DAY * 3_661),
            "invalid retry_after: 3661d, expected from 0s to 3660 days",
        ),
        (job.clone().retry_after(Duration::MAX), "invalid retry_after: Duration::MAX, expected"),
    ] {
        let error = job.begin().unwrap_err();
        assert!(error.is_config() && error.to_string().contains(text), "{error}");
    }
    let longest = job.retry_after(DAY * 3_660);
    fail(&longest);
    assert_eq!(undue(&longest), failed(1, at(DAY * 3_660)));
}

#[test]
fn outcomes_are_shown_to_people() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let ran: RunOutcome<u32> = job(&here).run(|_guard| Ok(7)).unwrap();
    assert_eq!(ran.to_string(), "ran");
    server.advance(MINUTE * 5);
    let skipped = job(&there).run(super::undue).unwrap();
    let RunOutcome::Skipped { by, .. } = &skipped else { panic!("{skipped:?}") };
    let host = by.host().unwrap();
    assert_eq!(skipped.to_string(), format!("skipped: ran 5m ago (12:00:00 UTC) on {host}"));
    server.advance(HOUR);
    let failed = job(&here).run(|_guard| Err::<(), _>("no paper")).unwrap();
    assert_eq!(failed.to_string(), "failed: no paper");
    let run = begun(&job(&here));
    server.advance(SECOND * 3);
    let running = job(&there).wait_at_most(Duration::ZERO).run(super::undue).unwrap();
    let begin = format!("it has run on {host} for ");
    assert!(running.to_string().starts_with(&begin), "{running}");
    run.succeed().unwrap();
    assert_eq!(RunOutcome::<()>::Running { by: None }.to_string(), "another runs it");
    // The same of calls for a job that is no closure.
    let skipped = job(&there).begin().unwrap();
    assert!(skipped.to_string().starts_with("skipped: ran "), "{skipped}");
    server.advance(HOUR);
    assert_eq!(job(&here).begin().unwrap().to_string(), "begun");
    let failing = job(&here).retry_after(MINUTE).begin().unwrap();
    let text = format!(
        "not due yet: failed 0s ago (14:05:03 UTC) on {host}, took 0s: it was given up; 1 try, due in 1m (14:06:03 UTC)"
    );
    assert_eq!(failing.to_string(), text);
    let running = begun(&job(&here));
    server.advance(SECOND);
    let hasty = job(&there).wait_at_most(Duration::ZERO).begin().unwrap();
    assert!(hasty.to_string().starts_with(&begin), "{hasty}");
    drop(running);
}

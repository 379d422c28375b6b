//! Jobs that run once in a period, over all topologies that have them: all but a quorum.

use std::thread;
use std::time::Duration;

use leasehold::{Begun, Missed, Once, Period, Run, RunEnd, RunOutcome};
use leasehold_topology_test::scene::{SOON, Scene, until};
use leasehold_topology_test::{Single, suite};

suite! {
    done_job_is_skipped_by_all_clients
    failed_job_is_tried_by_another_that_waits
    failed_job_is_not_tried_before_its_time
    died_run_counts_as_one_that_fails
    run_that_lost_its_lock_is_not_done
    record_tells_of_the_last_run_and_is_forgotten
    bounded_wait_tells_who_runs_the_job
    record_is_beside_the_lock_and_ends
    key_of_another_type_is_an_error_and_not_touched
}

/// No period ends within a test.
const LONG: Period = Period::every(Duration::from_secs(86_400 * 3_660));

/// The test's job, with a client of its own.
fn job<T: Single>(scene: &Scene<'_, T>) -> Once {
    scene.client().once(scene.name("x"), LONG).expect("a job")
}

fn record<T: Single>(scene: &Scene<'_, T>) -> Vec<u8> {
    [b"{", scene.name("x").as_slice(), b"}:record"].concat()
}

#[track_caller]
fn begun(job: &Once) -> Run {
    match job.begin().unwrap() {
        Begun::Run(run) => run,
        other => panic!("it is due: {other:?}"),
    }
}

fn done_job_is_skipped_by_all_clients<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (job(scene), job(scene));
    assert_eq!(here.run(|_guard| Ok::<_, String>(7)).unwrap(), RunOutcome::Ran(7));
    for job in [&here, &there] {
        let outcome = job.run(|_guard| Err::<(), _>("it is done")).unwrap();
        let RunOutcome::Skipped { by, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(by.pid(), Some(std::process::id()));
    }
}

fn failed_job_is_tried_by_another_that_waits<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (job(scene), job(scene));
    let run = begun(&here);
    thread::scope(|scope| {
        let next = scope.spawn(|| there.run(|_guard| Ok::<_, String>(7)).unwrap());
        until("it waits", || scene.queueing(&scene.name("x")) == 1);
        run.fail("no paper").unwrap();
        assert_eq!(next.join().unwrap(), RunOutcome::Ran(7));
    });
}

fn failed_job_is_not_tried_before_its_time<T: Single>(scene: &Scene<'_, T>) {
    let [here, there] = [(); 2].map(|()| job(scene).retry_after(SOON * 100).max_tries(2));
    let run = begun(&here);
    thread::scope(|scope_of_threads| {
        let next = scope_of_threads.spawn(|| there.run(|_guard| {}).unwrap());
        until("it waits", || scene.queueing(&scene.name("x")) == 1);
        run.fail("no paper").unwrap();
        let outcome = next.join().unwrap();
        let RunOutcome::Failing { tries: 1, last, next_at } = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(*last.end(), RunEnd::Failed("no paper".to_owned()));
        assert_eq!(next_at, last.ended().unwrap() + SOON * 100);
    });
    let hasty = job(scene);
    assert_eq!(hasty.run(|_guard| Err::<(), _>("no ink")).unwrap(), RunOutcome::Failed("no ink"));
    let outcome = here.run(|_guard| {}).unwrap();
    let RunOutcome::Failing { tries: 2, last, next_at } = outcome else { panic!("{outcome:?}") };
    assert_eq!(next_at, last.period().end);
    assert_eq!(hasty.last_run().unwrap().unwrap().tries(), 2);
}

fn died_run_counts_as_one_that_fails<T: Single>(scene: &Scene<'_, T>) {
    let [here, there] = [(); 2].map(|()| job(scene).retry_after(SOON * 100));
    let run = begun(&here);
    scene.delete(&scene.name("x"));
    let failing = |job: &Once| match job.begin().unwrap() {
        Begun::Failing { tries: 1, last, next_at } if *last.end() == RunEnd::Died => next_at,
        other => panic!("{other:?}"),
    };
    let next_at = failing(&there);
    // It is noted, so that the next one sees it without the lock.
    let _guard = scene.lock().lock().unwrap();
    assert_eq!(failing(&there), next_at);
    assert!(run.succeed().unwrap_err().is_lost());
}

fn run_that_lost_its_lock_is_not_done<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (job(scene), job(scene));
    let run = begun(&here);
    scene.delete(&scene.name("x"));
    assert!(run.succeed().unwrap_err().is_lost());
    assert_eq!(*here.last_run().unwrap().unwrap().end(), RunEnd::Died);
    assert_eq!(there.run(|_guard| {}).unwrap(), RunOutcome::Ran(()));
}

fn record_tells_of_the_last_run_and_is_forgotten<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (job(scene), job(scene));
    assert!(here.last_run().unwrap().is_none() && !here.forget().unwrap());
    let run = begun(&here);
    let (token, period) = (run.guard().fencing_token(), run.period());
    assert_eq!(*there.last_run().unwrap().unwrap().end(), RunEnd::Running);
    run.fail("no paper").unwrap();
    let last = there.last_run().unwrap().unwrap();
    assert_eq!(*last.end(), RunEnd::Failed("no paper".to_owned()));
    assert_eq!((last.period(), last.by().token()), (period, Some(token)));
    begun(&here).succeed().unwrap();
    assert!(there.forget().unwrap());
    assert_eq!(here.run(|_guard| {}).unwrap(), RunOutcome::Ran(()));
}

fn bounded_wait_tells_who_runs_the_job<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (job(scene), job(scene).wait_at_most(Duration::ZERO));
    let run = begun(&here);
    let Begun::Running { by: Some(by) } = there.begin().unwrap() else { panic!("it runs") };
    assert_eq!(by.token(), Some(run.guard().fencing_token()));
    run.succeed().unwrap();
}

fn record_is_beside_the_lock_and_ends<T: Single>(scene: &Scene<'_, T>) {
    let job = job(scene);
    begun(&job).succeed().unwrap();
    let record = record(scene);
    let [left] = scene.ask::<i64>(&scene.name("x"), &[b"PTTL", &record])[..] else {
        panic!("on one server")
    };
    // Two periods and a week.
    let is_near = |left: i64, most| left <= most && left > most - SOON.as_millis() as i64 * 4;
    assert!(is_near(left, 86_400_000 * (2 * 3_660 + 7)), "{left}");
    // Where periods are caught up, it is longer than an outage.
    assert!(job.forget().unwrap());
    let day = Period::every(Duration::from_secs(86_400));
    let job = scene.client().once(scene.name("x"), day).unwrap();
    begun(&job.missed(Missed::CatchUp { at_most: 7 })).succeed().unwrap();
    let left = scene.ask::<i64>(&scene.name("x"), &[b"PTTL", &record]);
    assert!(is_near(left[0], 86_400_000 * 400), "{left:?}");
}

fn key_of_another_type_is_an_error_and_not_touched<T: Single>(scene: &Scene<'_, T>) {
    let (job, name, record) = (job(scene), scene.name("x"), record(scene));
    scene.ask::<()>(&name, &[b"SET", &record, b"mine"]);
    assert!(job.begin().unwrap_err().is_wrong_type());
    assert_eq!(scene.ask::<String>(&name, &[b"GET", &record]), ["mine"]);
    scene.delete(&record);
    assert_eq!(job.run(|_guard| {}).unwrap(), RunOutcome::Ran(()));
}

//! Calls and ends of runs while Redis does not reply.

use std::error::Error as _;

use super::*;
use crate::base::error::Error;
use crate::base::sync::{Arc, AtomicU32, Ordering, StaticCell};
use crate::observe::{Exchange, Observer};
use crate::testing::Link;

/// How long a client rides out an outage by default.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// Does something after an exchange of this number.
#[derive(Default)]
struct After {
    left: AtomicU32,
    act: StaticCell<Box<dyn Fn() + Send + Sync>>,
}

impl After {
    fn set(&self, exchanges: u32, act: impl Fn() + Send + Sync + 'static) {
        assert!(self.act.set(Box::new(act)).is_ok());
        self.left.store(exchanges, Ordering::SeqCst);
    }
}

impl Observer for After {
    fn exchange(&self, _event: &Exchange) {
        if self.left.load(Ordering::SeqCst) > 0 && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.act.get().expect("an act")();
        }
    }
}

fn watched(server: &Server) -> (LockClient, Link, Arc<After>) {
    let after = Arc::new(After::default());
    let builder = LockClient::builder("redis://any").observer(Arc::clone(&after));
    let client = server.connect(builder).unwrap();
    let link = server.link(&client);
    (client, link, after)
}

/// Lets time pass on a thread of its own while the work waits for it.
fn in_time<T>(server: &Server, work: impl FnOnce() -> T) -> T {
    let (stop, stopped) = unbounded::<()>();
    let server = server.clone();
    sync::spawn("time", move || {
        while stopped.is_empty() {
            server.advance(SECOND / 10);
        }
    })
    .unwrap();
    let outcome = work();
    stop.send(()).unwrap();
    outcome
}

/// What a call returns in the end, by a thread of its own.
fn call_aside(job: &Once) -> Receiver<Result<RunOutcome<u32>, Error>> {
    let (sender, outcomes) = unbounded();
    let job = job.clone();
    sync::spawn("caller", move || _ = sender.send(job.run(|_guard| Ok(7)))).unwrap();
    outcomes
}

/// The first look, the lock, the look under it, and the mark of the run: each meets an outage of three seconds.
#[test]
fn outage_at_any_step_of_a_call_is_ridden_out() {
    for step in 0..4 {
        let server = Server::standing_still();
        let (client, link, after) = watched(&server);
        match step {
            0 => link.cut(),
            _ => after.set(step, {
                let link = link.clone();
                move || link.cut()
            }),
        }
        let outcome = call_aside(&job(&client));
        // It pauses between two requests.
        until(|| server.has_sleeper());
        server.advance(SECOND * 3);
        assert!(outcome.try_recv().is_err(), "step {step}: it waits for the end of the outage");
        link.restore();
        let passed = server.run_until(|| !outcome.is_empty());
        assert_eq!(outcome.recv().unwrap().unwrap(), RunOutcome::Ran(7), "step {step}");
        assert!(passed < SECOND * 4, "step {step}: {passed:?}");
    }
}

#[test]
fn outage_is_given_up_after_a_time_or_at_the_end_of_the_wait() {
    let bounds =
        [(None, GIVE_UP_AFTER), (Some(HOUR), GIVE_UP_AFTER), (Some(SECOND * 2), SECOND * 2)];
    for (wait, bound) in bounds {
        let server = Server::standing_still();
        let client = server.client();
        let job = job(&client);
        let job = wait.map_or(job.clone(), |wait| job.wait_at_most(wait));
        server.link(&client).cut();
        let outcome = call_aside(&job);
        until(|| server.link(&client).faults() > 0 && server.has_sleeper());
        server.advance(bound - SECOND / 2);
        assert!(outcome.try_recv().is_err(), "{wait:?}");
        server.advance(SECOND);
        let error = outcome.recv().unwrap().unwrap_err();
        assert!(error.is_unreachable() && !error.is_unknown_outcome(), "{wait:?}: {error:?}");
    }
}

#[test]
fn call_without_time_asks_once() {
    let server = Server::standing_still();
    let client = server.client();
    server.link(&client).cut();
    let error = job(&client).wait_at_most(Duration::ZERO).begin().unwrap_err();
    assert!(error.is_unreachable() && !error.is_unknown_outcome(), "{error:?}");
}

#[test]
fn outage_under_the_lock_is_ridden_out_no_longer_than_the_lease() {
    let server = Server::standing_still();
    let (client, link, after) = watched(&server);
    let options = LockOptions::new().lease(Lease::fixed(SECOND * 4));
    let job = client.once_with("job", HOURLY, options).unwrap();
    after.set(2, {
        let link = link.clone();
        move || link.cut()
    });
    let outcome = call_aside(&job);
    until(|| link.faults() > 0 && server.has_sleeper());
    server.advance(SECOND * 3);
    assert!(outcome.try_recv().is_err());
    server.advance(SECOND);
    assert!(outcome.recv().unwrap().unwrap_err().is_unreachable());
}

#[test]
fn close_ends_a_call_in_an_outage() {
    let server = Server::standing_still();
    let client = server.client();
    server.link(&client).cut();
    let outcome = call_aside(&job(&client));
    until(|| server.link(&client).faults() > 0);
    let _ = client.close(Duration::ZERO, Duration::ZERO);
    let error = outcome.recv().unwrap().unwrap_err();
    assert!(error.is_unreachable() || error.is_cancelled(), "{error:?}");
}

#[test]
fn look_without_a_reply_is_no_unknown_outcome() {
    let server = Server::standing_still();
    let client = server.client();
    let (job, link) = (job(&client).wait_at_most(Duration::ZERO), server.link(&client));
    let calls: [&dyn Fn() -> Result<(), Error>; 3] =
        [&|| job.begin().map(drop), &|| job.last_run().map(drop), &|| {
            client.mutex("job")?.is_locked().map(drop)
        }];
    for call in calls {
        // It is asked once more.
        link.lose_answers(2);
        let error = call().unwrap_err();
        assert!(error.is_unreachable() && !error.is_unknown_outcome(), "{error:?}");
    }
    assert_eq!(link.faults(), 6);
}

#[test]
fn end_of_a_run_is_recorded_although_a_reply_was_lost() {
    for succeeds in [true, false] {
        let server = Server::standing_still();
        let client = server.client();
        let job = job(&client);
        let run = begun(&job);
        server.link(&client).lose_answers(1);
        in_time(&server, || if succeeds { run.succeed() } else { run.fail("no paper") }).unwrap();
        assert_eq!(is_due(&job), !succeeds);
        let end = job.last_run().unwrap().unwrap().end().clone();
        assert_eq!(end == RunEnd::Succeeded, succeeds, "{end:?}");
    }
}

/// The record was written, its reply was lost, and the lock was gone when the run asked once more.
#[test]
fn loss_after_a_success_without_a_reply_is_an_unknown_outcome() {
    let server = Server::standing_still();
    let (client, link, after) = watched(&server);
    let job = job(&client);
    let run = begun(&job);
    // `WATCH` and the look at the owner have their replies, and `EXEC` has not.
    link.delay_answers(2, Duration::ZERO);
    link.lose_answers(1);
    after.set(1, {
        let server = server.clone();
        move || assert!(server.delete("job"))
    });
    let error = in_time(&server, || run.succeed()).unwrap_err();
    assert!(error.is_unknown_outcome() && !error.is_lost(), "{error:?}");
    let source = error.source().and_then(|source| source.downcast_ref::<Error>()).unwrap();
    assert!(source.is_lost(), "{source:?}");
    let text = error.to_string();
    assert!(text.contains("the success may be recorded; the next try failed: lost: "), "{text}");
    assert!(!is_due(&job), "it is recorded");
}

//! A job that runs once in a period.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{Begun, Once};
use leasehold_support::history::now;

use crate::worker::{Worker, after};

pub(crate) const PERIOD: Duration = Duration::from_secs(1);

/// The number of a period is its second.
fn number(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

pub(crate) fn turn(worker: &mut Worker<'_>, job: &Once, object: &str) {
    let invoked = worker.call("begin", object, format_args!(""));
    let begun = job.begin();
    let at = now();
    match begun {
        Ok(Begun::Run(run)) => {
            let (period, guard) = (number(run.period().start), run.guard());
            let (token, remaining) = (guard.fencing_token(), guard.remaining());
            let until = if remaining.is_zero() { invoked } else { after(at, remaining) };
            let rest = format_args!(" period={period} token={token} until={until}");
            worker.line(at, "ok", "begin", object, rest);
            worker.pause(40_000);
            // Now and then it fails, and is tried again.
            if worker.rng.u8(..3) == 0 {
                worker.leaving("fail", object, format_args!(""), run.guard());
                let failed = run.fail("now and then");
                worker.released("fail", object, failed);
            } else {
                worker.leaving("succeed", object, format_args!(""), run.guard());
                let succeeded = run.succeed();
                worker.released("succeed", object, succeeded);
            }
        }
        Ok(Begun::Skipped { ran_at, by }) => {
            let (period, token) = (number(ran_at), by.token().expect("a token"));
            worker.line(
                at,
                "no",
                "begin",
                object,
                format_args!(" period={period} done-by={token}"),
            );
        }
        Ok(_) => worker.line(at, "no", "begin", object, format_args!("")),
        Err(error) => worker.failed("begin", object, &error),
    }
    worker.pause(4_000);
}

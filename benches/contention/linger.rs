//! A lease that stays with its process for a while: what that saves, and what another pays for it.

use std::time::{Duration, Instant};

use leasehold::{LockClient, LockOptions};
use leasehold_support::Child;
use leasehold_support::child::{hear, tell};
use leasehold_support::stat::{median, percentile};

use crate::common::batch::{interleave, ratio, repeated};
use crate::common::clock::now;
use crate::common::cost::{Cost, repeat};
use crate::common::raw::Raw;
use crate::common::report::Row;
use crate::common::way::Way;
use crate::common::witness::{Seen, Witness};
use crate::hand_over::pause;
use crate::{Bench, Outcome, PATIENCE, URL};

pub(crate) const ROLE: &str = "remote";
const NAME: &str = "lingering";
const LINGER: Duration = Duration::from_secs(5);
/// Operations in a batch.
const BATCH: usize = 500;
/// Relocks without a pause, each of which takes less than a microsecond: tokens limit the rate.
const TIGHT: usize = 200_000;
const ROUNDS: usize = 24;

pub(crate) fn rows(bench: &mut Bench) {
    if bench.arguments.names("linger relock") {
        relock(bench);
    }
    for (transport, url) in bench.distances("linger remote") {
        remote(bench, &format!("remote {transport}"), &url);
    }
    bench.report.table("a lease that lingers (remote: from the call to having it)");
}

fn relock(bench: &mut Bench) {
    let mut raw = Raw::new(&bench.server.unix_url(), &bench.shape(Way::Queue), "raw");
    let client = bench.client(&bench.server.unix_url(), |builder| builder);
    let lock = client.mutex_with("relocked", LockOptions::new().linger(LINGER));
    let lock = lock.expect("a valid name");
    let operation = || {
        let guard = lock.lock().expect("nobody contends");
        guard.release().expect("nobody contends");
    };
    let [raws, times] = interleave(
        bench.arguments.seconds,
        [repeated(BATCH, || raw.lock_unlock()), repeated(BATCH, operation)],
    );
    let commands = Cost::of(&bench.server, BATCH, repeat(BATCH, operation)).calls();
    let ratio = ratio(&raws.time, &times.time);
    // The batches pause for raw ones, and the server's clock goes on meanwhile. Here it does not get
    // ahead of the tokens of a new lease.
    let lock = client.mutex_with("relocked tightly", LockOptions::new().linger(LINGER));
    let lock = lock.expect("a valid name");
    let operation = || {
        let guard = lock.lock().expect("nobody contends");
        guard.release().expect("nobody contends");
    };
    let begin = Instant::now();
    repeat(TIGHT, operation)();
    let tight = TIGHT as f64 / begin.elapsed().as_secs_f64();
    let tight_commands = Cost::of(&bench.server, TIGHT, repeat(TIGHT, operation)).calls();
    bench.report.row(
        Row::new("linger", "relock")
            .set("processes", 1.0)
            .set("threads", 1.0)
            .set("names", 1.0)
            .set("hold_us", 0.0)
            .set("acq_per_s", times.rate())
            .set("raw_per_s", raws.rate())
            .set("ratio", ratio)
            .set("commands_per_acq", commands)
            .set("op_p50_us", median(&times.p50))
            .set("op_p99_us", median(&times.p99))
            .set("raw_p50_us", median(&raws.p50))
            .set("raw_p99_us", median(&raws.p99)),
    );
    bench.at_most("linger: commands of a relock", commands, 0.0);
    bench.at_least("linger: rate of relocking by raw rate", ratio, 20.0);
    let by_raw = tight / raws.rate();
    bench.report.row(
        Row::new("linger", "tight")
            .set("processes", 1.0)
            .set("threads", 1.0)
            .set("names", 1.0)
            .set("hold_us", 0.0)
            .set("acq_per_s", tight)
            .set("raw_per_s", raws.rate())
            .set("ratio", by_raw)
            .set("commands_per_acq", tight_commands),
    );
    bench.at_most("linger: commands of a relock in a tight loop", tight_commands, 0.001);
    bench.at_least("linger: rate of a tight loop by raw rate", by_raw, 20.0);
}

fn remote(bench: &mut Bench, mode: &str, url: &str) {
    let file = bench.file();
    let mut raw = Raw::new(url, &bench.shape(Way::Queue), "raw");
    let witness = Witness::open(Some(&file)).expect("a file to share");
    let client = bench.client(url, |builder| builder);
    let lock = client.mutex_with(NAME, LockOptions::new().linger(LINGER)).expect("a valid name");
    let started = Child::role(ROLE).arg(&file).env(URL, url).start();
    let mut child = started.expect("a process is started");
    child.expect_line("ready", PATIENCE);
    let count = (bench.arguments.seconds * 1e3 / ROUNDS as f64).clamp(10.0, 100.0) as usize;
    let (mut spans, mut raws) = (Vec::new(), Vec::new());
    let mut seen = Seen::default();
    for round in 0..=ROUNDS {
        for _ in 0..count {
            let guard = lock.lock().expect("Redis goes on");
            witness.section(guard.fencing_token().get(), &mut seen, || ());
            guard.release().expect("it was not lost");
            pause();
            child.say("take it");
            let line = child.expect_line("had", PATIENCE);
            // The first are to get warm.
            spans.extend(seen.read(&line).filter(|_| round > 0).map(|nanos| nanos as f64 / 1e3));
        }
        for _ in 0..count {
            raws.push(raw.with(pause).as_secs_f64() * 1e6);
        }
    }
    let (p50, raw_p50) = (median(&spans), median(&raws));
    bench.report.row(
        Row::new("linger", mode)
            .set("processes", 2.0)
            .set("threads", 1.0)
            .set("names", 1.0)
            .set("raw_p50_us", raw_p50)
            .set("raw_p99_us", percentile(&raws, 99.0))
            .set("wait_p50_us", p50)
            .set("wait_p99_us", percentile(&spans, 99.0))
            .set("wait_max_us", percentile(&spans, 100.0))
            .set("overlaps", (seen.overlaps + seen.disorder) as f64)
            .set("lost", 0.0),
    );
    bench.require_safe(&format!("linger {mode}"), seen, 0);
    bench.at_most(&format!("linger: {mode}: wait in round trips of a release"), p50 / raw_p50, 3.0);
}

/// Plays the one who wants the lock that lingers elsewhere.
pub(crate) fn play() -> Outcome {
    let path = std::env::args().nth(1).ok_or("the file is told")?;
    let witness = Witness::open(Some(path.as_ref()))?;
    let client = LockClient::open(std::env::var(URL)?)?;
    let lock = client.mutex(NAME)?;
    tell("ready");
    while hear().is_some() {
        let mut seen = Seen::default();
        // As before a raw release: the clocks of idle processors are to be alike.
        pause();
        let asked = now();
        let guard = lock.lock()?;
        let span = now() - asked;
        witness.section(guard.fencing_token().get(), &mut seen, || ());
        guard.release()?;
        tell(&format!("had {seen} {span}"));
    }
    Ok(())
}

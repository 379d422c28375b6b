//! From a release to the waiter's having the lock, in another process.

use std::thread;
use std::time::Duration;

use leasehold::LockClient;
use leasehold_support::Child;
use leasehold_support::child::{hear, tell};
use leasehold_support::stat::{median, percentile};

use crate::common::clock::now;
use crate::common::raw::Raw;
use crate::common::report::Row;
use crate::common::way::Way;
use crate::common::witness::{Seen, Shared, Witness};
use crate::{Bench, Outcome, PATIENCE, URL};

pub(crate) const ROLE: &str = "hand-over";
const NAME: &str = "handed over";
const ROUNDS: u32 = 24;
/// How long nothing else is going on before a release.
const PAUSE: Duration = Duration::from_micros(300);
/// How long to wait for the other's waiting.
const FORLORN: Duration = Duration::from_millis(100);
/// Where the shared file has the moment of the last release.
const RELEASED: u64 = 1;

pub(crate) fn row(bench: &mut Bench) {
    if !bench.arguments.names("hand-over") {
        return;
    }
    let url = bench.server.unix_url();
    let file = bench.file();
    let mut raw = Raw::new(&url, &bench.shape(Way::Queue), "raw");
    let start = |_| {
        let mut child =
            Child::role(ROLE).arg(&file).env(URL, &url).start().expect("a process is started");
        child.expect_line("ready", PATIENCE);
        child
    };
    let mut children = [0, 1].map(start);
    // About a millisecond for each hand-over and each raw release.
    let count = (bench.arguments.seconds * 1e3 / f64::from(ROUNDS)).clamp(10.0, 100.0) as usize;
    let (mut spans, mut raws) = (Vec::new(), Vec::new());
    let mut seen = Seen::default();
    for round in 0..=ROUNDS {
        children.iter_mut().for_each(|child| child.say(&format!("pass {}", count / 2)));
        for child in &mut children {
            let line = child.expect_line("passed", PATIENCE);
            // The first is to get warm.
            spans.extend(seen.read(&line).filter(|_| round > 0).map(|nanos| nanos as f64 / 1e3));
        }
        for _ in 0..count {
            raws.push(raw.with(pause).as_secs_f64() * 1e6);
        }
    }
    let [p50, raw_p50] = [&spans, &raws].map(|spans| median(spans));
    let [p99, raw_p99] = [&spans, &raws].map(|spans| percentile(spans, 99.0));
    bench.report.row(
        Row::new("hand-over", Way::Queue.title())
            .set("processes", 2.0)
            .set("threads", 1.0)
            .set("names", 1.0)
            .set("raw_p50_us", raw_p50)
            .set("raw_p99_us", raw_p99)
            .set("handover_p50_us", p50)
            .set("handover_p99_us", p99)
            .set("overlaps", (seen.overlaps + seen.disorder) as f64)
            .set("lost", 0.0),
    );
    bench.report.note(format!("{} hand-overs; raw is the release script alone", spans.len()));
    bench.report.table("hand-over from process to process");
    bench.require_safe("hand-over", seen, 0);
    bench.at_most("hand-over: median by that of the release", p50 / raw_p50, 2.0);
    bench.at_most("hand-over: p99 by that of the release", p99 / raw_p99, 3.0);
}

/// The same before a release of either kind, never twice as long.
pub(crate) fn pause() {
    thread::sleep(PAUSE + Duration::from_micros(fastrand::u64(0..200)));
}

/// Plays one of two that pass the lock to and fro.
pub(crate) fn play() -> Outcome {
    let path = std::env::args().nth(1).ok_or("the file is told")?;
    let witness = Witness::open(Some(path.as_ref()))?;
    let shared = Shared::open(path.as_ref())?;
    let client = LockClient::open(std::env::var(URL)?)?;
    let lock = client.mutex(NAME)?;
    tell("ready");
    while let Some(order) = hear() {
        let count: usize = order.strip_prefix("pass ").ok_or("what is to be done?")?.parse()?;
        let (mut line, mut seen) = (String::new(), Seen::default());
        for _ in 0..count {
            let guard = lock.lock()?;
            let had = now();
            let released = shared.read(RELEASED);
            if released > 0 {
                line += &format!(" {}", had.saturating_sub(released));
            }
            let mut wanted = false;
            witness.section(guard.fencing_token().get(), &mut seen, || {
                wanted = await_waiter(&guard);
                pause();
            });
            shared.write(RELEASED, if wanted { now() } else { 0 });
            guard.release()?;
            // Nor is anything else going on after it.
            pause();
        }
        tell(&format!("passed {seen}{line}"));
    }
    Ok(())
}

/// Waits until somebody waits; answers whether anybody does.
pub(crate) fn await_waiter(guard: &leasehold::Guard) -> bool {
    let step = Duration::from_micros(50);
    (0..FORLORN.as_micros() / step.as_micros()).any(|_| {
        if !guard.is_contended() {
            thread::sleep(step);
        }
        guard.is_contended()
    })
}

//! Permits of a semaphore, and readers and writers of a read-write lock.

use std::thread;
use std::time::{Duration, Instant};

use leasehold_support::stat::{median, percentile};

use crate::Bench;
use crate::common::crowd::{Crowd, Plan};
use crate::common::raw::{Raw, Shape};
use crate::common::report::Row;
use crate::common::way::{Held, Way};
use crate::common::witness::{Mark, Seen, Witness};
use crate::one_name::{Contest, GLANCE, SLICES, work_alone};

/// Ways to ask, processes × threads, and how long each holds.
const ROWS: [(Way, usize, usize, u64); 6] = [
    (Way::Permits, 8, 4, 0),
    (Way::Permits, 8, 4, 1),
    (Way::Reads, 1, 64, 0),
    (Way::Reads, 8, 8, 0),
    (Way::MostlyReads, 1, 64, 0),
    (Way::MostlyReads, 8, 8, 0),
];
/// Processes × threads that read while one writes.
const READERS: (usize, usize) = (8, 4);

pub(crate) fn rows(bench: &mut Bench) {
    for (way, processes, threads, hold) in ROWS {
        let label = format!("{processes}x{threads} {} {hold}ms", way.title());
        if bench.arguments.names(&label) {
            let (shape, hold) = (bench.shape(way), Duration::from_millis(hold));
            Contest::run(bench, way, processes, threads, hold, &shape).tell(bench, &label);
        }
    }
    bench
        .report
        .table("permits of one semaphore, and reads under one lock (ratio: rate by raw rate)");
    for hold in [0, 1] {
        if bench.arguments.names(&format!("write {hold}ms")) {
            write(bench, Duration::from_millis(hold));
        }
    }
    bench.report.table("a writer among readers (ratio: time by that of a raw writer of another name, beside the same readers)");
}

/// A writer in this process, while the threads of others read again and again.
fn write(bench: &mut Bench, hold: Duration) {
    let (processes, threads) = READERS;
    let (url, name, file) = (bench.server.unix_url(), format!("read {hold:?}"), bench.file());
    let plan = Plan {
        url: url.clone(),
        name: name.clone(),
        way: Way::Reads,
        processes,
        threads,
        hold,
        file: Some(file.clone()),
        watched: false,
        noted: false,
    };
    let mut crowd = Crowd::start(&plan).expect("processes are started");
    let client = bench.client(&url, |builder| builder);
    let lock = client.rw_lock(&name).expect("a valid name");
    let shape = {
        let name = "what a raw writer sends";
        let lock = client.rw_lock(name).expect("a valid name");
        let holder = || lock.holders().map(|mut holders| holders.pop());
        Shape::of(&bench.server, name, || lock.write().map(Held::Write), Held::release, holder)
    };
    let mut raw = Raw::new(&url, &shape, "raw");
    let witness = Witness::open(Some(&file)).expect("a file to share");
    let alone = work_alone(Some(bench.file()), Mark::Writer, Duration::ZERO);
    let mut seen = Seen::default();
    let micros = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1e6;
    // The wait for the lock; the same and the release.
    let mut once = || {
        let asked = Instant::now();
        let guard = lock.write().expect("the readers leave");
        let had = Instant::now();
        witness.enter(Mark::Writer, guard.fencing_token().get(), &mut seen, || ());
        let given_up = Instant::now();
        guard.release().expect("it was held until now");
        let wait = micros(asked, had);
        (wait, wait + micros(given_up, Instant::now()))
    };
    crowd.slice(GLANCE);
    crowd.forget();
    once();

    let slice = Duration::from_secs_f64(bench.arguments.seconds) / SLICES;
    let (mut waits, mut operations, mut raws) = (Vec::new(), Vec::new(), Vec::new());
    let (mut undisturbed, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..SLICES {
        undisturbed.push(crowd.slice(slice).within as f64 / slice.as_secs_f64());
        crowd.begin(slice);
        // By then all of them read.
        thread::sleep(GLANCE / 5);
        let (start, before) = (Instant::now(), waits.len());
        while before == waits.len() || start.elapsed() < slice.saturating_sub(GLANCE / 5) {
            // Beside the same readers, who take the processor from both.
            let asked = Instant::now();
            raw.with(&alone);
            raws.push(micros(asked, Instant::now()));
            let (wait, operation) = once();
            waits.push(wait);
            operations.push(operation);
            thread::sleep(Duration::from_micros(fastrand::u64(2_000..6_000)));
        }
        beside.push(crowd.finish().within as f64 / slice.as_secs_f64());
    }
    let account = crowd.end();
    seen += account.seen;
    let mode = format!("{}ms", hold.as_millis());
    bench.report.row(
        Row::new("write", &mode)
            .set("processes", processes as f64)
            .set("threads", threads as f64)
            .set("names", 1.0)
            .set("hold_us", hold.as_secs_f64() * 1e6)
            .set("ratio", median(&operations) / median(&raws))
            .set("op_p50_us", median(&operations))
            .set("op_p99_us", percentile(&operations, 99.0))
            .set("raw_p50_us", median(&raws))
            .set("raw_p99_us", percentile(&raws, 99.0))
            .set("wait_p50_us", median(&waits))
            .set("wait_p99_us", percentile(&waits, 99.0))
            .set("wait_max_us", percentile(&waits, 100.0))
            .set("overlaps", (seen.overlaps + seen.disorder) as f64)
            .set("lost", account.lost as f64),
    );
    let (beside, undisturbed) = (median(&beside), median(&undisturbed));
    let mut note = format!(
        "{mode}: {} writes; {beside:.0} reads a second beside them, {undisturbed:.0} without",
        waits.len()
    );
    if !hold.is_zero() {
        let [p50, p99] =
            [50.0, 99.0].map(|rank| percentile(&waits, rank) / hold.as_secs_f64() / 1e6);
        note += &format!(
            "; a writer waits {p50:.1} times as long as one reads, {p99:.1} times at the 99th percentile"
        );
    }
    bench.report.note(note);
    bench.require_safe(&format!("write, {mode}"), seen, account.lost);
}

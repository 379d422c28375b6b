//! A caller in one process beside busy threads of others: how long it waits, and whether these share the lock.

use std::thread;
use std::time::Duration;

use leasehold_support::stat::{jain, median, percentile};

use crate::Bench;
use crate::common::clock::{now, sleep_until};
use crate::common::crowd::{Account, Crowd, Plan};
use crate::common::report::Row;
use crate::common::way::Way;
use crate::common::witness::{Seen, Witness};
use crate::one_name::GLANCE;

/// Processes × threads that are busy.
const SHAPES: [(usize, usize); 4] = [(1, 8), (2, 8), (4, 4), (8, 2)];
/// How long each holds the lock.
const HOLD: Duration = Duration::from_micros(300);
/// The caller's pause before a call, in µs.
const PAUSES: std::ops::Range<u64> = 1_000..5_000;
/// A row is measured for this part of the time that others are: there are many.
const PART: u32 = 2;
/// The most that a call should wait beyond the holds ahead of it, in µs.
const MOST_BEYOND: f64 = 5_000.0;

/// What the busy threads want, and what the caller.
struct Mix {
    title: &'static str,
    busy: Way,
    caller: Way,
    ahead: Ahead,
    /// The least that Jain's index over eight processes should be, if there should be one.
    jain: Option<f64>,
}

/// How many holds of a busy process may begin between a call and its end, and yet are ahead of it.
#[derive(Clone, Copy)]
enum Ahead {
    /// It stands in the line once, before the call.
    Place,
    /// The same, or it has the lock; either way its threads hand the lease off, 16 times at most.
    Turn,
    /// All of its threads, which come in together.
    Round,
}

impl Ahead {
    fn holds(self, threads: usize) -> usize {
        match self {
            Ahead::Place => 1,
            Ahead::Turn => 17,
            Ahead::Round => threads,
        }
    }
}

/// Where readers do not contend with each other, they share the processors and not the lock.
const MIXES: [Mix; 11] = {
    const fn mix(
        title: &'static str,
        busy: Way,
        caller: Way,
        ahead: Ahead,
        jain: Option<f64>,
    ) -> Mix {
        Mix { title, busy, caller, ahead, jain }
    }
    const LINE: Option<f64> = Some(0.95);
    [
        mix("mutex", Way::Queue, Way::Queue, Ahead::Turn, LINE),
        mix("reentrant", Way::Notify, Way::Notify, Ahead::Turn, Some(0.9)),
        mix("1-of-4", Way::Permits, Way::Permits, Ahead::Place, LINE),
        mix("3-of-4", Way::ThreePermits, Way::ThreePermits, Ahead::Place, LINE),
        mix("3-of-4 beside 1-of-4", Way::Permits, Way::ThreePermits, Ahead::Place, LINE),
        mix("1-of-4 beside 3-of-4", Way::ThreePermits, Way::Permits, Ahead::Place, LINE),
        mix("write", Way::Writes, Way::Writes, Ahead::Place, LINE),
        mix("upgradable", Way::Upgradable, Way::Upgradable, Ahead::Place, LINE),
        mix("read beside write", Way::Writes, Way::Reads, Ahead::Place, LINE),
        mix("write beside read", Way::Reads, Way::Writes, Ahead::Round, None),
        mix("write beside read-95%", Way::MostlyReads, Way::Writes, Ahead::Round, None),
    ]
};

pub(crate) fn rows(bench: &mut Bench) {
    for mix in &MIXES {
        for (processes, threads) in SHAPES {
            if bench.arguments.names(&format!("beside {processes}x{threads} {}", mix.title)) {
                measure(bench, mix, processes, threads);
            }
        }
    }
    bench.report.table(
        "a call beside busy processes, each thread of which holds for 300 µs (beyond: from the end of the last hold ahead of it)",
    );
}

fn measure(bench: &mut Bench, mix: &Mix, processes: usize, threads: usize) {
    let (url, file) = (bench.server.unix_url(), bench.file());
    let label = format!("beside {processes}x{threads}, {}", mix.title);
    let plan = Plan {
        url: url.clone(),
        name: label.clone(),
        way: mix.busy,
        processes,
        threads,
        hold: HOLD,
        file: Some(file.clone()),
        watched: false,
        noted: true,
    };
    let mut crowd = Crowd::start(&plan).expect("processes are started");
    let client = bench.client(&url, |builder| builder);
    let lock = mix.caller.lock(&client, &label).expect("a valid name");
    let witness = Witness::open(Some(&file)).expect("a file to share");
    let mut seen = Seen::default();
    // When it called, and when it had the lock.
    let mut call = || {
        let asked = now();
        let held = lock.lock().expect("the others let go");
        let had = now();
        witness.enter(held.mark(), held.fencing_token().get(), &mut seen, || ());
        held.release().expect("it was held until now");
        (asked, had)
    };
    call();
    crowd.slice(GLANCE);
    crowd.forget();

    let (start, end) = crowd.begin(Duration::from_secs_f64(bench.arguments.seconds) / PART);
    sleep_until(start);
    let mut calls = Vec::new();
    loop {
        thread::sleep(Duration::from_micros(fastrand::u64(PAUSES)));
        if now() >= end {
            break;
        }
        let (asked, had) = call();
        // Once the others have stopped, everybody gets the lock.
        calls.push((asked, had.min(end)));
    }
    crowd.finish();
    let Account { shares, holds, seen: crowd_seen, lost, .. } = crowd.end();
    seen += crowd_seen;

    let ahead = mix.ahead.holds(threads);
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let waits: Vec<f64> = calls.iter().map(|(asked, had)| micros(had - asked)).collect();
    let beyond: Vec<f64> =
        calls.iter().map(|&call| micros(beyond_those_ahead(call, &holds, ahead))).collect();
    let processes_shares: Vec<f64> = shares.iter().map(|shares| shares.iter().sum()).collect();
    let jain = if processes > 1 { jain(&processes_shares) } else { f64::NAN };
    let worst = percentile(&beyond, 100.0);
    bench.report.row(
        Row::new(&format!("beside {processes}x{threads}"), mix.title)
            .set("processes", processes as f64)
            .set("threads", threads as f64)
            .set("names", 1.0)
            .set("hold_us", HOLD.as_secs_f64() * 1e6)
            .set("wait_p50_us", median(&waits))
            .set("wait_p99_us", percentile(&waits, 99.0))
            .set("wait_max_us", percentile(&waits, 100.0))
            .set("beyond_p50_us", median(&beyond))
            .set("beyond_max_us", worst)
            .set("jain_processes", jain)
            .set("overlaps", (seen.overlaps + seen.disorder) as f64)
            .set("lost", lost as f64),
    );
    bench.require_safe(&label, seen, lost);
    bench.at_most(&format!("{label}: longest wait beyond the holds ahead, µs"), worst, MOST_BEYOND);
    if let Some(least) = mix.jain.filter(|_| processes == 8) {
        bench.at_least(&format!("{label}: Jain of processes"), jain, least);
    }
}

/// How long a call waited after the last hold ahead of it had ended, in ns. Ahead of it are the holds under way when it
/// came, and so many more of each process. Holds are given in the order of their beginnings.
fn beyond_those_ahead((asked, had): (u64, u64), holds: &[Vec<(u64, u64)>], more: usize) -> u64 {
    let last = |holds: &Vec<(u64, u64)>| {
        let later = holds.partition_point(|(begin, _)| *begin <= asked);
        let next = holds[later..].iter().take_while(|(begin, _)| *begin < had).take(more);
        let ends = holds[..later].iter().chain(next).map(|(_, end)| *end);
        ends.max().unwrap_or(0)
    };
    let last = holds.iter().map(last).max().unwrap_or(0);
    had.saturating_sub(last.max(asked))
}

//! Many threads in many processes that all want one lock.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use leasehold_support::stat::{jain, median, percentile};

use crate::Bench;
use crate::common::cost::server_time;
use crate::common::crowd::{Account, Crowd, Plan};
use crate::common::member::Slice;
use crate::common::monitor::Monitor;
use crate::common::raw::{Plain, Raw, Shape};
use crate::common::report::Row;
use crate::common::way::Way;
use crate::common::witness::{Mark, Seen, Witness};

/// Processes × threads.
const SHAPES: [(usize, usize); 11] =
    [(1, 1), (1, 2), (1, 8), (1, 32), (1, 128), (2, 1), (4, 1), (8, 1), (2, 2), (4, 8), (8, 8)];
/// Shapes in which ways other than the queue are measured too.
const FEW: [(usize, usize); 4] = [(1, 1), (1, 32), (4, 1), (4, 8)];
const HOLDS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(1)];
/// A median of fewer slices tells little on a busy machine.
pub(crate) const SLICES: u32 = 20;
/// For the contenders to get warm, and for a look at what is sent.
pub(crate) const GLANCE: Duration = Duration::from_millis(50);
/// People are told if the rate of raw locks varies by more. It does where a system wakes the client
/// now on the processor of the server, now on another.
const WIDE: f64 = 1.5;
/// Clients send these, and scripts never do.
pub(crate) const OTHERS: [&str; 12] = [
    "subscribe",
    "unsubscribe",
    "psubscribe",
    "ping",
    "hello",
    "client|setinfo",
    "script|load",
    "watch",
    "multi",
    "exec",
    "asking",
    "cluster|slots",
];

pub(crate) fn rows(bench: &mut Bench) {
    for way in [Way::Queue, Way::Spin, Way::Notify, Way::SpinReentrant] {
        let mut shape = None;
        for hold in HOLDS {
            for (processes, threads) in SHAPES {
                if way != Way::Queue && !FEW.contains(&(processes, threads)) {
                    continue;
                }
                let label = format!("{processes}x{threads} {} {}ms", way.title(), hold.as_millis());
                if bench.arguments.names(&label) {
                    let shape = shape.get_or_insert_with(|| bench.shape(way)).clone();
                    let crowd = Contest::run(bench, way, processes, threads, hold, &shape);
                    crowd.tell(bench, &label);
                }
            }
        }
        bench.report.table(&format!("one name, {} (ratio: rate by raw rate)", way.title()));
    }
}

/// A crowd, and raw and plain locks beside it.
pub(crate) struct Contest {
    way: Way,
    processes: usize,
    threads: usize,
    hold: Duration,
    /// Acquisitions per second in each slice.
    rate: Vec<f64>,
    raw: Vec<f64>,
    plain: Vec<f64>,
    /// Of all slices, the look at what is sent among them.
    span: f64,
    all: f64,
    commands: f64,
    /// Processor time of the server, in seconds.
    server: f64,
    /// What else clients sent in a look at it, and for how many acquisitions.
    others: (Vec<String>, f64),
    account: Account,
}

impl Contest {
    pub(crate) fn run(
        bench: &mut Bench,
        way: Way,
        processes: usize,
        threads: usize,
        hold: Duration,
        shape: &Shape,
    ) -> Contest {
        let url = bench.server.unix_url();
        let file = (processes > 1).then(|| bench.file());
        let name = format!("wanted by {processes}x{threads}, {}", way.title());
        let plan = Plan {
            url: url.clone(),
            name,
            way,
            processes,
            threads,
            hold,
            file,
            watched: false,
            noted: false,
        };
        let mut crowd = Crowd::start(&plan).expect("processes are started");
        let mut raw = Raw::new(&url, shape, "raw");
        let mut plain = Plain::new(&url, shape, "plain");
        let file = (processes > 1).then(|| bench.file());
        let mark = match way {
            Way::Reads | Way::MostlyReads => Mark::Reader,
            _ => Mark::Alone,
        };
        let work = work_alone(file, mark, hold);
        crowd.slice(GLANCE);
        crowd.forget();
        rate_of(GLANCE, || _ = raw.with(&work));
        rate_of(GLANCE, || plain.with(&work));

        let slice = Duration::from_secs_f64(bench.arguments.seconds) / SLICES;
        let (mut rate, mut raws, mut plains) = (Vec::new(), Vec::new(), Vec::new());
        let (mut all, mut commands, mut server) = (0, 0, 0.0);
        let mut order = [0, 1, 2];
        for _ in 0..SLICES {
            fastrand::shuffle(&mut order);
            for contender in order {
                match contender {
                    0 => raws.push(rate_of(slice / 4, || _ = raw.with(&work))),
                    1 => plains.push(rate_of(slice / 4, || plain.with(&work))),
                    _ => {
                        let before = (bench.server.commands(), server_time(&bench.server));
                        let Slice { within, all: some } = crowd.slice(slice);
                        server += server_time(&bench.server) - before.1;
                        let sent = bench.server.commands().since(&before.0);
                        commands += sent.client_commands(&OTHERS);
                        rate.push(within as f64 / slice.as_secs_f64());
                        all += some;
                    }
                }
            }
        }
        let others = look(bench, &mut crowd);
        Contest {
            way,
            processes,
            threads,
            hold,
            rate,
            raw: raws,
            plain: plains,
            span: (slice * SLICES + GLANCE).as_secs_f64(),
            all: all as f64,
            commands: commands as f64,
            server,
            others,
            account: crowd.end(),
        }
    }

    pub(crate) fn tell(&self, bench: &mut Bench, label: &str) {
        let Account { shares, all: measured, waits, operations, seen, lost, processor, .. } =
            &self.account;
        let ratio = ratio(&self.rate, &self.raw);
        let commands = self.commands / self.all;
        let us = |nanos: u64| nanos as f64 / 1e3;
        let threads: Vec<f64> = shares.iter().flatten().copied().collect();
        let processes: Vec<f64> = shares.iter().map(|shares| shares.iter().sum()).collect();
        let (jain_threads, jain_processes) = (jain(&threads), jain(&processes));
        bench.report.row(
            Row::new(&format!("{}x{}", self.processes, self.threads), self.way.title())
                .set("processes", self.processes as f64)
                .set("threads", self.threads as f64)
                .set("names", 1.0)
                .set("hold_us", self.hold.as_secs_f64() * 1e6)
                .set("acq_per_s", median(&self.rate))
                .set("raw_per_s", median(&self.raw))
                .set("ratio", ratio)
                .set("plain_ratio", self::ratio(&self.rate, &self.plain))
                .set("commands_per_acq", commands)
                .set("server_us_per_acq", self.server / self.all * 1e6)
                // Its own slices, and the look at the end, in which it used some too.
                .set("client_us_per_acq", processor / *measured as f64 * 1e6)
                .set("op_p50_us", us(operations.value_at_quantile(0.5)))
                .set("op_p99_us", us(operations.value_at_quantile(0.99)))
                .set("wait_p50_us", us(waits.value_at_quantile(0.5)))
                .set("wait_p99_us", us(waits.value_at_quantile(0.99)))
                .set("wait_max_us", us(waits.max()))
                .set("jain_threads", if threads.len() > 1 { jain_threads } else { f64::NAN })
                .set("jain_processes", if processes.len() > 1 { jain_processes } else { f64::NAN })
                .set("overlaps", (seen.overlaps + seen.disorder) as f64)
                .set("cpu_pct", processor / self.span * 100.0)
                .set("lost", *lost as f64),
        );
        let (others, looked) = &self.others;
        if !others.is_empty() {
            let others = others.join(", ");
            bench.report.note(format!("{label}: also sent, in {looked} acquisitions: {others}"));
        }
        let [low, high] = [10.0, 90.0].map(|percent| percentile(&self.raw, percent));
        if high > low * WIDE {
            bench.report.note(format!("{label}: raw is from {low:.0} to {high:.0} per second"));
        }
        bench.require_safe(label, *seen, *lost);
        if self.way != Way::Queue {
            return;
        }
        let shape = (self.processes, self.threads);
        match shape {
            (2 | 4 | 8, 1) => bench.counts_at_most(&format!("{label}: commands"), commands, 2.1),
            (1, 32) => bench.counts_at_most(&format!("{label}: commands"), commands, 0.2),
            _ => {}
        }
        match shape {
            (4, 1) if self.hold.is_zero() => {
                bench.at_least(&format!("{label}: rate by raw rate"), ratio, 0.6);
            }
            (1, 32) if self.hold.is_zero() => {
                bench.at_least(&format!("{label}: rate by raw rate"), ratio, 4.0);
            }
            _ => {}
        }
        match shape {
            (1, 32) => bench.at_least(&format!("{label}: Jain of threads"), jain_threads, 0.95),
            (4, 8) => bench.at_least(&format!("{label}: Jain of processes"), jain_processes, 0.95),
            _ => {}
        }
    }
}

/// What raw and plain locks do while they are held: the same as the crowd.
pub(crate) fn work_alone(file: Option<PathBuf>, mark: Mark, hold: Duration) -> impl Fn() {
    let witness = Witness::open(file.as_deref()).expect("a file to share");
    let token = std::cell::Cell::new(0);
    move || {
        token.set(token.get() + 1);
        let mut seen = Seen::default();
        witness.enter(mark, token.get(), &mut seen, || {
            if !hold.is_zero() {
                std::thread::sleep(hold);
            }
        });
        assert_eq!(seen, Seen::default(), "nobody contends");
    }
}

/// How often a second an operation is done that is repeated for this long.
pub(crate) fn rate_of(span: Duration, mut operation: impl FnMut()) -> f64 {
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < span {
        operation();
        count += 1;
    }
    f64::from(count) / start.elapsed().as_secs_f64()
}

fn ratio(rates: &[f64], others: &[f64]) -> f64 {
    median(&rates.iter().zip(others).map(|(rate, other)| rate / other).collect::<Vec<_>>())
}

/// Looks at what clients send besides scripts, in a slice that is not measured.
fn look(bench: &Bench, crowd: &mut Crowd) -> (Vec<String>, f64) {
    let monitor = Monitor::start(&bench.server);
    let all = crowd.slice(GLANCE).all;
    let others = monitor.others();
    (others.iter().map(|(name, count)| format!("{count} {name}")).collect(), all as f64)
}

//! What a lock costs where nobody contends for it, and what renewal costs.
//!
//! `cargo bench --package leasehold-benches --bench basics -- [--json] [--seconds S] [ROW…]`
//!
//! *Raw* is the very same two scripts with the same arguments on one bare connection per thread,
//! *plain* is `SET NX PX` and a compare-and-delete script. Ratios are medians over interleaved
//! batches of one run; times of two runs, or of two machines, are not to be compared.
//!
//! Server and clients have processors of their own where the system lets a program choose; the header
//! and `placement` in the JSON say which.
//!
//! | row | what |
//! | --- | --- |
//! | `uncontended` | a mutex with defaults, lock and unlock: `ratio` compares times, less is better |
//! | `uncontended-raw`, `-plain` | what it is compared with, beside it |
//! | `uncontended-calls` | raw with scripts that only call what those of the mutex call: the floor for raw |
//! | `uncontended-test-on-borrow` | with a connection tested before each use |
//! | `uncontended-reentrant`, `-watch` | other forms, each by its own raw form |
//! | `observed`, `-counting`, `-tracing`, `-metrics` | a mutex without an observer, and with one: `ratio` compares with none |
//! | `reentry`, `reentry-reentrant` | a nested lock and drop |
//! | `threads` | threads each with its own name: `ratio` compares rates, more is better |
//! | `renewal` | 10,000 locks held for three times their time to live |

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench tells people its figures")]

mod common;

use std::fs;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::observe::{
    Acquired, Exchange, MetricsObserver, NotAcquired, Released, TracingObserver, Waiting,
};
use leasehold::{
    Guard, Lease, LockClient, LockClientBuilder, LockOptions, Mutex, Observer, Release, Wait,
};
use leasehold_support::Server;
use leasehold_support::processor::Placement;
use leasehold_support::stat::{median, percentile};
use metrics_exporter_prometheus::PrometheusBuilder;

use common::arguments::Arguments;
use common::batch::{Batches, Contender, interleave, parallel, ratio, repeated};
use common::cost::{Cost, process_time, repeat, server_time};
use common::raw::{Plain, Raw, Shape};
use common::report::{Report, Row};

/// What the scripts of an uncontended mutex call, without what they make of the answers. The deadline is
/// as long as the token in whose place it stands.
const CALLS: [&str; 2] = [
    "redis.call('TIME') redis.call('SET', KEYS[1], ARGV[1], 'NX', 'GET', 'PX', ARGV[2]) \
     redis.call('EXISTS', KEYS[3]) redis.call('SET', KEYS[2], ARGV[3], 'GET', 'PX', ARGV[4]) return 1",
    "redis.call('GET', KEYS[1]) redis.call('EXISTS', KEYS[3]) redis.call('DEL', KEYS[1]) return 1",
];
/// Locks and unlocks in a batch: enough for a 99th percentile, few enough to interleave closely.
const BATCH: usize = 300;
/// Locks and unlocks whose commands and processor time are counted.
const COUNTED: usize = 2000;
/// Nested locks in a batch; one is far below what a clock can tell.
const NESTED: usize = 10_000;
/// Connections of the pool that many threads share.
const SHARED: u32 = 8;
/// Locks held at once, and for how long each lives.
const HELD: usize = 10_000;
const HELD_TTL: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    let arguments = Arguments::read();
    let placement = Placement::take();
    let server = match placement.serve(|| Server::builder().tcp().start()) {
        Ok(server) => server,
        Err(error) => {
            eprintln!("no server to measure with: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut report = Report::new("basics", arguments.json, &server, placement);
    if arguments.wants("uncontended") {
        uncontended(&server, &arguments, &mut report);
    }
    if arguments.wants("observed") {
        observed(&server, &arguments, &mut report);
    }
    if arguments.wants("reentry") {
        reentry(&server, &arguments, &mut report);
    }
    if arguments.wants("threads") {
        threads(&server, &arguments, &mut report);
    }
    if arguments.wants("renewal") {
        renewal(&server, &mut report);
    }
    report.finish()
}

fn client(builder: LockClientBuilder) -> LockClient {
    builder.connect_now(true).build().expect("our server takes a client")
}

fn lock_unlock(lock: &Mutex) {
    lock.lock().and_then(Guard::release).expect("nobody contends");
}

/// One thread, one name, nobody else.
fn uncontended(server: &Server, arguments: &Arguments, report: &mut Report) {
    let transports = [("unix", server.unix_url()), ("tcp", server.tcp_url())];
    for (transport, url) in &transports {
        uncontended_mutex(server, transport, url, arguments, report);
    }
    for (transport, url) in &transports {
        let client = client(LockClient::builder(url));
        let lock = client.reentrant("a-reentrant-lock").expect("a valid name");
        let shape =
            Shape::of(server, "a-reentrant-lock", || lock.lock(), Guard::release, || lock.holder());
        let operation = || lock.lock().and_then(Guard::release).expect("nobody contends");
        compare(
            server,
            ("uncontended-reentrant", transport),
            url,
            &shape,
            arguments,
            report,
            operation,
        );
        let watch = LockOptions::new().wait(Wait::spin()).release(Release::watch());
        let lock = client.mutex_with("a-watched-lock", watch).expect("a valid name");
        let shape = shape_of(server, &lock);
        compare(server, ("uncontended-watch", transport), url, &shape, arguments, report, || {
            lock_unlock(&lock);
        });
    }
    report.table("uncontended lock + unlock on one thread (ratio: time by raw time)");
}

fn shape_of(server: &Server, lock: &Mutex) -> Shape {
    let name = std::str::from_utf8(lock.name()).expect("a name of ours");
    Shape::of(server, name, || lock.lock(), Guard::release, || lock.holder())
}

/// The row that the budget is about: a mutex with all defaults, and what a test of the connection
/// before each use would add.
fn uncontended_mutex(
    server: &Server,
    transport: &str,
    url: &str,
    arguments: &Arguments,
    report: &mut Report,
) {
    let client = self::client(LockClient::builder(url));
    let careful = self::client(LockClient::builder(url).test_on_borrow(true));
    let lock = client.mutex("a-mutex").expect("a valid name");
    let tested = careful.mutex("a-tested-mutex").expect("a valid name");
    let shape = shape_of(server, &lock);
    let mut raw = Raw::new(url, &shape, "raw");
    let mut calls = Raw::new(url, &shape.with_scripts(url, &CALLS), "calls");
    let mut plain = Plain::new(url, &shape, "plain");
    let [raw_times, calls_times, plain_times, times, tested_times] = interleave(
        arguments.seconds,
        [
            repeated(BATCH, || raw.lock_unlock()),
            repeated(BATCH, || calls.lock_unlock()),
            repeated(BATCH, || plain.lock_unlock()),
            repeated(BATCH, || lock_unlock(&lock)),
            repeated(BATCH, || lock_unlock(&tested)),
        ],
    );
    let raw_cost = Cost::of(server, COUNTED, repeat(COUNTED, || raw.lock_unlock()));
    let calls_cost = Cost::of(server, COUNTED, repeat(COUNTED, || calls.lock_unlock()));
    let plain_cost = Cost::of(server, COUNTED, repeat(COUNTED, || plain.lock_unlock()));
    let cost = Cost::of(server, COUNTED, repeat(COUNTED, || lock_unlock(&lock)));
    let tested_cost = Cost::of(server, COUNTED, repeat(COUNTED, || lock_unlock(&tested)));
    let commands = cost.commands(&raw_cost, &shape);
    let row = |what: &str, times: &Batches, cost: &Cost, commands: f64| {
        latency(&format!("uncontended{what}"), transport, times, &raw_times)
            .set("plain_ratio", ratio(&times.time, &plain_times.time))
            .set("commands_per_acq", commands)
            .set("server_us_per_acq", cost.server)
            .set("client_us_per_acq", cost.client)
    };
    report.row(row("", &times, &cost, commands));
    let with_tests = tested_cost.commands(&raw_cost, &shape);
    report.row(row("-test-on-borrow", &tested_times, &tested_cost, with_tests));
    report.row(row("-raw", &raw_times, &raw_cost, shape.commands() as f64));
    report.row(row("-calls", &calls_times, &calls_cost, shape.commands() as f64));
    report.row(row("-plain", &plain_times, &plain_cost, 2.0));

    let mut budget = |what: &str, value: f64, limit: f64| {
        report.budget(&format!("{transport} mutex: {what}"), value, limit, value <= limit);
    };
    budget("commands", commands, 2.0);
    budget("time by raw time", ratio(&times.time, &raw_times.time), 1.05);
    budget("time by plain time", ratio(&times.time, &plain_times.time), 1.25);
    budget("p99 by raw p99", ratio(&times.p99, &raw_times.p99), 1.3);
    report.require(commands == 2.0, || format!("a lock and an unlock sent {commands} commands"));
}

/// Another form of lock, beside the raw form of the same.
fn compare(
    server: &Server,
    (row, mode): (&str, &str),
    url: &str,
    shape: &Shape,
    arguments: &Arguments,
    report: &mut Report,
    operation: impl Fn(),
) {
    let mut raw = Raw::new(url, shape, "raw");
    let [raw_times, times] = interleave(
        arguments.seconds / 2.0,
        [repeated(BATCH, || raw.lock_unlock()), repeated(BATCH, &operation)],
    );
    let raw_cost = Cost::of(server, COUNTED, repeat(COUNTED, || raw.lock_unlock()));
    let cost = Cost::of(server, COUNTED, repeat(COUNTED, &operation));
    let row = latency(row, mode, &times, &raw_times)
        .set("commands_per_acq", cost.commands(&raw_cost, shape))
        .set("server_us_per_acq", cost.server)
        .set("client_us_per_acq", cost.client);
    report.row(row);
}

fn latency(row: &str, mode: &str, times: &Batches, raw: &Batches) -> Row {
    Row::new(row, mode)
        .set("processes", 1.0)
        .set("threads", 1.0)
        .set("names", 1.0)
        .set("hold_us", 0.0)
        .set("acq_per_s", times.rate())
        .set("raw_per_s", raw.rate())
        .set("ratio", ratio(&times.time, &raw.time))
        .set("op_p50_us", median(&times.p50))
        .set("op_p99_us", median(&times.p99))
        .set("raw_p50_us", median(&raw.p50))
        .set("raw_p99_us", median(&raw.p99))
}

/// Counts what it is told.
#[derive(Default)]
struct Counting([AtomicU64; 5]);

impl Counting {
    fn add(&self, event: usize) {
        self.0[event].fetch_add(1, Ordering::Relaxed);
    }
}

impl Observer for Counting {
    fn waiting(&self, _: &Waiting<'_>) {
        self.add(0);
    }

    fn acquired(&self, _: &Acquired<'_>) {
        self.add(1);
    }

    fn not_acquired(&self, _: &NotAcquired<'_>) {
        self.add(2);
    }

    fn released(&self, _: &Released<'_>) {
        self.add(3);
    }

    fn exchange(&self, _: &Exchange) {
        self.add(4);
    }
}

/// What observers cost, of which the process has no subscriber for traces, and a recorder for metrics.
fn observed(server: &Server, arguments: &Arguments, report: &mut Report) {
    let _recorder = PrometheusBuilder::new().install_recorder().expect("the only recorder");
    let url = server.unix_url();
    let builder = || LockClient::builder(&url);
    let class = |name: &[u8]| if name.starts_with(b"orders:") { "orders" } else { "rest" };
    let clients = [
        client(builder()),
        client(builder().observer(Counting::default())),
        client(builder().observer(TracingObserver::new())),
        client(builder().observer(MetricsObserver::new().class(class))),
    ];
    let locks = clients.map(|client| client.mutex("orders:42").expect("a valid name"));
    let [none, counting, tracing, metrics] = interleave(
        arguments.seconds,
        locks.each_ref().map(|lock| repeated(BATCH, move || lock_unlock(lock))),
    );
    for (row, times) in [
        ("observed", &none),
        ("observed-counting", &counting),
        ("observed-tracing", &tracing),
        ("observed-metrics", &metrics),
    ] {
        report.row(latency(row, "unix", times, &none));
        if row != "observed" {
            let value = ratio(&times.time, &none.time);
            report.budget(&format!("{row}: time by time without"), value, 1.01, value <= 1.01);
        }
    }
    report.table("a lock and its release with an observer (ratio: time by time without one)");
}

/// A lock that the thread holds already, taken once more and dropped.
fn reentry(server: &Server, arguments: &Arguments, report: &mut Report) {
    let client = client(LockClient::builder(server.unix_url()));
    let mutex = client.mutex("nested").expect("a valid name");
    let outer = mutex.lock().expect("nobody contends");
    let nest = || drop(black_box(mutex.lock().expect("held already")));
    let times = nested(arguments, nest);
    let commands = Cost::of(server, NESTED, repeat(NESTED, nest)).calls();
    outer.release().expect("held until now");
    let nanos = median(&times) * 1e3;
    report.row(nested_row("reentry", &times, commands));
    report.budget("reentry of a mutex, ns", nanos, 100.0, nanos < 100.0);
    report.require(commands == 0.0, || format!("a reentry sent {commands} commands"));

    let reentrant = client.reentrant("nested").expect("a valid name");
    let outer = reentrant.lock().expect("nobody contends");
    let nest = || drop(black_box(reentrant.lock().expect("held already")));
    let times = nested(arguments, nest);
    let commands = Cost::of(server, NESTED, repeat(NESTED, nest)).calls();
    outer.release().expect("held until now");
    report.row(nested_row("reentry-reentrant", &times, commands));
    report.table("reentry: a nested lock and its drop");
}

/// The time of one nested lock in µs, for each of many batches.
fn nested(arguments: &Arguments, nest: impl Fn()) -> Vec<f64> {
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.len() < 24 || start.elapsed().as_secs_f64() < arguments.seconds / 4.0 {
        let start = Instant::now();
        for _ in 0..NESTED {
            nest();
        }
        times.push(start.elapsed().as_secs_f64() * 1e6 / NESTED as f64);
    }
    times
}

/// Here the percentiles are of batches, since one operation is too short to be timed.
fn nested_row(row: &str, times: &[f64], commands: f64) -> Row {
    Row::new(row, "unix")
        .set("processes", 1.0)
        .set("threads", 1.0)
        .set("names", 1.0)
        .set("acq_per_s", 1e6 / median(times))
        .set("commands_per_acq", commands)
        .set("op_p50_us", median(times))
        .set("op_p99_us", percentile(times, 99.0))
}

/// Threads that have nothing to do with each other but the client.
fn threads(server: &Server, arguments: &Arguments, report: &mut Report) {
    let url = server.unix_url();
    let client = client(LockClient::builder(&url).max_size(SHARED));
    let shape = shape_of(server, &client.mutex("a-mutex").expect("a valid name"));
    for count in [1, 2, 4, 8, 16, 32] {
        let mut raws: Vec<Raw> =
            (0..count).map(|thread| Raw::new(&url, &shape, &format!("raw {thread}"))).collect();
        let mut locks: Vec<Mutex> = (0..count)
            .map(|thread| client.mutex(format!("own {thread}")).expect("a valid name"))
            .collect();
        let each = (2 * BATCH).div_ceil(count).max(50);
        let [raw, times] = interleave(
            arguments.seconds / 2.0,
            [
                parallel(each, &mut raws, Raw::lock_unlock),
                parallel(each, &mut locks, |lock| lock_unlock(lock)),
            ],
        );
        let cost = |mut batch: Contender<'_>| {
            Cost::of(server, each * count, || _ = batch(&mut Vec::new()))
        };
        let raw_cost = cost(parallel(each, &mut raws, Raw::lock_unlock));
        let cost = cost(parallel(each, &mut locks, |lock| lock_unlock(lock)));
        report.row(
            latency("threads", "unix", &times, &raw)
                .set("threads", count as f64)
                .set("names", count as f64)
                .set("ratio", ratio(&raw.time, &times.time))
                .set("commands_per_acq", cost.commands(&raw_cost, &shape))
                .set("server_us_per_acq", cost.server)
                .set("client_us_per_acq", cost.client),
        );
    }
    report.note(format!("one client with {SHARED} connections; raw has one for each thread"));
    report.table("many threads, each its own name (ratio: rate by raw rate)");
}

/// Many locks held for long by one client.
fn renewal(server: &Server, report: &mut Report) {
    await_no_workers();
    let announced = Arc::new(AtomicU64::new(0));
    let losses = Arc::clone(&announced);
    let client = client(LockClient::builder(server.unix_url()).on_loss(move |_| {
        losses.fetch_add(1, Ordering::Relaxed);
    }));
    let options = LockOptions::new().lease(Lease::renewed(HELD_TTL));
    let guards: Vec<Guard> = (0..HELD)
        .map(|number| {
            let lock = client.mutex_with(format!("held {number}"), options);
            lock.and_then(|lock| lock.lock()).expect("nobody contends")
        })
        .collect();

    let commands = server.commands();
    let (start, ours, servers) = (Instant::now(), process_time(), server_time(server));
    thread::sleep(HELD_TTL * 3);
    let (ours, servers) = (process_time() - ours, server_time(server) - servers);
    let span = start.elapsed().as_secs_f64();
    // Since the last lock was taken, renewals are all that scripts were for.
    let renewals = server.commands().since(&commands).client_commands(&[]) as f64 / span;
    let (connections, workers) = (renewing_connections(server), workers());
    let lost = guards.into_iter().map(Guard::release).filter(Result::is_err).count() as u64;
    let lost = lost.max(announced.load(Ordering::Relaxed));

    report.row(
        Row::new("renewal", "unix")
            .set("processes", 1.0)
            .set("threads", 1.0)
            .set("names", HELD as f64)
            .set("hold_us", span * 1e6)
            .set("renewals_per_s", renewals)
            .set("cpu_pct", ours / span * 100.0)
            .set("lost", lost as f64),
    );
    report.note(format!("one command for each renewal; connections that renew: {connections}"));
    report.note(match workers {
        Some(count) => format!("worker threads: {count}; all else sleeps"),
        None => "worker threads: not told by this system".to_owned(),
    });
    report.note(format!("processor of the server: {:.1} %", servers / span * 100.0));
    report.table(&format!("{HELD} locks held for three times their time to live"));
    report.budget("renewal: locks lost", lost as f64, 0.0, lost == 0);
    report.require(lost == 0, || format!("{lost} of {HELD} held locks were lost"));
    for (what, count) in [("connections", Some(connections)), ("worker threads", workers)] {
        if let Some(count) = count {
            report.budget(&format!("renewal: {what}"), count as f64, 1.0, count == 1);
            report.require(count == 1, || format!("renewal uses {count} {what}"));
        }
    }
}

/// The connections that sent a script within the last period of renewal but one.
fn renewing_connections(server: &Server) -> usize {
    let list: String = redis::cmd("CLIENT")
        .arg("LIST")
        .query(&mut server.connection())
        .expect("the server lists its clients");
    let field = |line: &str, name: &str| {
        line.split(' ').find_map(|field| field.strip_prefix(name).map(str::to_owned))
    };
    list.lines()
        .filter(|line| field(line, "cmd=").is_some_and(|command| command.starts_with("eval")))
        .filter(|line| {
            let idle = field(line, "idle=").and_then(|idle| idle.parse().ok());
            idle.is_some_and(|idle: u64| Duration::from_secs(idle) < HELD_TTL)
        })
        .count()
}

/// How many threads of this process renew leases, where the system tells.
fn workers() -> Option<usize> {
    let threads = fs::read_dir("/proc/self/task").ok()?;
    let names =
        threads.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("comm")).ok());
    Some(names.filter(|name| name.starts_with("lease-work-")).count())
}

/// Waits for the threads of clients that are gone.
fn await_no_workers() {
    let end = Instant::now() + Duration::from_secs(5);
    while workers().is_some_and(|count| count > 0) && Instant::now() < end {
        thread::sleep(Duration::from_millis(10));
    }
}

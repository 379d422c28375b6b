//! A cluster of three masters: one name that many want, many names, and a name that moves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::{Guard, LockClient, Mutex};
use leasehold_support::stat::{jain, median};
use leasehold_support::{Cluster, CommandStats};

use crate::Bench;
use crate::common::batch::{interleave, parallel, ratio};
use crate::common::cost::server_time;
use crate::common::crowd::{Account, Crowd, Plan, client};
use crate::common::member::Slice;
use crate::common::raw::{Raw, Shape};
use crate::common::report::Row;
use crate::common::way::{Held, Way};
use crate::common::witness::Mark;
use crate::one_name::{GLANCE, OTHERS, SLICES, rate_of, work_alone};

const MASTERS: usize = 3;
/// Processes × threads.
const SHAPES: [(usize, usize); 4] = [(1, 1), (1, 32), (4, 1), (4, 8)];
/// In the row in which the name moves.
const MOVED: (usize, usize) = (4, 2);
/// How long a slot stays.
const STAY: Duration = Duration::from_millis(20);
/// Threads that each have their own name, and operations of each in a batch.
const THREADS: usize = 32;
const EACH: usize = 50;
/// Connections to each master.
const SHARED: u32 = 8;

pub(crate) fn rows(bench: &mut Bench) {
    let label = |what: &str| format!("cluster {what} mutex queue 0ms");
    let shapes = SHAPES.map(|(processes, threads)| {
        let label = label(&format!("{processes}x{threads}"));
        (bench.arguments.names(&label).then_some(label), processes, threads)
    });
    let moved = bench.arguments.names(&label("moved"));
    let names = bench.arguments.names(&label("names"));
    if !moved && !names && shapes.iter().all(|(label, ..)| label.is_none()) {
        return;
    }
    let cluster = bench.placement.serve(|| Cluster::start(MASTERS, 0));
    let cluster = cluster.expect("a cluster is started");
    let stage = Stage::new(&cluster);
    for (label, processes, threads) in shapes {
        if let Some(label) = label {
            stage.one_name(bench, &label, processes, threads, false);
        }
    }
    if moved {
        stage.one_name(bench, &label("moved"), MOVED.0, MOVED.1, true);
    }
    if names {
        stage.names(bench);
    }
    bench.report.table("a cluster of three masters (ratio: rate by raw rate at one of them)");
}

struct Stage<'a> {
    cluster: &'a Cluster,
    /// Of all nodes, as a process is told it.
    urls: String,
    client: LockClient,
    shape: Shape,
}

impl Stage<'_> {
    fn new(cluster: &Cluster) -> Stage<'_> {
        let urls = cluster.urls().join(" ");
        let client = client(&urls, |builder| builder.max_size(SHARED));
        let client = client.expect("the cluster takes a client");
        let name = cluster.name_at(0, "what raw sends ");
        let lock = Way::Queue.lock(&client, &name).expect("a valid name");
        let node = &cluster.nodes()[0];
        let shape = Shape::of(node, &name, || lock.lock(), Held::release, || lock.holder());
        Stage { cluster, urls, client, shape }
    }

    /// A raw lock on a connection to the master of its name.
    fn raw(&self, home: usize, word: &str) -> Raw {
        let name = self.cluster.name_at(home, word);
        // Whoever comes to a node first brings the scripts.
        let lock = Way::Queue.lock(&self.client, &name).expect("a valid name");
        drop(lock.lock().expect("nobody contends"));
        Raw::new(&self.cluster.nodes()[home].tcp_url(), &self.shape, &name)
    }

    fn commands(&self) -> Vec<CommandStats> {
        self.cluster.nodes().iter().map(|node| node.commands()).collect()
    }

    fn server_time(&self) -> f64 {
        self.cluster.nodes().iter().map(server_time).sum()
    }

    /// A crowd that wants one name, whose slot may go round the masters meanwhile.
    fn one_name(
        &self,
        bench: &mut Bench,
        label: &str,
        processes: usize,
        threads: usize,
        moves: bool,
    ) {
        let name = self.cluster.name_at(0, &format!("{label} "));
        let file = (processes > 1).then(|| bench.file());
        let (url, way, hold) = (self.urls.clone(), Way::Queue, Duration::ZERO);
        let plan = Plan {
            url,
            name: name.clone(),
            way,
            processes,
            threads,
            hold,
            file,
            watched: false,
            noted: false,
        };
        let mut crowd = Crowd::start(&plan).expect("processes are started");
        let mut raw = self.raw(0, "raw ");
        let work = work_alone((processes > 1).then(|| bench.file()), Mark::Alone, hold);
        crowd.slice(GLANCE);
        crowd.forget();
        rate_of(GLANCE, || _ = raw.with(&work));
        let span = Duration::from_secs_f64(bench.arguments.seconds) / SLICES;
        let (mut rates, mut raws) = (Vec::new(), Vec::new());
        let (mut all, mut commands, mut server, mut trips) = (0, 0, 0.0, 0);
        for _ in 0..SLICES {
            raws.push(rate_of(span / 4, || _ = raw.with(&work)));
            let (before, time) = (self.commands(), self.server_time());
            let (slice, more) = if moves {
                self.moved(&mut crowd, span, &name, trips)
            } else {
                (crowd.slice(span), 0)
            };
            trips += more;
            server += self.server_time() - time;
            let after = self.commands();
            let sent = after.iter().zip(&before).map(|(after, before)| after.since(before));
            commands += sent.map(|sent| sent.client_commands(&OTHERS)).sum::<u64>();
            rates.push(slice.within as f64 / span.as_secs_f64());
            all += slice.all;
        }
        let Account { shares, all: measured, waits, operations, seen, lost, processor, .. } =
            crowd.end();
        let us = |nanos: u64| nanos as f64 / 1e3;
        let threads_shares: Vec<f64> = shares.iter().flatten().copied().collect();
        let process_shares: Vec<f64> = shares.iter().map(|shares| shares.iter().sum()).collect();
        let jain_of = |shares: &[f64]| if shares.len() > 1 { jain(shares) } else { f64::NAN };
        let ratios: Vec<f64> = rates.iter().zip(&raws).map(|(rate, raw)| rate / raw).collect();
        let what = if moves {
            "cluster moved".to_owned()
        } else {
            format!("cluster {processes}x{threads}")
        };
        bench.report.row(
            Row::new(&what, way.title())
                .set("processes", processes as f64)
                .set("threads", threads as f64)
                .set("names", 1.0)
                .set("hold_us", 0.0)
                .set("acq_per_s", median(&rates))
                .set("raw_per_s", median(&raws))
                .set("ratio", median(&ratios))
                .set("commands_per_acq", commands as f64 / all as f64)
                .set("server_us_per_acq", server / all as f64 * 1e6)
                .set("client_us_per_acq", processor / measured as f64 * 1e6)
                .set("op_p50_us", us(operations.value_at_quantile(0.5)))
                .set("op_p99_us", us(operations.value_at_quantile(0.99)))
                .set("wait_p50_us", us(waits.value_at_quantile(0.5)))
                .set("wait_p99_us", us(waits.value_at_quantile(0.99)))
                .set("wait_max_us", us(waits.max()))
                .set("jain_threads", jain_of(&threads_shares))
                .set("jain_processes", jain_of(&process_shares))
                .set("overlaps", (seen.overlaps + seen.disorder) as f64)
                .set("lost", lost as f64),
        );
        bench.require_safe(label, seen, lost);
        if moves {
            bench.report.require(trips > 0, || format!("{label}: the slot never moved"));
            bench.report.note(format!("{label}: the slot moved {trips} times, without an error"));
        }
    }

    /// A slice in which the slot of a name goes from master to master. Answers how often it did.
    fn moved(&self, crowd: &mut Crowd, span: Duration, name: &str, trips: usize) -> (Slice, usize) {
        let (slot, over) = (self.cluster.slot(name), AtomicBool::new(false));
        thread::scope(|scope| {
            let mover = scope.spawn(|| {
                let mut trip = trips;
                while !over.load(Ordering::Relaxed) {
                    thread::sleep(STAY);
                    self.cluster.migrate(slot, trip % MASTERS, (trip + 1) % MASTERS);
                    trip += 1;
                }
                trip - trips
            });
            let slice = crowd.slice(span);
            over.store(true, Ordering::Relaxed);
            (slice, mover.join().expect("no panic"))
        })
    }

    /// Threads that each have their own name, on all masters alike.
    fn names(&self, bench: &mut Bench) {
        let raw = |thread| self.raw(thread % MASTERS, &format!("raw {thread} "));
        let mut raws: Vec<Raw> = (0..THREADS).map(raw).collect();
        let lock = |thread| {
            let name = self.cluster.name_at(thread % MASTERS, &format!("own {thread} "));
            self.client.mutex(name).expect("a valid name")
        };
        let mut locks: Vec<Mutex> = (0..THREADS).map(lock).collect();
        let operation =
            |lock: &mut Mutex| lock.lock().and_then(Guard::release).expect("nobody contends");
        let [raw, times] = interleave(
            bench.arguments.seconds,
            [parallel(EACH, &mut raws, Raw::lock_unlock), parallel(EACH, &mut locks, operation)],
        );
        bench.report.row(
            Row::new("cluster names", Way::Queue.title())
                .set("processes", 1.0)
                .set("threads", THREADS as f64)
                .set("names", THREADS as f64)
                .set("hold_us", 0.0)
                .set("acq_per_s", times.rate())
                .set("raw_per_s", raw.rate())
                .set("ratio", ratio(&raw.time, &times.time))
                .set("op_p50_us", median(&times.p50))
                .set("op_p99_us", median(&times.p99))
                .set("raw_p50_us", median(&raw.p50))
                .set("raw_p99_us", median(&raw.p99)),
        );
    }
}

//! Many threads of one process, each with its own name.

use leasehold::{Guard, Mutex};
use leasehold_support::Server;
use leasehold_support::stat::median;

use crate::Bench;
use crate::common::batch::{interleave, parallel, ratio};
use crate::common::cost::Cost;
use crate::common::raw::Raw;
use crate::common::report::Row;
use crate::common::way::Way;

/// Few threads, each of which can have a connection of its own, and many.
const SIZES: [usize; 2] = [8, 32];
/// Connections of the pool that all of them share.
const SHARED: u32 = 10;
/// Operations of each thread in a batch.
const EACH: usize = 50;

pub(crate) fn rows(bench: &mut Bench) {
    for (transport, url) in bench.transports("names") {
        for threads in SIZES {
            measure(bench, transport, &url, threads);
        }
    }
    bench.report.table("threads each with its own name (ratio: rate by raw rate)");
}

fn measure(bench: &mut Bench, transport: &str, url: &str, threads: usize) {
    let shape = bench.shape(Way::Queue);
    let raw = |thread| Raw::new(url, &shape, &format!("raw {thread}"));
    let mut raws: Vec<Raw> = (0..threads).map(raw).collect();
    let newest = connections(&bench.server).into_iter().max().unwrap_or_default();
    let client = bench.client(url, |builder| builder.max_size(SHARED));
    let lock = |thread| client.mutex(format!("own {thread}")).expect("a valid name");
    let mut locks: Vec<Mutex> = (0..threads).map(lock).collect();
    let operation =
        |lock: &mut Mutex| lock.lock().and_then(Guard::release).expect("nobody contends");
    let [raw, times] = interleave(
        bench.arguments.seconds,
        [parallel(EACH, &mut raws, Raw::lock_unlock), parallel(EACH, &mut locks, operation)],
    );
    // Those that were closed before may be on the list still.
    let connections = connections(&bench.server).into_iter().filter(|id| *id > newest).count();
    let cost = Cost::of(&bench.server, EACH * threads, || {
        parallel(EACH, &mut locks, operation)(&mut Vec::new());
    });
    let ratio = ratio(&raw.time, &times.time);
    bench.report.row(
        Row::new("names", &format!("{} {transport}", Way::Queue.title()))
            .set("processes", 1.0)
            .set("threads", threads as f64)
            .set("names", threads as f64)
            .set("hold_us", 0.0)
            .set("acq_per_s", times.rate())
            .set("raw_per_s", raw.rate())
            .set("ratio", ratio)
            .set("server_us_per_acq", cost.server)
            .set("client_us_per_acq", cost.client)
            .set("op_p50_us", median(&times.p50))
            .set("op_p99_us", median(&times.p99))
            .set("raw_p50_us", median(&raw.p50))
            .set("raw_p99_us", median(&raw.p99)),
    );
    let label = format!("{threads} names, {transport}");
    let late = self::ratio(&times.p99, &raw.p99);
    bench.report.note(format!(
        "{label}: {connections} connections of the client, raw has {threads}; p99 is {late:.2} times raw's"
    ));
    if threads > SHARED as usize {
        bench.at_least(&format!("{label}: rate by raw rate"), ratio, 1.7);
    }
    bench.at_most(&format!("{label}: connections"), connections as f64, f64::from(SHARED));
}

/// The numbers of the server's connections but for the one that asks; a later one is greater.
fn connections(server: &Server) -> Vec<u64> {
    let list = redis::cmd("CLIENT").arg("LIST").query(&mut server.connection());
    let list: String = list.expect("the server lists its clients");
    let others = list.lines().filter(|line| !line.contains("cmd=client|list"));
    others.filter_map(|line| line.strip_prefix("id=")?.split(' ').next()?.parse().ok()).collect()
}

//! What a lock costs that is contended for, in one process and among several.
//!
//! `cargo bench --package leasehold-benches --bench contention -- [--json] [--seconds S] [--only "WORD…"]…`
//!
//! *Raw* is the very same two scripts with the same arguments, and the same work between them, on
//! one bare connection that nobody contends with; *plain* is `SET NX PX` and a compare-and-delete
//! script. Ratios compare rates, more is better, and are medians over interleaved slices of one run;
//! times of two runs, or of two machines, are not to be compared.
//!
//! | row | mode | what |
//! | --- | --- | --- |
//! | `1x1` … `1x128` | each way to wait | processes × threads that want one lock again and again |
//! | `hand-over` | `unix`, `tcp`, `afar` | from a release to the waiter's having it, in another process |
//! | `idle` | | 64 threads in 4 processes behind one holder |
//! | `linger` | `relock`, `tight`, `remote unix`, `remote tcp`, `remote afar` | a lease that stays: for its process, and for another |
//! | `names` | `unix`, `tcp` | 8 threads, then 32, each its own name |
//! | `8x4` | `permits` | the same want of a permit of one semaphore of 4 |
//! | `1x64`, `8x8` | `reads`, `reads 95%` | the same want of one read-write lock, to read or now and then to write |
//! | `write` | `0ms`, `1ms` | how long a writer waits while 8 processes read as much as they can |
//! | `beside 1x8` … `beside 8x2` | each kind and mix | how long a call waits beside the threads of so many other processes, which want the lock again and again; and whether these share it |
//! | `cluster 1x1` … `cluster 4x8` | | the same want of one lock in a cluster of 3 masters |
//! | `cluster moved` | | the same while the lock's slot goes from master to master |
//! | `cluster names` | | 32 threads, each its own name, on all 3 masters |
//!
//! Rows are chosen by words: `--only "4x1 queue 0ms"` is one, `--only 4x1` are all of that shape.
//! `--seconds` is how long a row is measured. All but a cluster is on a Unix socket, unless it says
//! `tcp`, or `afar`: TCP to a server a millisecond away there and back, as one in the next building is.
//! On one machine a round trip is what client and server compute, afar it is the way between them.
//!
//! Where the system lets a program choose, the servers share a processor of their own, and all
//! clients, raw ones too, have the others. The header of the tables and `placement` in the JSON say
//! so, or why not. Unpinned, the kernel wakes a client now beside the server, now elsewhere, and the
//! same code is measured as two.
//!
//! In every row each critical section looks for others through a file that all processes share;
//! `overlaps` also counts tokens that did not grow. They, and locks that were lost, are what the
//! bench fails for; a budget that is missed is only told.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench tells people its figures")]

#[path = "contention/beside.rs"]
mod beside;
#[path = "contention/cluster.rs"]
mod cluster;
mod common;
#[path = "contention/counted.rs"]
mod counted;
#[path = "contention/hand_over.rs"]
mod hand_over;
#[path = "contention/idle.rs"]
mod idle;
#[path = "contention/linger.rs"]
mod linger;
#[path = "contention/names.rs"]
mod names;
#[path = "contention/one_name.rs"]
mod one_name;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use leasehold::{LockClient, LockClientBuilder};
use leasehold_support::processor::Placement;
use leasehold_support::{Proxy, Server, child};

use common::arguments::Arguments;
use common::crowd;
use common::raw::Shape;
use common::report::Report;
use common::way::{Held, Way};
use common::witness::Seen;

/// How long a row is measured when nothing is said.
const SECONDS: f64 = 2.0;
/// What the slowest machine may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How far away a server is that is not on this machine, one way.
const AFAR: Duration = Duration::from_micros(500);
/// Where a process is told the server's URL.
const URL: &str = "LEASEHOLD_CONTENTION_URL";

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let Some(role) = child::role() else { return measure() };
    let outcome = match role.as_str() {
        crowd::ROLE => crowd::play(),
        hand_over::ROLE => hand_over::play(),
        idle::ROLE => idle::play(),
        linger::ROLE => linger::play(),
        _ => Err("there is no such role".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{role}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> ExitCode {
    let arguments = Arguments::read_or(SECONDS);
    let placement = Placement::take();
    let server = match placement.serve(|| Server::builder().tcp().start()) {
        Ok(server) => server,
        Err(error) => {
            eprintln!("no server to measure with: {error}");
            return ExitCode::FAILURE;
        }
    };
    let afar = match Proxy::start(&server) {
        Ok(proxy) => proxy,
        Err(error) => {
            eprintln!("no way to the server that takes its time: {error}");
            return ExitCode::FAILURE;
        }
    };
    afar.delay(AFAR);
    let report = Report::new("contention", arguments.json, &server, placement.clone());
    let mut bench = Bench { server, afar, placement, arguments, report, files: 0 };
    one_name::rows(&mut bench);
    hand_over::rows(&mut bench);
    idle::row(&mut bench);
    linger::rows(&mut bench);
    names::rows(&mut bench);
    counted::rows(&mut bench);
    beside::rows(&mut bench);
    cluster::rows(&mut bench);
    bench.report.finish()
}

/// What all rows need.
struct Bench {
    server: Server,
    /// The way to the server that takes its time.
    afar: Proxy,
    placement: Placement,
    arguments: Arguments,
    report: Report,
    files: u32,
}

impl Bench {
    fn client(
        &self,
        url: &str,
        builder: impl FnOnce(LockClientBuilder) -> LockClientBuilder,
    ) -> LockClient {
        let builder = builder(LockClient::builder(url));
        builder.connect_now(true).build().expect("our server takes a client")
    }

    /// The transports on which a row is asked for, and the server's URL there.
    fn transports(&self, row: &str) -> Vec<(&'static str, String)> {
        self.asked(row, vec![("unix", self.server.unix_url()), ("tcp", self.server.tcp_url())])
    }

    /// The same, and from afar.
    fn distances(&self, row: &str) -> Vec<(&'static str, String)> {
        let mut near = self.transports(row);
        near.extend(self.asked(row, vec![("afar", self.afar.url())]));
        near
    }

    fn asked(
        &self,
        row: &str,
        mut ways: Vec<(&'static str, String)>,
    ) -> Vec<(&'static str, String)> {
        ways.retain(|(way, _)| self.arguments.names(&format!("{row} {way}")));
        ways
    }

    /// What this kind of lock sends where nobody contends.
    fn shape(&self, way: Way) -> Shape {
        // Two calls are compared, which chance would make a read and a write.
        let way = if way == Way::MostlyReads { Way::Reads } else { way };
        // One of each kind: a name of one kind is no other's.
        let name = format!("what raw sends by {way:?}");
        let client = self.client(&self.server.unix_url(), |builder| builder);
        let lock = way.lock(&client, &name).expect("a valid name");
        Shape::of(&self.server, &name, || lock.lock(), Held::release, || lock.holder())
    }

    /// A new file for processes to share.
    fn file(&mut self) -> PathBuf {
        self.files += 1;
        self.server.directory().join(format!("shared-{}", self.files))
    }

    /// Notes a failure if anything was seen that must never be.
    fn require_safe(&mut self, row: &str, seen: Seen, lost: u64) {
        let Seen { overlaps, disorder } = seen;
        self.report.require(overlaps == 0, || format!("{row}: {overlaps} overlaps"));
        self.report.require(disorder == 0, || format!("{row}: {disorder} tokens did not grow"));
        self.report.require(lost == 0, || format!("{row}: {lost} locks were lost"));
    }

    /// Notes how a figure stands to the least that it should be.
    fn at_least(&mut self, what: &str, value: f64, limit: f64) {
        self.report.budget(what, value, limit, value >= limit);
    }

    /// Notes how a figure stands to the most that it should be.
    fn at_most(&mut self, what: &str, value: f64, limit: f64) {
        self.report.budget(what, value, limit, value <= limit);
    }

    /// The same for what is counted, which no busy machine excuses: the bench fails above it.
    fn counts_at_most(&mut self, what: &str, value: f64, limit: f64) {
        self.at_most(what, value, limit);
        self.report.require(value <= limit, || format!("{what}: {value:.2} of {limit} at most"));
    }
}

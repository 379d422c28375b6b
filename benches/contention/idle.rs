//! Many threads that wait behind one holder, for long.

use std::thread;
use std::time::{Duration, Instant};

use leasehold::LockClient;
use leasehold_support::Child;
use leasehold_support::child::{hear, tell};

use crate::common::cost::{process_time, server_time};
use crate::common::monitor::Monitor;
use crate::common::report::Row;
use crate::common::way::Way;
use crate::common::witness::{Seen, Witness};
use crate::{Bench, Outcome, PATIENCE, URL};

pub(crate) const ROLE: &str = "idle";
const NAME: &str = "held for long";
const PROCESSES: usize = 4;
const THREADS: usize = 16;
/// The row is measured at least so long…
const LONG: Duration = Duration::from_secs(10);
/// …or so long, when the bench is only glanced at.
const GLANCE: Duration = Duration::from_secs(2);

pub(crate) fn row(bench: &mut Bench) {
    if !bench.arguments.names("idle") {
        return;
    }
    let (url, file) = (bench.server.unix_url(), bench.file());
    // Who may be asked to let go listens from the start, and so knows how many wait.
    let client = bench.client(&url, |builder| builder.on_release_request(|_| ()));
    let guard = client.mutex(NAME).and_then(|lock| lock.lock()).expect("nobody contends yet");
    let start = |_| {
        let mut child =
            Child::role(ROLE).arg(&file).env(URL, &url).start().expect("a process is started");
        child.expect_line("ready", PATIENCE);
        child
    };
    let mut children: [Child; PROCESSES] = std::array::from_fn(start);
    // Until all of them wait, and nothing is new any more.
    let end = Instant::now() + PATIENCE;
    while guard.waiters() < PROCESSES && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_millis(1500));

    let long = if bench.arguments.seconds < 1.0 { GLANCE } else { LONG };
    let long = long.max(Duration::from_secs_f64(bench.arguments.seconds));
    let processor = processor(&mut children);
    let (monitor, start) = (Monitor::start(&bench.server), Instant::now());
    let (commands, server) = (bench.server.commands(), server_time(&bench.server));
    thread::sleep(long);
    let span = start.elapsed().as_secs_f64();
    let scripts = bench.server.commands().since(&commands).client_commands(&[]);
    let server = server_time(&bench.server) - server;
    let mut others = monitor.others();
    // Our own looks.
    others.remove("info");
    let commands = (scripts + others.values().sum::<u64>()) as f64 / span;
    let cpu = (self::processor(&mut children) - processor) / span * 100.0;
    let waiting = guard.waiters();
    guard.release().expect("it was renewed");

    let mut seen = Seen::default();
    for child in &mut children {
        let line = child.expect_line("had it", PATIENCE);
        let rest = seen.read(&line).count();
        assert_eq!(rest, 0, "{line}");
    }
    bench.report.row(
        Row::new("idle", Way::Queue.title())
            .set("processes", PROCESSES as f64)
            .set("threads", THREADS as f64)
            .set("names", 1.0)
            .set("hold_us", span * 1e6)
            .set("overlaps", (seen.overlaps + seen.disorder) as f64)
            .set("cpu_pct", cpu)
            .set("lost", 0.0),
    );
    bench.report.note(format!("{waiting} processes wait, as the holder knows"));
    bench.report.note(format!("{commands:.2} commands a second, the holder's renewals among them"));
    if !others.is_empty() {
        bench.report.note(format!("besides scripts: {others:?}"));
    }
    bench.report.note(format!("processor of the server: {:.2} %", server / span * 100.0));
    bench.report.table("threads that wait behind one holder");
    bench.require_safe("idle", seen, 0);
    bench.at_most("idle: commands a second", commands, 5.0);
    bench.at_most("idle: processor of all clients, % of one", cpu, 1.0);
}

/// The processor time that the waiting processes have used, in seconds.
fn processor(children: &mut [Child]) -> f64 {
    children.iter_mut().for_each(|child| child.say("how much?"));
    let replies = children.iter_mut().map(|child| child.expect_line("used", PATIENCE));
    replies.map(|used| used.parse::<f64>().expect("a number")).sum()
}

/// Plays a process whose threads wait.
pub(crate) fn play() -> Outcome {
    let path = std::env::args().nth(1).ok_or("the file is told")?;
    let witness = Witness::open(Some(path.as_ref()))?;
    let client = LockClient::open(std::env::var(URL)?)?;
    let lock = client.mutex(NAME)?;
    let once = || {
        let mut seen = Seen::default();
        let guard = lock.lock().expect("Redis goes on");
        witness.section(guard.fencing_token().get(), &mut seen, || ());
        guard.release().expect("it was not lost");
        seen
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(once)).collect();
        scope.spawn(|| {
            while let Some(_question) = hear() {
                tell(&format!("used {}", process_time()));
            }
        });
        tell("ready");
        let mut seen = Seen::default();
        threads.into_iter().for_each(|thread| seen += thread.join().expect("no panic"));
        tell(&format!("had it {seen}"));
    });
    Ok(())
}

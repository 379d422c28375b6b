//! From a release to the waiter's having the lock, in another process.

use std::thread;
use std::time::Duration;

use leasehold::LockClient;
use leasehold_support::Child;
use leasehold_support::child::{hear, tell};
use leasehold_support::stat::{median, percentile};
use redis::{Commands, Connection, PubSub};

use crate::common::clock::now;
use crate::common::raw::{Raw, Shape, connect};
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

pub(crate) fn rows(bench: &mut Bench) {
    for (transport, url) in bench.distances("hand-over") {
        measure(bench, transport, &url);
    }
    bench.report.table("hand-over from process to process");
}

fn measure(bench: &mut Bench, transport: &str, url: &str) {
    let file = bench.file();
    let mut raw = Raw::new(url, &bench.shape(Way::Queue), "raw");
    let start = |_| {
        let mut child =
            Child::role(ROLE).arg(&file).env(URL, url).start().expect("a process is started");
        child.expect_line("ready", PATIENCE);
        child
    };
    let mut children = [0, 1].map(start);
    // About a millisecond for each hand-over and each release alone.
    let count = (bench.arguments.seconds * 1e3 / f64::from(ROUNDS)).clamp(10.0, 100.0) as usize;
    let mut hearer = connect(url);
    let mut alone = Alone::new(url, &bench.shape(Way::Queue), hearer.as_pubsub());
    let (mut spans, mut raws, mut alones) = (Vec::new(), Vec::new(), Vec::new());
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
            alones.push(alone.pass().as_secs_f64() * 1e6);
        }
    }
    let [p50, raw_p50, alone_p50] = [&spans, &raws, &alones].map(|spans| median(spans));
    let [p99, raw_p99] = [&spans, &raws].map(|spans| percentile(spans, 99.0));
    bench.report.row(
        Row::new("hand-over", &format!("{} {transport}", Way::Queue.title()))
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
    bench.report.note(format!(
        "{transport}: {} hand-overs; raw is the release script alone where nobody waits; where somebody \
         waits it takes {alone_p50:.0} µs, and a hand-over {:.2} times as long",
        spans.len(),
        p50 / alone_p50
    ));
    bench.require_safe(&format!("hand-over, {transport}"), seen, 0);
    bench.at_most(
        &format!("hand-over, {transport}: median by that of the release"),
        p50 / raw_p50,
        2.0,
    );
    bench.at_most(
        &format!("hand-over, {transport}: p99 by that of the release"),
        p99 / raw_p99,
        3.0,
    );
}

/// The release script where it hands over, alone: who waits is an entry in the queue, and nothing else.
struct Alone<'a> {
    raw: Raw,
    other: Connection,
    hearer: PubSub<'a>,
}

impl<'a> Alone<'a> {
    const WAITER: &'static str = "1q:7265747261772d:1:30000:raw";

    fn new(url: &str, shape: &Shape, mut hearer: PubSub<'a>) -> Alone<'a> {
        hearer.subscribe("leasehold:7265747261772d").expect("the server lets us listen");
        Alone { raw: Raw::new(url, shape, "alone"), other: connect(url), hearer }
    }

    fn pass(&mut self) -> Duration {
        let mut join = redis::pipe();
        join.zadd("{alone}:queue", Self::WAITER, 1);
        join.zadd("{alone}:beats", Self::WAITER, 9_000_000_000_000_000_u64);
        let took = self.raw.with(|| {
            join.exec(&mut self.other).expect("an entry in the queue");
            pause();
        });
        self.hearer.get_message().expect("it was handed over");
        self.other.del::<_, ()>("alone").expect("it is nobody's");
        took
    }
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

//! From a release to the waiter's having the lock, in another process.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

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
/// What is passed to and fro: a mutex, or the only element of a list.
const LOCK: &str = "lock";
const TOKEN: &str = "token";
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
    let mut children = pair(LOCK, &file, url);
    let mut passers = pair(TOKEN, &bench.file(), url);
    // About a millisecond for each hand-over and each release alone.
    let count = (bench.arguments.seconds * 1e3 / f64::from(ROUNDS)).clamp(10.0, 100.0) as usize;
    let mut hearer = connect(url);
    let mut alone = Alone::new(url, &bench.shape(Way::Queue), hearer.as_pubsub());
    let (mut spans, mut tokens) = (Vec::new(), Vec::new());
    let (mut raws, mut alones) = (Vec::new(), Vec::new());
    let mut seen = Seen::default();
    for round in 0..=ROUNDS {
        for (pair, spans) in [(&mut children, &mut spans), (&mut passers, &mut tokens)] {
            let passed = turns(pair, count / 2, &mut seen);
            // The first is to get warm.
            spans.extend(passed.into_iter().filter(|_| round > 0));
        }
        for _ in 0..count {
            raws.push(raw.with(pause).as_secs_f64() * 1e6);
            alones.push(alone.pass().as_secs_f64() * 1e6);
        }
    }
    let [p50, token_p50, raw_p50, alone_p50] =
        [&spans, &tokens, &raws, &alones].map(|spans| median(spans));
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
         waits it takes {alone_p50:.0} µs, and a hand-over {:.2} times as long; a token that is pushed to a BLPOP takes \
         {token_p50:.0} µs, and a hand-over {:.2} times as long",
        spans.len(),
        p50 / alone_p50,
        p50 / token_p50
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

/// Two processes that pass the lock, or the token, to and fro.
fn pair(way: &str, file: &Path, url: &str) -> [Child; 2] {
    [0, 1].map(|_| {
        let child = Child::role(ROLE).arg(file).arg(way).env(URL, url);
        let mut child = child.start().expect("a process is started");
        child.expect_line("ready", PATIENCE);
        child
    })
}

/// Lets both take so many turns; returns how long each took from a release to the other's having it, in µs.
fn turns(pair: &mut [Child; 2], count: usize, seen: &mut Seen) -> Vec<f64> {
    pair.iter_mut().for_each(|child| child.say(&format!("pass {count}")));
    let mut spans = Vec::new();
    for child in pair {
        let line = child.expect_line("passed", PATIENCE);
        spans.extend(seen.read(&line).map(|nanos| nanos as f64 / 1e3));
    }
    spans
}

/// The release script where it hands over, alone: the waiter is an entry in the queue, and nothing else.
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

/// Plays one of two that pass the lock, or the token, to and fro.
pub(crate) fn play() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("the file is told")?;
    let turns = Turns {
        witness: Witness::open(Some(path.as_ref()))?,
        released: Shared::open(path.as_ref())?,
        line: String::new(),
        seen: Seen::default(),
    };
    let url = std::env::var(URL)?;
    match arguments.next().as_deref() {
        Some(LOCK) => pass_lock(turns, url),
        Some(TOKEN) => pass_token(turns, &url, &path),
        _ => Err("what is passed?".into()),
    }
}

fn pass_lock(mut turns: Turns, url: String) -> Outcome {
    let client = LockClient::open(url)?;
    let lock = client.mutex(NAME)?;
    turns.play(|turns| {
        let guard = lock.lock()?;
        turns.have(guard.fencing_token().get(), || await_waiter(&guard));
        Ok(guard.release()?)
    })
}

/// The least that a hand-over by Redis can take: the only element of a list is the lock. It has no lease, and each
/// waiter has a connection of its own.
fn pass_token(mut turns: Turns, url: &str, list: &str) -> Outcome {
    let (mut own, mut other) = (connect(url), connect(url));
    // The first to come makes the token.
    if own.set_nx(format!("{list} begun"), true)? {
        own.rpush(list, 1)?
    }
    turns.play(|turns| {
        let (_, number): (String, u64) = own.blpop(list, PATIENCE.as_secs_f64())?;
        turns.have(number, || {
            await_that(|| {
                let clients: redis::RedisResult<String> =
                    redis::cmd("INFO").arg("clients").query(&mut other);
                clients.is_ok_and(|clients| clients.contains("blocked_clients:1\r"))
            })
        });
        Ok(own.rpush(list, number + 1)?)
    })
}

/// What one of the two does and sees.
struct Turns {
    witness: Witness,
    /// The same file, for the moment of the last release.
    released: Shared,
    line: String,
    seen: Seen,
}

impl Turns {
    /// Takes the turns that are ordered.
    fn play(&mut self, mut turn: impl FnMut(&mut Turns) -> Outcome) -> Outcome {
        tell("ready");
        while let Some(order) = hear() {
            let count: usize = order.strip_prefix("pass ").ok_or("what is to be done?")?.parse()?;
            for _ in 0..count {
                turn(self)?;
                // Nor is anything else going on after it.
                pause();
            }
            tell(&format!("passed {}{}", self.seen, self.line));
            (self.line, self.seen) = (String::new(), Seen::default());
        }
        Ok(())
    }

    /// The turn has begun, and its release comes next.
    fn have(&mut self, token: u64, await_waiter: impl FnOnce() -> bool) {
        let had = now();
        let released = self.released.read(RELEASED);
        if released > 0 {
            self.line += &format!(" {}", had.saturating_sub(released));
        }
        let mut wanted = false;
        self.witness.section(token, &mut self.seen, || {
            wanted = await_waiter();
            pause();
        });
        self.released.write(RELEASED, if wanted { now() } else { 0 });
    }
}

/// Waits until somebody waits; returns whether anybody does.
pub(crate) fn await_waiter(guard: &leasehold::Guard) -> bool {
    await_that(|| guard.is_contended())
}

fn await_that(mut is_so: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while !is_so() {
        if begin.elapsed() > FORLORN {
            return false;
        }
        thread::sleep(Duration::from_micros(50));
    }
    true
}

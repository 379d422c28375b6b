//! Torture of read-write locks: processes read, write, upgrade and downgrade, and are killed and stopped. Afterwards
//! rules 32 and 45 are checked over all that they recorded.
//!
//! ```text
//! LEASEHOLD_SECONDS=60 cargo test -p leasehold-proof --test readers -- --nocapture
//! ```
#![allow(clippy::print_stdout, reason = "it tells what was tried")]

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::Mutex;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use fastrand::Rng;
use leasehold::{
    Error, FencingToken, Lease, LockClient, LockOptions, ReadGuard, RwLock, UpgradableReadGuard,
    WriteGuard,
};
use leasehold_support::child::{hear, role, tell};
use leasehold_support::history::{AccessKind, AccessWindow, check_accesses, now};
use leasehold_support::{Child, Server};

const NAMES: [&str; 3] = ["catalog", "prices", "stock"];
const PROCESSES: usize = 4;
const THREADS: usize = 3;
const LEASE: Duration = Duration::from_millis(800);
const SOON: Duration = Duration::from_secs(20);
/// What a window begins with.
const GRANTS: [&str; 6] = ["read", "upgradable", "write", "upgrade", "downgrade", "lower"];

/// The record of one thread. Each line is written at once, so that a kill leaves at most one half.
///
/// ```text
/// <one of GRANTS> <thread> <name> <invoked> <begin> <valid until> <token>     a window begins, another may have ended
/// end <thread> <at> <still valid>                                             a window ends
/// refused <thread>                                                            an upgrade's time was over
/// broken <thread> <text>                                                      an error that must not be
/// ```
struct Record<'a> {
    file: &'a Mutex<File>,
    thread: usize,
    name: usize,
}

impl Record<'_> {
    fn line(&self, word: &str, rest: std::fmt::Arguments<'_>) {
        let line = format!("{word} {} {rest}\n", self.thread);
        self.file.lock().unwrap().write_all(line.as_bytes()).unwrap();
    }

    /// The moment is from before the look at the validity: a pause between them makes the window shorter.
    fn begin(
        &self,
        word: &str,
        invoked: u64,
        begin: u64,
        from: u64,
        guard: (Duration, FencingToken),
    ) {
        let until = from + guard.0.as_nanos() as u64;
        self.line(word, format_args!("{} {invoked} {begin} {until} {}", self.name, guard.1));
    }

    fn end(&self, at: u64, is_valid: bool) {
        self.line("end", format_args!("{at} {is_valid}"));
    }

    /// After a pause a lock may be lost, and an outcome unknown. Nothing that is asked for here is wrong in itself.
    fn error(&self, error: &Error) {
        if error.is_config() {
            self.line("broken", format_args!("{error}"));
        }
    }
}

enum Held {
    Read(ReadGuard),
    Upgradable(UpgradableReadGuard),
    Write(WriteGuard),
}

/// How long the guard is valid, and its token.
macro_rules! view {
    ($guard:expr) => {
        ($guard.remaining(), $guard.fencing_token())
    };
}

fn take(lock: &RwLock, rng: &mut Rng, record: &Record<'_>) -> Option<Held> {
    let (invoked, wait) = (now(), Duration::from_millis(rng.u64(0..600)));
    let (word, held) = match rng.u8(..5) {
        0..=2 => ("read", lock.try_read_for(wait).map(|it| it.map(Held::Read))),
        3 => ("upgradable", lock.try_upgradable_read_for(wait).map(|it| it.map(Held::Upgradable))),
        _ => ("write", lock.try_write_for(wait).map(|it| it.map(Held::Write))),
    };
    let begin = now();
    let held = held.map_err(|error| record.error(&error)).ok().flatten()?;
    let guard = match &held {
        Held::Read(guard) => view!(guard),
        Held::Upgradable(guard) => view!(guard),
        Held::Write(guard) => view!(guard),
    };
    record.begin(word, invoked, begin, begin, guard);
    Some(held)
}

fn upgrade(guard: UpgradableReadGuard, rng: &mut Rng, record: &Record<'_>) -> Option<Held> {
    let (invoked, was_valid) = (now(), guard.is_valid());
    let wait = Duration::from_millis(rng.u64(0..300));
    let upgraded = match rng.u8(..3) {
        0 => UpgradableReadGuard::upgrade(guard).map(Ok),
        _ => UpgradableReadGuard::try_upgrade_for(guard, wait),
    };
    let begin = now();
    match upgraded {
        Ok(Ok(guard)) => {
            let it = view!(guard);
            // It is one lease: what is valid now was valid all the time.
            record.end(begin, !it.0.is_zero());
            record.begin("upgrade", invoked, begin, begin, it);
            Some(Held::Write(guard))
        }
        Ok(Err(guard)) => {
            record.line("refused", format_args!(""));
            Some(Held::Upgradable(guard))
        }
        Err(error) => {
            // Somewhere within the call it was released.
            record.end(invoked, was_valid);
            record.error(&error);
            None
        }
    }
}

fn downgrade(guard: WriteGuard, rng: &mut Rng, record: &Record<'_>) -> Option<Held> {
    // It is a reader before Redis knows (rule 36).
    let (at, left) = (now(), guard.remaining());
    record.end(at, !left.is_zero());
    let (word, held) = match rng.bool() {
        true => ("downgrade", WriteGuard::downgrade(guard).map(Held::Read)),
        false => ("lower", WriteGuard::downgrade_to_upgradable(guard).map(Held::Upgradable)),
    };
    let from = now();
    let held = held.map_err(|error| record.error(&error)).ok()?;
    let (remaining, token) = match &held {
        Held::Read(guard) => view!(guard),
        Held::Upgradable(guard) => view!(guard),
        Held::Write(_) => unreachable!("it was lowered"),
    };
    match remaining.is_zero() {
        true => record.begin(word, at, at, at, (left, token)),
        false => record.begin(word, at, at, from, (remaining, token)),
    }
    Some(held)
}

fn release(held: Held, record: &Record<'_>) {
    // The window ends before the release is sent.
    let at = now();
    let is_valid = match &held {
        Held::Read(guard) => guard.is_valid(),
        Held::Upgradable(guard) => guard.is_valid(),
        Held::Write(guard) => guard.is_valid(),
    };
    record.end(at, is_valid);
    let released = match held {
        Held::Read(guard) => guard.release(),
        Held::Upgradable(guard) => guard.release(),
        Held::Write(guard) => guard.release(),
    };
    drop(released);
}

/// Takes the locks in every way until it is told to stop, and records each window.
fn work() {
    let client = LockClient::open(std::env::var("LEASEHOLD_URL").unwrap()).unwrap();
    let linger = Duration::from_millis(if std::process::id().is_multiple_of(2) { 30 } else { 0 });
    let options = LockOptions::new().lease(Lease::renewed(LEASE)).linger(linger);
    let locks = NAMES.map(|name| client.rw_lock_with(name, options).unwrap());
    let path = std::env::var("LEASEHOLD_RECORD").unwrap();
    let file = Mutex::new(OpenOptions::new().create(true).append(true).open(path).unwrap());
    tell("ready");
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (locks, file) = (&locks, &file);
            scope.spawn(move || {
                let mut rng = Rng::new();
                loop {
                    let name = rng.usize(..NAMES.len());
                    let record = Record { file, thread, name };
                    let mut held = take(&locks[name], &mut rng, &record);
                    if held.is_none() {
                        sleep(Duration::from_millis(2));
                    }
                    while let Some(it) = held {
                        // Long ones are there to be hit by a kill or a pause.
                        let most = if rng.u8(..10) == 0 { 100_000 } else { 5_000 };
                        sleep(Duration::from_micros(rng.u64(..most)));
                        held = match it {
                            Held::Upgradable(guard) if rng.u8(..4) > 0 => {
                                upgrade(guard, &mut rng, &record)
                            }
                            Held::Write(guard) if rng.bool() => downgrade(guard, &mut rng, &record),
                            held => {
                                release(held, &record);
                                None
                            }
                        };
                    }
                }
            });
        }
        scope.spawn(|| {
            while hear().is_some() {}
            std::process::exit(0);
        });
    });
}

/// All that the processes have recorded.
#[derive(Default)]
struct Recorded {
    /// The windows of each name.
    windows: [Vec<AccessWindow>; NAMES.len()],
    counts: BTreeMap<String, usize>,
    broken: Vec<String>,
}

impl Recorded {
    fn count(&mut self, word: &str) {
        *self.counts.entry(word.to_owned()).or_default() += 1;
    }

    /// The records of processes that were killed at these moments, or live still.
    fn of(server: &Server, killed: &[u64]) -> Recorded {
        let mut recorded = Recorded::default();
        for (number, killed) in killed.iter().enumerate() {
            let path = server.directory().join(format!("record{number}"));
            recorded.add(&std::fs::read_to_string(path).unwrap_or_default(), *killed);
        }
        recorded
    }

    /// Adds the record of a process that was killed at that moment.
    fn add(&mut self, text: &str, killed: u64) {
        let mut open: [Option<(usize, usize)>; THREADS] = [None; THREADS];
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            let thread = number(1) as usize;
            match words[0] {
                "end" => {
                    let (name, place) = open[thread].take().unwrap();
                    let window = &mut self.windows[name][place];
                    // One that is valid still may have been renewed.
                    let is_valid = words[3] == "true";
                    let end = if is_valid { number(2) } else { window.end.min(number(2)) };
                    window.end = end.max(window.begin);
                    if !is_valid {
                        self.count("lapsed");
                    }
                }
                "refused" => self.count("refused"),
                "broken" => self.broken.push(line.to_owned()),
                word => {
                    let kind = match word {
                        "read" | "downgrade" => AccessKind::Read,
                        "upgradable" | "lower" => AccessKind::Upgradable,
                        _ => AccessKind::Write,
                    };
                    let (invoked, begin, token) = (number(3), number(4), number(6));
                    let end = number(5).min(killed).max(begin);
                    let name = number(2) as usize;
                    open[thread] = Some((name, self.windows[name].len()));
                    self.windows[name].push(AccessWindow { kind, token, invoked, begin, end });
                    self.count(word);
                }
            }
        }
        if killed < u64::MAX {
            open.into_iter().flatten().for_each(|_| self.count("killed"));
        }
    }

    /// What has not happened yet.
    fn missing(&self) -> Vec<&'static str> {
        let events = GRANTS.into_iter().chain(["refused", "lapsed", "killed"]);
        events.filter(|event| !self.counts.contains_key(*event)).collect()
    }
}

fn start(server: &Server, number: usize) -> Child {
    let record = server.directory().join(format!("record{number}"));
    let child = Child::role("readers").test("readers_and_writers_keep_rule_45_through_kills");
    let child = child.env("LEASEHOLD_URL", server.url()).env("LEASEHOLD_RECORD", record);
    let mut child = child.start().unwrap();
    child.expect_line("ready", SOON);
    child
}

/// The place of a child that holds a lock now, or of any.
fn victim(children: &[(usize, Child)], locks: &[RwLock], rng: &mut Rng) -> usize {
    let holders = locks.iter().flat_map(|lock| lock.holders().unwrap());
    let pids: Vec<Option<u32>> = holders.map(|holder| holder.pid()).collect();
    let hold = |place: &usize| pids.contains(&Some(children[*place].1.pid()));
    let places: Vec<usize> = (0..children.len()).filter(hold).collect();
    rng.choice(places).unwrap_or_else(|| rng.usize(..children.len()))
}

#[test]
fn readers_and_writers_keep_rule_45_through_kills() {
    if role().is_some() {
        return work();
    }
    let seconds = std::env::var("LEASEHOLD_SECONDS").map_or(6, |text| text.parse().unwrap());
    let seed = std::env::var("LEASEHOLD_SEED")
        .map_or_else(|_| Rng::new().u64(..), |it| it.parse().unwrap());
    println!("LEASEHOLD_SEED={seed}");
    let (mut rng, server) = (Rng::with_seed(seed), Server::start().unwrap());
    let client = LockClient::open(server.url()).unwrap();
    let locks = NAMES.map(|name| client.rw_lock(name).unwrap());
    let mut children: Vec<(usize, Child)> =
        (0..PROCESSES).map(|it| (it, start(&server, it))).collect();
    let mut ends = vec![u64::MAX; PROCESSES];
    let (mut kills, mut stops) = (0, 0);
    let end = Instant::now() + Duration::from_secs(seconds);
    // Longer if something has not happened by chance.
    let is_over = |ends: &[u64]| {
        let late = end.elapsed();
        late > SOON || !late.is_zero() && Recorded::of(&server, ends).missing().is_empty()
    };
    while !is_over(&ends) {
        sleep(Duration::from_millis(rng.u64(20..200)));
        let victim = victim(&children, &locks, &mut rng);
        if kills <= stops {
            let (number, mut child) = children.swap_remove(victim);
            child.kill9();
            (ends[number], kills) = (now(), kills + 1);
            ends.push(u64::MAX);
            children.push((ends.len() - 1, start(&server, ends.len() - 1)));
        } else {
            // Two of three outlast all leases.
            let least = if stops % 3 == 2 { 0.0 } else { 1.1 };
            let child = &children[victim].1;
            child.stop();
            sleep(LEASE.mul_f64(least + 0.5 * rng.f64()));
            child.cont();
            stops += 1;
        }
    }
    for (number, mut child) in children {
        child.kill9();
        ends[number] = now();
    }
    let recorded = Recorded::of(&server, &ends);
    let found: Vec<_> = recorded.windows.iter().flat_map(|it| check_accesses(it)).collect();
    let windows: usize = recorded.windows.iter().map(Vec::len).sum();
    let counts = &recorded.counts;
    println!(
        "{windows} windows, {counts:?}, {kills} kills, {stops} pauses, {} violations",
        found.len()
    );
    assert!(found.is_empty(), "LEASEHOLD_SEED={seed}: {found:#?}");
    assert!(recorded.broken.is_empty(), "{:?}", recorded.broken);
    let missing = recorded.missing();
    assert!(missing.is_empty(), "did not happen: {missing:?}");
    assert!(windows > 300 && kills.min(stops) > 1, "too little happened");
    // All is free one lease after the last process was killed.
    for lock in &locks {
        assert!(lock.try_write_for(SOON).unwrap().is_some());
    }
}

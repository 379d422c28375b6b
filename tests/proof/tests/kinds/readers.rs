//! Torture of read-write locks: processes read, write, upgrade and downgrade, and are killed and stopped. Afterwards
//! rules 32 and 45 are checked over all that they recorded.

use std::collections::BTreeMap;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use fastrand::Rng;
use leasehold::{
    Error, FencingToken, Lease, LockClient, LockOptions, ReadGuard, RwLock, UpgradableReadGuard,
    WriteGuard,
};
use leasehold_proof::trial::{self, Plan, Trial, jain, rest, stay, work};
use leasehold_support::child::role;
use leasehold_support::history::{AccessKind, AccessWindow, check_accesses, now};

const NAMES: [&str; 3] = ["catalog", "prices", "stock"];
const PROCESSES: usize = 4;
const THREADS: usize = 3;
const LEASE: Duration = Duration::from_millis(800);
const SOON: Duration = Duration::from_secs(20);
/// What a window begins with.
const GRANTS: [&str; 6] = ["read", "upgradable", "write", "upgrade", "downgrade", "lower"];

/// The record of one thread.
///
/// ```text
/// <one of GRANTS> <thread> <name> <invoked> <begin> <valid until> <token>     a window begins, another may have ended
/// end <thread> <at> <still valid>                                             a window ends
/// refused <thread>                                                            an upgrade's time was over
/// broken <thread> <text>                                                      an error that must not be
/// ```
struct Record<'a> {
    of_process: &'a trial::Record,
    thread: usize,
    name: usize,
}

impl Record<'_> {
    fn line(&self, word: &str, rest: std::fmt::Arguments<'_>) {
        self.of_process.line(&format!("{word} {} {rest}", self.thread));
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

/// Takes the locks in every way, and records each window.
fn use_locks(url: &str, of_process: &trial::Record) {
    let client = LockClient::open(url).unwrap();
    let linger = Duration::from_millis(if std::process::id().is_multiple_of(2) { 30 } else { 0 });
    let options = LockOptions::new().lease(Lease::renewed(LEASE)).linger(linger);
    let locks = NAMES.map(|name| client.rw_lock_with(name, options).unwrap());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let locks = &locks;
            scope.spawn(move || {
                let mut rng = Rng::new();
                loop {
                    let name = rng.usize(..NAMES.len());
                    let record = Record { of_process, thread, name };
                    let mut held = take(&locks[name], &mut rng, &record);
                    if held.is_none() {
                        sleep(Duration::from_millis(2));
                    }
                    while let Some(it) = held {
                        stay(&mut rng);
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
    });
}

/// All that the processes have recorded.
#[derive(Default)]
struct Recorded {
    /// The windows of each name.
    windows: [Vec<AccessWindow>; NAMES.len()],
    counts: BTreeMap<String, usize>,
    /// How many times the processes of each place became the writer.
    writes: [usize; PROCESSES],
    broken: Vec<String>,
}

impl Recorded {
    fn count(&mut self, word: &str) {
        *self.counts.entry(word.to_owned()).or_default() += 1;
    }

    fn of(trial: &Trial) -> Recorded {
        let mut recorded = Recorded::default();
        for (text, place, killed) in trial.records() {
            recorded.add(&text, place, killed);
        }
        recorded
    }

    /// Adds the record of a process that was killed at that moment.
    fn add(&mut self, text: &str, place: usize, killed: u64) {
        let mut open: [Option<(usize, usize)>; THREADS] = [None; THREADS];
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            let thread = number(1) as usize;
            match words[0] {
                "end" => {
                    let (name, last) = open[thread].take().unwrap();
                    let window = &mut self.windows[name][last];
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
                    self.writes[place] += usize::from(kind == AccessKind::Write);
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

/// The place of a process that holds a lock now, or of any.
fn victim(trial: &Trial, locks: &[RwLock], rng: &mut Rng) -> usize {
    let holders = locks.iter().flat_map(|lock| lock.holders().unwrap());
    let holding: Vec<Option<u32>> = holders.map(|holder| holder.pid()).collect();
    let pids = trial.pids().into_iter().enumerate();
    let places = pids.filter(|(_, pid)| holding.contains(&Some(*pid))).map(|(place, _)| place);
    rng.choice(places.collect::<Vec<_>>()).unwrap_or_else(|| rng.usize(..PROCESSES))
}

#[test]
fn readers_and_writers_keep_rule_45_through_kills() {
    if role().is_some() {
        return work(use_locks);
    }
    let Plan { time, seed } = Plan::new();
    println!("readers and writers: LEASEHOLD_SEED={seed}");
    let test = "readers::readers_and_writers_keep_rule_45_through_kills";
    let (mut rng, mut trial) = (Rng::with_seed(seed), Trial::start("readers", test, PROCESSES));
    let client = LockClient::open(trial.server.url()).unwrap();
    let locks = NAMES.map(|name| client.rw_lock(name).unwrap());
    let end = Instant::now() + time;
    // Longer if something has not happened by chance.
    let is_over = |trial: &Trial| {
        let late = end.elapsed();
        late > SOON || !late.is_zero() && Recorded::of(trial).missing().is_empty()
    };
    while !is_over(&trial) {
        rest(&mut rng);
        let victim = victim(&trial, &locks, &mut rng);
        if trial.kills <= trial.stops {
            trial.kill(victim);
        } else {
            // Two of three outlast all leases.
            let least = if trial.stops % 3 == 2 { 0.0 } else { 1.1 };
            trial.pause(victim, LEASE.mul_f64(least + 0.5 * rng.f64()));
        }
    }
    trial.kill_all();
    let recorded = Recorded::of(&trial);
    let found: Vec<_> = recorded.windows.iter().flat_map(|it| check_accesses(it)).collect();
    let windows: usize = recorded.windows.iter().map(Vec::len).sum();
    let (counts, kills, stops) = (&recorded.counts, trial.kills, trial.stops);
    println!(
        "readers and writers: {windows} grants checked, {counts:?}, {kills} kills, {stops} pauses, {} violations; \
         Jain's index of the writes over {PROCESSES} processes {:.3}",
        found.len(),
        jain(&recorded.writes)
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

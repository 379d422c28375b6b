//! Many processes run one job, each as often as it likes. Some are killed in the midst of it, the clock of one is wrong
//! by an hour, and the server stops now and then. Afterwards all that they recorded is checked: no period has two successes,
//! a call that is skipped names a success of that very period, a run that failed is not tried too soon or too often, and a
//! period goes without a run only where nobody asked.
//!
//! ```text
//! LEASEHOLD_SECONDS=300 cargo test -p leasehold-proof --test once -- --nocapture
//! ```
#![allow(clippy::print_stdout, reason = "it tells what was tried")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use leasehold::{Begun, Lease, LockClient, LockOptions, Period, RunEnd};
use leasehold_support::child::{hear, role, tell};
use leasehold_support::history::now;
use leasehold_support::{Child, Server, WallClock, lag};

const NAME: &str = "no_period_has_two_successes_through_kills_stops_and_a_wrong_clock";
const PROCESSES: usize = 20;
const PERIOD: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_millis(400);
const HOUR: Duration = Duration::from_secs(3_600);
const SOON: Duration = Duration::from_secs(30);
/// What a call may take besides the wait for a lease.
const CALL: Duration = Duration::from_millis(250);
/// Nobody asks in the last of so many seconds.
const ROUND: u64 = 12;
/// Not again before that after a failure…
const RETRY: Duration = Duration::from_millis(150);
/// …and so often in a period.
const TRIES: u32 = 3;
/// The server stops for so long in each cycle, for the first time after so long.
const STOP: Duration = Duration::from_secs(3);
const CYCLE: Duration = Duration::from_secs(20);
const FIRST_STOP: Duration = Duration::from_secs(4);
/// How exact times of two clocks of one machine are.
const EXACT: u64 = 2_000_000;

fn number(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Asks for a run again and again, and records what came of each call.
fn work() {
    let var = |name| std::env::var(name).unwrap();
    let options = LockOptions::new().lease(Lease::renewed(LEASE));
    // The server may stand still as this begins, and twenty that begin at once wait for each other.
    let client = LockClient::builder(var("LEASEHOLD_URL")).connect_now(false).build().unwrap();
    let job = client.once_with("job", Period::every(PERIOD), options).unwrap();
    let job = job.retry_after(RETRY).max_tries(TRIES);
    let mut record =
        OpenOptions::new().create(true).append(true).open(var("LEASEHOLD_RECORD")).unwrap();
    let mut write = |line: String| record.write_all(line.as_bytes()).unwrap();
    let victim = Path::new(&var("LEASEHOLD_VICTIM")).to_owned();
    let offset: i128 = var("LEASEHOLD_OFFSET").parse().unwrap();
    #[expect(clippy::disallowed_methods, reason = "to show that it is wrong")]
    let clock = number(SystemTime::now());
    tell(&format!("ready {clock}"));
    thread::spawn(|| {
        while hear().is_some() {}
        std::process::exit(0);
    });

    let mut rng = Rng::new();
    let mut pause = |most: u64| sleep(Duration::from_millis(rng.u64(0..most)));
    loop {
        pause(250);
        let seconds = (i128::from(now()) + offset) as u64 / 1_000_000_000;
        if seconds.is_multiple_of(ROUND) {
            continue;
        }
        write(format!("asked {}\n", now()));
        match job.begin() {
            Ok(Begun::Run(run)) => {
                let (period, token) = (number(run.period().start), run.guard().fencing_token());
                write(format!("began {} {period} {token}\n", now()));
                pause(60);
                if std::fs::remove_file(&victim).is_ok() {
                    tell("kill me");
                    sleep(SOON);
                }
                pause(60);
                // All runs of some periods, so that a short round has some, and now and then one of another.
                let (word, outcome) = if period % 5 == 2 || token.get().is_multiple_of(4) {
                    write(format!("fails {} {period} {token}\n", now()));
                    ("failed", run.fail("now and then"))
                } else {
                    // If it is killed before the next line, it may have succeeded.
                    write(format!("tries {} {period} {token}\n", now()));
                    ("succeeded", run.succeed())
                };
                match outcome {
                    Ok(()) => write(format!("{word} {} {period} {token}\n", now())),
                    Err(error) => write(format!("error {} {error}\n", now())),
                }
            }
            Ok(Begun::Skipped { ran_at, by }) => {
                let token = by.token().unwrap();
                write(format!("skipped {} {} {token}\n", now(), number(ran_at)));
            }
            Ok(Begun::Failing { tries, next_at, .. }) => {
                let next = next_at.duration_since(UNIX_EPOCH).unwrap().as_nanos();
                write(format!("failing {} {tries} {next}\n", now()));
            }
            other => write(format!("error {} {other:?}\n", now())),
        }
    }
}

/// All that the processes recorded, in the server's time.
#[derive(Debug, Default)]
struct History {
    /// By period: the tokens of the runs that began, that succeeded, and that may have.
    began: BTreeMap<u64, Vec<u64>>,
    succeeded: BTreeMap<u64, Vec<u64>>,
    tried: BTreeMap<u64, Vec<u64>>,
    /// When runs began, with their tokens.
    began_at: Vec<(u64, u64)>,
    /// When runs were about to record a failure, with their tokens, and those who did.
    fails: Vec<(u64, u64)>,
    failed: BTreeSet<u64>,
    /// When a call was told that the job fails, how often, and when it is due.
    failing: Vec<(u64, u64, u64)>,
    errors: Vec<String>,
    /// When a call was made.
    asked: Vec<u64>,
    /// When a skipped call was made and returned, the period of the run that it names, and its token.
    skipped: Vec<(u64, u64, u64, u64)>,
}

impl History {
    fn read(&mut self, text: &str, offset: i128) {
        // Of a process that was killed the last line may be missing.
        let mut asked = 0;
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            let at = (i128::from(number(1)) + offset) as u64;
            let push =
                |to: &mut BTreeMap<u64, Vec<u64>>| to.entry(number(2)).or_default().push(number(3));
            match words[0] {
                "asked" => {
                    asked = at;
                    self.asked.push(at);
                }
                "began" => {
                    push(&mut self.began);
                    self.began_at.push((at, number(3)));
                }
                "fails" => self.fails.push((at, number(3))),
                "failing" => self.failing.push((at, number(2), number(3))),
                "tries" => push(&mut self.tried),
                "succeeded" => push(&mut self.succeeded),
                "failed" => _ = self.failed.insert(number(3)),
                "skipped" => self.skipped.push((asked, at, number(2), number(3))),
                _ => self.errors.push(line.to_owned()),
            }
        }
    }

    /// What must not be, in periods from the first up to the last.
    fn violations(&self, first: u64, last: u64, stalled: impl Fn(u64) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        for (period, tokens) in &self.succeeded {
            if tokens.len() > 1 {
                found.push(format!("period {period} has successes {tokens:?}"));
            }
        }
        let order: Vec<u64> = self.succeeded.values().flatten().copied().collect();
        if !order.is_sorted() {
            found.push(format!("tokens do not grow: {order:?}"));
        }
        let second = 1_000_000_000;
        for &(asked, at, period, token) in &self.skipped {
            // It may have been recorded by a process that was killed before it told.
            let is_known = [&self.succeeded, &self.tried]
                .iter()
                .any(|runs| runs.get(&period).is_some_and(|tokens| tokens.contains(&token)));
            // A little more, as the two clocks are not read at the same moment.
            let is_present = (asked / second..=(at + second / 100) / second).contains(&period)
                || (asked - second / 100) / second == period;
            if !is_known || !is_present {
                found.push(format!("a call at {asked} was skipped for {period}, token {token}"));
            }
        }
        found.extend(self.hasty());
        for period in first..last {
            let begin = period * second;
            let latest = begin + second - (LEASE + CALL + RETRY).as_nanos() as u64;
            let is_asked = self.asked.iter().any(|asked| (begin..latest).contains(asked));
            if is_asked && !self.began.contains_key(&period) && !stalled(period) {
                found.push(format!("period {period} has no run, although somebody asked"));
            }
        }
        found
    }
}

impl History {
    /// Runs that began too soon after a failure, or too often.
    fn hasty(&self) -> Vec<String> {
        let mut found = Vec::new();
        let least = RETRY.as_nanos() as u64;
        let recorded = |(_, token): &&(u64, u64)| self.failed.contains(token);
        for &(failed, token) in self.fails.iter().filter(recorded) {
            let next = self.began_at.iter().filter(|(_, other)| *other > token).min();
            if let Some((began, other)) = next.filter(|(began, _)| began + EXACT < failed + least) {
                found.push(format!("{token} failed at {failed}, and {other} began at {began}"));
            }
        }
        for &(at, tries, next) in &self.failing {
            let is_hasty = |began: u64| began > at && began + EXACT < next;
            if let Some((began, token)) = self.began_at.iter().find(|(began, _)| is_hasty(*began)) {
                found
                    .push(format!("due at {next}, as {at} was told, and {token} began at {began}"));
            }
            if tries > u64::from(TRIES) {
                found.push(format!("{at} was told of {tries} tries"));
            }
        }
        let often = self.began.iter().filter(|(_, tokens)| tokens.len() > TRIES as usize);
        found.extend(
            often.map(|(period, tokens)| format!("period {period} was tried by {tokens:?}")),
        );
        found
    }
}

fn start(server: &Server, clock: &WallClock, number: usize, offset: i128) -> Child {
    let path = |name: &str| server.directory().join(name);
    let mut child = Child::role("once")
        .test(NAME)
        .env("LEASEHOLD_URL", server.url())
        .env("LEASEHOLD_RECORD", path(&format!("record{number}")))
        .env("LEASEHOLD_VICTIM", path("victim"))
        .env("LEASEHOLD_OFFSET", offset.to_string());
    let is_wrong = number.is_multiple_of(PROCESSES);
    if is_wrong {
        for (name, value) in clock.variables() {
            child = child.env(name, value);
        }
    }
    let mut child = child.start().unwrap();
    let clock: u64 = child.expect_line("ready", SOON).parse().unwrap();
    let right = (i128::from(now()) + offset) as u64 / 1_000_000_000;
    assert_eq!(clock.abs_diff(right) > 1_800, is_wrong, "its clock says {clock}, not {right}");
    child
}

/// How far the server's clock is ahead of the clock of the records, in ns.
fn offset(server: &Server) -> i128 {
    let mut connection = server.connection();
    let mut best = (u64::MAX, 0);
    for _ in 0..50 {
        let before = now();
        let (seconds, micros): (i128, i128) = redis::cmd("TIME").query(&mut connection).unwrap();
        let took = now() - before;
        let middle = i128::from(before + took / 2);
        best = best.min((took, (seconds * 1_000_000 + micros) * 1_000 - middle));
    }
    best.1
}

fn is_locked(server: &Server) -> bool {
    redis::cmd("EXISTS").arg("job").query(&mut server.connection()).unwrap()
}

#[test]
fn no_period_has_two_successes_through_kills_stops_and_a_wrong_clock() {
    if role().is_some() {
        return work();
    }
    let seconds: u64 = std::env::var("LEASEHOLD_SECONDS").map_or(10, |text| text.parse().unwrap());
    lag::watch();
    let server = Server::start().unwrap();
    let clock = WallClock::new().unwrap();
    clock.set(HOUR.as_micros() as i64).unwrap();
    let offset = offset(&server);
    let mut rng = Rng::new();
    let mut children: Vec<(usize, Child)> =
        (0..PROCESSES).map(|number| (number, start(&server, &clock, number, offset))).collect();

    let period = move || (i128::from(now()) + offset) as u64 / 1_000_000_000;
    // One more than is checked at each end.
    let (first, begin) = (period() + 1, Instant::now());
    let end = begin + PERIOD * u32::try_from(seconds + 2).unwrap();
    let (wanted, mut kills, mut started) = ((seconds / 2).clamp(1, 20), 0, PROCESSES);
    let (stopped, is_over) = (Mutex::new(BTreeSet::new()), AtomicBool::new(false));
    let mut worst = BTreeMap::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = begin + FIRST_STOP;
            while !is_over.load(SeqCst) && Instant::now() < end + SOON {
                sleep(Duration::from_millis(10));
                if Instant::now() >= next {
                    // In the midst of a run, if there is one soon.
                    let latest = Instant::now() + PERIOD * 2;
                    while !is_locked(&server) && Instant::now() < latest {}
                    let from = period();
                    server.pause();
                    sleep(STOP);
                    server.resume();
                    stopped.lock().unwrap().extend(from..=period());
                    next += CYCLE;
                }
            }
        });
        while Instant::now() < end {
            let at = Instant::now();
            // One more is to be killed now and then, so that all are at the end.
            let due = kills * seconds / wanted < begin.elapsed().as_secs() + 1;
            if kills < wanted && due {
                sleep(Duration::from_millis(rng.u64(0..50)));
                std::fs::write(server.directory().join("victim"), "").unwrap();
                let mut heard = None;
                let latest = at + SOON;
                while heard.is_none() && Instant::now() < latest {
                    let mut all = children.iter_mut();
                    heard = all.position(|(_, child)| {
                        child.hear_line("kill me", Duration::ZERO).is_some()
                    });
                    sleep(Duration::from_millis(5));
                }
                let (number, mut child) =
                    children.swap_remove(heard.expect("one in the midst of a run"));
                child.kill9();
                kills += 1;
                // Its successor has a wrong clock if it had.
                let next = started / PROCESSES * PROCESSES + PROCESSES + number % PROCESSES;
                started = next;
                children.push((next, start(&server, &clock, next, offset)));
            } else {
                sleep(Duration::from_millis(20));
            }
            let lag: &mut Duration = worst.entry(period()).or_default();
            *lag = (*lag).max(lag::worst_since(at));
        }
        is_over.store(true, SeqCst);
    });
    let last = first + seconds;
    drop(children);

    let mut history = History::default();
    for file in std::fs::read_dir(server.directory()).unwrap() {
        let file = file.unwrap();
        if file.file_name().to_string_lossy().starts_with("record") {
            history.read(&std::fs::read_to_string(file.path()).unwrap(), offset);
        }
    }
    let stopped = stopped.into_inner().unwrap();
    let stalled = |period| {
        let is_stalled = |it| worst.get(&it) > Some(&(CALL / 4)) || stopped.contains(&it);
        (period - 1..=period + 1).any(is_stalled)
    };
    let found = history.violations(first, last, stalled);
    let (begun, succeeded) = (history.began.values().flatten().count(), history.succeeded.len());
    let without =
        |runs: &BTreeMap<u64, Vec<u64>>| (first..last).filter(|it| !runs.contains_key(it)).count();
    println!(
        "{seconds} periods, {} without a run, {} without a success; {} calls, {} skipped, {} too early, {begun} runs \
         begun, {succeeded} succeeded, {} failed, {kills} killed, {} errors; {} periods in a stop of the server, {} in a \
         stall; {} violations",
        without(&history.began),
        without(&history.succeeded),
        history.asked.len(),
        history.skipped.len(),
        history.failing.len(),
        history.failed.len(),
        history.errors.len(),
        stopped.len(),
        (first..last).filter(|&it| stalled(it)).count(),
        found.len()
    );
    for error in history.errors.iter().take(10) {
        println!("  {}", error.trim_end());
    }
    assert!(found.is_empty(), "{found:#?}");
    assert!(kills == wanted && succeeded as u64 > seconds / 5, "too little happened");
    assert!(!history.failed.is_empty() && !history.failing.is_empty() && !stopped.is_empty());
    let job = LockClient::open(server.url()).unwrap().once("job", Period::every(PERIOD)).unwrap();
    // Nobody is left. What was under way has died, once its lease is over.
    let end = Instant::now() + SOON;
    while *job.last_run().unwrap().unwrap().end() == RunEnd::Running {
        assert!(Instant::now() < end, "it runs for ever");
    }
}

//! Processes campaign for one election, say words while they lead, and observe. They are killed and stopped, and the
//! server is killed and started again, which keeps all that it has replied to (`appendfsync always`). Afterwards all that
//! they recorded is compared with the server's append-only file, which has what its scripts did, in order:
//!
//! - each term is greater than the one before it;
//! - no leadership was valid once a later one was;
//! - what each observer saw is a part of what happened, in that order, and ends with the last of it.
//!
//! ```text
//! LEASEHOLD_SECONDS=600 cargo test -p leasehold-proof --test election -- --nocapture
//! cargo test --release -p leasehold-proof --test election -- --ignored --nocapture without
//! ```
#![allow(clippy::print_stdout, reason = "it tells what was tried")]

use std::collections::BTreeMap;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use fastrand::Rng;
use leasehold::{Election, Lease, LockClient, LockOptions, Observed};
use leasehold_proof::trial::{Plan, Record, Trial, rest, work};
use leasehold_support::child::{hear, role, tell};
use leasehold_support::history::now;
use leasehold_support::{Child, Server, lag};

const TEST: &str = "terms_grow_and_observers_see_what_happened";
const PROCESSES: usize = 5;
const LEASE: Duration = Duration::from_millis(900);
/// That of the leases of some processes.
const TAIL: Duration = Duration::from_millis(2_700);
const SOON: Duration = Duration::from_secs(60);
const LAST: &str = "last";
/// The server is killed about so often.
const RESTART: Duration = Duration::from_secs(5);

fn election(url: &str, lease: Lease) -> (LockClient, Election) {
    // Not connected yet: the server may be about to come back.
    let client = LockClient::builder(url).build().unwrap();
    let options = LockOptions::new().lease(lease);
    let election = client.election_with("x", options).unwrap();
    (client, election)
}

/// Leads again and again, and records each moment at which it may rely on that.
fn lead(election: &Election, record: &Record) {
    let mut rng = Rng::new();
    let mut words = 0;
    loop {
        let wait = Duration::from_millis(rng.u64(0..4_000));
        let Ok(Some(leadership)) = election.try_campaign_for(wait) else {
            sleep(Duration::from_millis(5));
            continue;
        };
        let term = leadership.term();
        record.line(&format!("L {term}"));
        let stay = match rng.u8(..20) {
            0 => 3_000,
            1..=4 => rng.u64(0..800),
            _ => rng.u64(0..80),
        };
        let end = Instant::now() + Duration::from_millis(stay);
        let mut is_silent = false;
        loop {
            // In this order, so that it was valid at some moment between the two.
            let (before, is_valid, after) = (now(), leadership.is_valid(), now());
            if !is_valid {
                if leadership.loss().is_some() {
                    break;
                }
                // It may lead again, with the same term, and nobody leads in between.
                if !std::mem::replace(&mut is_silent, true) {
                    record.line(&format!("S {term}"));
                }
                sleep(Duration::from_millis(rng.u64(1..10)));
                continue;
            }
            if std::mem::take(&mut is_silent) {
                record.line(&format!("B {term}"));
            }
            record.line(&format!("V {term} {before} {after}"));
            if Instant::now() >= end {
                break;
            }
            if rng.u8(..4) == 0 {
                words += 1;
                let word = format!("{}.{words}", std::process::id());
                let said = leadership.proclaim(&word);
                if said.is_ok() {
                    record.line(&format!("P {term} {word}"));
                }
            }
            sleep(Duration::from_millis(rng.u64(1..10)));
        }
        if rng.bool() { drop(leadership.resign()) } else { drop(leadership) }
    }
}

/// Records what it sees.
fn observe(election: &Election, record: &Record) {
    let mut observation = election.observe().unwrap();
    let mut is_told = false;
    loop {
        match observation.next() {
            Ok(Observed::Leader(leader)) => {
                let term = leader.term().expect("a term");
                let word = leader.value().map(|word| String::from_utf8_lossy(word).into_owned());
                record.line(&format!("O {term} {}", word.as_deref().unwrap_or("-")));
                if word.as_deref() == Some(LAST) && !is_told {
                    is_told = true;
                    tell(LAST);
                }
            }
            Ok(_) => record.line("N"),
            Err(_) => sleep(Duration::from_millis(20)),
        }
    }
}

fn campaign_and_observe(url: &str, record: &Record) {
    let lease = Lease::renewed(LEASE);
    let lease = if Rng::new().bool() { lease.recoverable_for(TAIL) } else { lease };
    let (_client, election) = election(url, lease);
    thread::scope(|scope| {
        scope.spawn(|| observe(&election, record));
        lead(&election, record);
    });
}

/// A server that loses nothing to which it has replied.
fn server() -> Server {
    let words = [
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        // What happened stays in one file.
        "--auto-aof-rewrite-percentage",
        "0",
    ];
    words.iter().fold(Server::builder(), |builder, word| builder.arg(word)).start().unwrap()
}

/// A term, and what its leader says.
type State = (u64, Option<String>);

/// What the scripts did, from the append-only file: each word that they wrote, the first of a term being none.
fn happened(server: &Server) -> Vec<State> {
    let folder = std::fs::read_dir(server.directory().join("appendonlydir")).unwrap();
    let mut files = folder.map(|entry| entry.unwrap().path());
    let file = files.find(|path| path.display().to_string().ends_with(".incr.aof")).unwrap();
    let text = std::fs::read(file).unwrap();
    let mut states = Vec::new();
    let mut rest = text.as_slice();
    // A kill may have left the beginning of a command, which the server cuts off when it starts again.
    while let Some(words) = command(&mut rest) {
        if let [set, key, word, ..] = words.as_slice()
            && set.eq_ignore_ascii_case(b"set")
            && *key == b"{x}:word"
        {
            let word = std::str::from_utf8(word).unwrap();
            let mut parts = word.splitn(3, ' ');
            let (term, number) = (parts.next().unwrap(), parts.next().unwrap());
            let said = (number != "0").then(|| parts.next().unwrap().to_owned());
            states.push((term.parse().unwrap(), said));
        }
    }
    states
}

/// The next command of an append-only file.
fn command<'a>(rest: &mut &'a [u8]) -> Option<Vec<&'a [u8]>> {
    fn line(rest: &mut &[u8], mark: u8) -> Option<usize> {
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let (line, more) = rest.split_at(end);
        *rest = &more[2..];
        assert_eq!(line[0], mark, "{}", line.escape_ascii());
        std::str::from_utf8(&line[1..]).unwrap().parse().ok()
    }
    let count = line(rest, b'*')?;
    (0..count)
        .map(|_| {
            let length = line(rest, b'$')?;
            let word = rest.get(..length)?;
            *rest = rest.get(length + 2..)?;
            Some(word)
        })
        .collect()
}

/// What the processes recorded.
#[derive(Default)]
struct History {
    /// For each term the first moment by which it was valid, and the last at which it was.
    valid: BTreeMap<u64, (u64, u64)>,
    led: BTreeMap<u64, usize>,
    said: usize,
    /// How often a leader was silent, and how often it came back.
    silences: (usize, usize),
    /// What each observer saw, and whether its process lived to the end.
    seen: Vec<(Vec<Option<State>>, bool)>,
}

impl History {
    fn read(&mut self, text: &str, lives: bool) {
        let mut seen = Vec::new();
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            match words[0] {
                "L" => *self.led.entry(number(1)).or_default() += 1,
                "V" => {
                    let (first, last) = self.valid.entry(number(1)).or_insert((u64::MAX, 0));
                    (*first, *last) = ((*first).min(number(3)), (*last).max(number(2)));
                }
                "P" => self.said += 1,
                "S" => self.silences.0 += 1,
                "B" => self.silences.1 += 1,
                "O" => {
                    let word = (words[2] != "-").then(|| words[2].to_owned());
                    seen.push(Some((number(1), word)));
                }
                _ => seen.push(None),
            }
        }
        self.seen.push((seen, lives));
    }

    fn violations(&self, happened: &[State]) -> Vec<String> {
        let mut found = Vec::new();
        // Words that say nothing begin the terms.
        let terms: Vec<u64> =
            happened.iter().filter(|(_, word)| word.is_none()).map(|(term, _)| *term).collect();
        if let Some(pair) = terms.windows(2).find(|pair| pair[0] >= pair[1]) {
            found.push(format!("term {} follows term {}", pair[1], pair[0]));
        }
        for (term, count) in &self.led {
            if *count > 1 || terms.binary_search(term).is_err() {
                found.push(format!("term {term} was led {count} times, or by nobody in Redis"));
            }
        }
        let mut latest: Option<(u64, u64)> = None;
        for (&term, &(first, last)) in &self.valid {
            if let Some((other, until)) = latest.filter(|&(_, until)| until > first) {
                found.push(format!("term {other} was valid {} ns into term {term}", until - first));
            }
            latest = latest.filter(|&(_, until)| until > last).or(Some((term, last)));
        }
        for (seen, lives) in &self.seen {
            found.extend(unlike(seen, happened));
            let last = seen.last().and_then(Option::as_ref);
            if *lives && last != happened.last() {
                found.push(format!("an observer saw {last:?} last, and not {:?}", happened.last()));
            }
        }
        found
    }
}

/// How what an observer saw differs from a part of what happened, in that order.
fn unlike(seen: &[Option<State>], happened: &[State]) -> Option<String> {
    let mut left = happened.iter();
    let mut last: Option<&State> = None;
    let mut is_nobody = false;
    for one in seen {
        let Some(state) = one else {
            if std::mem::replace(&mut is_nobody, true) {
                return Some("nobody led twice in a row".to_owned());
            }
            continue;
        };
        if !left.any(|other| other == state) {
            return Some(format!("{state:?} was seen after {last:?}, and did not happen after it"));
        }
        // Nobody leads between two terms alone.
        if std::mem::take(&mut is_nobody) && last.is_some_and(|(term, _)| *term == state.0) {
            return Some(format!("{state:?} was seen after nobody led, and before that"));
        }
        last = Some(state);
    }
    None
}

#[test]
fn terms_grow_and_observers_see_what_happened() {
    if role().is_some() {
        return work(campaign_and_observe);
    }
    let Plan { time, seed } = Plan::new();
    println!("election: LEASEHOLD_SEED={seed}");
    lag::watch();
    let mut rng = Rng::with_seed(seed);
    let mut trial = Trial::start_at(server(), "campaigns", TEST, PROCESSES);
    let (begin, mut restarts) = (Instant::now(), 0);
    while begin.elapsed() < time {
        rest(&mut rng);
        let victim = rng.usize(..PROCESSES);
        match rng.u8(..4) {
            0 => trial.kill(victim),
            1 => trial.pause(victim, LEASE.mul_f64(2.4 * rng.f64())),
            _ if begin.elapsed() > RESTART.mul_f64(f64::from(restarts) + 0.3) => {
                trial.server.restart();
                restarts += 1;
            }
            _ => {}
        }
    }
    let (_client, election) = election(trial.server.url().as_str(), Lease::renewed(LEASE));
    let leadership = election.try_campaign_for(SOON).unwrap().expect("its turn");
    leadership.proclaim(LAST).unwrap();
    trial.hear_from_all(LAST, SOON);
    assert!(leadership.is_valid(), "{:?}", leadership.loss());
    trial.kill_all();

    let happened = happened(&trial.server);
    let mut history = History::default();
    let living = trial.living();
    for (number, (text, ..)) in trial.records().enumerate() {
        history.read(&text, living.contains(&number));
    }
    let found = history.violations(&happened);
    let seen: usize = history.seen.iter().map(|(seen, _)| seen.len()).sum();
    let changes = happened.len();
    println!(
        "election: {} terms led, {} words said, {changes} changes, {seen} of them seen by {} observers; {} silences, {} \
         of which ended; {} kills, {} pauses, {restarts} restarts; {} violations",
        history.led.len(),
        history.said,
        history.seen.len(),
        history.silences.0,
        history.silences.1,
        trial.kills,
        trial.stops,
        found.len()
    );
    assert!(found.is_empty(), "LEASEHOLD_SEED={seed}: {found:#?}");
    assert!(history.led.len() > 5 && history.said > 5 && seen > changes / 4, "too little happened");
    assert!(trial.kills + trial.stops > 1 && restarts > 0, "too little went wrong");
}

/// A checker that has never failed proves nothing.
#[test]
fn checker_finds_what_is_wrong() {
    let state = |term, word: &str| (term, (word != "-").then(|| word.to_owned()));
    let happened = [state(1, "-"), state(1, "a"), state(5, "-"), state(5, "b"), state(5, "c")];
    let end = "O 5 c\n";
    let check = |text: String, happened: &[State]| {
        let mut history = History::default();
        history.read(&text, true);
        history.violations(happened).len()
    };
    for (text, violations) in [
        ("", 0),
        ("N\nO 1 -\nO 1 a\nN\nO 5 -\nO 5 b\n", 0),
        ("L 1\nV 1 10 20\nV 1 30 40\nL 5\nV 5 50 60\n", 0),
        ("O 1 a\nO 1 -\n", 1),
        ("O 1 b\n", 1),
        ("O 5 -\nO 1 a\n", 1),
        ("O 1 -\nN\nO 1 a\n", 1),
        ("N\nN\n", 1),
        ("L 1\nL 1\n", 1),
        ("L 2\n", 1),
        ("V 1 10 20\nV 1 90 95\nV 5 50 60\n", 1),
    ] {
        assert_eq!(check(format!("{text}{end}"), &happened), violations, "{text:?}");
    }
    assert_eq!(check("O 5 b\n".to_owned(), &happened), 1, "not the last");
    assert_eq!(check(end.to_owned(), &[state(7, "-"), state(6, "-"), state(5, "c")]), 1);
}

/// What a process does that leads until it is told to end, or is killed.
fn lead_once(url: &str, lease: Duration) {
    let (client, election) = election(url, Lease::renewed(lease));
    let leadership = election.campaign().unwrap();
    leadership.confirm().unwrap();
    tell("leads");
    match hear().as_deref() {
        Some("close") => {
            let report = client.close(Duration::ZERO, SOON);
            assert_eq!(report.taken().len(), 1);
        }
        Some("resign") => leadership.resign().unwrap(),
        _ => {}
    }
}

/// How long nobody leads after the end of a leader, with a lease of 3 s: from the kill, or from when its process is told,
/// to the grant of a candidate of another process.
#[test]
#[ignore = "figures, for a machine that does nothing else"]
fn time_without_a_leader() {
    const LEASE: Duration = Duration::from_secs(3);
    if role().is_some() {
        return lead_once(&std::env::var("LEASEHOLD_URL").unwrap(), LEASE);
    }
    let rounds: u32 = std::env::var("LEASEHOLD_ROUNDS").map_or(20, |text| text.parse().unwrap());
    let server = Server::start().unwrap();
    let (_client, election) = election(server.url().as_str(), Lease::renewed(LEASE));
    for how in ["kill -9", "close", "resign"] {
        let mut times = Vec::new();
        for round in 0..rounds {
            let child = Child::role("leads").test("time_without_a_leader");
            let mut child = child.env("LEASEHOLD_URL", server.url().as_str()).start().unwrap();
            child.expect_line("leads", SOON);
            let candidate = election.clone();
            let waits = thread::spawn(move || {
                let leadership = candidate.campaign().unwrap();
                (Instant::now(), leadership)
            });
            while election.candidates().unwrap().is_empty() {
                sleep(Duration::from_millis(2));
            }
            // At any moment between two renewals.
            sleep(Duration::from_millis(1_000 * u64::from(round) / u64::from(rounds)));
            let begin = Instant::now();
            if how == "kill -9" {
                child.kill9()
            } else {
                child.say(how)
            }
            let (at, leadership) = waits.join().unwrap();
            times.push(at - begin);
            leadership.resign().unwrap();
        }
        times.sort();
        println!("{how}: median {:?}, worst {:?}", times[times.len() / 2], times[times.len() - 1]);
    }
}

//! Threads in several processes that all want one lock, again and again.
//!
//! The processes live for long and run when told to, in slices, so that other contenders may have
//! their turn in between; what they have seen is told at the end.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use leasehold::{LockClient, LockClientBuilder};
use leasehold_support::Child;
use leasehold_support::child::{hear, tell};

use super::clock::now;
use super::cost::process_time;
use super::member::{Member, Slice, Work, times};
use super::way::Way;
use super::witness::{Seen, Witness};

/// The role of a process of the crowd.
pub(crate) const ROLE: &str = "crowd";
/// What the slowest machine may take.
const PATIENCE: Duration = Duration::from_secs(120);
const URL: &str = "LEASEHOLD_CROWD_URL";

/// What a crowd does.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Of the server, or of several nodes of a cluster with blanks between.
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) way: Way,
    pub(crate) processes: usize,
    pub(crate) threads: usize,
    pub(crate) hold: Duration,
    /// The file of the [`Witness`]; one process alone needs none.
    pub(crate) file: Option<PathBuf>,
    /// Whether the processes note in that file, from place 1 on, how far they are.
    pub(crate) watched: bool,
    /// Whether they note the time of each hold.
    pub(crate) noted: bool,
}

/// What a crowd has seen in all.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// Acquisitions of each thread that began and ended in the time of a slice, for each process.
    pub(crate) shares: Vec<Vec<f64>>,
    /// Those and the ones under way when a slice was over, of all threads.
    pub(crate) all: u64,
    /// The longest wait of each thread, in ns. A wait that had not ended when its slice did counts
    /// until then.
    pub(crate) longest: Vec<u64>,
    /// The beginning and the end of each hold of each process, in the order of beginnings, if they are noted.
    pub(crate) holds: Vec<Vec<(u64, u64)>>,
    /// Waits for the lock, in ns.
    pub(crate) waits: Histogram<u64>,
    /// Locks and unlocks without the hold between, in ns.
    pub(crate) operations: Histogram<u64>,
    pub(crate) seen: Seen,
    /// Locks lost while held.
    pub(crate) lost: u64,
    /// Processor time of all processes, in seconds.
    pub(crate) processor: f64,
}

impl Default for Account {
    fn default() -> Account {
        Account {
            shares: Vec::new(),
            all: 0,
            longest: Vec::new(),
            holds: Vec::new(),
            waits: times(),
            operations: times(),
            seen: Seen::default(),
            lost: 0,
            processor: 0.0,
        }
    }
}

/// The processes.
#[derive(Debug)]
pub(crate) struct Crowd {
    plan: Plan,
    children: Vec<Child>,
}

impl Crowd {
    pub(crate) fn start(plan: &Plan) -> io::Result<Crowd> {
        assert!(plan.processes == 1 || plan.file.is_some(), "processes share a file");
        let file = plan.file.clone().unwrap_or_default();
        let children = (0..plan.processes).map(|process| {
            Child::role(ROLE)
                .arg(&plan.name)
                .arg(plan.way.title())
                .arg(plan.threads.to_string())
                .arg(plan.hold.as_micros().to_string())
                .arg(if plan.watched { process + 1 } else { 0 }.to_string())
                .arg(&file)
                .arg(u8::from(plan.noted).to_string())
                // In the environment, where `ps` does not show a password.
                .env(URL, &plan.url)
                .start()
        });
        let mut crowd = Crowd { plan: plan.clone(), children: children.collect::<Result<_, _>>()? };
        for child in &mut crowd.children {
            child.expect_line("ready", PATIENCE);
        }
        Ok(crowd)
    }

    /// Lets all of them want the lock for this long.
    pub(crate) fn slice(&mut self, span: Duration) -> Slice {
        self.begin(span);
        self.finish()
    }

    /// Begins a slice. Returns from when until when it is.
    pub(crate) fn begin(&mut self, span: Duration) -> (u64, u64) {
        // By then all of them are there.
        let threads = self.plan.processes * self.plan.threads;
        let start = now() + 2_000_000 + threads as u64 * 50_000;
        let end = start + u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.say(&format!("slice {start} {end}"));
        (start, end)
    }

    /// Waits for the end of the slice.
    pub(crate) fn finish(&mut self) -> Slice {
        let mut slice = Slice::default();
        for child in &mut self.children {
            let [within, all] = numbers(&child.expect_line("done", PATIENCE));
            slice += Slice { within, all };
        }
        slice
    }

    /// Forgets what was so far, which was to warm up.
    pub(crate) fn forget(&mut self) {
        self.say("forget");
    }

    /// Ends the crowd, and asks what it has seen.
    ///
    /// # Panics
    ///
    /// If one of them does not end well.
    pub(crate) fn end(mut self) -> Account {
        self.say("end");
        let mut account = Account::default();
        for child in &mut self.children {
            let shares = child.expect_line("shares", PATIENCE);
            account
                .shares
                .push(shares.split(' ').map(|share| share.parse().unwrap_or(f64::NAN)).collect());
            let longest = child.expect_line("longest", PATIENCE);
            account.longest.extend(longest.split(' ').filter_map(|wait| wait.parse::<u64>().ok()));
            account.holds.push(hear_holds(&child.expect_line("holds", PATIENCE)));
            hear_times(&child.expect_line("waits", PATIENCE), &mut account.waits);
            hear_times(&child.expect_line("operations", PATIENCE), &mut account.operations);
            let seen = child.expect_line("seen", PATIENCE);
            let [overlaps, disorder, lost, all, micros] = numbers(&seen);
            account.all += all;
            account.seen += Seen { overlaps, disorder };
            account.lost += lost;
            account.processor += micros as f64 / 1e6;
            let status = child.wait();
            assert!(status.success(), "{status}: {}", child.output());
        }
        account
    }

    fn say(&mut self, line: &str) {
        self.children.iter_mut().for_each(|child| child.say(line));
    }
}

/// A line of so many numbers.
fn numbers<const N: usize>(line: &str) -> [u64; N] {
    let numbers: Vec<u64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("{N} numbers were to be told, not {line:?}"))
}

/// Each as its beginning and its length.
fn tell_holds(holds: &[(u64, u64)]) {
    let holds: Vec<_> =
        holds.iter().map(|(begin, end)| format!("{begin}:{}", end - begin)).collect();
    tell(&format!("holds {}", holds.join(" ")));
}

fn hear_holds(line: &str) -> Vec<(u64, u64)> {
    let hold = |hold: &str| {
        let (begin, length) = hold.split_once(':').expect("a beginning and a length");
        let begin: u64 = begin.parse().expect("a moment");
        (begin, begin + length.parse::<u64>().expect("a time"))
    };
    line.split(' ').filter(|hold| !hold.is_empty()).map(hold).collect()
}

fn tell_times(prefix: &str, times: &Histogram<u64>) {
    let mut counts = BTreeMap::new();
    for step in times.iter_recorded() {
        counts.insert(step.value_iterated_to(), step.count_at_value());
    }
    // The greatest is told as it was, not as the end of its bucket.
    if let Some((_, count)) = counts.pop_last() {
        *counts.entry(times.max()).or_insert(0) += count;
    }
    let counts: Vec<_> = counts.iter().map(|(time, count)| format!("{time}:{count}")).collect();
    tell(&format!("{prefix} {}", counts.join(" ")));
}

fn hear_times(line: &str, times: &mut Histogram<u64>) {
    for step in line.split(' ').filter(|step| !step.is_empty()) {
        let (time, count) = step.split_once(':').expect("a time and a count");
        let (time, count) = (time.parse().expect("a time"), count.parse().expect("a count"));
        times.record_n(time, count).expect("it grows as needed");
    }
}

/// A client of a server, or of the nodes of a cluster, with blanks between their URLs.
pub(crate) fn client(
    urls: &str,
    builder: impl FnOnce(LockClientBuilder) -> LockClientBuilder,
) -> leasehold::Result<LockClient> {
    let (url, others) = urls.split_once(' ').unwrap_or((urls, ""));
    let mut made = LockClient::builder(url);
    if !others.is_empty() {
        made = made.cluster(others.split(' '));
    }
    builder(made).connect_now(true).build()
}

/// Plays a process of the crowd.
pub(crate) fn play() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name, way, threads, hold, place, path, noted] = words.as_slice() else {
        return Err(format!("a process of the crowd is told more than {words:?}").into());
    };
    let client = client(&std::env::var(URL)?, |builder| builder)?;
    let way = Way::of_title(way).ok_or("no such way to wait")?;
    let work = Work {
        lock: way.lock(&client, name)?,
        hold: Duration::from_micros(hold.parse()?),
        witness: Witness::open(Some(path.as_ref()).filter(|_| !path.is_empty()))?,
        progress: AtomicU64::new(0),
        place: place.parse()?,
        noted: noted == "1",
    };
    let threads: usize = threads.parse()?;
    let mut members: Vec<Member> = (0..threads).map(|_| Member::new()).collect();
    let mut processor = 0.0;
    tell("ready");
    while let Some(order) = hear() {
        match order.split_once(' ') {
            Some(("slice", span)) => {
                let [start, end] = numbers(span);
                let before = process_time();
                let Slice { within, all } = slice(&work, &mut members, start, end);
                processor += process_time() - before;
                tell(&format!("done {within} {all}"));
            }
            None if order == "forget" => {
                members.iter_mut().for_each(|member| *member = Member::new());
                processor = 0.0;
            }
            _ => break,
        }
    }
    report(&members, processor);
    Ok(())
}

fn slice(work: &Work, members: &mut [Member], start: u64, end: u64) -> Slice {
    thread::scope(|scope| {
        let run = |member| scope.spawn(move || Member::run(member, work, start, end));
        let threads: Vec<_> = members.iter_mut().map(run).collect();
        work.note_progress(&threads);
        let slices = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        slices.fold(Slice::default(), |mut sum, slice| {
            sum += slice;
            sum
        })
    })
}

fn report(members: &[Member], processor: f64) {
    let (mut waits, mut operations) = (times(), times());
    let (mut seen, mut lost, mut all) = (Seen::default(), 0, 0);
    for member in members {
        waits.add(&member.waits).expect("it grows as needed");
        operations.add(&member.operations).expect("it grows as needed");
        seen += member.seen;
        lost += member.lost;
        all += member.slice.all;
    }
    let mut holds: Vec<_> = members.iter().flat_map(|member| &member.holds).copied().collect();
    holds.sort_unstable();
    let list = |of: fn(&Member) -> u64| {
        let list: Vec<_> = members.iter().map(|member| of(member).to_string()).collect();
        list.join(" ")
    };
    tell(&format!("shares {}", list(|member| member.slice.within)));
    tell(&format!("longest {}", list(|member| member.longest)));
    tell_holds(&holds);
    tell_times("waits", &waits);
    tell_times("operations", &operations);
    let micros = (processor * 1e6) as u64;
    tell(&format!("seen {seen} {lost} {all} {micros}"));
}

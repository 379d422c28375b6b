//! A trial of processes that are killed and stopped while they use locks, and what they recorded.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, read_to_string};
use std::io::Write;
use std::ops::Range;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use fastrand::Rng;
use leasehold_support::child::{hear, tell};
use leasehold_support::history::now;
pub use leasehold_support::until;
use leasehold_support::{Child, Server};

const URL: &str = "LEASEHOLD_URL";
const RECORD: &str = "LEASEHOLD_RECORD";
/// How long a process may take to start.
const SOON: Duration = Duration::from_secs(20);

/// The record of one process. Each line is written at once, so that a kill leaves at most one half.
#[derive(Debug)]
pub struct Record(Mutex<File>);

impl Record {
    /// Writes a line.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn line(&self, line: &str) {
        let line = format!("{line}\n");
        self.0.lock().expect("no panic").write_all(line.as_bytes()).expect("written");
    }
}

/// In a process of a trial: works until the trial ends. `work` gets the URL of the server and the record.
///
/// # Panics
///
/// If this is no process of a trial.
pub fn work(work: impl FnOnce(&str, &Record)) {
    let var = |name| std::env::var(name).expect("a process of a trial");
    let file = OpenOptions::new().create(true).append(true).open(var(RECORD)).expect("a file");
    std::thread::spawn(|| {
        while hear().is_some() {}
        std::process::exit(0);
    });
    tell("ready");
    work(&var(URL), &Record(Mutex::new(file)));
}

/// The number in an environment variable; none where it is not set.
///
/// # Panics
///
/// If what stands there is no number.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// How long a trial takes, and what it does at random.
#[derive(Debug)]
pub struct Plan {
    /// The time of it, by `LEASEHOLD_SECONDS`.
    pub time: Duration,
    /// By `LEASEHOLD_SEED`.
    pub seed: u64,
}

impl Plan {
    /// Reads it from the environment: a few seconds, and any seed.
    ///
    /// # Panics
    ///
    /// If what stands there is no number.
    pub fn new() -> Plan {
        let time = Duration::from_secs(number("LEASEHOLD_SECONDS").unwrap_or(6));
        Plan { time, seed: number("LEASEHOLD_SEED").unwrap_or_else(|| Rng::new().u64(..)) }
    }
}

impl Default for Plan {
    fn default() -> Plan {
        Plan::new()
    }
}

/// An environment variable of the processes in some places.
pub type Variable = (Range<usize>, OsString, OsString);

/// A server, and processes that use it. Another one takes the place of each that is killed.
#[derive(Debug)]
pub struct Trial {
    /// The server.
    pub server: Server,
    /// How many processes were killed.
    pub kills: usize,
    /// How many times one was stopped for a while.
    pub stops: usize,
    role: &'static str,
    test: &'static str,
    variables: Vec<Variable>,
    /// The process in each place, with its number.
    children: Vec<(usize, Child)>,
    /// For each number its place, and when it was killed.
    ends: Vec<(usize, u64)>,
}

impl Trial {
    /// Starts the server and the processes, by this test with this role.
    ///
    /// # Panics
    ///
    /// If one does not start.
    pub fn start(role: &'static str, test: &'static str, processes: usize) -> Trial {
        Trial::start_at(Server::start().expect("a server"), role, test, processes)
    }

    /// The same with this server.
    ///
    /// # Panics
    ///
    /// If a process does not start.
    pub fn start_at(
        server: Server,
        role: &'static str,
        test: &'static str,
        processes: usize,
    ) -> Trial {
        Trial::start_with(server, role, test, processes, Vec::new())
    }

    /// The same with these environment variables.
    ///
    /// # Panics
    ///
    /// If a process does not start.
    pub fn start_with(
        server: Server,
        role: &'static str,
        test: &'static str,
        processes: usize,
        variables: Vec<Variable>,
    ) -> Trial {
        let (children, ends) = (Vec::new(), Vec::new());
        let mut trial = Trial { server, kills: 0, stops: 0, role, test, variables, children, ends };
        for place in 0..processes {
            let child = trial.child(place);
            trial.children.push(child);
        }
        trial
    }

    fn child(&mut self, place: usize) -> (usize, Child) {
        let number = self.ends.len();
        self.ends.push((place, u64::MAX));
        let mut child = Child::role(self.role).test(self.test).env(URL, self.server.url());
        for (_, name, value) in self.variables.iter().filter(|(of, ..)| of.contains(&place)) {
            child = child.env(name, value);
        }
        let mut child = child.env(RECORD, self.record(number)).start().expect("a process");
        child.expect_line("ready", SOON);
        (number, child)
    }

    fn record(&self, number: usize) -> std::path::PathBuf {
        self.server.directory().join(format!("record{number}"))
    }

    /// The process identifiers, by place.
    pub fn pids(&self) -> Vec<u32> {
        self.children.iter().map(|(_, child)| child.pid()).collect()
    }

    /// Kills the process in a place, and starts another there.
    ///
    /// # Panics
    ///
    /// If that does not start.
    pub fn kill(&mut self, place: usize) {
        self.end(place);
        self.kills += 1;
        self.children[place] = self.child(place);
    }

    fn end(&mut self, place: usize) {
        let (number, child) = &mut self.children[place];
        child.kill9();
        self.ends[*number].1 = now();
    }

    /// Stops the process in a place for so long.
    pub fn pause(&mut self, place: usize, span: Duration) {
        let child = &self.children[place].1;
        child.stop();
        sleep(span);
        child.cont();
        self.stops += 1;
    }

    /// Waits until each process that lives has told this.
    ///
    /// # Panics
    ///
    /// If one does not in time.
    pub fn hear_from_all(&mut self, line: &str, within: Duration) {
        self.children.iter_mut().for_each(|(_, child)| drop(child.expect_line(line, within)));
    }

    /// The numbers of the processes that were not replaced.
    pub fn living(&self) -> Vec<usize> {
        self.children.iter().map(|(number, _)| *number).collect()
    }

    /// Kills all processes.
    pub fn kill_all(&mut self) {
        (0..self.children.len()).for_each(|place| self.end(place));
    }

    /// What each process has recorded, with its place, and when it was killed.
    pub fn records(&self) -> impl Iterator<Item = (String, usize, u64)> {
        self.ends.iter().enumerate().map(|(number, &(place, end))| {
            (read_to_string(self.record(number)).unwrap_or_default(), place, end)
        })
    }
}

/// Waits for a short random time, as between two faults.
pub fn rest(rng: &mut Rng) {
    sleep(Duration::from_millis(rng.u64(20..200)));
}

/// How long a holder stays: mostly briefly, and now and then for long, to be hit by a kill or a pause.
pub fn stay(rng: &mut Rng) {
    let most = if rng.u8(..10) == 0 { 100_000 } else { 5_000 };
    sleep(Duration::from_micros(rng.u64(0..most)));
}

/// Jain's index: 1 if all have as much, and one by their number if one has all.
pub fn jain(shares: &[usize]) -> f64 {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::jain;

    #[test]
    fn index_of_jain_is_one_where_all_have_as_much() {
        assert!((jain(&[7, 7, 7, 7]) - 1.0).abs() < 1e-9);
        assert!((jain(&[8, 0, 0, 0]) - 0.25).abs() < 1e-9);
    }
}

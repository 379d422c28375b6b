//! One round: processes use a lock while a nemesis strikes, and all that they recorded becomes one history.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastrand::Rng;
use leasehold_proof::trial::{Trial, Variable, until};
use leasehold_support::history::now;
use leasehold_support::{Proxy, Server, ServerBuilder, WallClock, lag};

use crate::client::Client;
use crate::nemesis::Nemesis;
use crate::strike::{Field, Struck};
use crate::topology::{Place, Topology};
use crate::worker::LEASE;
use crate::workload::{THREADS, Workload};

/// How a process reaches the servers that have the locks.
pub(crate) const ADDRESS: &str = "LEASEHOLD_ADDRESS";
/// One of so many holds changes what its lock protects.
pub(crate) const CHANGES: &str = "LEASEHOLD_CHANGES";
const PROCESSES: usize = 4;
const HOUR: Duration = Duration::from_secs(3_600);

/// A variable of a process.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).expect("a process of a round")
}

/// One round, and where its history goes.
#[derive(Debug)]
pub(crate) struct Round<'a> {
    pub(crate) workload: Workload,
    pub(crate) topology: Topology,
    pub(crate) nemesis: Nemesis,
    pub(crate) time: Duration,
    pub(crate) seed: u64,
    /// The test that is the processes' entry.
    pub(crate) test: &'static str,
    pub(crate) folder: &'a Path,
}

impl Round<'_> {
    /// Plays it, and returns the file of its history.
    pub(crate) fn play(&self) -> PathBuf {
        lag::watch();
        let (begin, mut rng) = (Instant::now(), Rng::with_seed(self.seed));
        let (wrong, clock) = (WallClock::new().expect("a clock"), self.clock());
        wrong.set(i64::try_from(HOUR.as_micros()).expect("a number")).expect("a file");
        let store = Server::start().expect("a server");
        let place = Place::start(self.topology, self.nemesis, self.one(clock.as_ref()));
        let address = place.address();
        let changes = if self.nemesis.takes_locks() { "1" } else { "4" };
        let all =
            |name: &str, value: &str| -> Variable { (0..PROCESSES, name.into(), value.into()) };
        let mut variables = vec![all(ADDRESS, &address.to_string()), all(CHANGES, changes)];
        // The clock of the first process is wrong by an hour, which must not matter.
        variables.extend(wrong.variables().map(|(name, value)| (0..1, name, value)));
        let role = self.workload.name();
        // Nothing happens to its own server, which has what the locks protect.
        let mut trial = Trial::start_with(store, role, self.test, PROCESSES, variables);
        until("each process has told what its clock says", || {
            trial.records().all(|(text, ..)| text.contains('\n'))
        });
        let mut field = Field {
            workload: self.workload,
            place: &place,
            client: Client::of(&address, THREADS),
            clock: clock.as_ref(),
            ahead: Duration::ZERO,
            proxy: Proxy::start(&place.servers()[0]).expect("a proxy"),
        };
        let struck = self.nemesis.torment(&mut trial, &mut field, self.time, &mut rng);
        trial.kill_all();
        let worst = lag::worst_since(begin);
        let mut lines = recorded(&trial);
        check_clocks(&lines);
        lines.extend(struck.lines.iter().cloned());
        lines.extend(contents(&trial.server));
        lines.extend(place.masters().flat_map(contents));
        lines.sort_by_key(|(at, _)| *at);
        self.write(&lines, place.servers()[0].version(), &struck, worst).expect("a history")
    }

    fn clock(&self) -> Option<WallClock> {
        let is_set = self.nemesis == Nemesis::ClockForward;
        is_set.then(|| WallClock::new().expect("a clock"))
    }

    /// One server, as this nemesis wants it.
    fn one(&self, clock: Option<&WallClock>) -> ServerBuilder {
        let mut builder = Server::builder();
        if self.nemesis == Nemesis::ServerRestarted {
            for word in ["--appendonly", "yes", "--appendfsync", "always"] {
                builder = builder.arg(word);
            }
        }
        let variables: Vec<(OsString, OsString)> =
            clock.into_iter().flat_map(WallClock::variables).collect();
        builder.envs(variables)
    }

    fn write(
        &self,
        lines: &[(u64, String)],
        version: &str,
        struck: &Struck,
        worst: Duration,
    ) -> std::io::Result<PathBuf> {
        let (workload, topology) = (self.workload.name(), self.topology.name());
        let nemesis = self.nemesis.name();
        let path = self.folder.join(format!("{workload}-{topology}-{nemesis}.txt"));
        let mut file = BufWriter::new(File::create(&path)?);
        writeln!(file, "# workload {workload}")?;
        writeln!(file, "# topology {topology}")?;
        writeln!(file, "# nemesis {nemesis}")?;
        writeln!(file, "# struck {} times, proven {}", struck.times, struck.proven)?;
        writeln!(file, "# server {version}")?;
        writeln!(file, "# lease-ms {}", LEASE.as_millis())?;
        writeln!(file, "# seed {}", self.seed)?;
        writeln!(file, "# lag-ms {}", worst.as_millis())?;
        for kind in self.workload.kinds() {
            writeln!(file, "# verdict {kind} {}", self.nemesis.verdict(kind))?;
        }
        for (_, line) in lines {
            writeln!(file, "{line}")?;
        }
        file.flush()?;
        Ok(path)
    }
}

/// The lines of all processes: the client is its number, and the thread in it. The last one of each says when it died.
fn recorded(trial: &Trial) -> Vec<(u64, String)> {
    let mut lines = Vec::new();
    for (number, (text, _, killed)) in trial.records().enumerate() {
        // Half a line may have been left by a kill.
        let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        for line in whole {
            let (at, rest) = line.split_once(' ').expect("a moment");
            lines.push((at.parse().expect("a moment"), format!("{at} {number}.{rest}")));
        }
        lines.push((killed, format!("{killed} {number} killed")));
    }
    lines
}

/// The wall clock of the first process is an hour ahead of the others'.
fn check_clocks(lines: &[(u64, String)]) {
    let clock = |number: &str| {
        let lines = lines.iter().filter(|(_, line)| line.contains(" clock wall "));
        let mut of_process =
            lines.filter(|(_, line)| line.split(' ').nth(1) == Some(&format!("{number}.0")));
        let (_, line) = of_process.next().expect("a line about its clock");
        line.rsplit('=').next().expect("a number").parse::<u64>().expect("a number")
    };
    let (wrong, right) = (clock("0"), clock("1"));
    assert!(wrong.abs_diff(right) > HOUR.as_secs() / 2, "{wrong} and {right}");
}

/// All that the sets of a server have at the end.
fn contents(server: &Server) -> Vec<(u64, String)> {
    let mut connection = server.connection();
    let mut lines = Vec::new();
    for key in server.keys() {
        let object = String::from_utf8(key).expect("a text");
        let begin = now();
        let mut get = redis::Cmd::new();
        match object.split(':').next() {
            Some("tokens") => get.arg("HGET").arg(&object).arg("values"),
            Some("set" | "transaction") => get.arg("GET").arg(&object),
            _ => continue,
        };
        let content: Option<String> = get.query(&mut connection).expect("a set");
        let end = now();
        lines.push((begin, format!("{begin} end.0 call read {object}")));
        let content = content.unwrap_or_default();
        lines.push((end, format!("{end} end.0 ok read {object} content={content}")));
    }
    lines
}

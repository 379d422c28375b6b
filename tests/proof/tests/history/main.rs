//! Histories: processes call locks while something goes wrong, each call is recorded as lines that anybody can read, and
//! Porcupine, a checker that knows nothing of this library, looks for an order of one call after the other that explains
//! what the callers were told. `porcupine/README.md` has the form of the lines, and the models.
//!
//! ```text
//! cargo test -p leasehold-proof --test history
//! LEASEHOLD_SECONDS=20 cargo test --release -p leasehold-proof --test history -- --nocapture --test-threads 1
//! ```
//!
//! With `LEASEHOLD_SECONDS` each workload meets each nemesis over each topology for so long, without it one for a moment,
//! mostly on one server. `LEASEHOLD_TOPOLOGY` and `LEASEHOLD_NEMESIS` choose one, `LEASEHOLD_SEED` the order of events. The
//! histories and their timelines stay in cargo's target folder, in `tmp/history`.
#![allow(clippy::print_stdout, reason = "it tells what was checked")]

mod access;
mod between;
mod checker;
mod client;
mod election;
mod mutex;
mod nemesis;
mod once;
mod reentrant;
mod round;
mod semaphore;
mod set;
mod store;
mod strike;
mod topology;
mod worker;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;
use leasehold_proof::trial::{number, work};
use leasehold_support::child::role;

use checker::Checker;
use nemesis::Nemesis;
use round::Round;
use topology::Topology;
use workload::Workload;

/// How long a round takes if nobody says. With a planted bug it is five times as long, so that chance does not hide it.
const BRIEF: Duration = Duration::from_millis(1_200);

/// What is played over several servers if nobody says. To start them takes longer than all else.
const FURTHER: (Workload, Topology, Nemesis) =
    (Workload::Mutex, Topology::Cluster, Nemesis::SlotMoved);

/// A folder for the histories of a test, empty.
fn folder(test: &str) -> PathBuf {
    let bug = std::env::var("LEASEHOLD_MUTATION").unwrap_or_default();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("history").join(test).join(bug);
    // Left by an earlier run.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// The chosen one of these, by its name.
fn chosen<T: Copy>(variable: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Option<T> {
    let text = std::env::var(variable).ok()?;
    let found = all.iter().copied().find(|it| name(*it) == text);
    Some(found.unwrap_or_else(|| panic!("{variable}={text}: there is none")))
}

/// Plays the rounds of a workload, and checks their histories. Unless one is chosen, or a time, it meets but this nemesis
/// on one server, and what is further to be played.
fn check(workload: Workload, test: &'static str, brief: Nemesis) {
    if role().is_some() {
        return work(|store, record| workload.run(store, record));
    }
    let Some(checker) = Checker::build() else { return };
    let (folder, seconds) = (folder(test), number("LEASEHOLD_SECONDS"));
    let seed = number("LEASEHOLD_SEED").unwrap_or_else(|| Rng::new().u64(..));
    let is_planted = std::env::var("LEASEHOLD_MUTATION").is_ok_and(|bug| !bug.is_empty());
    let only = chosen("LEASEHOLD_NEMESIS", &Nemesis::ALL, Nemesis::name);
    let place = chosen("LEASEHOLD_TOPOLOGY", &Topology::ALL, Topology::name);
    let is_meant = |topology: Topology, nemesis: Nemesis| {
        if seconds.is_none() && only.is_none() && place.is_none() {
            let is_further = !is_planted && FURTHER == (workload, topology, nemesis);
            return is_further || (topology, nemesis) == (Topology::Server, brief);
        }
        only.is_none_or(|only| only == nemesis) && place.is_none_or(|place| place == topology)
    };
    let brief_time = if is_planted { BRIEF * 5 } else { BRIEF };
    let time = seconds.map_or(brief_time, Duration::from_secs);
    let mut histories = Vec::new();
    for topology in Topology::ALL {
        for nemesis in Nemesis::ALL {
            if nemesis.is_for(workload, topology) && is_meant(topology, nemesis) {
                let round =
                    Round { workload, topology, nemesis, time, seed, test, folder: &folder };
                histories.push(round.play());
            }
        }
    }
    if histories.is_empty() {
        return println!("no round of {} is as it was chosen", workload.name());
    }
    let (is_right, said) = checker.check(&histories, &folder.join("timelines"));
    println!("LEASEHOLD_SEED={seed}\n{said}");
    assert!(is_right, "LEASEHOLD_SEED={seed}, in {}:\n{said}", folder.display());
    let sum = said.lines().find_map(|line| line.trim_start().strip_prefix("all ")).expect("a sum");
    let operations = sum.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    assert!(operations > Some(20), "too little happened:\n{said}");
}

/// A checker that has never failed proves nothing: it says of each of the small histories beside it what their names say.
#[test]
fn models_tell_right_from_wrong() {
    let Some(checker) = Checker::build() else { return };
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("porcupine/testdata");
    let timelines = folder("models_tell_right_from_wrong");
    let (mut legal, mut illegal) = (0, 0);
    for sample in fs::read_dir(samples).expect("a folder") {
        let path = sample.expect("a file").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let (is_right, said) = checker.check(&[path], &timelines);
        let is_meant = name.starts_with("legal-");
        assert!(is_meant || name.starts_with("illegal-"), "{name}");
        assert_eq!(is_right, is_meant, "{name}:\n{said}");
        // Else it did not come to a verdict.
        assert_eq!(said.contains("NOT AS IT MUST BE"), !is_meant, "{name}:\n{said}");
        *(if is_meant { &mut legal } else { &mut illegal }) += 1;
    }
    assert!(legal > 5 && illegal > 20, "{legal} and {illegal}");
}

#[test]
fn mutex_is_legal() {
    check(Workload::Mutex, "mutex_is_legal", Nemesis::HolderStopped);
}

#[test]
fn reentrant_lock_is_legal() {
    check(Workload::Reentrant, "reentrant_lock_is_legal", Nemesis::ConnectionsKilled);
}

#[test]
fn semaphore_is_legal() {
    check(Workload::Semaphore, "semaphore_is_legal", Nemesis::HolderKilled);
}

#[test]
fn read_write_lock_is_legal() {
    check(Workload::Access, "read_write_lock_is_legal", Nemesis::ServerRestarted);
}

#[test]
fn election_is_legal() {
    check(Workload::Election, "election_is_legal", Nemesis::ScriptsFlushed);
}

#[test]
fn job_is_legal() {
    check(Workload::Once, "job_is_legal", Nemesis::HolderKilled);
}

#[test]
fn set_changed_under_the_lock_loses_nothing() {
    let test = "set_changed_under_the_lock_loses_nothing";
    check(Workload::Set, test, Nemesis::ConnectionsKilled);
}

#[test]
fn set_changed_by_a_transaction_loses_nothing() {
    let test = "set_changed_by_a_transaction_loses_nothing";
    check(Workload::Transaction, test, Nemesis::KeyDeleted);
}

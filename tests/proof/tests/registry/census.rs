//! The list of all kinds, and what must hold for all of them. Its name comes first, and so its test
//! does: it runs the trials of all the others side by side.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::kind::{Kind, Outcome};
use crate::{
    acquire, client, clock, cluster, election, group, holder, key, queue, quorum, refusal, release,
    semaphore, server, several, tail,
};

/// How many kinds the registry has at least.
const LEAST: usize = 239;
/// Trials wait most of their time.
const THREADS: usize = 8;

/// Beside those, they wait for servers to agree more than for anything else, and some for each
/// other.
const SLOW_THREADS: usize = 4;

fn all() -> Vec<&'static Kind> {
    quick().into_iter().chain(slow()).collect()
}

/// Those that need several servers which know of each other.
fn slow() -> Vec<&'static Kind> {
    group::KINDS.iter().chain(&cluster::KINDS).collect()
}

/// All others.
fn quick() -> Vec<&'static Kind> {
    let files: [&'static [Kind]; 14] = [
        &quorum::KINDS,
        &acquire::KINDS,
        &release::KINDS,
        &several::KINDS,
        &queue::KINDS,
        &server::KINDS,
        &refusal::KINDS,
        &holder::KINDS,
        &tail::KINDS,
        &semaphore::KINDS,
        &election::KINDS,
        &key::KINDS,
        &client::KINDS,
        &clock::KINDS,
    ];
    files.iter().flat_map(|kinds| kinds.iter()).collect()
}

/// The test of one kind.
#[track_caller]
pub(crate) fn check(name: &str) {
    let kind = all().into_iter().find(|kind| kind.name == name).expect("a kind");
    if let Err(violation) = &kind.outcome().verdict {
        panic!("{name}: {violation}");
    }
}

fn line(kind: &Kind, outcome: &Outcome) -> String {
    let fired: u64 = outcome.measured.fired.iter().map(|fired| fired.injected).sum();
    let witness = outcome.measured.fired.first().map_or("-", |fired| fired.witness);
    let verdict = if outcome.verdict.is_ok() { "ok" } else { "VIOLATED" };
    let back = outcome.measured.back.map_or(String::new(), |back| format!("{:.1}", millis(back)));
    format!(
        "{:<32} {:<5} {:>5}  {:<24} {:>8.1} {back:>8} {:>6.1} {:>5} {:>6.2}  {verdict}",
        kind.name,
        kind.guarantee,
        fired,
        witness,
        millis(outcome.measured.overrun),
        millis(outcome.lag),
        outcome.voids,
        outcome.took.as_secs_f64(),
    )
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

#[allow(clippy::print_stdout, reason = "the list is there to be read")]
fn print(kinds: &[&Kind], outcomes: &[&Outcome], begin: Instant) {
    println!(
        "{:<32} {:<5} {:>5}  {:<24} {:>8} {:>8} {:>6} {:>5} {:>6}",
        "kind", "for", "fired", "witness", "over ms", "back ms", "lag", "voids", "s"
    );
    for (kind, outcome) in kinds.iter().zip(outcomes) {
        println!("{}", line(kind, outcome));
    }
    let violations = outcomes.iter().filter(|outcome| outcome.verdict.is_err()).count();
    let overrun = outcomes.iter().map(|outcome| outcome.measured.overrun).max();
    let back = outcomes.iter().filter_map(|outcome| outcome.measured.back).max();
    let voids: u32 = outcomes.iter().map(|outcome| outcome.voids).sum();
    println!(
        "{} kinds, {violations} violations, {voids} voids; worst overrun {:.1} ms, \
         worst return {:.1} ms; {:.1} s",
        kinds.len(),
        millis(overrun.unwrap_or_default()),
        millis(back.unwrap_or_default()),
        begin.elapsed().as_secs_f64(),
    );
}

/// At least this number of kinds, each fired and proven, none violated.
#[test]
fn every_fault_kind_fires_and_no_guarantee_breaks() {
    let begin = Instant::now();
    let kinds = all();
    let (quick, next) = (quick(), [AtomicUsize::new(0), AtomicUsize::new(0)]);
    let run = |kinds: &[&'static Kind], next: &AtomicUsize| {
        while let Some(kind) = kinds.get(next.fetch_add(1, Ordering::SeqCst)) {
            kind.outcome();
        }
    };
    let slow = slow();
    thread::scope(|scope| {
        for _ in 0..SLOW_THREADS {
            scope.spawn(|| run(&slow, &next[1]));
        }
        for _ in 0..THREADS {
            scope.spawn(|| run(&quick, &next[0]));
        }
    });
    let outcomes: Vec<&Outcome> = kinds.iter().map(|kind| kind.outcome()).collect();
    print(&kinds, &outcomes, begin);
    let violations: Vec<String> = kinds
        .iter()
        .zip(&outcomes)
        .filter_map(|(kind, outcome)| {
            outcome.verdict.as_ref().err().map(|error| format!("{}: {error}", kind.name))
        })
        .collect();
    let names: BTreeSet<&str> = kinds.iter().map(|kind| kind.name).collect();
    assert_eq!(names.len(), kinds.len(), "a name is there twice");
    assert!(names.len() >= LEAST);
    assert!(violations.is_empty(), "{violations:#?}");
}

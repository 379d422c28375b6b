//! The gate that tests the tests: each bug planted in the library must be caught by the test that is
//! named for it.
//!
//! ```sh
//! cargo test --test mutation -- --ignored --nocapture
//! ```
//!
//! builds the library once with `--cfg leasehold_mutation`, into a target directory of its own, runs
//! every checker without a bug and then with it, and prints what caught what. A bug counts as caught
//! if its checker passes without it and fails, or does not end, with it, and the bug came to pass. With
//! `LEASEHOLD_MUTATION` only those run whose name has that in it.

#![allow(clippy::print_stdout, reason = "the gate prints its table")]

#[path = "mutation/build.rs"]
mod build;
#[path = "../src/protocol/script/mutation.rs"]
mod script;
#[path = "mutation/table.rs"]
mod table;
#[path = "mutation/trial.rs"]
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use comfy_table::{Table, presets};

use build::Build;
use table::{MUTATIONS, Mutation};
use trial::{End, Trial};

/// How many checkers run at the same time.
const AT_ONCE: usize = 2;

#[test]
#[ignore = "builds the library a second time, and takes minutes"]
fn every_mutation_is_caught() {
    let wanted = std::env::var("LEASEHOLD_MUTATION").unwrap_or_default();
    let mutations: Vec<&Mutation> =
        MUTATIONS.iter().filter(|mutation| mutation.name.contains(&wanted)).collect();
    let build = Build::make(mutations.iter().map(|mutation| mutation.checker));
    let checkers: BTreeSet<&str> = mutations.iter().map(|mutation| mutation.checker).collect();
    let checkers: Vec<Trial> =
        checkers.into_iter().map(|checker| Trial { checker, mutation: None }).collect();
    let sound = run(&build, &checkers);
    let mutants: Vec<Trial> =
        mutations.iter().map(|it| Trial { checker: it.checker, mutation: Some(it.name) }).collect();
    let ends = run(&build, &mutants);

    let places = places();
    let sound: BTreeMap<&str, &End> =
        checkers.iter().map(|trial| trial.checker).zip(&sound).collect();
    let mut shown = Table::new();
    shown.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    shown.set_header(["mutation", "where", "checker", "without", "with", "caught"]);
    let mut caught = 0;
    for (mutation, end) in mutations.iter().zip(&ends) {
        let without = sound[mutation.checker];
        let right = without.is_pass() && end.is_catch();
        caught += usize::from(right);
        shown.add_row([
            format!("{}\n{}", mutation.name, mutation.breaks),
            places[mutation.name].clone(),
            mutation.checker.to_owned(),
            without.to_string(),
            end.to_string(),
            if right { "yes" } else { "NO" }.to_owned(),
        ]);
    }
    println!("{shown}");
    println!("mutation gate: {caught} of {} caught", mutations.len());
    assert_eq!(caught, mutations.len());
}

/// Runs trials, and answers how each ended.
fn run(build: &Build, trials: &[Trial]) -> Vec<End> {
    let next = AtomicUsize::new(0);
    let mut ends: Vec<(usize, End)> = thread::scope(|scope| {
        let work = || {
            let mut ends = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(trial) = trials.get(number) else { return ends };
                let end = trial.run(build, number);
                println!("{trial}: {end}");
                ends.push((number, end));
            }
        };
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    ends.sort_by_key(|&(number, _)| number);
    ends.into_iter().map(|(_, end)| end).collect()
}

fn source(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&folder);
        for entry in std::fs::read_dir(path).expect("a folder") {
            let entry = entry.expect("an entry");
            let name = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(name);
            } else {
                found.push((name, std::fs::read_to_string(entry.path()).expect("a text")));
            }
        }
    }
    found
}

/// Where each bug is planted.
fn places() -> BTreeMap<String, String> {
    let mut places = BTreeMap::new();
    for (path, text) in source("src") {
        for (at, call) in text.match_indices("mutated!(\"") {
            let name = text[at + call.len()..].split('"').next().expect("a name");
            let line = text[..at].matches('\n').count() + 1;
            places.insert(name.to_owned(), format!("{}:{line}", path.display()));
        }
    }
    for (name, script, _, _) in script::PATCHES {
        places.insert((*name).to_owned(), format!("src/protocol/script/{script}"));
    }
    places
}

#[test]
fn every_patch_of_a_script_applies_there_and_nowhere_else() {
    let scripts = source("src/protocol/script");
    for (name, script, from, to) in script::PATCHES {
        assert_ne!(from, to, "{name} changes nothing");
        for (path, text) in &scripts {
            if path.extension().is_some_and(|ending| ending == "lua") {
                let expected = usize::from(path.ends_with(script));
                assert_eq!(text.matches(from).count(), expected, "{name} in {}", path.display());
            }
        }
    }
}

#[test]
fn every_mutation_is_planted_and_has_a_checker_that_exists() {
    let planted: BTreeSet<String> = places().into_keys().collect();
    let listed: Vec<String> = MUTATIONS.iter().map(|it| it.name.to_owned()).collect();
    assert_eq!(planted, listed.iter().cloned().collect());
    assert_eq!(planted.len(), listed.len(), "a name stands twice in the table");
    let tests = source("tests").into_iter().chain(source("src"));
    let tests: String = tests.map(|(_, text)| text).collect();
    for mutation in MUTATIONS {
        let name = mutation.checker.rsplit("::").next().expect("a name");
        assert!(tests.contains(&format!("fn {name}(")), "{}", mutation.checker);
    }
}

//! The gate that tests the tests: each bug planted in the library must be caught by the test that
//! is named for it.
//!
//! ```sh
//! cargo test --package leasehold-proof --test mutation -- --ignored --nocapture
//! ```
//!
//! copies the workspace, plants all bugs in the copy (`edit`, `script`), builds that once, runs every
//! checker without a bug and then with it, and prints what caught what. A bug counts as caught if its checker passes without it and fails, or does not end,
//! with it, and the bug came to pass. A checker that says `SKIPPED` has not run, and the gate does
//! not pass. With `LEASEHOLD_MUTATION` only those run whose name has that in it, or one of several
//! words with commas between them, and with `LEASEHOLD_SAMPLE` so many of these, drawn by `LEASEHOLD_SEED`, which is printed.
//! Without a sample, some are shown to the checker of recorded histories, too, where there is Go.

#![allow(clippy::print_stdout, reason = "the gate prints its table")]

mod build;
mod edit;
// Compiled in the copy only; named here so that it is formatted.
#[cfg(any())]
mod plant;
mod script;
mod source;
mod swap;
mod table;
mod tree;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use comfy_table::{Table, presets};

use build::Build;
use source::Source;
use table::{HISTORIES, MUTATIONS, Mutation};
use trial::{End, Trial};

/// How many checkers run at the same time.
const AT_ONCE: usize = 2;

#[test]
#[ignore = "builds the library a second time, and takes minutes"]
fn every_mutation_is_caught() {
    let wanted = std::env::var("LEASEHOLD_MUTATION").unwrap_or_default();
    let is_wanted = |name: &str| wanted.split(',').any(|word| name.contains(word));
    let wanted_of = |table: &'static [Mutation]| -> Vec<&Mutation> {
        table.iter().filter(|mutation| is_wanted(mutation.name)).collect()
    };
    let mut mutations = wanted_of(&MUTATIONS);
    if let Some(size) = number("LEASEHOLD_SAMPLE") {
        let seed = number("LEASEHOLD_SEED").unwrap_or_else(|| fastrand::u64(..));
        println!(
            "mutation gate: {size} of {} bugs, drawn by LEASEHOLD_SEED={seed}",
            mutations.len()
        );
        fastrand::Rng::with_seed(seed).shuffle(&mut mutations);
        mutations.truncate(usize::try_from(size).expect("a size"));
    } else if ["go", "/usr/local/go/bin/go"].iter().any(|go| has_go(go)) {
        mutations.extend(wanted_of(&HISTORIES));
    } else {
        println!("mutation gate: no histories, as there is no Go");
    }
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
    let (mut caught, mut not_run) = (0, 0);
    for (mutation, end) in mutations.iter().zip(&ends) {
        let without = sound[mutation.checker];
        let skipped = without.is_skip() || end.is_skip();
        let right = without.is_pass() && end.is_catch();
        caught += usize::from(right);
        not_run += usize::from(skipped);
        shown.add_row([
            format!("{}\n{}", mutation.name, mutation.breaks),
            places[mutation.name].clone(),
            mutation.checker.to_owned(),
            without.to_string(),
            end.to_string(),
            match (right, skipped) {
                (true, _) => "yes",
                (false, true) => "not run",
                (false, false) => "NO",
            }
            .to_owned(),
        ]);
    }
    println!("{shown}");
    println!("mutation gate: {caught} of {} caught, {not_run} not run", mutations.len());
    assert_eq!(caught, mutations.len());
}

fn has_go(program: &str) -> bool {
    std::process::Command::new(program).arg("version").output().is_ok()
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs trials, and returns how each ended.
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
        let path = root().join(&folder);
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

/// The library's source.
pub(crate) fn sources() -> Vec<Source> {
    let rust = |(path, _): &(PathBuf, String)| path.extension().is_some_and(|it| it == "rs");
    source("src").into_iter().filter(rust).map(|(path, text)| Source::new(path, text)).collect()
}

/// The places where each bug is planted.
fn places() -> BTreeMap<String, String> {
    let mut places = BTreeMap::new();
    for (site, edit) in edit::all(&sources()).unwrap_or_else(|wrong| panic!("{wrong}")) {
        for name in edit::bugs(&edit) {
            places.insert(name.to_owned(), format!("{}:{}", site.path.display(), site.line));
        }
    }
    for (name, script, _, _) in script::PATCHES.iter() {
        places.insert((*name).to_owned(), format!("src/{script}"));
    }
    places
}

#[test]
fn every_edit_fits_once() {
    if let Err(wrong) = edit::all(&sources()) {
        panic!("these do not fit in src:\n\n{wrong}");
    }
}

#[test]
fn every_script_patch_applies_to_one_script_only() {
    let mut wrong = String::new();
    let scripts = source("src");
    let is_lua = |path: &Path| path.extension().is_some_and(|ending| ending == "lua");
    for (name, script, from, to) in script::PATCHES.iter() {
        assert_ne!(from, to, "{name} changes nothing");
        let is_there = scripts.iter().any(|(path, _)| path.ends_with(script));
        assert!(is_there, "{name}: no script {script}");
        for (path, text) in scripts.iter().filter(|(path, _)| is_lua(path)) {
            let (count, path_is_its) = (text.matches(from).count(), path.ends_with(script));
            if count != usize::from(path_is_its) {
                let rule = if path_is_its { "must be there once" } else { "must not be there" };
                let path = path.display();
                wrong +=
                    &format!("\n{name}: {path} has this {count} times, but it {rule}:\n{from}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_mutation_is_planted_and_its_checker_exists() {
    let planted: BTreeSet<String> = places().into_keys().collect();
    let listed: Vec<String> = MUTATIONS.iter().map(|it| it.name.to_owned()).collect();
    assert_eq!(planted, listed.iter().cloned().collect());
    assert_eq!(planted.len(), listed.len(), "a name stands twice in the table");
    let files: BTreeMap<PathBuf, String> =
        source("tests").into_iter().chain(source("src")).collect();
    assert!(HISTORIES.iter().all(|it| planted.contains(it.name)));
    for Mutation { checker, .. } in MUTATIONS.iter().chain(&*HISTORIES) {
        let (path, name) = checker.rsplit_once("::").expect("a program and a test");
        let text = home(&files, path).unwrap_or_else(|| panic!("nowhere: {checker}"));
        assert!(has_test(text, name), "{checker}");
    }
}

/// Whether a file has a test of this name, be it by a line of a list of kinds.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let (function, kind) = (format!("fn {name}("), format!("{name} \""));
    lines.iter().enumerate().any(|(number, line)| {
        let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
        let mut attributes = lines[..number].iter().rev().take_while(|line| line.starts_with('#'));
        line.starts_with(&kind)
            || line.starts_with(&function) && attributes.any(|attribute| *attribute == "#[test]")
    })
}

#[test]
fn only_test_functions_count_as_checkers() {
    let text =
        "kinds! {\n    listed \"a\" \"S\";\n}\nfn oracle() {\n#[test]\n#[ignore]\nfn real() {}";
    assert!(has_test(text, "listed") && has_test(text, "real"));
    assert!(!has_test(text, "oracle") && !has_test(text, "absent"));
}

/// The text of the file where a program's module is, be it the whole file or a part of it.
fn home<'a>(files: &'a BTreeMap<PathBuf, String>, path: &str) -> Option<&'a str> {
    let find = |paths: [PathBuf; 2]| paths.iter().find_map(|path| files.get(path));
    let mut modules = path.split("::");
    let program = modules.next()?;
    let (mut folder, mut text) = if program == build::LIBRARY {
        (PathBuf::from("src"), files.get(Path::new("src/lib.rs"))?)
    } else {
        let places =
            [Path::new("tests").join(program), Path::new("tests/proof/tests").join(program)];
        places.into_iter().find_map(|folder| {
            Some((folder.clone(), find([folder.with_extension("rs"), folder.join("main.rs")])?))
        })?
    };
    for module in modules {
        folder.push(module);
        // Else it is a part of this file, or what a macro makes of one.
        let part = [format!("mod {module} {{"), format!("{module}! {{")];
        match find([folder.with_extension("rs"), folder.join("mod.rs")]) {
            Some(file) => text = file,
            None if part.iter().any(|begin| text.contains(begin)) => {}
            None => return None,
        }
    }
    Some(text)
}

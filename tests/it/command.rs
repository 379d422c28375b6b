//! The commands that README, guide and CONTRIBUTING show name targets, packages and scripts that exist.

use std::path::Path;
use std::process::Command;

/// What a word after this option must be, as `cargo metadata` has it.
const OPTIONS: [(&str, &str); 4] =
    [("--example", "example"), ("--bin", "bin"), ("--test", "test"), ("--bench", "bench")];

fn texts() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = std::fs::read_dir(root.join("docs")).expect("the guide");
    let pages = pages.map(|page| page.expect("a page").path());
    let paths =
        ["README.md", "CONTRIBUTING.md"].map(|name| root.join(name)).into_iter().chain(pages);
    paths
        .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).expect("a text")))
        .collect()
}

/// All packages and their targets, as text.
fn metadata() -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// What the commands in a text name that is not there.
fn missing(text: &str, metadata: &str) -> Vec<String> {
    let is_end = |letter: char| "`|,.;:)".contains(letter);
    let words = text.split_whitespace().map(|word| word.trim_start_matches(['`', '|', '(']));
    let words: Vec<&str> = words.map(|word| word.trim_end_matches(is_end)).collect();
    let mut found = Vec::new();
    for pair in words.windows(2) {
        let (option, name) = (pair[0], pair[1]);
        // A placeholder, such as NAME.
        if name.chars().all(|letter| letter.is_ascii_uppercase()) {
            continue;
        }
        let target = OPTIONS.iter().find(|(known, _)| *known == option);
        let there = match target {
            Some((_, kind)) => {
                format!("\"kind\":[\"{kind}\"],\"crate_types\":[\"bin\"],\"name\":\"{name}\"")
            }
            None if ["--package", "-p"].contains(&option) => {
                format!("\"name\":\"{name}\",\"version\"")
            }
            None => continue,
        };
        if !metadata.contains(&there) {
            found.push(format!("{option} {name}"));
        }
    }
    let scripts = words.iter().filter(|word| word.starts_with(".ci/"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    found.extend(scripts.filter(|path| !root.join(path).is_file()).map(|path| (*path).to_owned()));
    found
}

#[test]
fn documented_commands_name_existing_things() {
    let metadata = metadata();
    let shown: Vec<_> =
        texts().into_iter().map(|(path, text)| (path, missing(&text, &metadata))).collect();
    let wrong: Vec<_> = shown.iter().filter(|(_, missing)| !missing.is_empty()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn planted_commands_that_do_not_exist_are_found() {
    let metadata = metadata();
    let finds = |text: &str| missing(text, &metadata);
    assert_eq!(finds("`cargo run --example nothing`."), ["--example nothing"]);
    assert_eq!(finds("cargo test --bench command"), ["--bench command"]);
    assert_eq!(finds("`cargo test --package nothing`"), ["--package nothing"]);
    assert_eq!(finds("| `.ci/nothing` |"), [".ci/nothing"]);
    assert!(finds("`cargo test --test it`, `cargo test --test NAME`, `.ci/run`").is_empty());
    assert!(finds("cargo test --package leasehold-support").is_empty());
}

//! The older tree, out of the history, and the program that is built of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use leasehold_support::skip;

/// The last commit without tails.
const COMMIT: &str = "0836888b9dd3a8ef16dafdd50701bbeb3b9714f2";
const WANTED: &str = "LEASEHOLD_OLDER";
/// What the program has beside `holder.rs`.
const MAIN: &str = "//! See `tests/proof/tests/older` of a later tree.\n\nmod holder;\n\nfn main() {\n    \
    holder::serve(leasehold::Lease::renewed(holder::LEASE));\n}\n";

/// The program of the older tree; none where that is not wanted, or not in the history, and then the test is skipped.
pub(crate) fn older_program() -> Option<PathBuf> {
    if std::env::var_os(WANTED).is_none() {
        skip(format!("with {WANTED}=1 it builds the tree before leases had tails, and tries it"));
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut git = Command::new("git");
    git.arg("-C").arg(&root).args(["cat-file", "-e", &format!("{COMMIT}^{{commit}}")]);
    if !git.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        skip("there is no git history with the tree before leases had tails");
        return None;
    }
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let tree = tmp.join("older").join(COMMIT);
    if !tree.exists() {
        unpack(&root, &tree);
    }
    let program = tree.join("tests/proof/src/bin/older");
    fs::create_dir_all(&program).expect("a folder");
    for (name, text) in [("main.rs", MAIN), ("holder.rs", include_str!("holder.rs"))] {
        // Not touched where it is the same, so that cargo does not build it again.
        if fs::read_to_string(program.join(name)).ok().as_deref() != Some(text) {
            fs::write(program.join(name), text).expect("a file");
        }
    }
    Some(build(&tree, &tmp.join("older/target")))
}

/// Unpacks the tree beside its place, and moves it there as a whole.
fn unpack(root: &Path, tree: &Path) {
    let half = tree.with_extension("half");
    let _ = fs::remove_dir_all(&half);
    fs::create_dir_all(&half).expect("a folder");
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(["archive", COMMIT]).stdout(Stdio::piped());
    let mut git = git.spawn().expect("git runs");
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--directory"]).arg(&half).stdin(git.stdout.take().expect("piped"));
    assert!(tar.status().expect("tar runs").success(), "the older tree cannot be unpacked");
    assert!(git.wait().expect("git runs").success(), "the older tree cannot be read");
    fs::rename(&half, tree).expect("a folder");
}

/// In a target folder of its own: cargo would take the packages of the two trees for the same ones.
fn build(tree: &Path, target: &Path) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(tree).args(["build", "--locked", "--package", "leasehold-proof"]);
    cargo.args(["--bin", "older", "--target-dir"]).arg(target);
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        cargo.arg("--release");
        "release"
    };
    assert!(cargo.status().expect("cargo runs").success(), "the older tree cannot be built");
    target.join(profile).join("older")
}

//! The public interface of the library beside its snapshot, `.ci/interface.txt`.
//!
//! rustdoc lists the items as JSON. It does so on nightly alone, unless it is told otherwise, and in a form that changes
//! from release to release: where this toolchain has another form than [`FORMAT`], nothing is compared.

#![allow(clippy::print_stdout, reason = "the difference is there to be read")]

use std::collections::HashSet;
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use leasehold_support::skip;
use public_api::Builder;

/// The form that `public-api` reads, in the version that Cargo.toml names.
const FORMAT: &str = "\"format_version\":57";

/// What rustdoc says of the library with every feature, unless it cannot say it in this form.
fn described() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
    let mut cargo = Command::new(env!("CARGO"));
    // The packages and features of `.ci/run`, which has built what this needs.
    cargo.args(["doc", "--no-deps", "--workspace", "--all-features", "--lib", "--quiet"]);
    cargo.arg("--target-dir").arg(target).current_dir(root);
    cargo.env("RUSTDOCFLAGS", "-Z unstable-options --output-format json");
    // rustdoc alone may do what nightly may. Where the compiler may, too, all packages are built again.
    cargo.env("RUSTDOC", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interface/rustdoc"));
    // What cargo tells this test of its package. A build script that reads it would run again.
    let told = env::vars_os().map(|(name, _)| name);
    for name in told.filter(|name| name.to_string_lossy().starts_with("CARGO_PKG_")) {
        cargo.env_remove(name);
    }
    cargo.env_remove("CARGO_MANIFEST_DIR").env_remove("CARGO_MANIFEST_PATH");
    let status = cargo.status().expect("cargo");
    assert!(status.success(), "cargo doc: {status}");
    let json = target.join("doc/leasehold.json");
    let text = fs::read_to_string(&json).expect("what rustdoc wrote");
    if !text.contains(FORMAT) {
        skip(format!("this rustdoc does not write {FORMAT}"));
        return None;
    }
    // Without what each type has by itself.
    let builder = Builder::from_rustdoc_json(json).omit_blanket_impls(true);
    let builder = builder.omit_auto_trait_impls(true).omit_auto_derived_impls(true);
    Some(builder.build().expect("an interface").to_string())
}

#[test]
fn interface_is_as_in_its_snapshot() {
    let Some(now) = described() else { return };
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.ci/interface.txt");
    if env::var_os("LEASEHOLD_REMAKE").is_some_and(|it| !it.is_empty()) {
        fs::write(path, &now).expect("the snapshot");
    }
    let then = fs::read_to_string(path).expect("the snapshot");
    let (old, new): (HashSet<_>, HashSet<_>) = (then.lines().collect(), now.lines().collect());
    then.lines().filter(|line| !new.contains(line)).for_each(|line| println!("-{line}"));
    now.lines().filter(|line| !old.contains(line)).for_each(|line| println!("+{line}"));
    assert!(then == now, "review the interface, then LEASEHOLD_REMAKE=1 .ci/interface");
    println!("{} public items", now.lines().count());
}

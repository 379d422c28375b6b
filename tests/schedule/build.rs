//! Makes the build of this package, and of no other, the one under the model checker.

use std::path::Path;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().expect("the root of the workspace");
    println!("cargo::rustc-cfg=leasehold_shuttle");
    // The source names its scripts and texts from the root.
    println!("cargo::rustc-env=CARGO_MANIFEST_DIR={}", root.display());
    println!("cargo::rerun-if-changed=build.rs");
}

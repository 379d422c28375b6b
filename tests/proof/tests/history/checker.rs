//! The checker that is not ours: Porcupine, in Go.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use leasehold_support::skip;

/// The program that checks histories.
#[derive(Debug)]
pub(crate) struct Checker(PathBuf);

impl Checker {
    /// Builds it, or says that the test is skipped where there is no Go, or its module cannot be fetched.
    ///
    /// # Panics
    ///
    /// If it cannot be built.
    pub(crate) fn build() -> Option<&'static Checker> {
        static BUILT: OnceLock<Result<Checker, String>> = OnceLock::new();
        match BUILT.get_or_init(make) {
            Ok(checker) => Some(checker),
            Err(why) => {
                skip(why);
                None
            }
        }
    }

    /// Checks histories, and prints its table. Returns whether each is as its head says, and what it printed.
    pub(crate) fn check(&self, histories: &[PathBuf], timelines: &Path) -> (bool, String) {
        let mut command = Command::new(&self.0);
        command.arg("-timelines").arg(timelines).args(histories);
        let output = command.output().expect("a program that was built");
        (output.status.success(), said(&output))
    }
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

fn make() -> Result<Checker, String> {
    let places = ["go", "/usr/local/go/bin/go"];
    let is_there = |go: &&str| Command::new(go).arg("version").output().is_ok();
    let go = places.into_iter().find(is_there).ok_or("there is no Go")?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("porcupine");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(go);
        // What is there, or nothing.
        command.env("GOFLAGS", "-mod=readonly").env("GOTOOLCHAIN", "local");
        command.current_dir(&source).args(arguments).output().expect("Go runs")
    };
    let fetched = run(&["mod", "download"]);
    if !fetched.status.success() {
        return Err(format!("the module of the checker cannot be fetched: {}", said(&fetched)));
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Several programs may build it at once.
    let own = folder.join(format!("porcupine-{}", std::process::id()));
    let built = run(&["build", "-o", own.to_str().expect("a text")]);
    assert!(built.status.success(), "the checker cannot be built: {}", said(&built));
    let program = folder.join("porcupine");
    std::fs::rename(own, &program).expect("one folder");
    Ok(Checker(program))
}

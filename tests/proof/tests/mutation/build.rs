//! A copy of the library and its tests, built with all bugs planted and none chosen.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{edit, tree};

/// The library's own tests are named after it.
pub(crate) const LIBRARY: &str = "leasehold";

/// The result of a build.
pub(crate) struct Build {
    /// The copy of the workspace.
    pub(crate) tree: PathBuf,
    /// The programs that have the checkers.
    programs: BTreeMap<String, PathBuf>,
}

impl Build {
    /// Builds the programs that have these checkers.
    pub(crate) fn make(checkers: impl Iterator<Item = &'static str>) -> Build {
        let mut programs: Vec<&str> = checkers.map(program).collect();
        programs.sort_unstable();
        programs.dedup();
        let sources = crate::sources();
        let edits = edit::all(&sources).unwrap_or_else(|wrong| panic!("{wrong}"));
        Build::of("mutation", &programs, edit::planted(&edits, &sources))
    }

    /// Builds these programs of a copy with these texts, in a folder of the target folder.
    pub(crate) fn of(folder: &str, programs: &[&str], texts: BTreeMap<PathBuf, String>) -> Build {
        let root = crate::root();
        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let tree = target.join(folder).join("tree");
        tree::plant(texts, folder, &tree);
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .current_dir(&tree)
            .args([
                "test",
                "--package",
                "leasehold",
                "--package",
                "leasehold-proof",
                "--no-run",
                "--message-format=json-render-diagnostics",
            ])
            .env("CARGO_TARGET_DIR", &target)
            .stderr(Stdio::inherit());
        for program in programs {
            match *program {
                LIBRARY => cargo.arg("--lib"),
                file => cargo.args(["--test", file]),
            };
        }
        let output = cargo.output().expect("cargo runs");
        assert!(output.status.success(), "the library with its planted bugs cannot be built");
        let text = String::from_utf8_lossy(&output.stdout);
        let programs = text.lines().filter_map(|line| {
            let path = line.split("\"executable\":\"").nth(1)?.split('"').next()?;
            let path = PathBuf::from(path);
            let (name, _) = path.file_name()?.to_str()?.rsplit_once('-')?;
            Some((name.to_owned(), path))
        });
        Build { programs: programs.collect(), tree }
    }

    pub(crate) fn program(&self, name: &str) -> &Path {
        &self.programs[name]
    }

    /// The program that has a checker, and the checker's name there.
    pub(crate) fn find(&self, checker: &'static str) -> (&Path, &'static str) {
        let program = program(checker);
        (&self.programs[program], &checker[program.len() + 2..])
    }
}

fn program(checker: &'static str) -> &'static str {
    checker.split_once("::").expect("a program and a test").0
}

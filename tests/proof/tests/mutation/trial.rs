//! One run of one checker.

use std::fmt;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use leasehold_support::fault;

use crate::build::Build;
use crate::script;

/// A checker that takes longer does not end.
const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

/// A checker, and the bug that is to be at work.
pub(crate) struct Trial {
    pub(crate) checker: &'static str,
    pub(crate) mutation: Option<&'static str>,
}

/// How it ended.
pub(crate) enum End {
    Passed(Duration),
    /// With the reason.
    Failed(Duration, String),
    /// It was ended at the limit.
    Hung,
    /// It failed, and the bug never came to pass.
    Unrelated(String),
    /// It was skipped, with the reason.
    Skipped(String),
    /// It is not there.
    Missing,
}

impl Trial {
    pub(crate) fn run(&self, build: &Build, number: usize) -> End {
        let (program, test) = build.find(self.checker);
        let kind = if self.mutation.is_some() { "with" } else { "without" };
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutation/{kind}-{number}"));
        // Left by an earlier run.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let (path, note) = (folder.join("output"), folder.join("note"));
        let output = File::create(&path).expect("a file");
        let mut command = Command::new(program);
        command
            .current_dir(&build.tree)
            .args([test, "--exact", "--nocapture"])
            .env("LEASEHOLD_MUTATION", self.mutation.unwrap_or_default())
            .env("LEASEHOLD_MUTATION_NOTE", &note)
            .env(fault::PLANTED, planted(self.mutation.unwrap_or_default()))
            .env("RUST_BACKTRACE", "0")
            .env_remove("LEASEHOLD_SKIPS")
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file"))
            .stderr(output);
        let begin = Instant::now();
        let mut process = command.spawn().expect("a program");
        let status = loop {
            if let Some(status) = process.try_wait().expect("a status") {
                break Some(status);
            }
            if begin.elapsed() > LIMIT {
                // Its servers and children end by themselves when it is gone.
                process.kill().expect("it runs");
                process.wait().expect("a status");
                break None;
            }
            sleep(POLL);
        };
        let took = begin.elapsed();
        let text = String::from_utf8_lossy(&fs::read(path).expect("a file")).into_owned();
        let came = self.mutation.is_none() || note.exists();
        match status {
            Some(status) if status.success() && !text.contains("1 passed") => End::Missing,
            Some(status) if status.success() && skipped(&text).is_some() => {
                End::Skipped(skipped(&text).unwrap_or_default())
            }
            Some(status) if status.success() => End::Passed(took),
            _ if !came => End::Unrelated(reason(&text)),
            Some(_) => End::Failed(took, reason(&text)),
            None => End::Hung,
        }
    }
}

/// The scripts that a bug is planted in, as the proxies of the tests read them: these know a script by its digest, and
/// fail the test if they do not.
fn planted(bug: &str) -> String {
    let patches = || script::PATCHES.iter().filter(|(name, ..)| *name == bug);
    let lines = fault::scripts().map(|(name, text)| {
        let patched =
            patches().fold(text.to_owned(), |text, (_, _, from, to)| text.replace(from, to));
        format!("{name} {}\n", fault::digest(&patched))
    });
    lines.collect()
}

/// Why the checker did not run.
fn skipped(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.split_once("SKIPPED: "))?;
    Some(line.1.to_owned())
}

/// The first line of a panic.
fn reason(text: &str) -> String {
    let mut lines = text.lines().skip_while(|line| !line.contains("panicked at"));
    let first = lines.nth(1).unwrap_or("it ended without a word").trim();
    first.chars().take(72).collect()
}

impl End {
    pub(crate) fn is_pass(&self) -> bool {
        matches!(self, End::Passed(_))
    }

    pub(crate) fn is_skip(&self) -> bool {
        matches!(self, End::Skipped(_))
    }

    pub(crate) fn is_catch(&self) -> bool {
        matches!(self, End::Failed(..) | End::Hung)
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}", self.checker, self.mutation.unwrap_or("no bug"))
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Passed(took) => write!(f, "passed in {:.1} s", took.as_secs_f64()),
            End::Failed(took, why) => write!(f, "failed in {:.1} s: {why}", took.as_secs_f64()),
            End::Hung => write!(f, "did not end in {LIMIT:?}"),
            End::Unrelated(why) => write!(f, "failed, but not by this bug: {why}"),
            End::Skipped(why) => write!(f, "not run: {why}"),
            End::Missing => f.write_str("no such test"),
        }
    }
}

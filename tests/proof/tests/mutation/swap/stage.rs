//! Which tests are near a swap, and one run of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::build::{Build, LIBRARY};

/// The programs that have the tests.
pub(super) const PROGRAMS: &[&str] = &[LIBRARY, "it", "weighted", "explorer"];

/// So long at least has a run. One that took long without a swap has that time so many times.
const LIMIT: Duration = Duration::from_secs(120);
const TIMES: u32 = 10;

/// No run without a swap takes longer.
const LONGEST: Duration = Duration::from_secs(3600);

/// A swap may make a program allocate without end, or go on after this one was killed: so it has 8 GiB, and twenty minutes
/// of a processor.
const BOUNDS: &str = "ulimit -d 8388608; ulimit -t 1200; exec \"$0\" \"$@\"";

/// Tests of one program: those with one of these words in their names, and none of those. No word stands for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stage {
    pub(super) program: &'static str,
    with: &'static [&'static str],
    without: &'static [&'static str],
}

/// How it ended.
pub(super) enum End {
    Passed,
    /// This test failed, and failed again alone.
    Failed(String),
    Hung(Duration),
}

const fn stage(
    program: &'static str,
    with: &'static [&'static str],
    without: &'static [&'static str],
) -> Stage {
    Stage { program, with, without }
}

/// The tests of whole clients, in memory. Those of bytes from outside take their time whatever is swapped.
const CLIENTS: Stage = stage(LIBRARY, &["tests::"], &["engine::", "outside"]);
/// Single scripts of the kinds whose locks have one holder.
const STORIES: Stage = stage(LIBRARY, &["kind::tests::story"], &[]);
/// The states of a queue, each once.
const SMALL: Stage = stage("explorer", &["small"], &[]);
/// All tests of the library.
const LIBRARY_ALL: Stage = stage(LIBRARY, &[], &["outside"]);

/// The tests near the code of a file, the nearest first.
pub(super) fn of(path: &Path) -> Vec<Stage> {
    let path = path.to_str().expect("a path");
    let it = |with| stage("it", with, &[]);
    let begins = |begin| path.starts_with(begin);
    if begins("src/kind/weighted/") {
        vec![
            stage("weighted", &[], &["explore", "bug::", "random"]),
            stage("weighted", &["random"], &["server"]),
            LIBRARY_ALL,
            it(&["rw_lock::", "semaphore::", "inspect::"]),
        ]
    } else if begins("src/kind/election/") {
        vec![STORIES, SMALL, CLIENTS, LIBRARY_ALL, it(&["election::", "inspect::", "force::"])]
    } else if begins("src/kind/reentrant/") {
        let areas: &[_] = &["reentrant::", "force::", "inspect::", "notify::", "holder::"];
        vec![STORIES, CLIENTS, LIBRARY_ALL, it(areas)]
    } else if begins("src/kind/once/") || begins("src/protocol/") || begins("src/wire/") {
        vec![CLIENTS, LIBRARY_ALL, it(&["once::", "notify::", "version::"])]
    } else if begins("src/kind/") {
        let areas: &[_] =
            &["mutex::", "queue::", "force::", "inspect::", "once::", "quorum", "token::"];
        vec![STORIES, SMALL, CLIENTS, LIBRARY_ALL, it(areas)]
    } else if begins("src/engine/slot/") {
        let areas: &[_] = &[
            "slot::",
            "handoff::",
            "local_locks::",
            "fairness::",
            "lane::",
            "close::",
            "wait_end::",
        ];
        vec![stage(LIBRARY, &["engine::slot"], &[]), LIBRARY_ALL, it(areas)]
    } else if begins("src/engine/lease") {
        let areas: &[_] = &["renewal::", "loss::", "linger::", "release", "close::", "hold"];
        vec![stage(LIBRARY, &["engine::lease"], &[]), LIBRARY_ALL, it(areas)]
    } else {
        let areas: &[_] = &["renewal::", "loss::", "linger::", "release", "close::", "silence::"];
        vec![stage(LIBRARY, &["engine::worker"], &[]), LIBRARY_ALL, it(areas)]
    }
}

/// The stages, and what is known of them without a swap.
pub(super) struct Suite<'a> {
    build: &'a Build,
    known: BTreeMap<Stage, Known>,
}

struct Known {
    limit: Duration,
    /// They failed without a swap, and so say nothing.
    failing: BTreeSet<String>,
}

impl Suite<'_> {
    pub(super) fn of(build: &Build) -> Suite<'_> {
        Suite { build, known: BTreeMap::new() }
    }

    /// Runs these stages without a swap, unless they were run before.
    pub(super) fn learn(&mut self, stages: impl Iterator<Item = Stage>) {
        for stage in stages {
            self.known.entry(stage).or_insert_with(|| Known::of(self.build, &stage));
        }
    }

    /// Runs a stage with a swap until a test fails for it.
    pub(super) fn run(&self, stage: &Stage, variables: &[(&str, OsString)]) -> End {
        let Known { limit, failing } = &self.known[stage];
        let mut left_out = failing.clone();
        loop {
            match once(self.build, stage, &left_out, variables, Some(*limit)) {
                Some(Outcome::Passed(_)) => return End::Passed,
                Some(Outcome::Failed(test)) => {
                    if fails_alone(self.build, stage.program, &test, variables, *limit) {
                        return End::Failed(test);
                    }
                    left_out.insert(test);
                }
                Some(Outcome::Broken) => return End::Failed("the program broke off".to_owned()),
                None => return End::Hung(*limit),
            }
        }
    }
}

impl Known {
    fn of(build: &Build, stage: &Stage) -> Known {
        let mut failing = BTreeSet::new();
        loop {
            let begin = Instant::now();
            match once(build, stage, &failing, &[], None) {
                Some(Outcome::Passed(count)) => {
                    assert!(count > 0, "{stage:?} has no test");
                    let took = begin.elapsed();
                    println!("{stage:?}: {count} tests in {:.1} s", took.as_secs_f64());
                    return Known { limit: LIMIT.max(TIMES * took), failing };
                }
                Some(Outcome::Failed(test)) => {
                    println!("{stage:?}: {test} fails without a swap, and is left out");
                    failing.insert(test);
                }
                Some(Outcome::Broken) | None => panic!("{stage:?} breaks off without a swap"),
            }
        }
    }
}

enum Outcome {
    /// So many tests.
    Passed(usize),
    /// The first that did.
    Failed(String),
    /// It ended without a word.
    Broken,
}

/// Whether a test fails alone, too, and for another reason than that a patch of the explorer does not fit any more.
fn fails_alone(
    build: &Build,
    program: &str,
    test: &str,
    variables: &[(&str, OsString)],
    limit: Duration,
) -> bool {
    let mut command = command(build, program, variables);
    command.args([test, "--exact"]);
    let mut misfits = false;
    let outcome = watch(command, Some(limit), |line| {
        misfits |= line.contains("replaces one piece of");
        None
    });
    !misfits && !matches!(outcome, Some(Outcome::Passed(_)))
}

fn command(build: &Build, program: &str, variables: &[(&str, OsString)]) -> Command {
    let mut command = Command::new("sh");
    command
        .current_dir(&build.tree)
        .args(["-c", BOUNDS])
        .arg(build.program(program))
        .args(["--test-threads", "8"])
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .env("RUST_BACKTRACE", "0")
        .env_remove("LEASEHOLD_SERVER_BIN")
        .env_remove("LEASEHOLD_SKIPS");
    command
}

/// Runs a stage until a test fails. Nothing if it does not end in time.
fn once(
    build: &Build,
    stage: &Stage,
    left_out: &BTreeSet<String>,
    variables: &[(&str, OsString)],
    limit: Option<Duration>,
) -> Option<Outcome> {
    let mut command = command(build, stage.program, variables);
    command.args(stage.with);
    for name in stage.without.iter().copied().chain(left_out.iter().map(String::as_str)) {
        command.args(["--skip", name]);
    }
    watch(command, limit, |line| {
        let test = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
        Some(Outcome::Failed(test.to_owned()))
    })
}

/// Runs a program until one of its lines decides.
fn watch(
    mut command: Command,
    limit: Option<Duration>,
    mut decides: impl FnMut(&str) -> Option<Outcome>,
) -> Option<Outcome> {
    let mut process = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a program");
    let output = BufReader::new(process.stdout.take().expect("its output"));
    let (sender, lines) = mpsc::channel();
    // Ends with the program, or with a child of it that has its output.
    thread::spawn(move || {
        output.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok());
    });
    let end = limit.map(|limit| Instant::now() + limit);
    let (mut passed, mut is_whole) = (0, false);
    let result = loop {
        let left = end.map_or(LONGEST, |end| end.saturating_duration_since(Instant::now()));
        match lines.recv_timeout(left) {
            Ok(line) => {
                passed += usize::from(line.ends_with(" ... ok"));
                is_whole |= line.starts_with("test result: ok");
                if let Some(outcome) = decides(&line) {
                    break Some(outcome);
                }
            }
            Err(RecvTimeoutError::Timeout) => break None,
            Err(RecvTimeoutError::Disconnected) if is_whole => break Some(Outcome::Passed(passed)),
            Err(RecvTimeoutError::Disconnected) => break Some(Outcome::Broken),
        }
    };
    stop(&mut process);
    result
}

/// Its servers and children end by themselves when it is gone.
fn stop(process: &mut Child) {
    // It may have ended.
    let _ = process.kill();
    process.wait().expect("a status");
}

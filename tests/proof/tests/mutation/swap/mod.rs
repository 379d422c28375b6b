//! Each comparison of the scripts, and of the Rust that decides who holds, is swapped once: `<` for `<=`, `==` for
//! `~=`, and so on. A test must fail then, unless the swap changes nothing that matters.
//!
//! ```sh
//! cargo test --package leasehold-proof --test mutation -- --ignored --nocapture every_swap_is_caught
//! ```
//!
//! copies the workspace, puts a switch beside each comparison, builds that once, and runs the tests near each swap, the
//! nearest first, until one fails. Then it runs the test alone, which must fail again: so that a test that fails by chance catches
//! nothing. `LEASEHOLD_SWAPS` chooses swaps by a part of their file's path, or several with commas between;
//! `LEASEHOLD_SAMPLE` and `LEASEHOLD_SEED` draw so many of these.
//!
//! | module | what it has |
//! | --- | --- |
//! | `lua`, `rust` | where the comparisons are |
//! | `stage` | which tests are near a swap, and one run of them |
//! | `equivalent` | the swaps that change nothing that matters, with the reasons |
//! | `survivor.txt` | the swaps that no test catches yet: file, function, line. One more fails, and so does a row that is caught |
//! | `switch` | what chooses a swap at run time, compiled in the copy alone |

mod equivalent;
mod lua;
mod rust;
mod stage;
// Compiled in the copy only; named here so that it is formatted.
#[cfg(any())]
mod switch;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fmt, fs, thread};

use comfy_table::{Table, presets};
use leasehold_support::fault;

use crate::build::Build;
use crate::{AT_ONCE, number, source};
use equivalent::EQUIVALENT;
use stage::{End, Stage, Suite};

/// The folders and files of Rust whose comparisons are swapped.
const RUST: [&str; 4] =
    ["src/engine/slot/", "src/engine/lease/", "src/engine/lease.rs", "src/engine/worker/"];

/// One comparison with another operator.
struct Swap {
    number: usize,
    path: PathBuf,
    operator: Range<usize>,
    to: &'static str,
}

impl Swap {
    /// The file with it.
    fn apply(&self, text: &str) -> String {
        let mut swapped = text.to_owned();
        swapped.replace_range(self.operator.clone(), self.to);
        swapped
    }

    /// Where its files are.
    fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("swap/{}", self.number))
    }

    fn is_lua(&self) -> bool {
        self.path.extension().is_some_and(|ending| ending == "lua")
    }

    /// Its file, its function, and its line with both operators.
    fn row(&self, text: &str) -> String {
        let (before, after) = (&text[..self.operator.start], &text[self.operator.end..]);
        let head = before.rsplit('\n').next().unwrap_or_default().trim_start();
        let tail = after.split('\n').next().unwrap_or_default();
        let (path, from) = (self.path.display(), &text[self.operator.clone()]);
        format!("{path} | {} | {head}[{from} → {}]{tail}", function(before), self.to)
    }

    fn line(&self, text: &str) -> usize {
        text[..self.operator.start].matches('\n').count() + 1
    }
}

/// The last function of a text, be it Rust or Lua, or nothing.
fn function(text: &str) -> &str {
    let begins = ["fn ", "function "].into_iter().filter_map(|word| {
        let at = text.rfind(&format!(" {word}")).map(|at| at + 1);
        let at = at.max(text.rfind(&format!("\n{word}")).map(|at| at + 1));
        Some(at? + word.len())
    });
    let name = begins.max().map_or("", |at| &text[at..]);
    name.split(|it: char| !it.is_alphanumeric() && it != '_').next().unwrap_or_default()
}

/// The files that have swaps.
fn files() -> BTreeMap<PathBuf, String> {
    let is_wanted = |path: &Path| {
        let name = path.to_str().expect("a path");
        match path.extension().and_then(|ending| ending.to_str()) {
            // That of the server in memory is no script of ours.
            Some("lua") => !name.starts_with("src/tests/") && !path.ends_with("sandbox.lua"),
            Some("rs") => {
                RUST.iter().any(|begin| name.starts_with(begin)) && !name.contains("tests")
            }
            _ => false,
        }
    };
    source("src").into_iter().filter(|(path, _)| is_wanted(path)).collect()
}

/// All swaps, in the order of the files, and the files of Rust with their switches.
fn all(files: &BTreeMap<PathBuf, String>) -> (Vec<Swap>, BTreeMap<PathBuf, String>) {
    let (mut swaps, mut planted) = (Vec::new(), BTreeMap::new());
    for (path, text) in files {
        let first = swaps.len();
        let mut add = |operator, to| {
            swaps.push(Swap { number: swaps.len(), path: path.clone(), operator, to });
        };
        if path.extension().is_some_and(|ending| ending == "lua") {
            lua::comparisons(text).into_iter().for_each(|(operator, to)| add(operator, to));
        } else {
            let comparisons = rust::comparisons(text);
            comparisons.iter().for_each(|it| add(it.operator.clone(), it.to));
            let text = rust::planted(text, &comparisons, first);
            planted.insert(path.clone(), text);
        }
    }
    (swaps, planted)
}

/// What the copy needs besides, so that the switch is in each program and all scripts are read through it.
const SWITCHES: [(&str, &str, &str); 12] = [
    // Both sides of a switch stand in brackets, and swapped comparisons may be always true.
    (
        "src/lib.rs",
        "\n#[macro_use]\nmod base;",
        "\n#![allow(unused_parens, unused_comparisons)]\n#[macro_use]\nmod base;",
    ),
    (
        "src/base/mod.rs",
        "pub(crate) mod token;\n",
        "pub(crate) mod token;\n#[path = \"../../tests/proof/tests/mutation/swap/switch.rs\"]\npub(crate) mod swap;\n",
    ),
    ("src/wire/script.rs", "script.source.", "script.source()."),
    ("src/wire/script.rs", "redis::Script::new(self.source)", "redis::Script::new(self.source())"),
    (
        "src/wire/script.rs",
        "    fn digest(&self)",
        "    fn source(&self) -> &'static str {\n        crate::base::swap::script(self.source)\n    }\n\n    fn digest(&self)",
    ),
    // A transaction has this one as an argument.
    ("src/kind/once/record.rs", ".arg(NOTE_OVER)", ".arg(crate::base::swap::script(NOTE_OVER))"),
    (
        "src/tests/once/retry.rs",
        "include_bytes!(\"../../kind/once/over.lua\")",
        "crate::base::swap::script(include_str!(\"../../kind/once/over.lua\")).as_bytes()",
    ),
    (
        "tests/proof/tests/weighted/main.rs",
        "mod world;\n",
        "mod world;\n#[path = \"../mutation/swap/switch.rs\"]\nmod swap;\n",
    ),
    (
        "tests/proof/tests/weighted/script.rs",
        "Cow::Borrowed(*source)",
        "Cow::Borrowed(crate::swap::script(*source))",
    ),
    // In memory alone, which is quick.
    ("tests/proof/tests/weighted/lab.rs", "(bug().is_none(), ", "(bug().is_some(), "),
    (
        "tests/proof/tests/explorer/main.rs",
        "mod unit;\n",
        "mod unit;\n#[path = \"../mutation/swap/switch.rs\"]\nmod swap;\n",
    ),
    (
        "tests/proof/tests/explorer/script.rs",
        "Cow::Borrowed(source)",
        "Cow::Borrowed(crate::swap::script(source))",
    ),
];

/// How a swap ended: caught by this, or by nothing.
enum Verdict {
    Caught(String),
    /// With the reason why nothing catches it.
    Equivalent(&'static str),
    /// And whether its comparison was made at all, where that is known.
    Survived(Option<bool>),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Caught(by) => f.write_str(by),
            Verdict::Equivalent(why) => write!(f, "equivalent: {why}"),
            Verdict::Survived(Some(false)) => f.write_str("SURVIVED, and was never compared"),
            Verdict::Survived(_) => f.write_str("SURVIVED"),
        }
    }
}

#[test]
#[ignore = "builds the library a second time, and takes an hour"]
fn every_swap_is_caught() {
    let files = files();
    let (mut swaps, planted) = all(&files);
    let wanted = std::env::var("LEASEHOLD_SWAPS").unwrap_or_default();
    swaps.retain(|it| {
        let path = it.path.to_str().expect("a path");
        wanted.split(',').any(|part| path.contains(part))
    });
    if let Some(size) = number("LEASEHOLD_SAMPLE") {
        let seed = number("LEASEHOLD_SEED").unwrap_or_else(|| fastrand::u64(..));
        println!("swaps: {size} of {}, drawn by LEASEHOLD_SEED={seed}", swaps.len());
        fastrand::Rng::with_seed(seed).shuffle(&mut swaps);
        swaps.truncate(usize::try_from(size).expect("a size"));
    }
    let mut texts = planted;
    for (path, from, to) in SWITCHES {
        let path = Path::new(path);
        let original = || fs::read_to_string(crate::root().join(path)).expect("a text");
        let text = texts.entry(path.to_owned()).or_insert_with(original);
        *text = text.replace(from, to);
    }
    let build = Build::of("swap", stage::PROGRAMS, texts);
    for swap in &swaps {
        // Left by an earlier run.
        let _ = fs::remove_dir_all(swap.folder());
    }
    let verdicts = run(&build, &swaps, &files);
    report(&swaps, &verdicts, &files);
    let rows = |is_wanted: fn(&Verdict) -> bool| -> BTreeSet<String> {
        let both = swaps.iter().zip(&verdicts).filter(|(_, verdict)| is_wanted(verdict));
        both.map(|(swap, _)| swap.row(&files[&swap.path])).collect()
    };
    let (tried, survived) = (rows(|_| true), rows(|it| matches!(it, Verdict::Survived(_))));
    let known: BTreeSet<String> =
        survivors().filter(|row| tried.contains(*row)).map(str::to_owned).collect();
    println!("swaps that no test catches, and that are known: {}", known.len());
    known.intersection(&survived).for_each(|row| println!("  {row}"));
    let new: Vec<_> = survived.difference(&known).collect();
    assert!(new.is_empty(), "no test catches these, so they need one: {new:#?}");
    let caught: Vec<_> = known.difference(&survived).collect();
    assert!(caught.is_empty(), "a test catches these, so that their rows can go: {caught:#?}");
}

/// The swaps that no test catches yet, and that are not known to be equivalent. Their list only shrinks.
fn survivors() -> impl Iterator<Item = &'static str> {
    include_str!("survivor.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Tries all swaps on their nearest tests, those that survive on the next ones, and so on.
fn run(build: &Build, swaps: &[Swap], files: &BTreeMap<PathBuf, String>) -> Vec<Verdict> {
    let mut suite = Suite::of(build);
    let equivalent = |swap: &Swap| {
        let text = &files[&swap.path];
        let reason = equivalent::reason(&swap.path, &swap.apply(text), text);
        reason.map(Verdict::Equivalent)
    };
    let mut verdicts: Vec<Option<Verdict>> = swaps.iter().map(equivalent).collect();
    for round in 0.. {
        let left = swaps.iter().zip(&verdicts).enumerate().filter_map(|(at, (swap, verdict))| {
            verdict.is_none().then(|| Some((at, *stage::of(&swap.path).get(round)?)))?
        });
        let left: Vec<(usize, Stage)> = left.collect();
        if left.is_empty() {
            break;
        }
        println!("round {}: {} swaps", round + 1, left.len());
        suite.learn(left.iter().map(|&(_, stage)| stage));
        for (at, verdict) in side_by_side(&suite, &left, swaps, files) {
            verdicts[at] = Some(verdict);
        }
    }
    let survived = |swap: &Swap| {
        // A script has no switch that could note it.
        Verdict::Survived((!swap.is_lua()).then(|| swap.folder().join("note").exists()))
    };
    let both = swaps.iter().zip(verdicts);
    both.map(|(swap, verdict)| verdict.unwrap_or_else(|| survived(swap))).collect()
}

/// Runs each of these stages with its swap, some at the same time. Returns the swaps that were caught.
fn side_by_side(
    suite: &Suite<'_>,
    stages: &[(usize, Stage)],
    swaps: &[Swap],
    files: &BTreeMap<PathBuf, String>,
) -> Vec<(usize, Verdict)> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let work = || {
            let mut caught = Vec::new();
            while let Some(&(at, stage)) = stages.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (swap, text) = (&swaps[at], &files[&swaps[at].path]);
                let verdict = match suite.run(&stage, &variables(swap, text)) {
                    End::Passed => None,
                    End::Failed(test) => Some(format!("{}::{test}", stage.program)),
                    End::Hung(limit) => Some(format!("{} did not end in {limit:?}", stage.program)),
                };
                println!("{}\n    {}", swap.row(text), verdict.as_deref().unwrap_or("nothing yet"));
                caught.extend(verdict.map(|by| (at, Verdict::Caught(by))));
            }
            caught
        };
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    })
}

/// The digests of the scripts in which this text takes the place of that one, for the proxies of the tests, which know a
/// script by its digest.
fn digests(from: &str, to: &str) -> String {
    let swapped = fault::scripts().filter(|(_, text)| text.contains(from));
    swapped
        .map(|(name, text)| format!("{name} {}\n", fault::digest(&text.replace(from, to))))
        .collect()
}

/// What tells the switches of the copy which swap is at work.
fn variables(swap: &Swap, text: &str) -> Vec<(&'static str, OsString)> {
    let folder = swap.folder();
    fs::create_dir_all(&folder).expect("a folder");
    let mut variables = vec![("LEASEHOLD_SWAP_NOTE", folder.join("note").into())];
    if swap.is_lua() {
        let (from, to) = (folder.join("from"), folder.join("to"));
        fs::write(&from, text).expect("a file");
        fs::write(&to, swap.apply(text)).expect("a file");
        variables.push((fault::PLANTED, digests(text, &swap.apply(text)).into()));
        variables.push(("LEASEHOLD_SWAP_FROM", from.into()));
        variables.push(("LEASEHOLD_SWAP_TO", to.into()));
    } else {
        variables.push(("LEASEHOLD_SWAP", swap.number.to_string().into()));
    }
    variables
}

/// Prints what caught each swap, and how many of each folder were caught.
fn report(swaps: &[Swap], verdicts: &[Verdict], files: &BTreeMap<PathBuf, String>) {
    let mut shown = Table::new();
    shown.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(["swap", "caught by"]);
    let mut counts: BTreeMap<&Path, [usize; 4]> = BTreeMap::new();
    for (swap, verdict) in swaps.iter().zip(verdicts) {
        let text = &files[&swap.path];
        shown.add_row([
            format!("line {}: {}", swap.line(text), swap.row(text)),
            verdict.to_string(),
        ]);
        let count = counts.entry(swap.path.parent().expect("a folder")).or_default();
        count[0] += 1;
        count[match verdict {
            Verdict::Caught(_) => 1,
            Verdict::Equivalent(_) => 2,
            Verdict::Survived(_) => 3,
        }] += 1;
    }
    println!("{shown}");
    let mut sums = Table::new();
    sums.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    sums.set_header(["folder", "swaps", "caught", "equivalent", "survived"]);
    for (folder, count) in counts {
        let count = count.map(|count| count.to_string());
        sums.add_row([folder.display().to_string()].into_iter().chain(count));
    }
    println!("{sums}");
}

/// So a row that a change of the code made meaningless is seen at once.
#[test]
fn every_equivalent_swap_is_one_swap() {
    let files = files();
    let (swaps, _) = all(&files);
    for (path, from, to, why) in EQUIVALENT {
        let text = files.get(Path::new(path)).unwrap_or_else(|| panic!("no file {path}"));
        assert_eq!(text.matches(from).count(), 1, "{path}: {from}\n{why}");
        let expected = text.replace(from, to);
        let found = swaps.iter().filter(|it| it.path == Path::new(path));
        let fits = found.filter(|it| it.apply(text) == expected).count();
        assert_eq!(fits, 1, "{path}: {from} → {to} is not the swap of one comparison");
    }
}

#[test]
fn every_known_survivor_is_a_swap() {
    let files = files();
    let (swaps, _) = all(&files);
    let rows: BTreeSet<String> = swaps.iter().map(|swap| swap.row(&files[&swap.path])).collect();
    let mut seen = BTreeSet::new();
    for row in survivors() {
        assert!(rows.contains(row), "survivor.txt: there is no swap {row}");
        assert!(seen.insert(row), "survivor.txt has this twice: {row}");
    }
}

#[test]
fn function_is_the_last_one_that_begins() {
    assert_eq!(function("fn one() {}\n    pub(crate) fn two(a: u8) { if a "), "two");
    assert_eq!(function("local a = 1\nlocal function b(c)\n  return c "), "b");
    assert_eq!(function("\nif a "), "");
}

#[test]
fn every_switch_finds_its_place() {
    let files: BTreeMap<PathBuf, String> =
        source("tests").into_iter().chain(source("src")).collect();
    for (path, from, _) in SWITCHES {
        assert!(files[Path::new(path)].contains(from), "{path}: {from}");
    }
}

//! How long threads wait for a lock that many want, in each way there is to wait.
//!
//! ```sh
//! cargo run --release --package leasehold-contention
//! ```
//!
//! Several processes with several threads each want one lock, again and again, and hold it for a
//! millisecond. Each way to wait has a few seconds; on a terminal a live view shows how far its
//! processes are. In the end a chart is written to `target/contention.svg`: what each process had, and
//! how long each thread waited.
//!
//! Every critical section looks whether another one is under way. It uses the Redis that `REDIS_URL`
//! names, under names of its own that expire, or else a private server. It fails if two sections
//! overlap, if a token does not grow, or if a lock is lost.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to people")]

#[path = "../../benches/common/mod.rs"]
mod common;

mod chart;

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use leasehold_support::stat::{jain, median};
use leasehold_support::{Server, child};
use uuid::Uuid;

use chart::{Chart, Line, Panel};
use common::crowd::{self, Account, Crowd, Plan};
use common::way::Way;
use common::witness::Shared;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const PROCESSES: usize = 4;
const THREADS: usize = 4;
const HOLD: Duration = Duration::from_millis(1);
const WAYS: [Way; 4] = [Way::Queue, Way::Spin, Way::Notify, Way::SpinReentrant];
/// How long each way is watched.
const LONG: Duration = Duration::from_millis(4500);
/// For the processes to get warm.
const GLANCE: Duration = Duration::from_millis(100);
/// How often the view changes.
const LOOK: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let outcome = match child::role().as_deref() {
        None => run(),
        Some(crowd::ROLE) => crowd::play(),
        Some(other) => Err(format!("no such role: {other}").into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("contention: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let given = env::var("REDIS_URL").ok().filter(|url| !url.is_empty());
    let server = if given.is_none() { Some(Server::start()?) } else { None };
    let url = match &server {
        Some(server) => {
            println!("On a private server, {}:", server.version());
            server.url()
        }
        None => {
            println!("On the server of REDIS_URL:");
            given.unwrap_or_default()
        }
    };
    println!(
        "{PROCESSES} processes with {THREADS} threads each want one lock and hold it for {} ms.\n\
         Each way to wait has {} s.\n",
        HOLD.as_millis(),
        LONG.as_secs_f64()
    );
    let marks = Marks::new();
    let view = MultiProgress::new();
    let runs = WAYS.map(|way| watch(way, &url, &marks.0, &view));
    let runs: Vec<Run> = runs.into_iter().collect::<Result<_>>()?;
    println!("{}\n{}", table(&runs), meanings());
    let (path, closing) = (chart_path()?, closing(&runs));
    println!("{}", closing.join("\n"));
    chart(&runs, closing).draw(&path)?;
    println!("The chart is in {}", shown(&path));
    runs.iter().try_for_each(judge)
}

/// The file in which critical sections leave their marks, deleted in the end.
struct Marks(PathBuf);

impl Marks {
    fn new() -> Marks {
        Marks(env::temp_dir().join(format!("contention-{}", Uuid::new_v4().simple())))
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = fs::remove_file(&self.0);
    }
}

/// What was seen of one way to wait.
struct Run {
    way: Way,
    account: Account,
}

/// Lets all processes wait in one way, and shows how far each of them is.
fn watch(way: Way, url: &str, file: &Path, view: &MultiProgress) -> Result<Run> {
    let shared = Shared::open(file)?;
    // Of the way before, whose tokens have nothing to do with these.
    (0..=PROCESSES as u64).for_each(|place| shared.write(place, 0));
    let plan = Plan {
        url: url.to_owned(),
        name: format!("contention:{}", Uuid::new_v4().simple()),
        way,
        processes: PROCESSES,
        threads: THREADS,
        hold: HOLD,
        file: Some(file.to_owned()),
        watched: true,
        noted: false,
    };
    let mut crowd = Crowd::start(&plan)?;
    crowd.slice(GLANCE);
    crowd.forget();
    let before: Vec<u64> = (0..PROCESSES).map(|process| shared.read(process as u64 + 1)).collect();
    // If one process had them all.
    let most = LONG.as_secs_f64() / HOLD.as_secs_f64();
    let style = ProgressStyle::with_template("  {prefix:24} {wide_bar} {pos:>5}")?;
    let bars: Vec<ProgressBar> = (1..=PROCESSES)
        .map(|process| {
            let bar = view.add(ProgressBar::new(most as u64)).with_style(style.clone());
            bar.with_prefix(format!("{}, process {process}", way.title()))
        })
        .collect();
    crowd.begin(LONG);
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        thread::sleep(LOOK);
        let places = 1..=PROCESSES as u64;
        let counts = places.zip(&before).map(|(place, before)| shared.read(place) - before);
        bars.iter().zip(counts).for_each(|(bar, count)| bar.set_position(count));
    }
    crowd.finish();
    bars.iter().for_each(ProgressBar::finish_and_clear);
    Ok(Run { way, account: crowd.end() })
}

impl Run {
    /// What each process had, the most first.
    fn processes(&self) -> Vec<f64> {
        let mut shares: Vec<f64> =
            self.account.shares.iter().map(|threads| threads.iter().sum()).collect();
        shares.sort_by(|one, other| other.total_cmp(one));
        shares
    }

    /// How long each thread waited at most, in seconds, the shortest first.
    fn longest(&self) -> Vec<f64> {
        let mut longest: Vec<f64> =
            self.account.longest.iter().map(|&nanos| nanos as f64 / 1e9).collect();
        longest.sort_by(f64::total_cmp);
        longest
    }

    /// What the process had that had least.
    fn least(&self) -> f64 {
        self.processes().last().copied().unwrap_or_default()
    }

    /// How long the thread waited that waited longest, in seconds.
    fn worst(&self) -> f64 {
        self.longest().last().copied().unwrap_or_default()
    }
}

fn table(runs: &[Run]) -> Table {
    let header = [
        "",
        "acquisitions\nper second",
        "of the process\nwith most",
        "of the process\nwith fewest",
        "longest wait, s\nmedian thread",
        "longest wait, s\nworst thread",
        "Jain's index\nof threads",
        "overlaps",
    ];
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED).set_header(header);
    for run in runs {
        let threads: Vec<f64> = run.account.shares.iter().flatten().copied().collect();
        let processes = run.processes();
        let rate = |count: f64| format!("{:.1}", count / LONG.as_secs_f64());
        table.add_row([
            run.way.title().to_owned(),
            rate(threads.iter().sum()),
            rate(processes.first().copied().unwrap_or_default()),
            rate(run.least()),
            format!("{:.3}", median(&run.longest())),
            format!("{:.3}", run.worst()),
            format!("{:.3}", jain(&threads)),
            (run.account.seen.overlaps + run.account.seen.disorder).to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// What the columns mean.
fn meanings() -> String {
    let threads = PROCESSES * THREADS;
    format!(
        "A wait that had not ended when the run ended counts until then.\n\
         Jain's index is 1 if all threads have equally many acquisitions, and 1/{threads} if one has all.\n\
         Overlaps are critical sections that met another one, or whose token did not grow: there must \
         be none.\n"
    )
}

/// What one should read from the runs, in lines of a chart's width.
fn closing(runs: &[Run]) -> Vec<String> {
    let by_worst = |one: &&Run, other: &&Run| one.worst().total_cmp(&other.worst());
    let (best, worst) = (runs.iter().min_by(by_worst), runs.iter().max_by(by_worst));
    let (Some(best), Some(worst)) = (best, worst) else { return Vec::new() };
    vec![
        "Level lines are fair, and low lines on the right are short waits.".to_owned(),
        format!(
            "Over {} s no thread waited longer than {:.2} s with {}, and the process with the fewest \
             acquisitions had {:.0};",
            LONG.as_secs_f64(),
            best.worst(),
            best.way.title(),
            best.least()
        ),
        format!(
            "with {} a thread waited {:.2} s, and the process with the fewest acquisitions had {:.0}.",
            worst.way.title(),
            worst.worst(),
            worst.least()
        ),
    ]
}

fn chart(runs: &[Run], closing: Vec<String>) -> Chart {
    let line = |label: String, points| Line { label, points };
    Chart {
        title: format!(
            "{PROCESSES} processes with {THREADS} threads each want one lock for {} s and hold it for {} ms",
            LONG.as_secs_f64(),
            HOLD.as_millis()
        ),
        panels: [
            Panel {
                title: "Acquisitions of each process",
                across: "processes, from most to fewest acquisitions",
                up: "acquisitions",
                lines: runs
                    .iter()
                    .map(|run| {
                        line(format!("{}: {:.0}", run.way.title(), run.least()), run.processes())
                    })
                    .collect(),
            },
            Panel {
                title: "Longest wait of each thread",
                across: "threads, from shortest to longest wait",
                up: "seconds",
                lines: runs
                    .iter()
                    .map(|run| {
                        line(format!("{}: {:.2} s", run.way.title(), run.worst()), run.longest())
                    })
                    .collect(),
            },
        ],
        closing,
    }
}

fn judge(run: &Run) -> Result<()> {
    let (title, Account { seen, lost, .. }) = (run.way.title(), &run.account);
    if seen.overlaps + seen.disorder + lost > 0 {
        return Err(format!("{title}: {seen:?}, {lost} locks lost").into());
    }
    Ok(())
}

/// `target/contention.svg` in the workspace.
fn chart_path() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    fs::create_dir_all(&folder)?;
    Ok(folder.canonicalize()?.join("contention.svg"))
}

/// A path as seen from here, if that is shorter.
fn shown(path: &Path) -> String {
    let here = env::current_dir().ok();
    let near = here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned));
    near.as_deref().unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(way: Way, shares: [f64; 2], longest: [u64; 2]) -> Run {
        let shares = shares.map(|share| vec![share]).to_vec();
        let account = Account { shares, longest: longest.to_vec(), ..Account::default() };
        Run { way, account }
    }

    #[test]
    fn closing_sentence_names_shortest_and_longest_wait() {
        let runs = [
            run(Way::Spin, [4000.0, 2.0], [1_000_000, 4_500_000_000]),
            run(Way::Queue, [1900.0, 1901.0], [20_000_000, 10_000_000]),
        ];
        let closing = closing(&runs);
        assert!(
            closing[1]
                .starts_with("Over 4.5 s no thread waited longer than 0.02 s with mutex queue")
        );
        assert!(closing[1].ends_with("had 1900;"));
        assert!(closing[2].starts_with("with mutex spin a thread waited 4.50 s"));
        assert!(closing[2].ends_with("had 2."));
    }
}

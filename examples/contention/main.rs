//! How long threads wait for a lock that many want, in each way there is to wait.
//!
//! ```sh
//! cargo run --release --bin contention
//! ```
//!
//! Several processes with several threads each want one lock, again and again, and hold it for a
//! millisecond. Each way to wait has a few seconds; a live view shows how far its processes are, and
//! in the end a chart of the waits is written to `target/contention.svg`.
//!
//! Every critical section looks whether another one is under way. It uses the Redis that `REDIS_URL`
//! names, under names of its own that expire, or else a private server. It fails if two sections
//! overlap, if a token does not grow, or if a lock is lost.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to people")]

#[path = "../../benches/common/mod.rs"]
mod common;

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use leasehold_support::stat::jain;
use leasehold_support::{Server, child};
use plotters::prelude::*;
use uuid::Uuid;

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
        "{PROCESSES} processes with {THREADS} threads each want one lock and hold it for {HOLD:?}.\n"
    );
    let marks = Marks::new();
    let view = MultiProgress::new();
    let runs = WAYS.map(|way| watch(way, &url, &marks.0, &view));
    let runs: Vec<Run> = runs.into_iter().collect::<Result<_>>()?;
    println!("{}", table(&runs));
    let chart = chart_path()?;
    draw(&runs, &chart)?;
    println!("The waits of each way are drawn in {}", shown(&chart));
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
    let hidden = bars.iter().all(ProgressBar::is_hidden);
    crowd.begin(LONG);
    let (begun, mut told) = (Instant::now(), Instant::now());
    while begun.elapsed() < LONG {
        thread::sleep(LOOK);
        let places = 1..=PROCESSES as u64;
        let counts = places.zip(&before).map(|(place, before)| shared.read(place) - before);
        let counts: Vec<u64> = counts.collect();
        bars.iter().zip(&counts).for_each(|(bar, &count)| bar.set_position(count));
        if hidden && told.elapsed() >= Duration::from_secs(1) {
            println!("  {}: {counts:?} acquisitions by process", way.title());
            told = Instant::now();
        }
    }
    crowd.finish();
    bars.iter().for_each(ProgressBar::finish_and_clear);
    Ok(Run { way, account: crowd.end() })
}

fn table(runs: &[Run]) -> Table {
    let header = [
        "",
        "acquisitions\nper second",
        "median wait\nms",
        "99 %\nms",
        "99.9 %\nms",
        "longest\nms",
        "Jain's index\nof threads",
        "overlaps",
    ];
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED).set_header(header);
    for Run { way, account } in runs {
        let threads: Vec<f64> = account.shares.iter().flatten().copied().collect();
        let wait = |quantile| format!("{:.1}", millis(account.waits.value_at_quantile(quantile)));
        table.add_row([
            way.title().to_owned(),
            format!("{:.0}", threads.iter().sum::<f64>() / LONG.as_secs_f64()),
            wait(0.5),
            wait(0.99),
            wait(0.999),
            format!("{:.1}", millis(account.waits.max())),
            format!("{:.3}", jain(&threads)),
            (account.seen.overlaps + account.seen.disorder).to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
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
    Ok(folder.join("contention.svg"))
}

/// A path as seen from here, if that is shorter.
fn shown(path: &Path) -> String {
    let here = env::current_dir().ok();
    let near = here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned));
    near.as_deref().unwrap_or(path).display().to_string()
}

/// The chart goes from 0 % over 90 % and 99 % to 99.9 %: as far as so many nines.
const NINES: u32 = 3;
/// In so many steps each.
const STEPS: u32 = 40;
/// The shortest wait that the chart shows, in ms.
const SHORTEST: f64 = 0.1;

/// Draws how long the waits are: what share of them is over after which time.
fn draw(runs: &[Run], path: &Path) -> Result<()> {
    let longest = runs.iter().map(|run| millis(run.account.waits.max())).fold(10.0, f64::max);
    let root = SVGBackend::new(path, (860, 520)).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!(
        "Waiting for one lock: {PROCESSES} processes × {THREADS} threads, held for {} ms",
        HOLD.as_millis()
    );
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(16)
        .margin_right(40)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..f64::from(NINES), (SHORTEST..longest * 1.5).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("share of waits that are over")
        .y_desc("after, ms")
        .x_labels(NINES as usize + 1)
        .max_light_lines(1)
        .x_label_formatter(&|nines| share(*nines))
        .y_label_formatter(&|wait| format!("{wait}"))
        .light_line_style(BLACK.mix(0.05))
        .bold_line_style(BLACK.mix(0.15))
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 15))
        .draw()?;
    let colours = [
        RGBColor(0, 114, 178),
        RGBColor(213, 94, 0),
        RGBColor(0, 158, 115),
        RGBColor(204, 121, 167),
    ];
    for (run, colour) in runs.iter().zip(colours) {
        let point = |step: u32| {
            let nines = f64::from(step) / f64::from(STEPS);
            let wait = run.account.waits.value_at_quantile(1.0 - 0.1_f64.powf(nines));
            (nines, millis(wait).max(SHORTEST))
        };
        chart
            .draw_series(LineSeries::new((0..=NINES * STEPS).map(point), colour.stroke_width(3)))?
            .label(run.way.title())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(3)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .margin(14)
        .legend_area_size(32)
        .label_font(("sans-serif", 15))
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()?;
    Ok(())
}

/// So many nines as a percentage.
fn share(nines: f64) -> String {
    let rest = 0.1_f64.powf(nines) * 100.0;
    format!("{} %", (100.0 - rest).mul_add(100.0, 0.5).floor() / 100.0)
}

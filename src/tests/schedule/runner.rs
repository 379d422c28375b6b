//! Runs scenarios, as many at a time as there are processors, and prints a table.

use std::io::Write;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};

use crate::base::sync::time;
use crate::tests::schedule::scenario::Scenario;
use crate::tests::schedule::scheduler::Timed;

/// How many changes of priority, less one, a schedule has that is not drawn at random.
const DEPTH: usize = 4;
/// No scenario takes longer on its own clock…
const LONGEST: Duration = Duration::from_secs(300);
/// …or has more steps.
const MOST_STEPS: usize = 200_000;

/// What became of a scenario.
struct Outcome {
    schedules: usize,
    took: Duration,
    held: bool,
}

pub(super) fn run(scenarios: &[Scenario]) {
    let schedules = setting("LEASEHOLD_SCHEDULES", 2_000);
    let seed = setting("LEASEHOLD_SEED", 1);
    let only = std::env::var("LEASEHOLD_SCENARIO").unwrap_or_default();
    let chosen: Vec<&Scenario> =
        scenarios.iter().filter(|scenario| scenario.name.contains(&only)).collect();
    let todo = Mutex::new(chosen.iter().enumerate());
    let outcomes = Mutex::new(Vec::new());
    let began = Instant::now();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                loop {
                    let Some((at, scenario)) = todo.lock().unwrap().next() else { return };
                    let outcome = explore(scenario, schedules, seed);
                    let (name, took) = (scenario.name, outcome.took);
                    let _ = writeln!(std::io::stdout(), "explored: {name}, {took:.1?}");
                    outcomes.lock().unwrap().push((at, outcome));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap();
    outcomes.sort_by_key(|&(at, _)| at);
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["scenario", "schedules", "seconds", "held"]);
    for column in [1, 2] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut total = 0;
    for &(at, Outcome { schedules, took, held }) in &outcomes {
        total += schedules;
        table.add_row([
            chosen[at].name.to_owned(),
            schedules.to_string(),
            format!("{:.1}", took.as_secs_f64()),
            if held { "yes" } else { "NO" }.to_owned(),
        ]);
    }
    let seconds = began.elapsed().as_secs_f64();
    let mut out = std::io::stdout();
    let _ = writeln!(
        out,
        "\n{table}\n{} scenarios, {total} schedules, {seconds:.1} s, seed {seed}",
        chosen.len()
    );
    let failed: Vec<_> =
        outcomes.iter().filter(|(_, o)| !o.held).map(|&(at, _)| chosen[at].name).collect();
    assert!(failed.is_empty(), "not held: {failed:?}");
    assert!(!chosen.is_empty(), "no scenario is called {only:?}");
}

fn setting<T: std::str::FromStr>(name: &str, usual: T) -> T {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is not a number")),
        Err(_) => usual,
    }
}

fn explore(scenario: &Scenario, schedules: usize, seed: u64) -> Outcome {
    let began = Instant::now();
    let (body, hurry) = (scenario.body, scenario.hurry);
    let few = schedules / 2;
    let explored = catch_unwind(|| {
        explore_with(RandomScheduler::new_from_seed(seed, schedules - few), hurry, seed, body)
            + explore_with(PctScheduler::new_from_seed(seed, DEPTH, few), hurry, seed, body)
    });
    Outcome {
        schedules: *explored.as_ref().unwrap_or(&0),
        took: began.elapsed(),
        held: explored.is_ok(),
    }
}

fn explore_with<S: Scheduler + 'static>(scheduler: S, hurry: u32, seed: u64, body: fn()) -> usize {
    let mut config = Config::new();
    config.stack_size = 256 << 10;
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    config.silence_warnings = true;
    Runner::new(Timed::new(scheduler, hurry, seed), config).run(move || {
        time::begin();
        // The jitter of the backoff.
        fastrand::seed(seed);
        drop(shuttle::thread::spawn(body));
        time::keep(LONGEST);
    })
}

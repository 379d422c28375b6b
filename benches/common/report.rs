//! Figures, for people or as lines of JSON.

use std::process::ExitCode;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use leasehold_support::Server;
use leasehold_support::processor::Placement;
use leasehold_support::stat::JsonLine;

/// What two of the columns mean, for people: each is told below the first table that has it.
const MEANINGS: [(&str, &str); 2] = [
    ("jain_", "Jain's index: 1 if all have equally many acquisitions, 1/n if one of n has all"),
    ("overlaps", "overlaps: sections that met another one, or whose token did not grow; must be 0"),
];

/// The keys of a row after `bench`, `row`, `mode` and `placement`, which every row has, null where a
/// figure does not apply.
///
/// `ratio` and `plain_ratio` compare times in rows about the latency of an operation, where less is
/// better, and rates in rows about many threads, where more is better.
const KEYS: [&str; 28] = [
    "processes",
    "threads",
    "names",
    "hold_us",
    "acq_per_s",
    "raw_per_s",
    "ratio",
    "plain_ratio",
    "commands_per_acq",
    "server_us_per_acq",
    "client_us_per_acq",
    "op_p50_us",
    "op_p99_us",
    "raw_p50_us",
    "raw_p99_us",
    "wait_p50_us",
    "wait_p99_us",
    "wait_max_us",
    "beyond_p50_us",
    "beyond_max_us",
    "handover_p50_us",
    "handover_p99_us",
    "jain_threads",
    "jain_processes",
    "overlaps",
    "renewals_per_s",
    "cpu_pct",
    "lost",
];

/// Those of them that people need to see only where they vary.
const SETTINGS: [&str; 4] = ["processes", "threads", "names", "hold_us"];

/// One row of figures.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    row: String,
    mode: String,
    figures: [f64; KEYS.len()],
}

impl Row {
    /// A row without figures yet.
    pub(crate) fn new(row: &str, mode: &str) -> Row {
        Row { row: row.to_owned(), mode: mode.to_owned(), figures: [f64::NAN; KEYS.len()] }
    }

    /// Sets a figure.
    pub(crate) fn set(mut self, key: &str, value: f64) -> Row {
        let place = KEYS.iter().position(|&known| known == key);
        self.figures[place.unwrap_or_else(|| panic!("{key:?} is no key of a row"))] = value;
        self
    }

    fn json(&self, bench: &str, placement: &Placement) -> String {
        let line = JsonLine::new().string("bench", bench).string("row", &self.row);
        let line = line.string("mode", &self.mode).string("placement", &placement.to_string());
        let figures = KEYS.iter().zip(self.figures);
        figures.fold(line, |line, (key, value)| line.number(key, rounded(value))).finish()
    }
}

/// A tenth of a nanosecond is as fine as anything here.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// All that a bench has to tell.
#[derive(Debug)]
pub(crate) struct Report {
    bench: &'static str,
    json: bool,
    placement: Placement,
    meanings: Vec<(&'static str, &'static str)>,
    pending: Vec<Row>,
    notes: Vec<String>,
    budgets: Vec<String>,
    failures: Vec<String>,
}

impl Report {
    /// A report on figures measured with this server; its header is told at once.
    pub(crate) fn new(
        bench: &'static str,
        json: bool,
        server: &Server,
        placement: Placement,
    ) -> Report {
        eprintln!("{}; {placement}", server.version());
        Report {
            bench,
            json,
            placement,
            meanings: MEANINGS.to_vec(),
            pending: Vec::new(),
            notes: Vec::new(),
            budgets: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Adds a row. As JSON it is printed at once.
    pub(crate) fn row(&mut self, row: Row) {
        if self.json {
            println!("{}", row.json(self.bench, &self.placement));
        } else {
            self.pending.push(row);
        }
    }

    /// Adds what people may want to know and no key is for; it comes below the next table, or beside
    /// the JSON.
    pub(crate) fn note(&mut self, note: String) {
        if self.json {
            eprintln!("{note}");
        } else {
            self.notes.push(note);
        }
    }

    /// Ends a table for people, under a title.
    pub(crate) fn table(&mut self, title: &str) {
        let rows = std::mem::take(&mut self.pending);
        let notes = std::mem::take(&mut self.notes);
        if rows.is_empty() {
            return;
        }
        let columns: Vec<usize> = (0..KEYS.len())
            .filter(|&place| rows.iter().any(|row| row.figures[place].is_finite()))
            .filter(|&place| !SETTINGS.contains(&KEYS[place]) || varies(&rows, place))
            .collect();
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let names = columns.iter().map(|&place| KEYS[place]);
        table.set_header(["row", "mode"].into_iter().chain(names));
        for row in &rows {
            let figures = columns.iter().map(|&place| shown(row.figures[place]));
            table.add_row([row.row.clone(), row.mode.clone()].into_iter().chain(figures));
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        println!("\n{title}\n{table}");
        for note in notes {
            println!(" {note}");
        }
        self.meanings.retain(|(key, meaning)| {
            let shown = columns.iter().any(|&place| KEYS[place].starts_with(key));
            if shown {
                println!(" {meaning}");
            }
            !shown
        });
    }

    /// Notes a budget: how a figure stands to what it should be. Missing one is no failure, since
    /// machines differ.
    pub(crate) fn budget(&mut self, what: &str, value: f64, limit: f64, met: bool) {
        let verdict = if met { "met" } else { "NOT MET" };
        self.budgets.push(format!("{verdict:8} {what}: {} (budget {limit})", shown(value)));
    }

    /// Notes a failure unless this holds.
    pub(crate) fn require(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.failures.push(otherwise());
        }
    }

    /// Tells how the budgets stand, and what failed.
    pub(crate) fn finish(mut self) -> ExitCode {
        self.table("more");
        if !self.budgets.is_empty() {
            let budgets = format!("\nbudgets\n{}", self.budgets.join("\n"));
            if self.json { eprintln!("{budgets}") } else { println!("{budgets}") }
        }
        for failure in &self.failures {
            eprintln!("FAILED: {failure}");
        }
        if self.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn varies(rows: &[Row], place: usize) -> bool {
    rows.iter().any(|row| row.figures[place] != rows[0].figures[place])
}

fn shown(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => String::new(),
        size if size == size.trunc() => format!("{value:.0}"),
        size if size < 1000.0 => format!("{value:.3}"),
        _ => format!("{value:.0}"),
    }
}

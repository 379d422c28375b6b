//! The table of the counts, in `table.md`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use crate::count::{COLUMNS, Count};
use crate::observer::differs;
use crate::operation::{End, OPERATIONS};

const HEAD: &str = "\
<!-- Made by: LEASEHOLD_REMAKE=1 cargo test --package leasehold-proof --test cost. The head of main.rs says what the
columns are. A row with \"at most\" counts a span of time, in which a busy machine does less. -->

";
/// Ends the name of an operation that may cost less.
const AT_MOST: &str = ", at most";

/// The counts of operations, by their names.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: BTreeMap<String, [u64; COLUMNS.len()]>,
}

impl Table {
    /// Reads the table that is kept; it may be empty.
    pub(crate) fn read() -> Table {
        let text = fs::read_to_string(path()).expect("the table");
        let mut rows = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with('|')) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let numbers = cells[1..].iter().map(|cell| cell.parse());
            // The head of the table has no numbers.
            let Ok(numbers) = numbers.collect::<Result<Vec<u64>, _>>() else { continue };
            let name = cells[0].strip_suffix(AT_MOST).unwrap_or(cells[0]);
            let numbers = numbers.try_into().expect("a number for each column");
            rows.insert(name.to_owned(), numbers);
        }
        Table { rows }
    }

    /// The table of these counts, in the order of the operations.
    pub(crate) fn of(counts: &[Count]) -> Table {
        let rows = OPERATIONS.iter().zip(counts);
        Table { rows: rows.map(|(it, count)| (it.name.to_owned(), count.columns)).collect() }
    }

    /// What is kept of an operation.
    pub(crate) fn row(&self, name: &str) -> Option<[u64; COLUMNS.len()]> {
        self.rows.get(name).copied()
    }

    /// Keeps it.
    pub(crate) fn write(&self) {
        let names = OPERATIONS.iter().map(|operation| {
            let is_at_most = matches!(operation.end, End::Passed(_));
            let ending = if is_at_most { AT_MOST } else { "" };
            (operation.name, format!("{}{ending}", operation.name))
        });
        let mut text = format!("{HEAD}| operation | {} |\n", COLUMNS.join(" | "));
        writeln!(text, "|{}", " --- |".repeat(COLUMNS.len() + 1)).expect("a string");
        for (name, shown) in names {
            let numbers = self.rows[name].map(|number| number.to_string());
            writeln!(text, "| {shown} | {} |", numbers.join(" | ")).expect("a string");
        }
        fs::write(path(), text).expect("the table is written");
    }

    /// Compares these columns of it with these counts. An error has a line for each difference.
    pub(crate) fn compare(&self, counts: &[Count], columns: &[usize]) -> Result<(), String> {
        let mut text = String::new();
        for (operation, count) in OPERATIONS.iter().zip(counts) {
            let name = operation.name;
            let Some(kept) = self.row(name) else {
                writeln!(text, "{name}: not in the table").expect("a string");
                continue;
            };
            for &number in columns {
                if let Some(value) = differs(count, operation, kept, number) {
                    let (kept, column) = (kept[number], COLUMNS[number]);
                    writeln!(text, "{name}: {value} {column} instead of {kept}: {count}")
                        .expect("a string");
                }
            }
        }
        for name in self.rows.keys() {
            if !OPERATIONS.iter().any(|operation| operation.name == name) {
                writeln!(text, "{name}: in the table only").expect("a string");
            }
        }
        if text.is_empty() { Ok(()) } else { Err(text) }
    }
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cost/table.md")
}

#[test]
fn every_operation_is_in_the_table_once() {
    // First: it may make the table anew.
    crate::counts();
    let kept = Table::read();
    assert!(OPERATIONS.iter().all(|operation| kept.row(operation.name).is_some()));
    assert_eq!(kept.rows.len(), OPERATIONS.len());
}

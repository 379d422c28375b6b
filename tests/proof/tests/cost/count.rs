//! What one repetition of an operation cost.

use std::collections::BTreeMap;
use std::fmt;

use crate::system_call;

/// The columns of the table.
pub(crate) const COLUMNS: [&str; 5] = ["sent", "run", "system calls", "wake-ups", "allocations"];

/// The columns that only a traced process has.
pub(crate) const TRACED: [usize; 3] = [2, 3, 4];

/// What an operation cost, in the order of the columns.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    pub(crate) columns: [u64; COLUMNS.len()],
    /// Which system calls these were.
    pub(crate) system_calls: BTreeMap<i64, u64>,
    /// Which commands the server ran.
    pub(crate) commands: BTreeMap<String, u64>,
    /// Why the process could not be traced.
    pub(crate) untraced: Option<String>,
}

impl Count {
    /// The least of each column of these.
    pub(crate) fn least(counts: &[Count]) -> Count {
        Count::at(counts, 0)
    }

    /// The median of each column of these.
    pub(crate) fn median(counts: &[Count]) -> Count {
        Count::at(counts, counts.len() / 2)
    }

    /// Of each column the one at this place, in order.
    fn at(counts: &[Count], place: usize) -> Count {
        let mut chosen = counts[0].clone();
        for number in 0..COLUMNS.len() {
            let mut values: Vec<u64> = counts.iter().map(|count| count.columns[number]).collect();
            values.sort_unstable();
            chosen.columns[number] = values[place];
        }
        // Shown beside the columns.
        let is_it = |column: usize| {
            let wanted = chosen.columns[column];
            counts.iter().find(move |count| count.columns[column] == wanted)
        };
        let (run, system_calls) = (is_it(1), is_it(2));
        if let (Some(run), Some(system_calls)) = (run, system_calls) {
            chosen.commands.clone_from(&run.commands);
            chosen.system_calls.clone_from(&system_calls.system_calls);
        }
        chosen
    }

    /// Whether a column means something.
    pub(crate) fn has(&self, column: usize) -> bool {
        self.untraced.is_none() || !TRACED.contains(&column)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, value)) in COLUMNS.iter().zip(self.columns).enumerate() {
            let value = if self.has(number) { value.to_string() } else { "-".to_owned() };
            write!(f, "{value} {name}, ")?;
        }
        let calls: Vec<String> = self
            .system_calls
            .iter()
            .map(|(number, count)| format!("{} {count}", system_call::name(*number)))
            .collect();
        let commands: Vec<String> =
            self.commands.iter().map(|(name, count)| format!("{name} {count}")).collect();
        write!(f, "of {}; {}", calls.join(", "), commands.join(", "))
    }
}

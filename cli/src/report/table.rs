//! Rows as text with aligned columns.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr as _;

use crate::report::row::Row;
use crate::report::span::short;

const TITLES: [&str; 9] =
    ["NAME", "KIND", "HOLDER", "HELD", "TTL", "TOKEN", "WAIT", "LONGEST", "BLOCKER"];

/// No column is wider for the sake of a longer cell, which stands out of its line alone.
const WIDEST: usize = 48;

/// The table of `ls` and of `top --once`. No cell is cut.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut lines = vec![TITLES.map(str::to_owned)];
    lines.extend(rows.iter().map(cells));
    let width = |column: usize| {
        let widths = lines.iter().map(|line| line[column].width());
        widths.filter(|width| *width <= WIDEST).max()
    };
    let widths: Vec<usize> = (0..TITLES.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in &lines {
        let mut whole = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(whole, "{cell}{:1$}", "", width.saturating_sub(cell.width()) + 2);
        }
        text.push_str(whole.trim_end());
        text.push('\n');
    }
    text
}

/// What is not known is `?`, what is not there is `-`.
pub(crate) fn cells(row: &Row) -> [String; 9] {
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    [
        row.name.clone(),
        row.kind.to_owned(),
        or_dash(&row.holder),
        held(row),
        ttl(row),
        row.token.map_or_else(|| unknown(row), |token| token.to_string()),
        row.waiting.map_or_else(|| "?".to_owned(), |count| count.to_string()),
        row.longest.map_or_else(|| "-".to_owned(), short),
        or_dash(&row.blocker),
    ]
}

pub(crate) fn held(row: &Row) -> String {
    row.held.map_or_else(|| unknown(row), short)
}

pub(crate) fn ttl(row: &Row) -> String {
    match row.ttl {
        Some(_) if row.is_overdue => "over".to_owned(),
        Some(ttl) => short(ttl),
        None if row.is_held => "never".to_owned(),
        None => "-".to_owned(),
    }
}

fn unknown(row: &Row) -> String {
    if row.is_held { "?" } else { "-" }.to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_letters_and_not_as_one_long_name() {
        let row = |name: &str| Row { name: name.into(), kind: "mutex", ..Row::default() };
        let table = table(&[row("東京"), row("🔒"), row("ab"), row(&"x".repeat(3_000))]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[1..4].iter().map(|line| line.find("mutex")).collect::<Vec<_>>(),
            [Some(8), Some(8), Some(6)]
        );
        assert!(lines[4].starts_with(&"x".repeat(3_000)) && lines[0].starts_with("NAME  KIND"));
    }

    #[test]
    fn columns_are_aligned_and_gaps_are_marked() {
        let ours = Row {
            name: "orders:42".into(),
            kind: "mutex",
            holder: "7@web".into(),
            is_held: true,
            held: Some(Duration::from_secs(1)),
            ttl: Some(Duration::from_secs(29)),
            token: Some(5),
            waiting: Some(0),
            ..Row::default()
        };
        let silent = Row { is_overdue: true, ttl: Some(Duration::ZERO), ..ours.clone() };
        assert_eq!(ttl(&silent), "over");
        let foreign = Row {
            name: "é".into(),
            kind: "plain",
            holder: "x".into(),
            is_held: true,
            ..Row::default()
        };
        assert_eq!(
            table(&[ours, foreign]),
            "NAME       KIND   HOLDER  HELD  TTL    TOKEN  WAIT  LONGEST  BLOCKER\n\
             orders:42  mutex  7@web   1.0s  29.0s  5      0     -        -\n\
             é          plain  x       ?     never  ?      ?     -        -\n"
        );
    }
}

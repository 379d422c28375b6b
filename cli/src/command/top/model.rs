//! What `top` shows: which rows in which order, and what the keys change. No I/O.

use std::cmp::{Ordering, Reverse};
use std::time::Duration;

use clap::ValueEnum;
use ratatui::crossterm::event::KeyCode;

use crate::report::row::Row;

/// What the rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Order {
    /// How many wait, and then for how long.
    Blocking,
    /// The longest wait.
    Longest,
    /// The longest hold.
    Held,
    /// The lease that ends first.
    Ttl,
    Name,
}

impl Order {
    pub(super) fn word(self) -> &'static str {
        match self {
            Order::Blocking => "blocking",
            Order::Longest => "longest",
            Order::Held => "held",
            Order::Ttl => "ttl",
            Order::Name => "name",
        }
    }

    fn next(self) -> Order {
        match self {
            Order::Blocking => Order::Longest,
            Order::Longest => Order::Held,
            Order::Held => Order::Ttl,
            Order::Ttl => Order::Name,
            Order::Name => Order::Blocking,
        }
    }

    /// No two rows are equal, so that rows do not jump from refresh to refresh.
    pub(super) fn compare(self, one: &Row, other: &Row) -> Ordering {
        let by = match self {
            Order::Blocking => {
                let key = |row: &Row| Reverse((row.waiting.unwrap_or(0), row.longest));
                key(one).cmp(&key(other))
            }
            Order::Longest => other.longest.cmp(&one.longest),
            Order::Held => other.held.cmp(&one.held),
            Order::Ttl => {
                // No lease comes last, a lease without an end before that.
                let key = |row: &Row| (!row.is_held, row.ttl.unwrap_or(Duration::MAX));
                key(one).cmp(&key(other))
            }
            Order::Name => Ordering::Equal,
        };
        by.then_with(|| (&one.name, one.kind).cmp(&(&other.name, other.kind)))
    }
}

/// What the screen shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    List,
    /// The list, while a filter is typed.
    Filter,
    /// One lock; the first of its lines on the screen.
    Detail(usize),
}

/// What a key asks of the rest of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    None,
    Quit,
    Pause(bool),
}

#[derive(Debug)]
pub(super) struct Model {
    /// All rows, in order.
    rows: Vec<Row>,
    pub(super) order: Order,
    pub(super) filter: String,
    pub(super) view: View,
    pub(super) is_paused: bool,
    /// Name and kind of the chosen row; none for the first one, whichever it is.
    chosen: Option<(String, &'static str)>,
    /// How long the last refresh took.
    pub(super) took: Duration,
    /// How many locks the server does not let this user look at.
    pub(super) denied: usize,
    /// Why the last refresh failed.
    pub(super) error: Option<String>,
}

impl Model {
    pub(super) fn new(order: Order) -> Model {
        Model {
            rows: Vec::new(),
            order,
            filter: String::new(),
            view: View::List,
            is_paused: false,
            chosen: None,
            took: Duration::ZERO,
            denied: 0,
            error: None,
        }
    }

    /// Takes what the server has now.
    pub(super) fn update(&mut self, rows: Vec<Row>, took: Duration) {
        (self.rows, self.took, self.error) = (rows, took, None);
        self.sort();
    }

    /// A refresh failed: what is shown stays.
    pub(super) fn fail(&mut self, error: String) {
        self.error = Some(error);
    }

    fn sort(&mut self) {
        let order = self.order;
        self.rows.sort_by(|one, other| order.compare(one, other));
    }

    pub(super) fn all(&self) -> &[Row] {
        &self.rows
    }

    /// The rows that pass the filter.
    pub(super) fn visible(&self) -> Vec<&Row> {
        let has = |text: &str| text.to_lowercase().contains(&self.filter.to_lowercase());
        let passes = |row: &&Row| {
            self.filter.is_empty() || has(&row.name) || has(&row.holder) || has(row.kind)
        };
        self.rows.iter().filter(passes).collect()
    }

    /// The place of the chosen row among the visible ones. A row that has gone leaves the first one.
    pub(super) fn place(&self, visible: &[&Row]) -> usize {
        let is_chosen = |row: &&Row| {
            self.chosen.as_ref().is_some_and(|(name, kind)| row.name == *name && row.kind == *kind)
        };
        visible.iter().position(is_chosen).unwrap_or(0)
    }

    /// `page` is the number of rows on the screen.
    pub(super) fn key(&mut self, key: KeyCode, page: usize) -> Action {
        match (self.view, key) {
            (View::Filter, KeyCode::Char(letter)) => self.filter.push(letter),
            (View::Filter, KeyCode::Backspace) => _ = self.filter.pop(),
            (View::Filter, KeyCode::Enter) => self.view = View::List,
            (View::Filter, KeyCode::Esc) => {
                self.filter.clear();
                self.view = View::List;
            }
            (View::Detail(_), KeyCode::Esc | KeyCode::Enter) => self.view = View::List,
            (View::Detail(first), key) if step(key, page).is_some() => {
                let step = step(key, page).unwrap_or(0);
                self.view = View::Detail(first.saturating_add_signed(step));
            }
            (_, KeyCode::Char('q')) => return Action::Quit,
            (_, KeyCode::Char('p' | ' ')) => {
                self.is_paused = !self.is_paused;
                return Action::Pause(self.is_paused);
            }
            (View::List, KeyCode::Char('s')) => {
                self.order = self.order.next();
                self.sort();
            }
            (View::List, KeyCode::Char('/')) => self.view = View::Filter,
            (View::List, KeyCode::Esc) => self.filter.clear(),
            (View::List, KeyCode::Enter) if !self.visible().is_empty() => {
                // From here on it is this lock that is looked at, also when another comes first.
                self.move_by(0);
                self.view = View::Detail(0);
            }
            (View::List, KeyCode::Home) => self.chosen = None,
            (View::List, key) => {
                if let Some(step) = step(key, page) {
                    self.move_by(step);
                }
            }
            _ => {}
        }
        Action::None
    }

    fn move_by(&mut self, step: isize) {
        let visible = self.visible();
        let Some(last) = visible.len().checked_sub(1) else { return };
        let row = visible[self.place(&visible).saturating_add_signed(step).min(last)];
        self.chosen = Some((row.name.clone(), row.kind));
    }

    /// The row whose details are shown.
    pub(super) fn chosen_row(&self) -> Option<&Row> {
        let (name, kind) = self.chosen.as_ref()?;
        self.rows.iter().find(|row| row.name == *name && row.kind == *kind)
    }

    pub(super) fn chosen_name(&self) -> Option<&str> {
        self.chosen.as_ref().map(|(name, _)| name.as_str())
    }
}

/// How far a key moves.
fn step(key: KeyCode, page: usize) -> Option<isize> {
    let page = isize::try_from(page.max(1)).unwrap_or(isize::MAX);
    match key {
        KeyCode::Up | KeyCode::Char('k') => Some(-1),
        KeyCode::Down | KeyCode::Char('j') => Some(1),
        KeyCode::PageUp => Some(-page),
        KeyCode::PageDown => Some(page),
        KeyCode::End => Some(isize::MAX),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn row(name: &str, waiting: usize, seconds: u64) -> Row {
        let longest = (waiting > 0).then_some(Duration::from_secs(seconds));
        Row {
            name: name.to_owned(),
            kind: "mutex",
            holder: "7@web".to_owned(),
            is_held: true,
            held: Some(Duration::from_secs(100 - seconds)),
            ttl: Some(Duration::from_secs(seconds)),
            waiting: Some(waiting),
            longest,
            ..Row::default()
        }
    }

    fn model() -> Model {
        let mut model = Model::new(Order::Blocking);
        let rows = vec![row("a", 0, 9), row("b", 2, 3), row("c", 2, 5), row("d", 1, 7)];
        model.update(rows, Duration::ZERO);
        model
    }

    fn names(model: &Model) -> String {
        model.visible().iter().map(|row| row.name.as_str()).collect()
    }

    fn press(model: &mut Model, keys: &str) {
        for key in keys.chars() {
            let key = match key {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                key => KeyCode::Char(key),
            };
            assert_eq!(model.key(key, 10), Action::None);
        }
    }

    #[test]
    fn row_with_the_most_waiters_is_first() {
        assert_eq!(names(&model()), "cbda");
    }

    #[test]
    fn each_order_sorts_by_its_column() {
        let mut model = model();
        for (order, expected) in [
            (Order::Longest, "dcba"),
            (Order::Held, "bcda"),
            (Order::Ttl, "bcda"),
            (Order::Name, "abcd"),
            (Order::Blocking, "cbda"),
        ] {
            press(&mut model, "s");
            assert_eq!((model.order, names(&model)), (order, expected.to_owned()));
        }
    }

    #[test]
    fn lease_without_end_comes_after_those_with_one() {
        let mut model = Model::new(Order::Ttl);
        let (mut endless, mut free) = (row("a", 0, 1), row("b", 1, 1));
        endless.ttl = None;
        (free.ttl, free.is_held) = (None, false);
        model.update(vec![free, endless, row("c", 0, 9)], Duration::ZERO);
        assert_eq!(names(&model), "cab");
    }

    #[test]
    fn filter_matches_name_holder_and_kind() {
        let mut model = model();
        press(&mut model, "/B\n");
        assert_eq!(names(&model), "cbda", "the holder has a b");
        press(&mut model, "\x1b/c\n");
        assert_eq!(names(&model), "c");
        press(&mut model, "/zz");
        assert_eq!(names(&model), "", "letters go on where the filter ended");
        press(&mut model, "\x1b");
        assert_eq!((names(&model), model.view), ("cbda".to_owned(), View::List));
        // Letters that are keys elsewhere.
        press(&mut model, "/qsp");
        assert_eq!(model.filter, "qsp");
        assert_eq!(model.key(KeyCode::Backspace, 10), Action::None);
        assert_eq!(model.filter, "qs");
    }

    #[test]
    fn choice_stays_with_its_lock() {
        let mut model = model();
        press(&mut model, "j");
        model.update(vec![row("a", 9, 9), row("b", 8, 3), row("c", 2, 5)], Duration::ZERO);
        assert_eq!(model.place(&model.visible()), 1);
        model.update(vec![row("a", 9, 9), row("c", 2, 5)], Duration::ZERO);
        assert_eq!(model.place(&model.visible()), 0, "it has gone");
        let untouched = self::model();
        assert_eq!(untouched.place(&untouched.visible()), 0);
    }

    #[test]
    fn moves_end_at_the_first_and_the_last_row() {
        let mut model = model();
        for (key, place) in [
            (KeyCode::Up, 0),
            (KeyCode::PageDown, 3),
            (KeyCode::Down, 3),
            (KeyCode::PageUp, 0),
            (KeyCode::End, 3),
            (KeyCode::Home, 0),
        ] {
            model.key(key, 10);
            assert_eq!(model.place(&model.visible()), place, "{key:?}");
        }
        let mut empty = Model::new(Order::Name);
        press(&mut empty, "jk\n");
        assert_eq!(empty.view, View::List);
    }

    #[test]
    fn detail_stays_with_the_lock_when_rows_change() {
        let mut model = model();
        press(&mut model, "\n");
        model.update(vec![row("a", 9, 9), row("c", 2, 5)], Duration::ZERO);
        assert_eq!(model.chosen_row().map(|row| row.name.as_str()), Some("c"));
        press(&mut model, "jj");
        assert_eq!(model.view, View::Detail(2));
        press(&mut model, "\x1b");
        assert_eq!(model.view, View::List);
    }

    #[test]
    fn keys_quit_and_pause() {
        let mut model = model();
        assert_eq!(model.key(KeyCode::Char('p'), 1), Action::Pause(true));
        assert_eq!(model.key(KeyCode::Char(' '), 1), Action::Pause(false));
        assert_eq!(model.key(KeyCode::Char('q'), 1), Action::Quit);
        press(&mut model, "\n");
        assert_eq!(model.key(KeyCode::Char('q'), 1), Action::Quit);
    }

    #[test]
    fn failed_refresh_keeps_what_is_shown() {
        let mut model = model();
        model.fail("gone".to_owned());
        assert_eq!((names(&model), model.error.as_deref()), ("cbda".to_owned(), Some("gone")));
        model.update(Vec::new(), Duration::ZERO);
        assert_eq!(model.error, None);
    }
}

//! The model as a screen.
//!
//! Colour only adds: what it says is said by words, too. Each refresh changes few cells, so that a slow line
//! carries it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

use super::model::{Model, View};
use crate::report::row::Row;
use crate::report::span::short;
use crate::report::table::cells;

const KEYS: &str = "q quit  s sort  / filter  Enter one lock  p pause";
/// Lines that are no rows: the summary, the titles, the blocker, the keys.
const FRAME: u16 = 4;

/// Which column of [`cells`], and how wide; those without a width share what is left.
struct Column {
    title: &'static str,
    cell: usize,
    width: Option<usize>,
    /// What does not fit is cut at the left: the last digits of a token tell it from others.
    cut_left: bool,
}

const fn column(title: &'static str, cell: usize, width: Option<usize>) -> Column {
    Column { title, cell, width, cut_left: false }
}

const NAME: Column = column("NAME", 0, None);
const KIND: Column = column("KIND", 1, Some(10));
const HOLDER: Column = column("HOLDER", 2, None);
const HELD: Column = column("HELD", 3, Some(6));
const TTL: Column = column("TTL", 4, Some(6));
const TOKEN: Column = Column { title: "TOKEN", cell: 5, width: Some(7), cut_left: true };
const WHOLE_TOKEN: Column = column("TOKEN", 5, Some(16));
const WAIT: Column = column("WAIT", 6, Some(4));
const LONGEST: Column = column("LONG", 7, Some(6));
const BLOCKER: Column = column("BLOCKER", 8, None);

/// Those that a terminal of this width has room for.
fn columns(width: u16) -> Vec<Column> {
    match width {
        ..60 => vec![NAME, HOLDER, WAIT, LONGEST],
        60..110 => vec![NAME, KIND, HOLDER, HELD, TTL, TOKEN, WAIT, LONGEST],
        _ => vec![NAME, KIND, HOLDER, HELD, TTL, WHOLE_TOKEN, WAIT, LONGEST, BLOCKER],
    }
}

/// How many rows fit.
pub(super) fn page(height: u16) -> usize {
    usize::from(height.saturating_sub(FRAME))
}

/// Draws the model. `has_colour` is false where the user wants none.
pub(super) fn draw(model: &Model, area: Rect, buffer: &mut Buffer, has_colour: bool) {
    let mut page = Page { area, buffer, has_colour };
    match model.view {
        View::Detail(first) => page.detail(model, first),
        View::List | View::Filter => page.list(model),
    }
}

struct Page<'a> {
    area: Rect,
    buffer: &'a mut Buffer,
    has_colour: bool,
}

impl Page<'_> {
    fn list(&mut self, model: &Model) {
        let visible = model.visible();
        let columns = columns(self.area.width);
        let widths = widths(&columns, usize::from(self.area.width));
        let plain = Style::new();
        self.line(0, &summary(model, visible.len()), plain.add_modifier(Modifier::BOLD));
        let titles = columns.iter().map(|column| column.title.to_owned());
        self.cells(1, &columns, &widths, titles, plain.add_modifier(Modifier::REVERSED));

        let (page, place) = (page(self.area.height), model.place(&visible));
        // The chosen row is on the screen, and the first rows stay as long as they can.
        let first = (place + 1).saturating_sub(page.max(1));
        for (number, row) in visible.iter().enumerate().skip(first).take(page) {
            let y = u16::try_from(number - first + 2).unwrap_or(u16::MAX);
            let mut style = plain;
            if row.waiting.is_some_and(|it| it > 0) {
                style = style.add_modifier(Modifier::BOLD);
                if self.has_colour {
                    style = style.fg(Color::Yellow);
                }
            }
            if number == place {
                style = style.add_modifier(Modifier::UNDERLINED);
            }
            let all = cells(row);
            let shown = columns.iter().map(|column| all[column.cell].clone());
            self.cells(y, &columns, &widths, shown, style);
        }
        let height = self.area.height;
        let chosen = visible.get(place).copied();
        if let Some(y) = height.checked_sub(2).filter(|y| *y > 1) {
            self.status(y, model, chosen);
        }
        if let Some(y) = height.checked_sub(1).filter(|y| *y > 0) {
            let keys = match model.view {
                View::Filter => {
                    format!("filter: {}_  (Enter keeps it, Esc clears it)", model.filter)
                }
                _ => KEYS.to_owned(),
            };
            self.line(y, &keys, plain);
        }
    }

    /// What went wrong, or who blocks the chosen lock.
    fn status(&mut self, y: u16, model: &Model, chosen: Option<&Row>) {
        match (&model.error, chosen) {
            (Some(error), _) => self.error(y, error),
            (None, Some(row)) if !row.blocker.is_empty() => {
                self.line(y, &format!("{} is blocked by {}", row.name, row.blocker), Style::new());
            }
            _ => {}
        }
    }

    fn error(&mut self, y: u16, error: &str) {
        let mut style = Style::new().add_modifier(Modifier::BOLD);
        if self.has_colour {
            style = style.fg(Color::Red);
        }
        self.line(y, &format!("not refreshed: {error}"), style);
    }

    fn detail(&mut self, model: &Model, first: usize) {
        let name = model.chosen_name().unwrap_or_default();
        let row = model.chosen_row();
        let title = format!("{} {name}", row.map_or("lock", |row| row.kind));
        self.line(0, &title, Style::new().add_modifier(Modifier::REVERSED));
        let text = row.map_or("free", |row| row.detail.as_str());
        let mut lines: Vec<&str> = text.lines().collect();
        let blocker = row.map(|row| format!("blocked by {}", row.blocker));
        if row.is_some_and(|row| !row.blocker.is_empty()) {
            lines.extend(blocker.as_deref());
        }
        let room = usize::from(self.area.height.saturating_sub(2));
        let first = first.min(lines.len().saturating_sub(room));
        for (y, line) in (1..).zip(lines.iter().skip(first).take(room)) {
            self.line(y, line, Style::new());
        }
        if let Some(y) = self.area.height.checked_sub(1).filter(|y| *y > 0) {
            match &model.error {
                Some(error) => self.error(y, error),
                None => self.line(y, "Esc back  q quit", Style::new()),
            }
        }
    }

    fn line(&mut self, y: u16, text: &str, style: Style) {
        let width = usize::from(self.area.width);
        self.put(0, y, &fitted(text, width, false), width, style);
    }

    fn cells(
        &mut self,
        y: u16,
        columns: &[Column],
        widths: &[usize],
        cells: impl Iterator<Item = String>,
        style: Style,
    ) {
        // The style goes through the gaps.
        self.put(
            0,
            y,
            &" ".repeat(usize::from(self.area.width)),
            usize::from(self.area.width),
            style,
        );
        let mut x = 0;
        for ((column, width), cell) in columns.iter().zip(widths).zip(cells) {
            self.put(x, y, &fitted(&cell, *width, column.cut_left), *width, style);
            x += width + 1;
        }
    }

    fn put(&mut self, x: usize, y: u16, text: &str, width: usize, style: Style) {
        let Ok(x) = u16::try_from(x) else { return };
        // A terminal that is too small for it shows less.
        if x < self.area.width && y < self.area.height {
            let width = width.min(usize::from(self.area.width - x));
            self.buffer.set_stringn(self.area.x + x, self.area.y + y, text, width, style);
        }
    }
}

fn summary(model: &Model, visible: usize) -> String {
    let all = model.all().len();
    let counts = model.all().iter().filter_map(|row| row.waiting);
    // Each is what a server says.
    let waiting = counts.fold(0, usize::saturating_add);
    let mut text = format!("leasehold top: {all} locks, {waiting} wait");
    if visible != all {
        text += &format!(", {visible} shown for \"{}\"", model.filter);
    }
    if model.denied > 0 {
        text += &format!(", {} denied", model.denied);
    }
    text += &format!("; by {}; read in {}", model.order.word(), short(model.took));
    if model.is_paused {
        text += "; PAUSED";
    }
    text
}

/// The widths of these columns in a line of this width.
fn widths(columns: &[Column], whole: usize) -> Vec<usize> {
    let fixed: usize = columns.iter().filter_map(|column| column.width).sum();
    let left = whole.saturating_sub(fixed + columns.len().saturating_sub(1));
    let sharing = columns.iter().filter(|column| column.width.is_none()).count().max(1);
    // What cannot be divided goes to the first: names are what people look for.
    let mut rest = left % sharing;
    let width = |column: &Column| {
        column.width.unwrap_or_else(|| left / sharing + std::mem::take(&mut rest))
    };
    columns.iter().map(width).collect()
}

/// The text, or what fits of it with a mark where it was cut.
fn fitted(text: &str, width: usize, cut_left: bool) -> String {
    let size = |text: &str| Span::raw(text).width();
    if size(text) <= width || width == 0 {
        return text.to_owned();
    }
    let size_of = |letter: &char| size(letter.encode_utf8(&mut [0; 4]));
    // Each letter that fits is measured once: a name may have megabytes.
    let mut left = width - 1;
    let mut fits = |letter: &char| {
        let rest = left.checked_sub(size_of(letter));
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    if cut_left {
        let kept: Vec<char> = text.chars().rev().take_while(&mut fits).collect();
        std::iter::once('…').chain(kept.into_iter().rev()).collect()
    } else {
        text.chars().take_while(&mut fits).chain(std::iter::once('…')).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::super::model::tests::row;
    use super::super::model::{Model, Order};
    use super::*;

    fn model() -> Model {
        let mut model = Model::new(Order::Blocking);
        let mut orders = row("orders:42", 2, 3);
        orders.token = Some(1_795_627_722_131_071);
        orders.blocker = "4711@web-3 (has stock)".to_owned();
        orders.detail = "held by 4711@web-3\n2 wait:\n  1. one\n  2. another".to_owned();
        let mut plain = row("a-name-that-is-much-too-long-for-its-column", 0, 0);
        (plain.kind, plain.ttl, plain.held) = ("plain", None, None);
        model.update(vec![plain, orders], Duration::from_millis(12));
        model
    }

    fn screen(model: &Model, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let draw = |frame: &mut ratatui::Frame<'_>| {
            draw(model, frame.area(), frame.buffer_mut(), true);
        };
        terminal.draw(draw).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn screen_of_80_columns_has_all_that_matters() {
        assert_eq!(
            screen(&model(), 80, 8),
            [
                "leasehold top: 2 locks, 2 wait; by blocking; read in 12ms",
                "NAME              KIND       HOLDER            HELD   TTL    TOKEN   WAIT LONG",
                "orders:42         mutex      7@web             1m37s  3.0s   …131071 2    3.0s",
                "a-name-that-is-m… plain      7@web             ?      never  ?       0    -",
                "",
                "",
                "orders:42 is blocked by 4711@web-3 (has stock)",
                "q quit  s sort  / filter  Enter one lock  p pause",
            ]
        );
    }

    #[test]
    fn locks_that_are_denied_are_counted() {
        let mut model = model();
        model.denied = 3;
        let first = "leasehold top: 2 locks, 2 wait, 3 denied; by blocking; read in 12ms";
        assert_eq!(screen(&model, 80, 8)[0], first);
    }

    #[test]
    fn wide_screen_shows_whole_tokens_and_blockers() {
        let screen = screen(&model(), 130, 8);
        assert!(screen[1].ends_with("BLOCKER"), "{screen:#?}");
        assert!(screen[2].contains("1795627722131071 2    3.0s   4711@web-3 (has stock)"));
    }

    #[test]
    fn detail_shows_the_whole_inspection() {
        let mut model = model();
        model.key(KeyCode::Enter, 4);
        let lines =
            ["mutex orders:42", "held by 4711@web-3", "2 wait:", "  1. one", "  2. another"];
        let end = ["blocked by 4711@web-3 (has stock)", "", "Esc back  q quit"];
        assert_eq!(screen(&model, 80, 8), [&lines[..], &end].concat());
        // It scrolls to its last line and no further.
        (0..9).for_each(|_| _ = model.key(KeyCode::Down, 4));
        assert_eq!(screen(&model, 80, 4)[1..3], ["  2. another", end[0]]);
        model.update(Vec::new(), Duration::ZERO);
        assert_eq!(screen(&model, 80, 4)[..2], ["lock orders:42", "free"]);
    }

    #[test]
    fn chosen_row_scrolls_into_view() {
        let mut model = Model::new(Order::Name);
        let rows = (0..50).map(|number| row(&format!("n{number:02}"), 0, 0)).collect();
        model.update(rows, Duration::ZERO);
        model.key(KeyCode::End, 4);
        let screen = screen(&model, 80, 8);
        assert!(screen[2].starts_with("n46") && screen[5].starts_with("n49"), "{screen:#?}");
    }

    #[test]
    fn error_and_pause_are_said_in_words() {
        let mut model = model();
        model.fail("no reply".to_owned());
        model.key(KeyCode::Char('p'), 4);
        let screen = screen(&model, 80, 8);
        assert!(screen[0].ends_with("PAUSED"), "{screen:#?}");
        assert_eq!(screen[6], "not refreshed: no reply");
    }

    #[test]
    fn no_size_of_the_terminal_is_too_small() {
        let mut model = model();
        for enter in [false, true] {
            if enter {
                model.key(KeyCode::Enter, 1);
            }
            for (width, height) in
                (0..70).flat_map(|width| (0..8).map(move |height| (width, height)))
            {
                let area = Rect::new(0, 0, width, height);
                draw(&model, area, &mut Buffer::empty(area), true);
            }
        }
    }

    #[test]
    fn wide_letters_stay_in_their_column() {
        assert_eq!(fitted("東京東京", 5, false), "東京…");
        assert_eq!(fitted("東京", 4, false), "東京");
        assert_eq!(fitted("1234567890", 4, true), "…890");
    }

    #[test]
    fn no_colour_is_used_where_none_is_wanted() {
        let area = Rect::new(0, 0, 80, 8);
        let mut buffer = Buffer::empty(area);
        draw(&model(), area, &mut buffer, false);
        let is_plain =
            |cell: &ratatui::buffer::Cell| cell.fg == Color::Reset && cell.bg == Color::Reset;
        assert!(buffer.content.iter().all(is_plain));
        draw(&model(), area, &mut buffer, true);
        assert!(!buffer.content.iter().all(is_plain));
    }

    /// The times of a hold that goes on are most of what changes.
    #[test]
    fn refresh_changes_few_cells() {
        let area = Rect::new(0, 0, 80, 24);
        let frame = |seconds: u64| {
            let mut model = Model::new(Order::Name);
            let hold = |number| {
                let mut row = row(&format!("n{number:02}"), 0, 0);
                row.held = Some(Duration::from_secs(seconds));
                row.ttl = Some(Duration::from_secs(59 - seconds));
                row
            };
            model.update((0..20).map(hold).collect(), Duration::ZERO);
            let mut buffer = Buffer::empty(area);
            draw(&model, area, &mut buffer, true);
            buffer
        };
        let changed = frame(11).diff(&frame(12)).len();
        assert_eq!(changed, 40, "one digit for each of two times in 20 rows");
    }
}

//! What happened between threads and Redis, as a drawing: time goes down, each thread has a lane,
//! and what Redis keeps stands on the right.

use super::Result;
use super::svg::{Anchor, Canvas, WIDTH};

/// Where the first thread has its lane, and the last at most.
const FIRST: i32 = 40;
const LAST: i32 = 232;
const REDIS: i32 = 468;
/// What Redis keeps.
const KEYS: i32 = 488;
const VALUES: i32 = KEYS + 118;
const ROW: i32 = 17;
const CAPTION: i32 = 26;
const TOP: i32 = 44;

/// A story that was told by a server and its clients.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) title: String,
    pub(crate) description: String,
    /// The threads.
    pub(crate) lanes: Vec<String>,
    pub(crate) steps: Vec<Step>,
}

/// A part of the story, and what Redis keeps at its end.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) caption: String,
    pub(crate) events: Vec<Event>,
    pub(crate) keys: Vec<Row>,
}

/// A key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) value: String,
    /// Whether it was another before the step.
    pub(crate) is_new: bool,
}

/// What happens on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) lane: usize,
    pub(crate) what: What,
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The program calls the library.
    Call,
    /// The thread waits from now on.
    Waits,
    /// The thread has a guard from now on.
    Holds,
    /// The thread neither waits nor holds from now on; no line of its own.
    Rests,
    Request,
    Reply,
    /// A message, and whether it is lost on its way.
    Message(bool),
}

impl Sequence {
    pub(crate) fn draw(&self) -> Result<String> {
        let mut page = Canvas::default();
        let mut front = Canvas::default();
        let mut bars: Vec<Bar> = self.lanes.iter().map(|_| Bar::default()).collect();
        let mut back = Canvas::default();
        let mut y = TOP;
        for (number, step) in (1..).zip(&self.steps) {
            front.rect("band", (0, y), (WIDTH, CAPTION - 4));
            let caption = format!("{number}   {}", step.caption);
            front.text("strong", Anchor::Start, (12, y + 15), &caption);
            y += CAPTION;
            let top = y;
            for event in &step.events {
                y = self.event(event, y, &mut front, &mut bars, &mut back);
            }
            let bottom = keys(&mut front, &step.keys, top + 3);
            y = y.max(bottom) + 6;
        }
        for (lane, bar) in bars.iter_mut().enumerate() {
            bar.end(self.x(lane), y, &mut back);
        }
        for lane in 0..self.lanes.len() {
            page.line("life", (self.x(lane), TOP), (self.x(lane), y));
        }
        page.line("line", (REDIS, TOP), (REDIS, y));
        page.add(back);
        page.add(front);
        for (lane, name) in self.lanes.iter().enumerate() {
            head(&mut page, self.x(lane), name);
        }
        head(&mut page, REDIS, "Redis");
        page.text("dim", Anchor::Start, (KEYS + 40, 27), "what Redis keeps after the step");
        legend(&mut page, y + 8);
        page.finish(y + 34, &self.title, &self.description)
    }

    fn x(&self, lane: usize) -> i32 {
        let gaps = i32::try_from(self.lanes.len()).unwrap_or(1).max(3) - 1;
        FIRST + (LAST - FIRST) / gaps * i32::try_from(lane).unwrap_or(0)
    }

    /// Draws one event below `y`. Returns where the next begins.
    fn event(
        &self,
        event: &Event,
        y: i32,
        front: &mut Canvas,
        bars: &mut [Bar],
        back: &mut Canvas,
    ) -> i32 {
        let (x, text) = (self.x(event.lane), event.text.as_str());
        let bar = &mut bars[event.lane];
        match event.what {
            What::Call => {
                front.label("code", Anchor::Start, (x + 9, y + 12), text);
                y + 17
            }
            What::Waits => {
                bar.begin("waits", x, y, back);
                y
            }
            What::Rests => {
                bar.end(x, y, back);
                y
            }
            What::Holds => {
                bar.begin("holds", x, y + 3, back);
                front.label("code holds-text", Anchor::Start, (x + 9, y + 12), text);
                y + 17
            }
            What::Request | What::Reply | What::Message(_) => {
                let (left, right, line) = ((x + 6, y + 18), (REDIS - 2, y + 18), ("line", "head"));
                let class = match event.what {
                    What::Request => {
                        front.arrow(line, left, right);
                        "code"
                    }
                    What::Reply => {
                        front.arrow(line, right, left);
                        "code dim"
                    }
                    What::Message(true) => {
                        let middle = (x + 60, left.1);
                        front.line("told", right, middle);
                        front.cross(middle);
                        "code told-text"
                    }
                    _ => {
                        front.arrow(("told", "told-head"), right, left);
                        "code told-text"
                    }
                };
                front.label(class, Anchor::End, (REDIS - 10, y + 14), text);
                y + 23
            }
        }
    }
}

/// How long a thread waits or holds.
#[derive(Debug, Default)]
struct Bar(Option<(&'static str, i32)>);

impl Bar {
    fn begin(&mut self, class: &'static str, x: i32, y: i32, back: &mut Canvas) {
        self.end(x, y, back);
        self.0 = Some((class, y));
    }

    fn end(&mut self, x: i32, y: i32, back: &mut Canvas) {
        // One that is over at once is not seen.
        if let Some((class, from)) = self.0.take().filter(|(_, from)| y - from > 4) {
            back.rect(class, (x - 4, from), (8, y - from));
        }
    }
}

fn head(page: &mut Canvas, x: i32, name: &str) {
    let width = 16 + 7 * i32::try_from(name.chars().count()).unwrap_or(0);
    let left = (x - width / 2).max(4);
    page.rect("box", (left, 10), (width, 26));
    page.text("strong", Anchor::Middle, (left + width / 2, 27), name);
}

/// Draws what Redis keeps. Returns where that ends.
fn keys(front: &mut Canvas, rows: &[Row], top: i32) -> i32 {
    let height = 8 + ROW * i32::try_from(rows.len()).unwrap_or(0);
    front.rect("box", (KEYS, top), (WIDTH - KEYS - 8, height));
    let mut y = top;
    for row in rows {
        y += ROW;
        front.text("code dim", Anchor::Start, (KEYS + 12, y), &row.key);
        let class = if row.is_new {
            front.rect("new", (KEYS + 4, y - 9), (3, 11));
            "code strong new-text"
        } else {
            "code"
        };
        front.text(class, Anchor::Start, (VALUES, y), &row.value);
    }
    top + height
}

fn legend(page: &mut Canvas, y: i32) {
    let base = y + 14;
    let mut x = 12;
    page.rect("holds", (x, y + 4), (8, 12));
    page.text("dim", Anchor::Start, (x + 14, base), "holds");
    x += 70;
    page.rect("waits", (x, y + 4), (8, 12));
    page.text("dim", Anchor::Start, (x + 14, base), "waits");
    x += 70;
    page.arrow(("line", "head"), (x, y + 10), (x + 30, y + 10));
    page.text("dim", Anchor::Start, (x + 38, base), "request, reply");
    x += 150;
    page.arrow(("told", "told-head"), (x + 30, y + 10), (x, y + 10));
    page.text("dim", Anchor::Start, (x + 38, base), "published message");
    x += 196;
    page.rect("new", (x, y + 4), (3, 12));
    page.text("dim", Anchor::Start, (x + 10, base), "changed by the step");
}

//! An SVG file: shapes and text, readable on a light and on a dark page.
//!
//! A text knows about how much room it takes. A drawing whose texts overlap, or leave the page, is
//! an error.

use std::fmt::Write as _;

use super::Result;

/// The width of every drawing: that of a page on the forge.
pub(crate) const WIDTH: i32 = 800;

const STYLE: &str = "\
text{font-family:-apple-system,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:12px;fill:#1f2328}\
.code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:11px}\
.dim{fill:#59636e}.strong{font-weight:600}.page{fill:#fff}\
.band{fill:#f0f3f6}.box{fill:#fff;stroke:#8c959f}.life{stroke:#afb8c1;stroke-dasharray:2 3}\
.line{stroke:#424a53;fill:none}.head{fill:#424a53}\
.told{stroke:#8250df;fill:none;stroke-dasharray:5 3}.told-head{fill:#8250df}.told-text{fill:#6639ba}\
.holds{fill:#1a7f37}.waits{fill:#fff;stroke:#9a6700}.holds-text{fill:#116329}.waits-text{fill:#7d4e00}\
.lost{stroke:#cf222e;fill:none;stroke-width:2}.lost-text{fill:#cf222e}.new{fill:#0969da}.new-text{fill:#0550ae}\
@media(prefers-color-scheme:dark){\
text{fill:#e6edf3}.dim{fill:#9198a1}.page{fill:#0d1117}.band{fill:#1b222c}.box{fill:#0d1117;stroke:#656c76}\
.life{stroke:#3d444d}.line{stroke:#b7bdc8}.head{fill:#b7bdc8}\
.told{stroke:#a371f7}.told-head{fill:#a371f7}.told-text{fill:#be8fff}\
.holds{fill:#3fb950}.waits{fill:#0d1117;stroke:#d29922}.holds-text{fill:#56d364}.waits-text{fill:#e3b341}\
.lost{stroke:#f85149}.lost-text{fill:#ff7b72}.new{fill:#4493f8}.new-text{fill:#79c0ff}}";

/// Where a text stands, seen from its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// The room that a text takes.
#[derive(Debug)]
struct Room {
    text: String,
    left: i32,
    right: i32,
    /// The line it stands on.
    base: i32,
}

/// A drawing that grows.
#[derive(Debug, Default)]
pub(crate) struct Canvas {
    body: String,
    rooms: Vec<Room>,
}

impl Canvas {
    pub(crate) fn rect(&mut self, class: &str, (x, y): (i32, i32), (width, height): (i32, i32)) {
        self.put(format_args!(
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" rx="3"/>"#
        ));
    }

    pub(crate) fn line(&mut self, class: &str, (x1, y1): (i32, i32), (x2, y2): (i32, i32)) {
        self.put(format_args!(
            r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#
        ));
    }

    pub(crate) fn path(&mut self, class: &str, path: &str) {
        self.put(format_args!(r#"<path class="{class}" d="{path}"/>"#));
    }

    /// A head of an arrow that comes to this point, on its way by so much.
    pub(crate) fn head(&mut self, class: &str, (x, y): (i32, i32), (dx, dy): (i32, i32)) {
        let (dx, dy) = (f64::from(dx), f64::from(dy));
        let length = dx.hypot(dy).max(1.0);
        let (ux, uy) = (dx / length, dy / length);
        let corner = |side: f64| {
            let x = f64::from(x) - 8.0 * ux - side * 4.0 * uy;
            let y = f64::from(y) - 8.0 * uy + side * 4.0 * ux;
            format!("{x:.1} {y:.1}")
        };
        self.path(class, &format!("M{x} {y}L{}L{}Z", corner(1.0), corner(-1.0)));
    }

    /// A straight arrow, whose head has a class of its own.
    pub(crate) fn arrow(&mut self, (line, head): (&str, &str), from: (i32, i32), to: (i32, i32)) {
        self.line(line, from, to);
        self.head(head, to, (to.0 - from.0, to.1 - from.1));
    }

    /// A cross where something ends before its goal.
    pub(crate) fn cross(&mut self, (x, y): (i32, i32)) {
        self.path("lost", &format!("M{} {}l8 8m0 -8l-8 8", x - 4, y - 4));
    }

    pub(crate) fn text(&mut self, class: &str, anchor: Anchor, (x, y): (i32, i32), text: &str) {
        let width = width(class, text);
        let left = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2,
            Anchor::End => x - width,
        };
        self.rooms.push(Room { text: text.to_owned(), left, right: left + width, base: y });
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let text = escape(text);
        self.put(format_args!(r#"<text class="{class}" x="{x}" y="{y}"{anchor}>{text}</text>"#));
    }

    /// The same, on a piece of page that hides the lines behind it.
    pub(crate) fn label(&mut self, class: &str, anchor: Anchor, (x, y): (i32, i32), text: &str) {
        let width = width(class, text);
        let left = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2,
            Anchor::End => x - width,
        };
        self.rect("page", (left - 2, y - 10), (width + 4, 13));
        self.text(class, anchor, (x, y), text);
    }

    /// Everything of the other, on top.
    pub(crate) fn add(&mut self, other: Canvas) {
        self.body.push_str(&other.body);
        self.rooms.extend(other.rooms);
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.body, "{element}").expect("a string takes all text");
    }

    /// The file.
    pub(crate) fn finish(self, height: i32, title: &str, description: &str) -> Result<String> {
        self.check(height)?;
        let (title, description) = (escape(title), escape(description));
        Ok(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\" aria-labelledby=\"title desc\">\n<title \
             id=\"title\">{title}</title>\n<desc id=\"desc\">{description}</desc>\n<style>{STYLE}</style>\n\
             <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n{}</svg>\n",
            self.body
        ))
    }

    /// Finds texts that overlap, or leave the page.
    fn check(&self, height: i32) -> Result<()> {
        for (place, room) in self.rooms.iter().enumerate() {
            if room.left < 2 || room.right > WIDTH - 2 || room.base < 10 || room.base > height - 3 {
                return Err(format!("{:?} leaves the page", room.text).into());
            }
            for other in &self.rooms[..place] {
                let beside = room.left >= other.right || other.left >= room.right;
                if !beside && (room.base - other.base).abs() < 11 {
                    return Err(format!("{:?} and {:?} overlap", room.text, other.text).into());
                }
            }
        }
        Ok(())
    }
}

/// About how wide a text is, and rather too wide.
fn width(class: &str, text: &str) -> i32 {
    let tenths: i32 = if class.contains("code") {
        text.chars().map(|_| 67).sum()
    } else {
        text.chars()
            .map(|letter| match letter {
                'i' | 'j' | 'l' | 't' | 'f' | 'r' | '.' | ',' | ':' | '\'' | ' ' | '(' | ')' => 46,
                'm' | 'w' | 'M' | 'W' | '→' => 110,
                letter if letter.is_ascii_uppercase() => 88,
                _ => 74,
            })
            .sum()
    };
    tenths / 10 + 1
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(texts: &[(i32, i32, &str)]) -> Result<String> {
        let mut canvas = Canvas::default();
        for &(x, y, text) in texts {
            canvas.text("code", Anchor::Start, (x, y), text);
        }
        canvas.finish(100, "title", "description")
    }

    #[test]
    fn texts_that_overlap_or_leave_the_page_are_refused() {
        assert!(check(&[(10, 20, "one"), (40, 20, "two"), (10, 34, "three")]).is_ok());
        assert!(check(&[(10, 20, "one"), (20, 20, "two")]).is_err());
        assert!(check(&[(10, 20, "one"), (20, 26, "two")]).is_err());
        assert!(check(&[(790, 20, "one")]).is_err());
        assert!(check(&[(10, 99, "one")]).is_err());
    }

    #[test]
    fn text_is_escaped() {
        assert!(check(&[(10, 20, "<a & b>")]).unwrap().contains("&lt;a &amp; b&gt;"));
    }
}

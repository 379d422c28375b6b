//! The parts of an owner's value, as a client wrote it.

use super::Result;
use super::stage::Stage;
use super::story::client;
use super::svg::{Anchor, Canvas};

const LEFT: i32 = 40;
const LETTER: i32 = 7;
/// On each side of a part.
const PAD: i32 = 5;
const ROW: i32 = 24;

pub(crate) fn draw() -> Result<String> {
    let mut stage = Stage::open(vec![client("A")])?;
    stage.step("A has the lock.")?;
    stage.lock(0)?;
    let owner = stage.owner()?;
    let parts: Vec<&str> = owner.splitn(7, ':').collect();
    let [kind, id, number, window, process, host, label] = parts[..] else {
        return Err(format!("{owner} has other parts").into());
    };
    let is_hex = |text: &str| text.chars().all(|digit| digit.is_ascii_hexdigit());
    let (version, mark) = kind.split_at(1);
    let is_known = id.len() == 32
        && is_hex(id)
        && is_hex(number)
        && process == std::process::id().to_string()
        && !host.is_empty();
    if !is_known {
        return Err(format!("{owner} has other parts").into());
    }
    // What differs from run to run has a name instead.
    let pieces = [
        (version, "the version of this layout"),
        (mark, "q: the holder hands the lock over, and its client hears messages; otherwise -"),
        ("client", "32 hexadecimal digits, random for each client"),
        ("number", "the attempt of that client, hexadecimal: each attempt has its own"),
        (window, "the claim window in milliseconds, which a hand-over writes"),
        ("process", "the process id, for people"),
        ("host", "the host, for people"),
        (label, "the label of the client, for people"),
    ];
    let mut canvas = Canvas::default();
    let mut x = LEFT;
    let count = i32::try_from(pieces.len())?;
    for ((piece, meaning), place) in pieces.iter().zip(0..) {
        if place > 1 {
            canvas.text("code strong", Anchor::Start, (x + 1, 31), ":");
            x += LETTER + 2;
        }
        let width = LETTER * i32::try_from(piece.chars().count())? + 2 * PAD;
        canvas.rect("box", (x, 16), (width, 22));
        let middle = x + width / 2;
        canvas.text("code strong", Anchor::Middle, (middle, 31), piece);
        let y = 40 + ROW * (count - place);
        canvas.path("line", &format!("M{middle} 38V{}h10", y - 4));
        canvas.label("", Anchor::Start, (middle + 14, y), meaning);
        x += width;
    }
    canvas.finish(
        48 + ROW * count,
        "The parts of an owner's value",
        "The value of the lock's key: version, mark, client, attempt's number, claim window, process, host and \
         label, with colons between them.",
    )
}

//! One grant on two clocks: until when its holder believes it, and until when Redis keeps it.

use std::time::Duration;

use super::Result;
use super::stage::Stage;
use super::story::client;
use super::svg::{Anchor, Canvas};

/// How long after its join the waiter is granted the lock.
const APART: Duration = Duration::from_millis(500);
/// The guard ends no earlier than so long before the key, on a machine that does not stall.
const SLACK: Duration = Duration::from_millis(150);

const SERVER: i32 = 64;
const HOLDER: i32 = 184;

/// Plays it, checks the figures that the drawing rests on, and draws it. It is not to scale.
pub(crate) fn draw() -> Result<String> {
    play()?;
    let mut canvas = Canvas::default();
    let (sent, asked, replied) = (150, 180, 210);
    let (granted, heard) = (380, 410);
    // From the sending on, as much as passed at the server between reply and grant, less the drift.
    let dated = sent + (granted - asked) - 12;
    let (ends, valid) = (granted + 300, dated + 300 - 12);
    canvas.text("dim", Anchor::End, (780, HOLDER + 96), "not to scale");
    canvas.text("strong", Anchor::Start, (12, SERVER + 4), "server's clock");
    canvas.text("strong", Anchor::Start, (12, HOLDER + 4), "B's clock");
    for y in [SERVER, HOLDER] {
        canvas.arrow(("line", "head"), (130, y), (780, y));
    }
    canvas.rect("waits", (granted, SERVER - 6), (ends - granted, 12));
    canvas.rect("holds", (heard, HOLDER - 6), (valid - heard, 12));
    canvas.arrow(("line", "head"), (sent, HOLDER), (asked, SERVER + 2));
    canvas.arrow(("line", "head"), (asked, SERVER), (replied, HOLDER - 2));
    canvas.arrow(("told", "told-head"), (granted, SERVER + 6), (heard, HOLDER - 8));
    for x in [sent, replied, dated, heard, valid] {
        canvas.line("line", (x, HOLDER - 5), (x, HOLDER + 10));
    }
    for x in [asked, granted, ends] {
        canvas.line("line", (x, SERVER - 10), (x, SERVER + 5));
    }
    canvas.text("code", Anchor::Middle, (asked, SERVER - 34), "T0");
    canvas.text("dim", Anchor::Middle, (asked, SERVER - 18), "join runs");
    canvas.text("code", Anchor::Middle, (granted, SERVER - 34), "T1");
    canvas.text("dim", Anchor::Middle, (granted, SERVER - 18), "B is made the owner");
    canvas.text("code", Anchor::Middle, (ends, SERVER - 34), "T1 + window");
    canvas.text("dim", Anchor::Middle, (ends, SERVER - 18), "the key ends");
    canvas.text(
        "waits-text",
        Anchor::Middle,
        ((granted + ends) / 2, SERVER + 22),
        "Redis keeps the lock",
    );
    canvas.text("code", Anchor::Middle, (sent, HOLDER + 26), "sent");
    canvas.text("dim", Anchor::Start, (replied - 12, HOLDER + 26), "reply: T0");
    canvas.text("code strong", Anchor::Middle, (dated, HOLDER + 44), "granted after");
    canvas.line("line", (dated, HOLDER + 10), (dated, HOLDER + 32));
    canvas.text("dim", Anchor::Start, (heard - 12, HOLDER + 26), "message: T1, window");
    canvas.text("code", Anchor::Middle, (valid, HOLDER + 26), "valid until");
    canvas.text(
        "holds-text",
        Anchor::Middle,
        ((heard + valid) / 2, HOLDER - 14),
        "B's guard is valid",
    );
    canvas.line("life", (valid, SERVER), (valid, HOLDER));
    canvas.line("life", (ends, SERVER), (ends, HOLDER + 10));
    canvas.text(
        "",
        Anchor::Start,
        (130, HOLDER + 76),
        "granted after = sent + (T1 − T0) − 1 % − 2 ms",
    );
    canvas.text(
        "",
        Anchor::Start,
        (130, HOLDER + 96),
        "valid until = granted after + window − 1 % − 2 ms",
    );
    canvas.finish(
        HOLDER + 112,
        "A grant on two clocks",
        "B's join is sent before the server's time T0, which its reply tells. The grant was made at the server's \
         time T1. So it was made no earlier than the sending plus T1 minus T0, less an allowance for drift. The \
         window counts from there, so B's guard ends before the key does.",
    )
}

/// A grant, whose figures must be in the order of the drawing.
fn play() -> Result<()> {
    let (a, b) = (0, 1);
    let mut stage = Stage::open(vec![client("A"), client("B")])?;
    stage.step("A has the lock, and B waits.")?;
    stage.lock(a)?;
    stage.join(b)?;
    stage.expect_message(a)?;
    stage.rest(APART);
    stage.step("A releases.")?;
    stage.release(a)?;
    stage.has(b)?;
    let valid = stage.valid_until(b)?;
    let (no_sooner, no_later) = stage.lock_ends()?;
    if valid > no_later {
        return Err("the guard is valid for longer than Redis keeps the lock".into());
    }
    let [.., reply, grant] = *stage.server_times() else { return Err("no times".into()) };
    let apart = Duration::from_micros(grant.saturating_sub(reply));
    // On a machine that stalls the moments are not known well enough, or a heartbeat came in
    // between.
    if valid > no_sooner || valid + SLACK < no_sooner || apart < APART {
        return Err(super::Stalled.into());
    }
    Ok(())
}

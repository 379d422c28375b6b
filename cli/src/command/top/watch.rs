//! Ends the program where its loop does not: the reader of keys may wait inside a key that came in part, and the screen
//! for a terminal that takes nothing.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::terminal::disable_raw_mode;
use signal_hook::consts::SIGHUP;

use super::input::{await_hang_up, write_at_once};
use super::screen::{Signals, end_by};

/// How often it looks for signals.
const LOOK: Duration = Duration::from_millis(200);
/// How long the loop has to end by itself.
const PATIENCE: Duration = Duration::from_millis(300);
/// Leaves the screen of the program, and shows the cursor.
const LEAVE: &[u8] = b"\x1b[?1049l\x1b[?25h";

/// While this lives, the program ends by a signal or with its terminal, whatever its loop does.
#[derive(Debug)]
pub(super) struct Watch(#[expect(dead_code, reason = "its end is the message")] Sender<()>);

impl Watch {
    pub(super) fn start(signals: Arc<Signals>) -> io::Result<Watch> {
        let (sender, over) = mpsc::channel();
        thread::Builder::new()
            .name("top-watch".to_owned())
            .spawn(move || watch(&signals, &over))?;
        Ok(Watch(sender))
    }
}

fn watch(signals: &Signals, over: &Receiver<()>) {
    let signal = loop {
        // Where it cannot look, the loop cannot either.
        let is_gone = await_hang_up(LOOK).unwrap_or(true);
        if let Some(signal) = signals.end().or(is_gone.then_some(SIGHUP)) {
            break signal;
        }
        if is_over(over, Duration::ZERO) {
            return;
        }
    };
    if is_over(over, PATIENCE) {
        return;
    }
    let _ = disable_raw_mode();
    write_at_once(LEAVE);
    let _ = end_by(signal);
}

fn is_over(over: &Receiver<()>, patience: Duration) -> bool {
    over.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected)
}

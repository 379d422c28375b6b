//! How long this machine lets a thread wait that could run.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Less than this is not worth a note.
const LEAST: Duration = Duration::from_millis(2);
const NAP: Duration = Duration::from_millis(1);

/// When a thread that slept woke too late, and by how much.
static NOTES: LazyLock<Mutex<Vec<(Instant, Duration)>>> = LazyLock::new(|| {
    thread::spawn(|| {
        loop {
            let begin = Instant::now();
            thread::sleep(NAP);
            let late = begin.elapsed().saturating_sub(NAP);
            if late >= LEAST {
                let mut notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
                notes.push((Instant::now(), late));
            }
        }
    });
    Mutex::default()
});

/// Begins to measure.
pub(crate) fn start() {
    LazyLock::force(&NOTES);
}

/// The longest lag since then.
pub(crate) fn worst_since(begin: Instant) -> Duration {
    let notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    let recent = notes.iter().rev().take_while(|(at, _)| *at >= begin);
    recent.map(|(_, late)| *late).max().unwrap_or_default()
}

//! The lines that the library writes to the log.
//!
//! A logger is code of the user: it may panic, be slow, or block for as long as a pipe is full. So a thread that must not be
//! held up does not call it. Threads that renew, listen or connect are such threads, and a thread that acquires for its
//! process while it does so: others wait for it. Their lines go into a queue, and a thread writes them that exists only
//! while there are any. The queue is bounded. What finds no room is counted, and the count is written behind the rest.

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use log::{Level, Record};

use crate::base::panic::catch_silently;
use crate::base::sync::thread_local;

/// Writes a line to the log at a level of the crate `log`, as in `log!(warn, "lock {name} is …")`.
/// If the logger panics, only the line is lost. A panic here would end a background thread, or
/// abort the process if it happened in a destructor during another panic.
macro_rules! log {
    (error, $($text:tt)+) => { log!(@ Error, $($text)+) };
    (warn, $($text:tt)+) => { log!(@ Warn, $($text)+) };
    (info, $($text:tt)+) => { log!(@ Info, $($text)+) };
    (debug, $($text:tt)+) => { log!(@ Debug, $($text)+) };
    (@ $level:ident, $($text:tt)+) => {{
        let level = ::log::Level::$level;
        if level <= ::log::STATIC_MAX_LEVEL && level <= ::log::max_level() {
            let place = $crate::base::logging::Place { module: module_path!(), file: file!(), line: line!() };
            $crate::base::logging::write(level, place, format_args!($($text)+));
        }
    }};
}

/// Where in the source a line is written.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) module: &'static str,
    pub(crate) file: &'static str,
    pub(crate) line: u32,
}

thread_local! {
    /// How many parts of the work of this thread must not be held up.
    static HURRIES: Cell<u32> = const { Cell::new(0) };
}

/// While this lives, its thread is not held up by a logger.
#[derive(Debug)]
pub(crate) struct Hurry(());

impl Hurry {
    pub(crate) fn begin() -> Hurry {
        let _ = HURRIES.try_with(|hurries| hurries.set(hurries.get() + 1));
        Hurry(())
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        let _ = HURRIES.try_with(|hurries| hurries.set(hurries.get().saturating_sub(1)));
    }
}

/// Writes a line, on this thread or from the queue.
pub(crate) fn write(level: Level, place: Place, text: fmt::Arguments<'_>) {
    if is_hurried() {
        queue::add(level, place, text.to_string());
    } else {
        emit(level, place, text);
    }
}

/// Waits until the queue is empty, but no longer than a second: a logger may block for ever.
pub(crate) fn flush() {
    // A thread that is not to be held up does not wait either. Nor does the one that writes: it is where a logger
    // drops the last handle of a client.
    if !is_hurried() {
        queue::wait(Duration::from_secs(1));
    }
}

fn is_hurried() -> bool {
    HURRIES.try_with(Cell::get).unwrap_or(0) > 0
}

fn emit(level: Level, place: Place, text: fmt::Arguments<'_>) {
    let mut record = Record::builder();
    record.level(level).target(place.module).module_path_static(Some(place.module));
    record.file_static(Some(place.file)).line(Some(place.line)).args(text);
    let record = record.build();
    let _ = catch_silently(|| {
        let logger = log::logger();
        if logger.enabled(record.metadata()) {
            logger.log(&record);
        }
    });
}

#[cfg(not(leasehold_shuttle))]
mod queue {
    use std::collections::VecDeque;
    use std::time::{Duration, Instant};

    use log::Level;

    use super::{Place, emit};
    use crate::base::sync::contended::{self, Condvar, Mutex};
    use crate::base::sync::{self, thread_local};

    /// At most this many lines wait for the logger.
    const MOST_LINES: usize = 1_024;
    /// The name of the thread that writes them.
    const THREAD: &str = "lease-log";

    static QUEUE: Mutex<Queue> =
        Mutex::new(Queue { lines: VecDeque::new(), left_out: 0, is_written: false });
    /// Nobody writes: the queue is empty, or there is no thread to be had.
    static EMPTY: Condvar = Condvar::new();

    thread_local! {
        static WRITES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    struct Queue {
        lines: VecDeque<(Level, Place, String)>,
        /// How many lines found no room.
        left_out: u64,
        /// Whether a thread writes them. It ends when there are none.
        is_written: bool,
    }

    pub(super) fn add(level: Level, place: Place, text: String) {
        let mut queue = QUEUE.lock();
        if queue.lines.len() >= MOST_LINES {
            queue.left_out = queue.left_out.saturating_add(1);
            return;
        }
        queue.lines.push_back((level, place, text));
        if std::mem::replace(&mut queue.is_written, true) {
            return;
        }
        drop(queue);
        if sync::spawn(THREAD, write_all).is_err() {
            // The next line tries again, and nobody waits for this one.
            QUEUE.lock().is_written = false;
            EMPTY.notify_all();
        }
    }

    fn write_all() {
        WRITES.set(true);
        loop {
            let mut queue = QUEUE.lock();
            if let Some((level, place, text)) = queue.lines.pop_front() {
                drop(queue);
                emit(level, place, format_args!("{text}"));
                continue;
            }
            match std::mem::take(&mut queue.left_out) {
                0 => {
                    queue.is_written = false;
                    EMPTY.notify_all();
                    return;
                }
                left_out => {
                    drop(queue);
                    let place = Place { module: module_path!(), file: file!(), line: line!() };
                    let text =
                        format_args!("{left_out} lines were not written: the logger is too slow");
                    emit(Level::Warn, place, text);
                }
            }
        }
    }

    pub(super) fn wait(most: Duration) {
        if WRITES.try_with(std::cell::Cell::get).unwrap_or(true) {
            return;
        }
        let end = Instant::now() + most;
        let mut queue = QUEUE.lock();
        while queue.is_written {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            queue = contended::wait_for(&EMPTY, queue, left);
        }
    }
}

/// Under a model checker a static outlives a schedule, and no logger blocks.
#[cfg(leasehold_shuttle)]
mod queue {
    use std::time::Duration;

    use log::Level;

    use super::{Place, emit};

    pub(super) fn add(level: Level, place: Place, text: String) {
        emit(level, place, format_args!("{text}"));
    }

    pub(super) fn wait(_: Duration) {}
}

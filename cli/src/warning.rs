//! The warnings of the library, on the standard error.

use log::{LevelFilter, Log, Metadata, Record};

use crate::failure::say;

struct Warnings;

impl Log for Warnings {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        say(&format_args!("warning: {}", record.args()));
    }

    fn flush(&self) {}
}

/// Says warnings and errors of the library from now on. Not for a program that draws on the whole screen.
pub(crate) fn show() {
    // Only the first call has an effect.
    if log::set_logger(&Warnings).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

/// Shows no warning from now on. What follows from the end of a run is said by the run.
pub(crate) fn hide() {
    log::set_max_level(LevelFilter::Off);
}

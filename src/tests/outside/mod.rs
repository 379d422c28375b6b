//! Bytes that come from outside. Whatever they are, nothing panics, no text that is shown does more than show itself, and
//! nobody takes memory by a number that a peer wrote.
//!
//! | module | who chooses the bytes |
//! | --- | --- |
//! | `wake` | anybody who may publish on a client's channel |
//! | `owner` | anybody who may write the key of a lock |
//! | `record` | anybody who may write the record of a job, or the index |
//! | `reply` | a server, or a program that stands before it |
//! | `url` | anybody who writes a URL |
//! | `settings` | anybody who writes a file of settings, or a holder or a loss that serde reads |
//!
//! The command has targets of its own.
//! `LEASEHOLD_FUZZ_SECONDS=3600 cargo test --lib outside -- --nocapture` runs each target for an hour.

mod owner;
mod record;
mod reply;
#[cfg(feature = "serde")]
mod settings;
mod url;
mod wake;

use std::fmt::Debug;

use crate::base::error::Error;
use crate::base::text::is_plain;

/// What a reader may take at a time for the shortest input: a few texts of a bounded length.
const SMALL: u64 = 32 << 10;
/// What it may take for each byte of its input: the byte escaped, in two texts that grow by doubling.
const PER_BYTE: u64 = 64;

/// Runs a reader of an input, and sees how much memory it takes at a time.
#[track_caller]
fn bounded<T>(input: &[u8], least: u64, read: impl FnOnce() -> T) -> T {
    let mut outcome = None;
    let heap = allocation_counter::measure(|| outcome = Some(read()));
    let most = least + PER_BYTE * input.len() as u64;
    assert!(heap.bytes_max <= most, "{} bytes of heap, {most} are allowed", heap.bytes_max);
    outcome.expect("it has run")
}

/// A text of several lines for people.
#[track_caller]
fn is_shown(text: &str) {
    assert!(text.chars().all(|letter| letter == '\n' || is_plain(letter)), "{text:?}");
}

/// An error is one line. Returns its kind.
#[track_caller]
fn is_error(error: &Error) -> String {
    let text = error.to_string();
    assert!(text.chars().all(is_plain), "{text:?}");
    format!("{:?}", error.kind())
}

/// The name of a variant.
fn variant(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

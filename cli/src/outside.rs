//! Arguments, names and what servers say, of any bytes: nothing panics, and nothing reaches a terminal that does more than
//! show itself.
//!
//! `LEASEHOLD_FUZZ_SECONDS=3600 cargo test --package leasehold-cli --bin leasehold outside -- --nocapture` runs each target
//! for an hour.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use clap::builder::Styles;
use leasehold_support::fuzz::Target;

use crate::command;
use crate::duration::parse_duration;
use crate::failure::Failure;
use crate::name::{Abridged, Message, Shown, is_plain};
use crate::report::row::Row;
use crate::report::table;
use crate::status;
use crate::url;

#[track_caller]
fn is_shown(text: &str) {
    assert!(text.chars().all(|letter| letter == '\n' || is_plain(letter)), "{text:?}");
}

/// An input is the arguments, one a line.
#[test]
fn arguments_of_any_bytes_are_read_or_refused() {
    let words = [
        "\n",
        "--",
        "-",
        "=",
        "run\n",
        "ls\n",
        "show\n",
        "wait\n",
        "ask\n",
        "release\n",
        "forget\n",
        "doctor\n",
        "top\n",
        "generate\n",
        "help\n",
        "--json\n",
        "--url\n",
        "--lease\n",
        "--recoverable\n",
        "--grace=",
        "--once-per\n",
        "--kind\n",
        "--force\n",
        "--owner\n",
        "--held\n",
        "-w\n",
        "-E\n",
        "--of\n",
        "s ",
        "1000ms",
        "10s",
        "--map-address\n",
        "--max-clock-skew\n",
        "--sentinel\n",
        "--accept\n",
    ];
    // Without styles of its own, each escape sequence is that of an argument.
    let program = command::program().styles(Styles::plain());
    Target::new("arguments").words(&words).run(|input| {
        let arguments = input.split(|&byte| byte == b'\n').map(OsStr::from_bytes);
        let name = std::iter::once(OsStr::new("leasehold"));
        match command::read(&program, name.chain(arguments).map(OsStr::to_owned).collect()) {
            Ok(_) => "read".to_owned(),
            Err(error) => {
                is_shown(&error.render().ansi().to_string());
                format!("{:?}", error.kind())
            }
        }
    });
}

/// Two names that differ are shown differently.
#[test]
fn name_of_any_bytes_is_shown() {
    let mut seen = HashMap::new();
    Target::new("name").words(&["\\x1b", "\\", "x5c", "é"]).run(|input| {
        let shown = Shown(input).to_string();
        is_shown(&shown.replace('\n', "\0"));
        is_shown(&Abridged(input).to_string());
        if seen.len() < 100_000 {
            let before = seen.entry(shown.clone()).or_insert_with(|| input.to_vec());
            assert_eq!(before.as_slice(), input);
        }
        let text = String::from_utf8_lossy(input);
        is_shown(&Message(&text).to_string());
        is_shown(&Failure::new(status::USAGE, text.clone()).to_string());
        let row = Row { name: shown, kind: "mutex", ..Row::default() };
        is_shown(&table::table(&[row]));
        let kinds = [text.contains('\\'), text.contains('\u{fffd}'), text.is_ascii()];
        format!("{kinds:?}")
    });
}

#[test]
fn time_and_url_of_any_text_are_read_or_refused() {
    let words = [
        "s",
        "ms",
        "ns",
        "1000ms",
        "584542046090y",
        "18446744073709551615s ",
        "redis://",
        "@",
        ":",
        "unix://",
    ];
    Target::new("time").words(&words).run(|input| {
        let text = String::from_utf8_lossy(input);
        let _ = url::user(&text);
        let _ = url::with_password(&text, "s3cret");
        let time = parse_duration(&text).map_err(|error| Failure::usage(error).to_string());
        match &time {
            Ok(span) => span.as_secs().checked_ilog10().unwrap_or(0).to_string(),
            Err(error) => error.split(|letter: char| !letter.is_alphabetic()).take(3).collect(),
        }
    });
}

//! Makes the drawings of `docs/how-it-works`.
//!
//! | module | what it has |
//! | --- | --- |
//! | `svg` | shapes and text, and the check that no texts overlap |
//! | `sequence` | a story as a drawing: lanes, steps, what Redis keeps |
//! | `names` | short names for what differs from run to run |
//! | `reading` | requests, replies and messages in short |
//! | `record` | what came by between clients and their server |
//! | `actor` | threads that lock when they are told to |
//! | `stage` | a server, clients and threads; what they do becomes a story |
//! | `story` | the stories |
//! | `window` | a grant on two clocks |
//! | `owner` | the parts of an owner's value |
//! | `state` | the states of a slot |

mod actor;
mod names;
mod owner;
mod reading;
mod record;
mod sequence;
mod stage;
mod state;
mod story;
mod svg;
mod window;

use std::fmt;
use std::path::PathBuf;
use std::thread;

/// How often a story is played until the machine does not stall.
const TRIES: u32 = 8;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The machine was too slow: heartbeats came that the story does not have.
#[derive(Debug)]
pub(crate) struct Stalled;

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the machine stalled")
    }
}

impl std::error::Error for Stalled {}

/// A file of `docs/how-it-works`.
#[derive(Debug)]
pub(crate) struct Drawing {
    pub(crate) file: &'static str,
    pub(crate) svg: String,
}

type Make = fn() -> Result<String>;

const DRAWINGS: [(&str, Make); 12] = [
    ("hand-over.svg", || story::hand_over()?.draw()),
    ("paused.svg", || story::paused()?.draw()),
    ("sweep.svg", || story::sweep()?.draw()),
    ("grant.svg", || story::grant()?.draw()),
    ("window.svg", window::draw),
    ("grant-lost.svg", || story::grant_lost()?.draw()),
    ("grant-early.svg", || story::grant_early()?.draw()),
    ("owner.svg", owner::draw),
    ("token.svg", || story::token()?.draw()),
    ("state.svg", state::draw),
    ("hand-off.svg", || story::hand_off()?.draw()),
    ("linger.svg", || story::linger()?.draw()),
];

/// Where the drawings are.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-it-works")
}

/// The names of all drawings.
#[allow(dead_code, reason = "only a test needs them")]
pub(crate) fn files() -> impl Iterator<Item = &'static str> {
    DRAWINGS.iter().map(|(file, _)| *file)
}

/// Makes all drawings, at the same time.
pub(crate) fn all() -> Result<Vec<Drawing>> {
    let makers = DRAWINGS.map(|(file, make)| (file, thread::spawn(move || made(make))));
    let mut drawings = Vec::new();
    for (file, maker) in makers {
        let svg = maker.join().map_err(|_| format!("{file}: panicked"))?;
        drawings.push(Drawing { file, svg: svg.map_err(|error| format!("{file}: {error}"))? });
    }
    Ok(drawings)
}

fn made(make: Make) -> Result<String> {
    for _ in 1..TRIES {
        match make() {
            Err(error) if error.is::<Stalled>() => {}
            other => return other,
        }
    }
    make()
}

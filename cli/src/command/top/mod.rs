//! `leasehold top`: the locks in use, live, the one that blocks most in the first row.
//!
//! | module | its part |
//! | --- | --- |
//! | `reader` | asks the server, on a thread of its own |
//! | `model` | what is shown: order, filter, selection. No I/O |
//! | `draw` | the model as a screen |
//! | `screen` | the terminal, and the signals that end or stop the program |
//! | `input` | whether the terminal has a key, or is gone |
//! | `watch` | ends the program where the loop does not |
//! | `live` | the loop that ties them |

mod draw;
mod input;
mod live;
mod model;
mod reader;
mod screen;
mod watch;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use leasehold::ListedLock;
use serde_json::json;

use crate::command::list::Selection;
use crate::connection::ConnectionArguments;
use crate::duration::parse_duration;
use crate::failure::Failure;
use crate::report::row::{Row, rows};
use crate::report::{json, table};
use crate::warning;
use model::Order;
use reader::{Frame, Reader};

/// Watch the locks in use, live.
///
/// Keys: `q` quits, `s` changes the order, `/` filters, Enter shows one lock, `p` pauses. leasehold-ls(1) explains the
/// columns.
///
/// By default the server is asked at most once a second, less often if it is slow to reply, and not at all while `top` is
/// paused or stopped.
#[derive(Args, Debug)]
pub(crate) struct TopArguments {
    #[command(flatten)]
    selection: Selection,
    /// How long to pause between two refreshes.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    /// Print the table once, without a terminal; so does --json.
    #[arg(long)]
    once: bool,
    /// The order of the rows.
    #[arg(long, value_enum, default_value_t = Order::Blocking)]
    sort: Order,
}

impl TopArguments {
    pub(crate) fn run(
        self,
        connection: &ConnectionArguments,
        json: bool,
    ) -> Result<ExitCode, Failure> {
        let is_live = !self.once && !json;
        if is_live && !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
            return Err(Failure::usage("top needs a terminal: use --once, or --json"));
        }
        if !is_live {
            warning::show();
        }
        let client = connection.open()?;
        // The first look is made before the screen changes: its error ends the program as usual.
        let first = Frame::read(&client, &self.selection)?;
        if is_live {
            let reader = Reader::start(client, self.selection, self.interval)?;
            return live::run(first, &reader, self.sort);
        }
        first.found.say_denied();
        let (locks, denied) = (first.found.locks, first.found.denied);
        let mut all: Vec<(ListedLock, Row)> = locks.into_iter().zip(first.rows).collect();
        all.sort_by(|(_, one), (_, other)| self.sort.compare(one, other));
        let (locks, rows): (Vec<ListedLock>, Vec<Row>) = all.into_iter().unzip();
        if json {
            json::print(json!({ "locks": json::locks(&locks), "denied": denied }))?;
        } else {
            std::io::stdout().lock().write_all(table::table(&rows).as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Frame {
    fn read(client: &leasehold::LockClient, selection: &Selection) -> leasehold::Result<Frame> {
        let start = std::time::Instant::now();
        let found = selection.read(client)?;
        Ok(Frame { rows: rows(&found.locks), found, took: start.elapsed() })
    }
}

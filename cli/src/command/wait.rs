//! `leasehold wait`: until a lock is free.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use leasehold::{Holder, ListedLock, LockClient};
use serde_json::json;

use crate::command::show::Named;
use crate::connection::OUTAGE;
use crate::duration::parse_duration;
use crate::failure::Failure;
use crate::report::json;

/// The pause between two looks grows from the first to the second.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// Wait until a lock is free.
///
/// It takes nothing and stands in no queue: a lock that passes from holder to holder may never be seen free.
#[derive(Args, Debug)]
pub(crate) struct WaitArguments {
    #[command(flatten)]
    named: Named,
    /// Wait for this long at most; by default there is no limit.
    #[arg(short = 'w', long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,
    /// Do not wait: look once.
    #[arg(short = 'n', long, conflicts_with = "wait")]
    nonblock: bool,
    /// The exit status if the lock is still held then.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = crate::status::NOT_HAD)]
    conflict_exit_code: u8,
}

impl WaitArguments {
    pub(crate) fn run(self, client: &LockClient, json: bool) -> Result<ExitCode, Failure> {
        let limit = if self.nonblock { Some(Duration::ZERO) } else { self.wait };
        let locks = self.until_free(client, limit)?;
        if json {
            json::print(json!({ "free": locks.is_empty(), "locks": json::locks(&locks) }))?;
        }
        Ok(match locks.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(self.conflict_exit_code),
        })
    }

    /// Looks until nobody holds the lock. Returns what is held at the end of the time.
    fn until_free(
        &self,
        client: &LockClient,
        limit: Option<Duration>,
    ) -> Result<Vec<ListedLock>, Failure> {
        let start = Instant::now();
        let (mut replied, mut pause) = (start, PAUSES[0]);
        loop {
            let found = self.named.find(client).map(|mut locks| {
                // One whose lease is over keeps nobody out.
                let keeps = |holder: &Holder| holder.overdue().is_none();
                locks.retain(|lock| lock.inspection().holders().iter().any(keeps));
                locks
            });
            let left = limit.map(|limit| limit.saturating_sub(start.elapsed()));
            match found {
                Ok(locks) if locks.is_empty() || left == Some(Duration::ZERO) => return Ok(locks),
                Ok(_) => replied = Instant::now(),
                Err(error)
                    if error.is_transient()
                        && replied.elapsed() < OUTAGE
                        && left != Some(Duration::ZERO) => {}
                Err(error) => return Err(self.named.explain(client, error)),
            }
            sleep(left.map_or(pause, |left| pause.min(left)));
            pause = (pause * 2).min(PAUSES[1]);
        }
    }
}

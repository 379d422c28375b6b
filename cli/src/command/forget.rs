//! `leasehold forget`: deletes the record of a job that runs once in a period.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use leasehold::LockClient;
use serde_json::json;

use crate::failure::Failure;
use crate::name::{self, NameArgument};
use crate::report::{job, json};
use crate::status;

/// Forget when a job ran, so that it is due.
///
/// The next call then runs the job, whether or not it has succeeded in this period. Failed tries and missed periods are
/// forgotten too. A run that is under way goes on, and is recorded when it ends.
#[derive(Args, Debug)]
pub(crate) struct ForgetArguments {
    /// The name of the job.
    name: NameArgument,
}

impl ForgetArguments {
    pub(crate) fn run(self, client: &LockClient, json: bool) -> Result<ExitCode, Failure> {
        let forgotten = job::of(client, name::bytes(&self.name))?.forget()?;
        if json {
            json::print(json!({ "forgotten": forgotten }))?;
        } else {
            let text = if forgotten {
                "forgotten: the job is due"
            } else {
                "there was no record of a job"
            };
            writeln!(std::io::stdout().lock(), "{text}")?;
        }
        Ok(if forgotten { ExitCode::SUCCESS } else { ExitCode::from(status::NOT_HAD) })
    }
}

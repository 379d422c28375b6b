//! `leasehold ls`: the locks that are in use.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;

use crate::connection::ConnectionArguments;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Names to list: `*` stands for any bytes, `?` for one.
    #[arg(default_value = "*")]
    pattern: String,
    /// Search all keys of the server, and so list the locks of other programs too.
    #[arg(long)]
    scan: bool,
}

impl ListArguments {
    pub(crate) fn run(
        self,
        connection: &ConnectionArguments,
        json: bool,
    ) -> Result<ExitCode, Failure> {
        let client = connection.open()?;
        let mut locks = client.locks(&self.pattern)?;
        if self.scan {
            locks = locks.with_scan();
        }
        let mut output = std::io::stdout().lock();
        for lock in locks {
            let lock = lock?;
            let name = String::from_utf8_lossy(lock.name());
            if json {
                writeln!(output, "{}", serde_json::json!({ "name": name, "kind": lock.kind() }))?;
            } else {
                writeln!(output, "{} {name:?}: {}", lock.kind(), lock.inspection())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

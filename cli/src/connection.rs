//! How the command reaches Redis: the options that all subcommands have.

use std::time::Duration;

use clap::Args;
use leasehold::LockClient;

use crate::duration::parse_duration;
use crate::failure::Failure;

/// Without an URL.
const DEFAULT_URL: &str = "redis://127.0.0.1:6379";

#[derive(Debug, Args)]
pub(crate) struct ConnectionArguments {
    /// The server: `redis://`, `rediss://` or `redis+unix://`. A password given here is seen by all users of
    /// this machine: put it into REDIS_URL instead.
    #[arg(long, global = true, value_name = "URL", env = "REDIS_URL", hide_env_values = true)]
    url: Option<String>,
    /// How long a connection attempt and each command may take.
    #[arg(long, global = true, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    timeout: Duration,
}

impl ConnectionArguments {
    /// Connects, or says why not.
    pub(crate) fn open(&self) -> Result<LockClient, Failure> {
        let url = self.url.as_deref().unwrap_or(DEFAULT_URL);
        let client = LockClient::builder(url)
            .connect_timeout(self.timeout)
            .command_timeout(self.timeout)
            .build()?;
        Ok(client)
    }
}

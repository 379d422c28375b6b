//! The subcommands. Each has a module of its own, and knows nothing of the others.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::connection::ConnectionArguments;
use crate::failure::Failure;

mod list;
#[cfg(unix)]
mod run;

/// Distributed locks on Redis and Valkey, from the shell.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the locks that are in use.
    Ls(list::ListArguments),
    /// Run a job under a lock. No process of the job is alive when the lease ends.
    #[cfg(unix)]
    Run(run::RunArguments),
}

/// Runs a subcommand. Returns the exit status of the program.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { command, connection, json } = arguments;
    match command {
        Command::Ls(list) => list.run(&connection, json),
        #[cfg(unix)]
        Command::Run(run) => run.run(&connection),
    }
}

//! The command `leasehold`.

use std::process::ExitCode;

mod command;
mod connection;
mod duration;
mod failure;
mod kind;
mod name;
#[cfg(all(test, unix))]
mod outside;
mod report;
mod status;
mod url;
mod warning;

fn main() -> ExitCode {
    match command::parse().and_then(command::run) {
        Ok(status) => status,
        Err(failure) => failure.report(),
    }
}

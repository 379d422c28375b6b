//! The command `leasehold`.

use std::process::ExitCode;

use clap::Parser as _;

mod command;
mod connection;
mod duration;
mod failure;
mod status;

use command::Arguments;

fn main() -> ExitCode {
    match command::run(Arguments::parse()) {
        Ok(status) => status,
        Err(failure) => failure.report(),
    }
}

//! The subcommands. Each has a module of its own.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::connection::ConnectionArguments;
use crate::failure::Failure;
use crate::name::{self, Message, Shown};
use crate::{status, warning};

mod ask;
mod doctor;
mod forget;
mod generate;
mod list;
mod manual;
mod release;
#[cfg(unix)]
mod run;
mod show;
#[cfg(unix)]
mod top;
mod wait;

/// Distributed locks on Redis and Valkey, from the shell.
#[derive(Parser)]
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

/// Each has its description at its arguments.
#[derive(Subcommand)]
enum Command {
    Ls(list::ListArguments),
    #[cfg(unix)]
    Run(run::RunArguments),
    Show(show::ShowArguments),
    #[cfg(unix)]
    Top(top::TopArguments),
    Wait(wait::WaitArguments),
    Ask(ask::AskArguments),
    Release(release::ReleaseArguments),
    Forget(forget::ForgetArguments),
    Doctor(doctor::DoctorArguments),
    Generate(generate::GenerateArguments),
}

impl Command {
    /// Whether it says by itself from when on the library's warnings are shown.
    fn speaks_later(&self) -> bool {
        #[cfg(unix)]
        return matches!(self, Command::Run(_) | Command::Top(_));
        #[cfg(not(unix))]
        false
    }
}

/// Reads the arguments of this program. Help and version are printed here.
pub(crate) fn parse() -> Result<Arguments, Failure> {
    read(&program(), std::env::args_os().collect()).map_err(|error| {
        let status = match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => status::DONE,
            _ => status::USAGE,
        };
        // Nothing is to be done about a closed output.
        let _ = error.print();
        Failure::new(status, "")
    })
}

/// What this program takes.
pub(crate) fn program() -> clap::Command {
    manual::equip(Arguments::command())
}

/// Reads arguments.
pub(crate) fn read(
    program: &clap::Command,
    arguments: Vec<OsString>,
) -> Result<Arguments, clap::Error> {
    let read = |arguments: &[OsString]| {
        let matches = program.clone().try_get_matches_from(arguments)?;
        Arguments::from_arg_matches(&matches)
    };
    read(&arguments).map_err(|error| {
        // An error repeats arguments as they are, and a script may have got one from somebody else. So the error is the one
        // about the same arguments in a form that a terminal does not obey.
        let shown = |argument: &OsString| Shown(name::bytes(argument)).to_string().into();
        let all: Vec<OsString> = arguments.iter().map(shown).collect();
        if all == arguments {
            return error;
        }
        match read(&all) {
            Err(shown) if shown.kind() == error.kind() => shown,
            // Not even its own colours are left.
            _ => clap::Error::raw(error.kind(), Message(&error.render().to_string())),
        }
    })
}

/// Runs a subcommand. Returns the exit status of the program.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { command, connection, json } = arguments;
    // What has the whole screen, or forks, does so by itself.
    if !command.speaks_later() {
        warning::show();
    }
    let outcome = dispatch(command, &connection, json);
    outcome.map_err(|failure| failure.hint(connection.hint()).in_json(json))
}

fn dispatch(
    command: Command,
    connection: &ConnectionArguments,
    json: bool,
) -> Result<ExitCode, Failure> {
    match command {
        Command::Ls(list) => list.run(&connection.open()?, json),
        #[cfg(unix)]
        Command::Run(run) if json || run.json => Err(Failure::usage("run prints no JSON")),
        #[cfg(unix)]
        Command::Run(run) => run.run(connection),
        Command::Show(show) => show.run(&connection.open()?, json),
        #[cfg(unix)]
        Command::Top(top) => top.run(connection, json),
        Command::Wait(wait) => wait.run(&connection.open()?, json),
        Command::Ask(ask) => ask.run(&connection.open()?, json),
        Command::Forget(forget) => forget.run(&connection.open()?, json),
        Command::Generate(generate) => generate.run(program()),
        Command::Doctor(doctor) => doctor.run(connection, json),
        Command::Release(release) => release.run(&connection.open()?, json),
    }
}

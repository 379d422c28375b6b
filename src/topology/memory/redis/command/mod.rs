//! Commands, by their words.
//!
//! Each command is checked as Redis checks it: its arity, its integers, its options, and the type
//! of its key. A command that is not here is refused by name, instead of a reply that Redis would
//! not give.

pub(crate) mod entry;
mod hash;
mod key;
mod list;
mod server;
mod sorted;
mod text;

use redis::Value;

use super::reply::{CommandResult, ErrorReply};
use super::store::Execution;
use entry::{Words, is};

pub(crate) use entry::{Access, Command};

/// The subcommands of the commands that have any.
const SUBCOMMANDS: [(&str, &[&str]); 2] =
    [("PUBSUB", &["NUMSUB"]), ("COMMAND", &["GETKEYS", "INFO"])];

/// Commands about commands.
const COMMANDS: &[Command] = &[Command::new("COMMAND", -1, Access::Read, about)];

const TABLES: [&[Command]; 7] = [
    text::COMMANDS,
    key::COMMANDS,
    hash::COMMANDS,
    sorted::COMMANDS,
    server::COMMANDS,
    list::COMMANDS,
    COMMANDS,
];

/// Runs a command of a client or of a script.
pub(crate) fn call(run: &mut Execution, words: &Words) -> CommandResult {
    let command = find(words)?;
    // Memory is checked before the command runs and before its type is checked, as in Redis. A
    // command that is refused for memory has not written.
    if command.access == Access::Grow && run.refuses_growth() {
        return Err(ErrorReply::out_of_memory());
    }
    if command.access != Access::Read {
        run.note_write();
    }
    (command.run)(run, words)
}

/// The command that these words call. Checks the name and the number of words.
pub(crate) fn find(words: &Words) -> Result<&'static Command, ErrorReply> {
    let name = words.first().map_or(&b""[..], Vec::as_slice);
    let command = named(name)?;
    if !command.fits(words.len()) {
        return Err(ErrorReply::arity(name));
    }
    // Redis looks up a subcommand like a command. Checked here, so that a transaction refuses it
    // when it is queued.
    for (with, subcommands) in SUBCOMMANDS {
        let given = words.get(1).map_or(&b""[..], Vec::as_slice);
        if command.name == with && !subcommands.iter().any(|known| is(given, known)) {
            return Err(ErrorReply::unknown(&format!("subcommand of {with}"), given));
        }
    }
    Ok(command)
}

/// The command of this name.
fn named(name: &[u8]) -> Result<&'static Command, ErrorReply> {
    let known = TABLES.into_iter().flatten();
    known
        .into_iter()
        .find(|command| command.name.as_bytes().eq_ignore_ascii_case(name))
        .ok_or_else(|| ErrorReply::unknown("command", name))
}

fn about(_run: &mut Execution, words: &Words) -> CommandResult {
    match words {
        [_, subcommand, names @ ..] if is(subcommand, "INFO") => {
            Ok(Value::Array(names.iter().map(|name| info(name)).collect()))
        }
        [_, _, asked @ ..] => keys(asked),
        _ => Err(ErrorReply::arity(b"command")),
    }
}

/// The name, the arity and those flags of a command that decide whether it is refused, from `COMMAND INFO`. All later
/// fields are left out.
fn info(name: &[u8]) -> Value {
    let info = |name: &str, arity, flags: &[&str]| {
        let flags = flags.iter().map(|flag| Value::SimpleString((*flag).to_owned()));
        let name = entry::bulk(name.to_ascii_lowercase().as_bytes());
        Value::Array(vec![name, Value::Int(arity), Value::Array(flags.collect())])
    };
    match named(name) {
        Ok(command) => {
            let flags: &[&str] = match command.access {
                Access::Read => &[],
                Access::Shrink => &["write"],
                Access::Grow => &["write", "denyoom"],
            };
            info(command.name, i64::try_from(command.arity).unwrap_or_default(), flags)
        }
        // It is not in the table, as no script may call it.
        Err(_) if is(name, "EVAL") => info("EVAL", -3, &["noscript"]),
        Err(_) => Value::Nil,
    }
}

/// The keys of a command. It must have at least two words, as Redis 7.0, the strictest version, requires.
fn keys(asked: &Words) -> CommandResult {
    let [name, _, ..] = asked else { return Err(ErrorReply::arity(b"command|getkeys")) };
    let Ok(command) = named(name) else {
        return Err(ErrorReply::new("ERR Invalid command specified"));
    };
    if server::COMMANDS.iter().any(|keyless| keyless.name == command.name) {
        return Err(ErrorReply::new("ERR The command has no key arguments"));
    }
    if !command.fits(asked.len()) {
        return Err(ErrorReply::new("ERR Invalid number of arguments specified for command"));
    }
    let keys = match command.name {
        "DEL" | "UNLINK" | "EXISTS" | "MGET" => &asked[1..],
        _ => &asked[1..2],
    };
    Ok(Value::Array(keys.iter().map(|key| entry::bulk(key)).collect()))
}

/// The name, the arity and the access of each command.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = (&'static str, isize, Access)> {
    let row = |command: &'static Command| (command.name, command.arity, command.access);
    TABLES.into_iter().flatten().map(row)
}

//! Commands without a key: time, messages, and the keys of other commands.

use redis::Value;

use super::super::reply::{CommandResult, ErrorReply};
use super::super::store::Execution;
use super::entry::Access::Read;
use super::entry::{Command, Words, bulk};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("TIME", 1, Read, time),
    Command::new("PUBLISH", 3, Read, |run, words| Ok(number(run.publish(&words[1], &words[2])))),
    // Sharded channels have no subscribers here, and ordinary channels do not receive their
    // messages.
    Command::new("SPUBLISH", 3, Read, |_, _| Ok(Value::Int(0))),
    Command::new("PUBSUB", -2, Read, numsub),
    Command::new("COMMAND", -1, Read, keys),
];

fn number(of: u64) -> Value {
    Value::Int(i64::try_from(of).unwrap_or(i64::MAX))
}

fn time(run: &mut Execution, _words: &Words) -> CommandResult {
    let micros = run.micros();
    let parts =
        [micros / 1_000_000, micros % 1_000_000].map(|part| bulk(part.to_string().as_bytes()));
    Ok(Value::Array(parts.into()))
}

/// The keys of the command that follows.
fn keys(_run: &mut Execution, words: &Words) -> CommandResult {
    let asked = words.get(2..).unwrap_or_default();
    let Some(name) = asked.first() else { return Err(ErrorReply::arity(b"command|getkeys")) };
    let Ok(command) = super::named(name) else {
        return Err(ErrorReply::new("ERR Invalid command specified"));
    };
    if !command.fits(asked.len()) {
        return Err(ErrorReply::new("ERR Invalid number of arguments specified for command"));
    }
    let keys = match command.name {
        name if COMMANDS.iter().any(|keyless| keyless.name == name) => {
            return Err(ErrorReply::new("ERR The command has no key arguments"));
        }
        "DEL" | "UNLINK" | "EXISTS" | "MGET" => &asked[1..],
        _ => &asked[1..2],
    };
    Ok(Value::Array(keys.iter().map(|key| bulk(key)).collect()))
}

fn numsub(run: &mut Execution, words: &Words) -> CommandResult {
    let counts = words[2..].iter().flat_map(|name| [bulk(name), number(run.subscribers(name))]);
    Ok(Value::Array(counts.collect()))
}

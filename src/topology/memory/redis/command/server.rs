//! Commands without a key: time, and messages.

use redis::Value;

use super::super::reply::CommandResult;
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

fn numsub(run: &mut Execution, words: &Words) -> CommandResult {
    let counts = words[2..].iter().flat_map(|name| [bulk(name), number(run.subscribers(name))]);
    Ok(Value::Array(counts.collect()))
}

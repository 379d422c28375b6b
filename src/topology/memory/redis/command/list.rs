//! Commands on lists.

use redis::Value;

use super::super::reply::CommandResult;
use super::super::store::Execution;
use super::entry::Access::{Grow, Read};
use super::entry::{Command, Words, between, bulk, count, read_integer};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("LPUSH", -3, Grow, |run, words| {
        push(run, words, |items, item| items.insert(0, item))
    }),
    Command::new("RPUSH", -3, Grow, |run, words| push(run, words, Vec::push)),
    Command::new("LLEN", 2, Read, |run, words| Ok(count(run.list(&words[1])?.len()))),
    Command::new("LRANGE", 4, Read, lrange),
];

fn push(run: &mut Execution, words: &Words, put: fn(&mut Vec<Vec<u8>>, Vec<u8>)) -> CommandResult {
    let items = run.list_mut(&words[1])?;
    words[2..].iter().for_each(|item| put(items, item.clone()));
    let length = count(items.len());
    run.settle(&words[1], true);
    Ok(length)
}

fn lrange(run: &mut Execution, words: &Words) -> CommandResult {
    let (first, last) = (read_integer(&words[2])?, read_integer(&words[3])?);
    let items = between(run.list(&words[1])?, first, last);
    Ok(Value::Array(items.iter().map(|item| bulk(item)).collect()))
}

//! Commands on hashes.

use redis::Value;

use super::super::number::integer;
use super::super::reply::{CommandResult, ErrorReply};
use super::super::store::Execution;
use super::entry::Access::{Grow, Read, Shrink};
use super::entry::{Command, Words, bulk, bulk_or_nil, count, flag, read_integer};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("HSET", -4, Grow, hset),
    Command::new("HSETNX", 4, Grow, hsetnx),
    Command::new("HGET", 3, Read, |run, words| find(run, &words[1], &words[2]).map(bulk_or_nil)),
    Command::new("HMGET", -3, Read, hmget),
    Command::new("HEXISTS", 3, Read, |run, words| {
        Ok(flag(find(run, &words[1], &words[2])?.is_some()))
    }),
    Command::new("HDEL", -3, Shrink, hdel),
    Command::new("HINCRBY", 4, Grow, hincrby),
    Command::new("HLEN", 2, Read, |run, words| Ok(count(run.hash(&words[1])?.len()))),
    Command::new("HKEYS", 2, Read, |run, words| list(run, words, true, false)),
    Command::new("HVALS", 2, Read, |run, words| list(run, words, false, true)),
    Command::new("HGETALL", 2, Read, |run, words| list(run, words, true, true)),
];

fn find<'a>(run: &'a Execution, key: &[u8], field: &[u8]) -> Result<Option<&'a [u8]>, ErrorReply> {
    let found = run.hash(key)?.iter().find(|(name, _)| name == field);
    Ok(found.map(|(_, value)| value.as_slice()))
}

fn list(run: &Execution, words: &Words, keys: bool, values: bool) -> CommandResult {
    let fields = run.hash(&words[1])?.iter();
    let parts = fields.flat_map(|(field, value)| [(keys, field), (values, value)]);
    Ok(Value::Array(
        parts.filter(|(is_wanted, _)| *is_wanted).map(|(_, part)| bulk(part)).collect(),
    ))
}

fn hmget(run: &mut Execution, words: &Words) -> CommandResult {
    let found = words[2..].iter().map(|field| find(run, &words[1], field).map(bulk_or_nil));
    found.collect::<Result<_, _>>().map(Value::Array)
}

/// Writes a field; returns whether it is new.
fn put(run: &mut Execution, key: &[u8], field: &[u8], value: &[u8]) -> Result<bool, ErrorReply> {
    let fields = run.hash_mut(key)?;
    let known = fields.iter_mut().find(|(name, _)| name == field);
    let is_new = known.is_none();
    match known {
        Some((_, old)) => *old = value.to_vec(),
        None => fields.push((field.to_vec(), value.to_vec())),
    }
    run.settle(key, true);
    Ok(is_new)
}

fn hset(run: &mut Execution, words: &Words) -> CommandResult {
    let pairs = words[2..].chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err(ErrorReply::arity(&words[0]));
    }
    let mut added = 0;
    for pair in pairs {
        added += usize::from(put(run, &words[1], &pair[0], &pair[1])?);
    }
    Ok(count(added))
}

fn hsetnx(run: &mut Execution, words: &Words) -> CommandResult {
    let is_new = find(run, &words[1], &words[2])?.is_none();
    if is_new {
        put(run, &words[1], &words[2], &words[3])?;
    }
    Ok(flag(is_new))
}

fn hdel(run: &mut Execution, words: &Words) -> CommandResult {
    let fields = run.hash_mut(&words[1])?;
    let before = fields.len();
    fields.retain(|(field, _)| !words[2..].contains(field));
    let removed = before - fields.len();
    run.settle(&words[1], removed > 0);
    Ok(count(removed))
}

fn hincrby(run: &mut Execution, words: &Words) -> CommandResult {
    let by = read_integer(&words[3])?;
    let number = find(run, &words[1], &words[2])?.map_or(Some(0), integer);
    let number = number.ok_or_else(|| ErrorReply::new("ERR hash value is not an integer"))?;
    let number = number.checked_add(by).ok_or_else(ErrorReply::overflow)?;
    put(run, &words[1], &words[2], number.to_string().as_bytes())?;
    Ok(Value::Int(number))
}

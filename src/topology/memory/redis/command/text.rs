//! Commands on strings.

use redis::Value;

use super::super::number::integer;
use super::super::reply::{CommandResult, ErrorReply};
use super::super::store::Execution;
use super::entry::Access::{Grow, Read, Shrink};
use super::entry::{Command, Words, bulk_or_nil, count, is, read_integer};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("GET", 2, Read, get),
    Command::new("SET", -3, Grow, set),
    Command::new("MGET", -2, Read, mget),
    Command::new("GETDEL", 2, Shrink, getdel),
    Command::new("APPEND", 3, Grow, append),
    Command::new("STRLEN", 2, Read, |run, words| {
        Ok(count(run.text(&words[1])?.unwrap_or_default().len()))
    }),
    Command::new("INCR", 2, Grow, |run, words| increment(run, &words[1], 1)),
    Command::new("DECR", 2, Grow, |run, words| increment(run, &words[1], -1)),
    Command::new("INCRBY", 3, Grow, |run, words| {
        increment(run, &words[1], read_integer(&words[2])?)
    }),
    Command::new("DECRBY", 3, Grow, decrby),
];

fn get(run: &mut Execution, words: &Words) -> CommandResult {
    run.text(&words[1]).map(bulk_or_nil)
}

fn mget(run: &mut Execution, words: &Words) -> CommandResult {
    let text = |key: &Vec<u8>| bulk_or_nil(run.text(key).ok().flatten());
    Ok(Value::Array(words[1..].iter().map(text).collect()))
}

fn getdel(run: &mut Execution, words: &Words) -> CommandResult {
    let found = get(run, words)?;
    run.delete(&words[1]);
    Ok(found)
}

/// The expiry that `SET` writes.
enum End {
    Never,
    AsBefore,
    /// After a number of units of some milliseconds, from now on or from 1970.
    At {
        number: Vec<u8>,
        unit: i64,
        is_from_now: bool,
    },
}

fn set(run: &mut Execution, words: &Words) -> CommandResult {
    let key = &words[1];
    let (mut is_new, mut is_there, mut wants_old, mut end) = (false, false, false, End::Never);
    let mut options = words[3..].iter();
    while let Some(option) = options.next() {
        // The same option may be repeated, and its last number counts. Two different ones are an
        // error.
        let before = match end {
            End::Never => None,
            End::AsBefore => Some((0, true)),
            End::At { unit, is_from_now, .. } => Some((unit, is_from_now)),
        };
        let mut at = |unit, is_from_now| match options.next() {
            Some(number) if before.is_none_or(|before| before == (unit, is_from_now)) => {
                Ok(End::At { number: number.clone(), unit, is_from_now })
            }
            _ => Err(ErrorReply::syntax()),
        };
        if is(option, "NX") && !is_there {
            is_new = true;
        } else if is(option, "XX") && !is_new {
            is_there = true;
        } else if is(option, "GET") {
            wants_old = true;
        } else if is(option, "KEEPTTL") && !matches!(end, End::At { .. }) {
            end = End::AsBefore;
        } else if is(option, "PX") {
            end = at(1, true)?;
        } else if is(option, "EX") {
            end = at(1000, true)?;
        } else if is(option, "PXAT") {
            end = at(1, false)?;
        } else if is(option, "EXAT") {
            end = at(1000, false)?;
        } else {
            return Err(ErrorReply::syntax());
        }
    }
    let ends = match end {
        End::Never => None,
        End::AsBefore => run.ends(key).flatten(),
        End::At { number, unit, is_from_now } => {
            let begin = if is_from_now { run.millis() } else { 0 };
            let span = Some(read_integer(&number)?).filter(|&span| span > 0);
            let ends = span.and_then(|span| span.checked_mul(unit)?.checked_add(begin));
            Some(ends.ok_or_else(|| ErrorReply::expire_time(b"set"))?)
        }
    };
    // Before anything is written: `SET … GET` on a key of another type fails and changes nothing.
    let old = if wants_old { get(run, words)? } else { Value::Nil };
    let exists = run.data(key).is_some();
    if (is_new && exists) || (is_there && !exists) {
        return Ok(old);
    }
    run.set_text(key, words[2].clone(), ends);
    // A moment in the past, as with `PXAT`: the old value is overwritten and the key is gone.
    if ends.is_some_and(|ends| ends <= run.millis()) {
        run.delete(key);
    }
    Ok(if wants_old { old } else { Value::Okay })
}

fn append(run: &mut Execution, words: &Words) -> CommandResult {
    let key = &words[1];
    let whole = [run.text(key)?.unwrap_or_default(), &words[2]].concat();
    let length = count(whole.len());
    replace(run, key, whole);
    Ok(length)
}

fn decrby(run: &mut Execution, words: &Words) -> CommandResult {
    let by = read_integer(&words[2])?.checked_neg();
    let by = by.ok_or_else(|| ErrorReply::new("ERR decrement would overflow"))?;
    increment(run, &words[1], by)
}

fn increment(run: &mut Execution, key: &[u8], by: i64) -> CommandResult {
    let number = run.text(key)?.map_or(Some(0), integer).ok_or_else(ErrorReply::no_integer)?;
    let number = number.checked_add(by).ok_or_else(ErrorReply::overflow)?;
    replace(run, key, number.to_string().into_bytes());
    Ok(Value::Int(number))
}

/// Replaces the text of a key and keeps its expiry.
fn replace(run: &mut Execution, key: &[u8], text: Vec<u8>) {
    let ends = run.ends(key).flatten();
    run.set_text(key, text, ends);
}

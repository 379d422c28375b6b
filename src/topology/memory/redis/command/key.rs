//! Commands on keys of any type: existence and expiry.

use redis::Value;

use super::super::reply::{CommandResult, ErrorReply};
use super::super::store::{Data, Execution};
use super::entry::Access::{Read, Shrink};
use super::entry::{Command, Words, count, flag, is, read_integer};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("DEL", -2, Shrink, delete),
    Command::new("UNLINK", -2, Shrink, delete),
    Command::new("EXISTS", -2, Read, exists),
    Command::new("TYPE", 2, Read, type_of),
    Command::new("EXPIRE", -3, Shrink, |run, words| expire(run, words, 1000, true)),
    Command::new("PEXPIRE", -3, Shrink, |run, words| expire(run, words, 1, true)),
    Command::new("EXPIREAT", -3, Shrink, |run, words| expire(run, words, 1000, false)),
    Command::new("PEXPIREAT", -3, Shrink, |run, words| expire(run, words, 1, false)),
    Command::new("TTL", 2, Read, |run, words| {
        let seconds =
            |run: &Execution, ends: i64| (ends - run.millis()).max(0).saturating_add(500) / 1000;
        Ok(left(run, &words[1], seconds))
    }),
    Command::new("PTTL", 2, Read, |run, words| {
        Ok(left(run, &words[1], |run, ends| (ends - run.millis()).max(0)))
    }),
    Command::new("EXPIRETIME", 2, Read, |run, words| {
        Ok(left(run, &words[1], |_, ends| ends.saturating_add(500) / 1000))
    }),
    Command::new("PEXPIRETIME", 2, Read, |run, words| Ok(left(run, &words[1], |_, ends| ends))),
    Command::new("PERSIST", 2, Shrink, persist),
];

fn delete(run: &mut Execution, words: &Words) -> CommandResult {
    Ok(count(words[1..].iter().filter(|key| run.delete(key)).count()))
}

fn exists(run: &mut Execution, words: &Words) -> CommandResult {
    Ok(count(words[1..].iter().filter(|key| run.data(key).is_some()).count()))
}

fn type_of(run: &mut Execution, words: &Words) -> CommandResult {
    let word = match run.data(&words[1]) {
        None => "none",
        Some(Data::Text(_)) => "string",
        Some(Data::Hash(_)) => "hash",
        Some(Data::Sorted(_)) => "zset",
        Some(Data::List(_)) => "list",
    };
    Ok(Value::SimpleString(word.to_owned()))
}

fn expire(run: &mut Execution, words: &Words, unit: i64, is_from_now: bool) -> CommandResult {
    let key = &words[1];
    let mut has = [false; 4];
    let [nx, xx, gt, lt] = ["NX", "XX", "GT", "LT"];
    for option in &words[3..] {
        let Some(place) = [nx, xx, gt, lt].iter().position(|known| is(option, known)) else {
            return Err(ErrorReply::new("ERR Unsupported option"));
        };
        has[place] = true;
    }
    let [nx, xx, gt, lt] = has;
    if (nx && (xx || gt || lt)) || (gt && lt) {
        return Err(ErrorReply::new(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    // The options are checked before the number, and the number before the key, as in Redis: which
    // error comes first is part of the parity.
    let begin = if is_from_now { run.millis() } else { 0 };
    let ends = read_integer(&words[2])?.checked_mul(unit).and_then(|span| span.checked_add(begin));
    let ends = ends.ok_or_else(|| ErrorReply::expire_time(&words[0]))?;
    let Some(before) = run.ends(key) else { return Ok(flag(false)) };
    // A key without an expiry counts as one that lives forever: nothing is greater than that
    // (`GT`), and everything is less (`LT`).
    let refuses = match before {
        None => xx || gt,
        Some(before) => nx || (gt && ends <= before) || (lt && ends >= before),
    };
    if !refuses {
        run.set_end(key, Some(ends));
    }
    Ok(flag(!refuses))
}

/// The rest of a key's life or its expiry: −1 without an expiry, −2 without the key.
fn left(run: &Execution, key: &[u8], show: impl FnOnce(&Execution, i64) -> i64) -> Value {
    Value::Int(match run.ends(key) {
        None => -2,
        Some(None) => -1,
        Some(Some(ends)) => show(run, ends),
    })
}

fn persist(run: &mut Execution, words: &Words) -> CommandResult {
    let has_end = run.ends(&words[1]).flatten().is_some();
    if has_end {
        run.set_end(&words[1], None);
    }
    Ok(flag(has_end))
}

//! Commands, by their words.
//!
//! Each is checked as Redis checks it: its arity, its integers, its options, and the type of its key. What
//! is not here is refused by name.

mod hash;
mod key;
mod list;
mod server;
mod sorted;
mod text;

use redis::Value;

use super::lua;
use super::number::{Score, integer};
use super::reply::{ErrorReply, Outcome};
use super::store::Run;

/// What a command may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// It changes keys, and needs no more memory.
    Shrink,
    /// It changes keys, and is refused when memory is full.
    Grow,
}

type Words = [Vec<u8>];

/// A command of Redis.
#[derive(Debug)]
pub(crate) struct Command {
    /// In capitals.
    name: &'static str,
    /// How many words it has, the name included; if negative, at least so many.
    arity: isize,
    access: Access,
    run: fn(&mut Run, &Words) -> Outcome,
}

impl Command {
    const fn new(
        name: &'static str,
        arity: isize,
        access: Access,
        run: fn(&mut Run, &Words) -> Outcome,
    ) -> Command {
        Command { name, arity, access, run }
    }
}

const TABLES: [&[Command]; 6] = [
    text::COMMANDS,
    key::COMMANDS,
    hash::COMMANDS,
    sorted::COMMANDS,
    server::COMMANDS,
    list::COMMANDS,
];

/// Runs a script, and none of a script's own commands does.
const EVAL: &[u8] = b"EVAL";
const PUBSUB: &str = "PUBSUB";
/// EVAL, script, number of keys.
const EVAL_WORDS: usize = 3;

/// Runs a command or, as `EVAL`, a script.
pub(crate) fn call(run: &mut Run, words: &Words) -> Outcome {
    if words.first().is_some_and(|name| name.eq_ignore_ascii_case(EVAL)) {
        check_eval(words)?;
        return eval(run, words);
    }
    call_from_script(run, words)
}

/// Runs a command that a script may call.
pub(super) fn call_from_script(run: &mut Run, words: &Words) -> Outcome {
    let command = find(words)?;
    if command.access == Access::Grow && run.refuses_growth() {
        return Err(ErrorReply::out_of_memory());
    }
    if command.access != Access::Read {
        run.note_write();
    }
    (command.run)(run, words)
}

/// Whether a command could be run, as far as its name and its arity tell.
pub(super) fn check(words: &Words) -> Result<(), ErrorReply> {
    if words.first().is_some_and(|name| name.eq_ignore_ascii_case(EVAL)) {
        check_eval(words)
    } else {
        find(words).map(|_| ())
    }
}

fn find(words: &Words) -> Result<&'static Command, ErrorReply> {
    let name = words.first().map_or(&b""[..], Vec::as_slice);
    let known = TABLES.into_iter().flatten();
    let command = known
        .into_iter()
        .find(|command| command.name.as_bytes().eq_ignore_ascii_case(name))
        .ok_or_else(|| ErrorReply::unknown("command", name))?;
    let (count, arity) = (words.len(), command.arity.unsigned_abs());
    let fits = if command.arity < 0 { count >= arity } else { count == arity };
    if !fits {
        return Err(ErrorReply::arity(name));
    }
    // Redis looks a subcommand up like a command, and this is the only one.
    if command.name == PUBSUB && !is(&words[1], "NUMSUB") {
        return Err(ErrorReply::unknown("subcommand of PUBSUB", &words[1]));
    }
    Ok(command)
}

fn check_eval(words: &Words) -> Result<(), ErrorReply> {
    if words.len() < EVAL_WORDS { Err(ErrorReply::arity(EVAL)) } else { Ok(()) }
}

fn eval(run: &mut Run, words: &Words) -> Outcome {
    let rest = &words[EVAL_WORDS..];
    let Ok(keys) = usize::try_from(read_integer(&words[2])?) else {
        return Err(ErrorReply::new("ERR Number of keys can't be negative"));
    };
    let Some((keys, arguments)) = rest.split_at_checked(keys) else {
        return Err(ErrorReply::new("ERR Number of keys can't be greater than number of args"));
    };
    lua::eval(run, &words[1], keys, arguments)
}

fn read_integer(digits: &[u8]) -> Result<i64, ErrorReply> {
    integer(digits).ok_or_else(ErrorReply::no_integer)
}

fn read_score(text: &[u8]) -> Result<Score, ErrorReply> {
    Score::read(text).ok_or_else(|| ErrorReply::new("ERR value is not a valid float"))
}

fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

fn bulk(text: &[u8]) -> Value {
    Value::BulkString(text.to_vec())
}

fn bulk_or_nil(text: Option<&[u8]>) -> Value {
    text.map_or(Value::Nil, bulk)
}

fn count(number: usize) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn flag(value: bool) -> Value {
    Value::Int(value.into())
}

/// The items between two positions, as Redis counts them: from the end where they are negative.
fn between<T>(items: &[T], first: i64, last: i64) -> &[T] {
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let position = |at: i64| if at < 0 { (at + length).max(0) } else { at };
    let end = if last < 0 { last + length } else { last.min(length - 1) };
    let (first, end) = (position(first), end + 1);
    match (usize::try_from(first), usize::try_from(end)) {
        (Ok(first), Ok(end)) if first < end => &items[first..end],
        _ => &[],
    }
}

#[cfg(test)]
impl Command {
    pub(crate) fn all() -> impl Iterator<Item = (&'static str, isize, Access)> {
        let told = |command: &'static Command| (command.name, command.arity, command.access);
        TABLES.into_iter().flatten().map(told)
    }
}

//! An entry of the table of commands, and helpers of all commands.

use redis::Value;

use super::super::number::{Score, integer};
use super::super::reply::{CommandResult, ErrorReply};
use super::super::store::Execution;

/// What a command may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// It changes keys and needs no more memory.
    Shrink,
    /// It changes keys and is refused when memory is full (`denyoom` in Redis).
    Grow,
}

pub(crate) type Words = [Vec<u8>];

/// A command of Redis.
#[derive(Debug)]
pub(crate) struct Command {
    /// In capitals.
    pub(crate) name: &'static str,
    /// The number of words with the name; if negative, the least number.
    pub(crate) arity: isize,
    pub(crate) access: Access,
    pub(crate) run: fn(&mut Execution, &Words) -> CommandResult,
}

impl Command {
    pub(crate) const fn new(
        name: &'static str,
        arity: isize,
        access: Access,
        run: fn(&mut Execution, &Words) -> CommandResult,
    ) -> Command {
        Command { name, arity, access, run }
    }

    /// Whether it takes so many words, with its name.
    pub(super) fn fits(&self, count: usize) -> bool {
        let arity = self.arity.unsigned_abs();
        if self.arity < 0 { count >= arity } else { count == arity }
    }
}

pub(crate) fn read_integer(digits: &[u8]) -> Result<i64, ErrorReply> {
    integer(digits).ok_or_else(ErrorReply::no_integer)
}

pub(crate) fn read_score(text: &[u8]) -> Result<Score, ErrorReply> {
    Score::read(text).ok_or_else(|| ErrorReply::new("ERR value is not a valid float"))
}

pub(crate) fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

pub(crate) fn bulk(text: &[u8]) -> Value {
    Value::BulkString(text.to_vec())
}

pub(crate) fn bulk_or_nil(text: Option<&[u8]>) -> Value {
    text.map_or(Value::Nil, bulk)
}

pub(crate) fn count(number: usize) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

pub(crate) fn flag(value: bool) -> Value {
    Value::Int(value.into())
}

/// The items between two positions, both included. Negative positions count from the end.
pub(crate) fn between<T>(items: &[T], first: i64, last: i64) -> &[T] {
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    // Unlike the first, a last position before the beginning is not clamped to 0: the range is
    // empty.
    let position = |at: i64| if at < 0 { (at + length).max(0) } else { at };
    let end = if last < 0 { last + length } else { last.min(length - 1) };
    let (first, end) = (position(first), end + 1);
    match (usize::try_from(first), usize::try_from(end)) {
        (Ok(first), Ok(end)) if first < end => &items[first..end],
        _ => &[],
    }
}

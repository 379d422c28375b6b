//! Replies of a real server, and whether another is like it.

use ::redis::{Cmd, Connection, ConnectionLike as _, Value};

/// How far apart two numbers may be that are times: ends of keys in milliseconds…
const APART: i64 = 20_000;
/// …and moments in microseconds, from here on.
const MOMENTS: i64 = 1_000_000_000_000_000;

/// A reply, with the code of an error in its place.
pub(crate) fn coded(value: Value) -> Value {
    match value {
        Value::ServerError(error) => Value::SimpleString(format!("-{}", error.code())),
        other => other,
    }
}

pub(crate) fn ask(connection: &mut Connection, words: &[Vec<u8>]) -> Value {
    let mut command = Cmd::new();
    words.iter().for_each(|word| _ = command.arg(word.as_slice()));
    coded(connection.req_command(&command).expect("a reply"))
}

pub(crate) fn is_close(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => are_close(*one, *other),
        (Value::BulkString(one), Value::BulkString(other)) => is_close_text(one, other),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_close(one, other))
        }
        _ => one == other,
    }
}

/// Numbers in a text are those of a message, or a token, or a score.
fn is_close_text(one: &[u8], other: &[u8]) -> bool {
    let (one, other) = (String::from_utf8_lossy(one), String::from_utf8_lossy(other));
    let (mut rest, mut other) = (one.split(' '), other.split(' '));
    rest.by_ref().zip(other.by_ref()).all(|(one, other)| match (one.parse(), other.parse()) {
        (Ok(number), Ok(same)) => one.len() == other.len() && are_close(number, same),
        _ => one == other,
    }) && rest.next() == other.next()
}

fn are_close(one: i64, other: i64) -> bool {
    if one < 0 && other < 0 {
        // The places of those who were passed over.
        return are_close(one.saturating_neg(), other.saturating_neg());
    }
    let apart = if one.min(other) >= MOMENTS { 1_000 * APART } else { APART };
    one == other || one.min(other) > APART && one.abs_diff(other) < apart.unsigned_abs()
}

pub(crate) fn first(reply: &Value) -> &[u8] {
    match reply {
        Value::Array(parts) => parts.first().map_or(b"", first),
        Value::BulkString(text) => text,
        _ => b"",
    }
}

//! What a request, a reply or a message says, in short.

use leasehold_support::fault::Operation;
use redis::Value;

use super::Result;
use super::names::{Names, bytes, number, seconds};

/// What is drawn where a request did nothing, because its deadline was over.
pub(crate) const TOO_LATE: &str = "too late";

/// Reads what a client asks, or nothing where that is no part of the story.
pub(crate) fn request(
    names: &mut Names,
    operation: Operation,
    message: &Value,
) -> Result<Option<String>> {
    let Value::Array(words) = message else { return Err("a request is an array".into()) };
    let words: Vec<&[u8]> = words.iter().map(bytes).collect::<Result<_>>()?;
    let text = |at: usize| words.get(at).map_or("", |word| std::str::from_utf8(word).unwrap_or(""));
    let first = 3 + text(2).parse::<usize>().unwrap_or(0);
    let owner = words.get(first).copied().unwrap_or_default();
    let lease = || seconds(text(first + 1).parse().unwrap_or(0));
    Ok(Some(match operation {
        Operation::Acquire | Operation::Beat => {
            format!("acquire {}, {}", names.attempt(owner)?, text(first + 4))
        }
        Operation::Renew => format!("renew {}, {}", names.attempt(owner)?, lease()),
        Operation::Release => match text(first + 2).parse::<u64>()? {
            0 => format!("release {}", names.attempt(owner)?),
            last => format!("release {}, last token {}", names.attempt(owner)?, names.token(last)?),
        },
        _ => return Ok(None),
    }))
}

/// Reads what a script returned.
pub(crate) fn reply(
    names: &mut Names,
    operation: Operation,
    message: &Value,
) -> Result<Option<String>> {
    Ok(Some(match (operation, message) {
        (Operation::Acquire | Operation::Beat, Value::Int(token)) => {
            format!("granted: {}", names.token(token.unsigned_abs())?)
        }
        (Operation::Acquire | Operation::Beat, Value::Array(values)) => {
            let at = |at: usize| values.get(at).ok_or("a short reply").map(number);
            match at(0)?? {
                1 => format!(
                    "granted: {}, {}, {}",
                    names.token(at(1)??.unsigned_abs())?,
                    seconds(at(2)??),
                    waiting(at(4)??)
                ),
                0 => {
                    format!("held for {}, {} ahead", seconds(at(1)??), at(3)??)
                }
                2 => TOO_LATE.to_owned(),
                3 => "not in the queue".to_owned(),
                other => return Err(format!("no reply: {other}").into()),
            }
        }
        // Behind it comes the server's time, which is no part of the story.
        (Operation::Renew, Value::Array(values)) => match values.first() {
            Some(Value::Int(1)) => "it is yours".to_owned(),
            Some(Value::Int(0)) => "nobody has it".to_owned(),
            Some(Value::Int(-1)) => "another has it".to_owned(),
            other => return Err(format!("no reply: {other:?}").into()),
        },
        (Operation::Release, Value::Int(1)) => "released".to_owned(),
        (Operation::Release, Value::Int(0)) => "nobody has it".to_owned(),
        (Operation::Release, Value::Int(-1)) => "another has it".to_owned(),
        (Operation::Acquire | Operation::Beat | Operation::Renew | Operation::Release, other) => {
            return Err(format!("no reply: {other:?}").into());
        }
        _ => return Ok(None),
    }))
}

/// Reads what a client of this letter is sent unasked, or nothing where that is no part of the
/// story.
pub(crate) fn push(
    names: &mut Names,
    letter: &'static str,
    message: &Value,
) -> Result<Option<String>> {
    let parts: Vec<Value> = match message {
        Value::Array(parts) => parts.clone(),
        Value::Push { kind, data } => {
            let kind = Value::SimpleString(kind.to_string());
            std::iter::once(kind).chain(data.iter().cloned()).collect()
        }
        _ => return Ok(None),
    };
    let [kind, _, payload] = parts.as_slice() else { return Ok(None) };
    match bytes(kind)? {
        b"message" => {
            let text = String::from_utf8_lossy(bytes(payload)?).into_owned();
            let words: Vec<&str> = text.split(' ').collect();
            let (&kind, &attempt) = words.first().zip(words.get(1)).ok_or("an empty message")?;
            let attempt = names.numbered(letter, attempt)?;
            let at = |at: usize| words.get(at).ok_or("a short message").map(|word| word.parse());
            Ok(Some(match kind {
                "g" => format!(
                    "grant {attempt}: {}, {}, {}",
                    names.token(at(2)??)?,
                    seconds(i64::try_from(at(4)??)?),
                    waiting(i64::try_from(at(5)??)?)
                ),
                "r" => format!("{attempt}: ask again"),
                "w" => format!("{attempt}: {}", waiting(i64::try_from(at(2)??)?)),
                other => return Err(format!("no message: {other}").into()),
            }))
        }
        _ => Ok(None),
    }
}

/// The server's time in the reply to a waiter, or in a grant.
pub(crate) fn server_time(message: &Value) -> Option<u64> {
    match message {
        Value::Array(parts) | Value::Push { data: parts, .. } => match parts.as_slice() {
            [Value::Int(0), _, Value::Int(now), ..] => u64::try_from(*now).ok(),
            [.., Value::BulkString(grant)] if grant.starts_with(b"g ") => {
                std::str::from_utf8(grant).ok()?.split(' ').nth(3)?.parse().ok()
            }
            _ => None,
        },
        _ => None,
    }
}

fn waiting(count: i64) -> String {
    match count {
        1 => "1 waits".to_owned(),
        count => format!("{count} wait"),
    }
}

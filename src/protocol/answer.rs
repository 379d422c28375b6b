//! What scripts answer.

use std::time::Duration;

use redis::{ErrorKind, RedisError, Value};

use crate::base::time::Moment;
use crate::wire::connection::Reply;
use crate::wire::failure::Failure;

/// The answer to an attempt to take a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is the attempt's, for `ttl` from `sent` on.
    Granted { token: u64, ttl: Duration, sent: Moment },
    /// It is another's, for `ttl` from now on; `None`: without an end.
    Busy { ttl: Option<Duration> },
    /// The request ran after its deadline, and did nothing.
    Late,
}

/// What Redis says about an owner's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was the owner's, and what was asked is done.
    Done,
    /// The key is gone.
    Gone,
    /// Another owner has it.
    Taken,
}

/// An attempt's answer, and the server's time in microseconds.
pub(crate) fn acquired(reply: &Reply, asked: Duration) -> Result<(Answer, u64), Failure> {
    let numbers = numbers(&reply.value)?;
    let span = |millis: i64| u64::try_from(millis).ok().map(Duration::from_millis);
    let (answer, now) = match *numbers.as_slice() {
        [1, token, ttl, now] => {
            let token = u64::try_from(token).map_err(|_| unexpected(&reply.value))?;
            (Answer::Granted { token, ttl: span(ttl).unwrap_or(asked), sent: reply.sent }, now)
        }
        [0, ttl, now] => (Answer::Busy { ttl: span(ttl) }, now),
        [2, now] => (Answer::Late, now),
        _ => return Err(unexpected(&reply.value)),
    };
    Ok((answer, u64::try_from(now).map_err(|_| unexpected(&reply.value))?))
}

/// The answer to a release or a renewal.
pub(crate) fn verdict(value: &Value) -> Result<Verdict, Failure> {
    match value {
        Value::Int(1) => Ok(Verdict::Done),
        Value::Int(0) => Ok(Verdict::Gone),
        Value::Int(-1) => Ok(Verdict::Taken),
        other => Err(unexpected(other)),
    }
}

fn numbers(value: &Value) -> Result<Vec<i64>, Failure> {
    let Value::Array(parts) = value else { return Err(unexpected(value)) };
    parts
        .iter()
        .map(|part| match part {
            Value::Int(number) => Ok(*number),
            _ => Err(unexpected(value)),
        })
        .collect()
}

/// An answer that none of our scripts gives: it is somebody else's, so ours never came.
pub(crate) fn unexpected(value: &Value) -> Failure {
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::Array(_) => "a list",
        _ => "something else",
    };
    Failure::Unknown(RedisError::from((
        ErrorKind::UnexpectedReturnType,
        "an answer of another form than was asked for",
        kind.to_owned(),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(numbers: &[i64]) -> Result<(Answer, u64), Failure> {
        let value = Value::Array(numbers.iter().map(|&number| Value::Int(number)).collect());
        let at = Moment::from_nanos(7);
        acquired(&Reply { value, sent: at, received: at }, Duration::from_secs(9))
    }

    #[test]
    fn answers_are_read_or_refused() {
        let granted = Answer::Granted {
            token: 5,
            ttl: Duration::from_millis(30),
            sent: Moment::from_nanos(7),
        };
        assert_eq!(answer(&[1, 5, 30, 99]).unwrap(), (granted, 99));
        assert_eq!(answer(&[0, -1, 99]).unwrap().0, Answer::Busy { ttl: None });
        assert_eq!(answer(&[2, 99]).unwrap(), (Answer::Late, 99));
        for odd in [&[][..], &[1], &[1, -5, 30, 99], &[3, 1], &[0, 1, -9]] {
            assert!(answer(odd).unwrap_err().is_unknown(), "{odd:?}");
        }
        assert!(verdict(&Value::Nil).unwrap_err().is_unknown());
        assert!(verdict(&Value::Int(2)).unwrap_err().is_unknown());
    }
}

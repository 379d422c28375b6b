//! Release by transaction: `WATCH`, `GET`, then `MULTI`, `DEL`, `EXEC` if the value is the
//! owner's. Redis drops the transaction when the key changed, or expired, in between.

use redis::Value;

use crate::base::time::Moment;
use crate::protocol::answer::{Verdict, unexpected};
use crate::wire::connection::Connection;
use crate::wire::failure::Failure;
use crate::wire::script::Call;

/// Gives a string lock back if it is still the owner's.
pub(crate) fn release(
    connection: &mut Connection,
    key: &[u8],
    owner: &[u8],
    deadline: Moment,
) -> Result<Verdict, Failure> {
    // A connection that is left watching, or within a transaction, must not serve another caller.
    let outcome = release_inner(connection, key, owner, deadline);
    if outcome.is_err() {
        connection.poison();
    }
    outcome
}

fn release_inner(
    connection: &mut Connection,
    key: &[u8],
    owner: &[u8],
    deadline: Moment,
) -> Result<Verdict, Failure> {
    loop {
        connection.call(&Call::plain(&[b"WATCH", key]), deadline)?;
        let found = connection.call(&Call::plain(&[b"GET", key]), deadline)?.value;
        if found != Value::BulkString(owner.to_vec()) {
            connection.call(&Call::plain(&[b"UNWATCH"]), deadline)?;
            return match found {
                Value::Nil => Ok(Verdict::Gone),
                Value::BulkString(_) => Ok(Verdict::Taken),
                other => Err(unexpected(&other)),
            };
        }
        let transaction =
            [Call::plain(&[b"MULTI"]), Call::plain(&[b"DEL", key]), Call::plain(&[b"EXEC"])];
        let mut last = Value::Nil;
        for reply in connection.call_all(&transaction, deadline) {
            last = reply?.value;
        }
        match last {
            // The key changed in between: look again at whose it is. Each round has the same
            // deadline, and the owner's value never comes back.
            Value::Nil => {}
            Value::Array(results) if results == [Value::Int(1)] => return Ok(Verdict::Done),
            Value::Array(results) if results == [Value::Int(0)] => return Ok(Verdict::Gone),
            other => return Err(unexpected(&other)),
        }
    }
}

//! Commands that apply only if a lock is still its owner's: `WATCH`, a look at the owner, then
//! `MULTI`, the commands, `EXEC`. Redis drops the transaction when the key changed, or expired, in
//! between.

use crate::base::time::Moment;
use crate::protocol::inspection::View;
use crate::protocol::reply::{Ownership, unexpected};
use crate::protocol::request::ReleaseRequest;
use crate::protocol::target::{Target, fence};
use crate::wire::connection::Session;
use crate::wire::failure::Failure;
use crate::wire::script::Call;
use crate::wire::{Arg, Pipeline, Value};

/// What became of a guarded transaction.
#[derive(Debug, PartialEq)]
pub(crate) enum Applied {
    /// It was the owner's, and the commands were done; an answer for each.
    Done(Vec<Value>),
    /// Nothing was done: the key is gone.
    Gone,
    /// Nothing was done: another owner has it.
    Taken,
}

/// What would leave the connection in another state for its next user (another database, another
/// user, no answers), or end the transaction before its time.
const FORBIDDEN_COMMANDS: [&[u8]; 24] = [
    b"ASKING",
    b"AUTH",
    b"CLIENT",
    b"DISCARD",
    b"EXEC",
    b"HELLO",
    b"MONITOR",
    b"MULTI",
    b"PSUBSCRIBE",
    b"PSYNC",
    b"PUNSUBSCRIBE",
    b"QUIT",
    b"READONLY",
    b"READWRITE",
    b"REPLCONF",
    b"RESET",
    b"SELECT",
    b"SSUBSCRIBE",
    b"SUBSCRIBE",
    b"SUNSUBSCRIBE",
    b"SYNC",
    b"UNSUBSCRIBE",
    b"UNWATCH",
    b"WATCH",
];

/// The first of a user's commands that must not be within a transaction. One without a name is among
/// them: Redis would not answer to it.
pub(crate) fn forbidden_command(pipeline: &Pipeline) -> Option<&[u8]> {
    let names = pipeline.cmd_iter().map(|cmd| match cmd.args_iter().next() {
        Some(Arg::Simple(name)) => name,
        _ => b"",
    });
    let unfit =
        |name: &[u8]| FORBIDDEN_COMMANDS.iter().any(|other| name.eq_ignore_ascii_case(other));
    names.into_iter().find(|name| name.is_empty() || unfit(name))
}

/// Runs commands if the lock is the owner's, on a session that is spoilt if that fails: one that
/// is left watching, or within a transaction, must not serve another caller.
pub(crate) fn apply(
    session: &mut dyn Session,
    target: &Target,
    owner: &[u8],
    calls: Vec<Call>,
    deadline: Moment,
) -> Result<Applied, Failure> {
    let mut transaction = vec![Call::plain(&[b"MULTI"])];
    transaction.extend(calls);
    transaction.push(Call::plain(&[b"EXEC"]));
    let outcome = apply_inner(session, target, owner, &transaction, deadline);
    if outcome.is_err() {
        session.poison();
    }
    outcome
}

fn apply_inner(
    session: &mut dyn Session,
    target: &Target,
    owner: &[u8],
    transaction: &[Call],
    deadline: Moment,
) -> Result<Applied, Failure> {
    loop {
        session.call(&Call::plain(&[b"WATCH", target.key()]), deadline)?;
        let found = session.call(&target.inspect(View::Owners), deadline)?.value;
        let owners = target.kind().owners(found)?;
        let ours = owners.iter().any(|other| other == owner);
        if !ours {
            session.call(&Call::plain(&[b"UNWATCH"]), deadline)?;
            return Ok(if owners.is_empty() { Applied::Gone } else { Applied::Taken });
        }
        let mut last = Value::Nil;
        for reply in session.call_all(transaction, deadline) {
            last = reply?.value;
        }
        match last {
            // The key changed in between, be it by a renewal: look again at whose it is. Each round
            // has the same deadline, and the owner's value never comes back.
            Value::Nil => {}
            Value::Array(replies) => return Ok(Applied::Done(replies)),
            other => return Err(unexpected(&other)),
        }
    }
}

/// Gives a string lock back if it is still the owner's, and notes the last token used where that is not
/// the one minted. Nobody else has minted one since, or the owner would be another.
pub(crate) fn release(
    session: &mut dyn Session,
    target: &Target,
    request: &ReleaseRequest<'_>,
    deadline: Moment,
) -> Result<Ownership, Failure> {
    let mut calls = vec![Call::plain(&[b"DEL", target.key()])];
    if let (Some(token), [_, key]) = (request.last_token, target.lease_keys()) {
        let (token, keep) = (token.to_string(), fence(request.ttl).to_string());
        calls.push(Call::plain(&[b"SET", key, token.as_bytes(), b"PX", keep.as_bytes()]));
    }
    match apply(session, target, request.owner, calls, deadline)? {
        Applied::Done(replies) => match replies.first() {
            Some(Value::Int(1)) => Ok(Ownership::Owned),
            Some(Value::Int(0)) => Ok(Ownership::Gone),
            _ => Err(unexpected(&Value::Array(replies))),
        },
        Applied::Gone => Ok(Ownership::Gone),
        Applied::Taken => Ok(Ownership::Taken),
    }
}

//! Commands that apply only if an owner still has its lock: `WATCH`, a look at the owner, then
//! `MULTI`, the commands, `EXEC`. Redis drops the transaction if the key changed or expired in
//! between.
//!
//! The key of a weighted lock changes with each renewal of any of its holders, and not when a lease
//! ends. So there a script looks at the lease and runs the commands (rule 42).

mod script;

use std::iter;

use crate::base::time::Moment;
use crate::protocol::inspection::View;
use crate::protocol::reply::{Ownership, Released, last_token, unexpected};
use crate::protocol::request::ReleaseRequest;
use crate::protocol::target::{Target, fence};
use crate::wire::connection::Session;
use crate::wire::failure::Failure;
use crate::wire::script::Call;
use crate::wire::{Arg, Pipeline, Value};

/// The outcome of a guarded transaction.
#[derive(Debug, PartialEq)]
pub(crate) enum Applied {
    /// The owner had the lock, and the commands ran; one reply for each.
    Done(Vec<Value>),
    /// Nothing was done: the owner of the lock with this number does not have it.
    NotOwned(usize, Ownership),
}

/// Commands that would leave the connection in another state for its next user (another database,
/// another user, no replies), or end the transaction early.
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

/// The first of a user's commands that must not be within a transaction. A command without a name
/// is forbidden, too: Redis sends no reply to it.
pub(crate) fn forbidden_command(pipeline: &Pipeline) -> Option<&[u8]> {
    let names = pipeline.cmd_iter().map(|cmd| match cmd.args_iter().next() {
        Some(Arg::Simple(name)) => name,
        _ => b"",
    });
    // The name alone decides, so `CLIENT` is forbidden with its harmless subcommands: a list of
    // those would have to follow each release of Redis and of Valkey.
    let unfit =
        |name: &[u8]| FORBIDDEN_COMMANDS.iter().any(|other| name.eq_ignore_ascii_case(other));
    names.into_iter().find(|name| name.is_empty() || unfit(name))
}

/// Runs a user's commands if the owners have all these locks. A weighted lock is not among several.
pub(crate) fn apply(
    session: &mut dyn Session,
    locks: &[(&Target, &[u8])],
    pipeline: &Pipeline,
    deadline: Moment,
) -> Result<Applied, Failure> {
    if let [(target, owner)] = locks
        && let Some(scripts) = target.weighted()
    {
        return match script::apply(session, target, scripts, owner, pipeline, deadline) {
            Ok(Some(replies)) => Ok(Applied::Done(replies)),
            Ok(None) => Ok(Applied::NotOwned(0, Ownership::Gone)),
            // That of a command of the user stands among the replies. A key of another type is taken.
            Err(failure) if failure.is_wrong_type() => Ok(Applied::NotOwned(0, Ownership::Taken)),
            Err(failure) => Err(failure),
        };
    }
    let calls = pipeline.cmd_iter().map(Call::of).collect();
    apply_watching(session, locks, calls, deadline)
}

/// Runs commands if the owners have all these locks. A failure poisons the session.
fn apply_watching(
    session: &mut dyn Session,
    locks: &[(&Target, &[u8])],
    mut calls: Vec<Call>,
    deadline: Moment,
) -> Result<Applied, Failure> {
    // The driver's own helper is of no use here: it retries without bound, and after an error it
    // leaves the connection watching.
    calls.push(Call::plain(&[b"EXEC"]));
    let outcome = apply_inner(session, locks, &calls, deadline);

    // Also after a refusal, which leaves the replies in step: the connection may still watch these
    // keys. A later transaction on it would then be dropped for a change of a lock that is not its
    // own.
    if outcome.is_err() {
        session.poison();
    }
    outcome
}

fn apply_inner(
    session: &mut dyn Session,
    locks: &[(&Target, &[u8])],
    transaction: &[Call],
    deadline: Moment,
) -> Result<Applied, Failure> {
    loop {
        // Until `MULTI` has its reply nothing of the user's is sent, so a connection that dies before leaves no doubt.
        let not_owned = first_not_owned(session, locks, deadline);
        if let Some((lock, ownership)) = not_owned.map_err(Failure::before_sending)? {
            // A lost lock is a usual outcome. One more round trip is cheaper than a new connection,
            // which a poisoned session would cost.
            match session.call(&Call::plain(&[b"UNWATCH"]), deadline) {
                // The user lacks a permission that a transaction needs.
                Err(failure @ Failure::Refused(_)) => return Err(failure),
                // The lock is lost all the same.
                Err(_) => session.poison(),
                Ok(_) => {}
            }
            return Ok(Applied::NotOwned(lock, ownership));
        }

        // Alone: where it is refused, the server would run each command behind it at once, without a guard.
        session.call(&Call::plain(&[b"MULTI"]), deadline).map_err(Failure::before_sending)?;
        // The replies before that of `EXEC` are `QUEUED`. Where Redis refuses to queue a command,
        // its own error is returned: it says more than the `EXECABORT` of the `EXEC` that follows.
        let mut last = Value::Nil;
        for reply in session.call_all(transaction, deadline) {
            last = reply?.value;
        }
        match last {
            // The key changed in between, perhaps only by a renewal: look at the owner again. The
            // loop ends: all rounds share one deadline, and an owner's value that is gone never
            // comes back.
            Value::Nil => {}
            // An error inside is the failure of one command, which Redis does not roll back. The
            // caller gets it as a value.
            Value::Array(replies) => return Ok(Applied::Done(replies)),
            other => return Err(unexpected(&other)),
        }
    }
}

/// Watches the locks, and finds the first of them that its owner does not have.
fn first_not_owned(
    session: &mut dyn Session,
    locks: &[(&Target, &[u8])],
    deadline: Moment,
) -> Result<Option<(usize, Ownership)>, Failure> {
    let keys = locks.iter().map(|(target, _)| target.key());
    let watch: Vec<&[u8]> = iter::once(&b"WATCH"[..]).chain(keys).collect();
    // The looks come after `WATCH`, never before: a change between a look and a later `WATCH` would go unnoticed.
    let looks = locks.iter().map(|(target, _)| target.inspect(View::Owners));
    let calls: Vec<_> = iter::once(Call::plain(&watch)).chain(looks).collect();
    let mut replies = session.call_all(&calls, deadline).into_iter();
    replies.next().unwrap_or_else(|| Err(Failure::silent()))?;
    for (number, ((target, owner), found)) in locks.iter().zip(replies).enumerate() {
        let ownership = match found {
            Ok(found) => match target.kind().owners(found.value)? {
                owners if owners.iter().any(|other| other == owner) => continue,
                owners if owners.is_empty() => Ownership::Gone,
                _ => Ownership::Taken,
            },
            // A key of another type is taken, like a key with another owner.
            Err(failure) if failure.is_wrong_type() => Ownership::Taken,
            Err(failure) => return Err(failure),
        };
        return Ok(Some((number, ownership)));
    }
    Ok(None)
}

/// Releases a string lock if the owner still has it, and writes the last token used back if that is
/// not the minted one.
pub(crate) fn release(
    session: &mut dyn Session,
    target: &Target,
    request: &ReleaseRequest<'_>,
    deadline: Moment,
) -> Result<Released, Failure> {
    // To delete the key hands over to nobody, so the client offers this release only with
    // `Wait::spin`. A process that queues for the same lock gets it at its next heartbeat (rule
    // 13).
    let mut calls = vec![Call::plain(&[b"DEL", target.key()])];
    if let (Some(token), [_, key]) = (request.last_token, target.lease_keys()) {
        // A plain `SET` cannot lower the fence. Nobody has minted a token since, or the owner would
        // be another and the transaction would be dropped.
        let (token, keep) = (token.to_string(), fence(request.ttl).to_string());
        calls.push(Call::plain(&[b"SET", key, token.as_bytes(), b"PX", keep.as_bytes()]));
    }
    match apply_watching(session, &[(target, request.owner)], calls, deadline)? {
        Applied::Done(replies) => match replies.first() {
            Some(Value::Int(1)) => Ok(Ownership::Owned.into()),
            Some(Value::Int(0)) => Ok(Ownership::Gone.into()),
            _ => Err(unexpected(&Value::Array(replies))),
        },
        Applied::NotOwned(_, Ownership::Gone) => {
            // The fence only tells why the lock is lost, so the outcome does not depend on it.
            let look = target.lease_keys().get(1).map(|fence| Call::plain(&[b"GET", fence]));
            let last = look.and_then(|look| session.call(&look, deadline).ok());
            let fence = last.and_then(|last| last_token(&last.value));
            Ok(Released { fence, ..Released::from(Ownership::Gone) })
        }
        Applied::NotOwned(_, ownership) => Ok(ownership.into()),
    }
}

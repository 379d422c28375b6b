//! Waits until replicas or disks have a lock: by a write, and `WAIT` or `WAITAOF` on the same
//! connection.
//!
//! Both commands wait for the last write of their own connection. The grant may have been written
//! on another connection, or by another client's release. The write made here comes after the
//! grant, and replicas and files apply all writes in order.

use redis::{RedisError, Value};

use crate::base::option::Durability;
use crate::base::time::{Moment, millis};
use crate::protocol::reply::Ownership;
use crate::protocol::reply::{ownership, unexpected};
use crate::protocol::target::Target;
use crate::wire::connection::Session;
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::script::Call;

/// Waits until the lock has the wanted number of copies, for no longer than `wanted.within`.
/// Returns how many it has then. If the owner does not have the lock, returns the ownership
/// instead.
pub(crate) fn replicate(
    session: &mut dyn Session,
    target: &Target,
    owner: &[u8],
    wanted: Durability,
    deadline: Moment,
) -> Result<Result<Durability, Ownership>, Failure> {
    let ownership = ownership(&session.call(&target.touch(owner), deadline)?.value)?;
    // Nothing was written then, and `WAIT` would report on whatever this pooled connection wrote
    // last, for whichever lock that was.
    if ownership != Ownership::Owned {
        return Ok(Err(ownership));
    }

    // A lease may end before the wait does, and the deadline with it. The server must report too
    // few copies before that: a reply that misses the deadline is an unknown outcome, and costs the
    // connection.
    let within = wanted.within.min(session.longest_wait(deadline));
    // `millis` returns at least 1. `WAIT n 0` has no time-out: it would block the connection for
    // good.
    let local = u8::from(wanted.local).to_string();
    let (replicas, span) = (wanted.replicas.to_string(), millis(within).to_string());
    let (local, replicas, span) = (local.as_bytes(), replicas.as_bytes(), span.as_bytes());

    // By `call_slow`, because the server is silent for as long as the replicas are. A plain `call`
    // would take that silence for a dead network and outdate all idle connections of the client.
    let value = if wanted.on_disk {
        let wait = Call::plain(&[b"WAITAOF", local, replicas, span]);
        session.call_slow(&wait, within, deadline).map_err(invalid_setting)?.value
    } else {
        session.call_slow(&Call::plain(&[b"WAIT", replicas, span]), within, deadline)?.value
    };

    // At its time-out the server returns what it has, and no error. So the counts are no verdict:
    // the caller compares them with `wanted`.
    let (local, replicas) = match &value {
        Value::Int(replicas) if !wanted.on_disk => (0, *replicas),
        Value::Array(counts) if wanted.on_disk => match counts[..] {
            [Value::Int(local), Value::Int(replicas)] => (local, replicas),
            _ => return Err(unexpected(&value)),
        },
        _ => return Err(unexpected(&value)),
    };

    let replicas = u32::try_from(replicas).map_err(|_| unexpected(&value))?;
    let local = local > 0;
    Ok(Ok(Durability { local, replicas, ..wanted }))
}

/// Recognises a server that cannot run `WAITAOF` at all.
fn invalid_setting(failure: Failure) -> Failure {
    let Failure::Refused(error) = &failure else { return failure };
    // Both refusals have the code `ERR`, so the text is all that tells them from others. They are
    // errors of configuration: nothing gets better by trying again.
    let (wrong, expected) = if says(error, "unknown command") {
        ("the server does not know WAITAOF", "Redis 7.2 or later, or Valkey")
    } else if says(error, "appendonly is disabled") {
        (
            "the master has `appendonly no`",
            "`appendonly yes` there, or min_fsyncs with local = false, so that the master's disk does not count",
        )
    } else {
        return failure;
    };
    let wrong = wrong.to_owned();
    Failure::NotSent(NotSentReason::InvalidSetting { field: "min_fsyncs", wrong, expected })
}

fn says(error: &RedisError, text: &str) -> bool {
    error.detail().is_some_and(|detail| detail.contains(text)) || error.to_string().contains(text)
}

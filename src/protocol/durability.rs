//! Making sure that replicas or disks have a lock: a write, and `WAIT` or `WAITAOF` for it on the same
//! connection.
//!
//! Both wait for the last write of their own connection, and a lock may have been granted on
//! another, or by the release of another client. What is written here comes after that, and replicas
//! and files take everything in order.

use redis::{RedisError, Value};

use crate::base::option::Durability;
use crate::base::time::{Moment, millis};
use crate::protocol::reply::Ownership;
use crate::protocol::reply::{ownership, unexpected};
use crate::protocol::target::Target;
use crate::wire::connection::Session;
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::script::Call;

/// Answers how many copies there are of what was written for the lock so far; waits for as many as
/// are wanted, and no longer than they may take. Of a lock that is not the owner's there are none,
/// and the ownership says why.
pub(crate) fn replicate(
    session: &mut dyn Session,
    target: &Target,
    owner: &[u8],
    wanted: Durability,
    deadline: Moment,
) -> Result<Result<Durability, Ownership>, Failure> {
    let ownership = ownership(&session.call(&target.touch(owner), deadline)?.value)?;
    if ownership != Ownership::Owned {
        return Ok(Err(ownership));
    }
    // A lease may end before the wait does. The server's word for too few copies has to come before that.
    let within = wanted.within.min(session.longest_wait(deadline));
    let local = u8::from(wanted.local).to_string();
    let (replicas, span) = (wanted.replicas.to_string(), millis(within).to_string());
    let (local, replicas, span) = (local.as_bytes(), replicas.as_bytes(), span.as_bytes());
    let value = if wanted.on_disk {
        let wait = Call::plain(&[b"WAITAOF", local, replicas, span]);
        session.call_slow(&wait, within, deadline).map_err(invalid_setting)?.value
    } else {
        session.call_slow(&Call::plain(&[b"WAIT", replicas, span]), within, deadline)?.value
    };
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

/// A server that cannot do it at all says so in words, under one code for everything.
fn invalid_setting(failure: Failure) -> Failure {
    let Failure::Refused(error) = &failure else { return failure };
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

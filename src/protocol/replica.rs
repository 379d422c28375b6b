//! Making sure that replicas or disks have a lock: a write, and `WAIT` or `WAITAOF` for it on the same
//! connection.
//!
//! Both wait for the last write of their own connection, and a lock may have been granted on
//! another, or by the release of another client. What is written here comes after that, and replicas
//! and files take everything in order.

use redis::{RedisError, Value};

use crate::base::option::{Copies, Least};
use crate::base::time::{Moment, millis};
use crate::protocol::answer::Verdict;
use crate::protocol::answer::{unexpected, verdict};
use crate::protocol::session::Session;
use crate::protocol::target::Target;
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::script::Argument::Bytes;
use crate::wire::script::{Call, Script};

static TOUCH: Script = Script::new(include_str!("touch.lua"));

/// Answers how many copies there are of what was written for the lock so far; waits for as many as
/// are wanted, and no longer than they may take. Of a lock that is not the owner's there are none,
/// and the verdict says why.
pub(crate) fn replicate(
    session: &mut dyn Session,
    target: &Target,
    owner: &[u8],
    copies: Copies,
    deadline: Moment,
) -> Result<Result<Least, Verdict>, Failure> {
    let touch = TOUCH.call(target.lasting(), &[Bytes(owner)]);
    let verdict = verdict(&session.call(&touch, deadline)?.value)?;
    if verdict != Verdict::Done {
        return Ok(Err(verdict));
    }
    // A lease may end before the wait does. The server's word for too few copies has to come before that.
    let within = copies.within.min(session.longest_wait(deadline));
    let within = if mutated!("wait-outlasts-its-lease") { copies.within } else { within };
    let span = millis(within).to_string();
    let value = match copies.least {
        Least::Replicas(least) => {
            let least = least.to_string();
            let wait = Call::plain(&[b"WAIT", least.as_bytes(), span.as_bytes()]);
            session.call_slow(&wait, within, deadline)?.value
        }
        Least::Disks { local, replicas } => {
            let (local, least) = (u8::from(local).to_string(), replicas.to_string());
            let parts = [b"WAITAOF", local.as_bytes(), least.as_bytes(), span.as_bytes()];
            let reply = session.call_slow(&Call::plain(&parts), within, deadline);
            reply.map_err(impossible)?.value
        }
    };
    let odd = || unexpected(&value);
    let count = |value: &Value| match value {
        Value::Int(have) => u32::try_from(*have).map_err(|_| odd()),
        _ => Err(odd()),
    };
    match (copies.least, &value) {
        (Least::Replicas(_), have) => Ok(Ok(Least::Replicas(count(have)?))),
        (Least::Disks { .. }, Value::Array(parts)) if parts.len() == 2 => {
            let local = count(&parts[0])? > 0 || mutated!("own-disk-not-looked-at");
            Ok(Ok(Least::Disks { local, replicas: count(&parts[1])? }))
        }
        (Least::Disks { .. }, _) => Err(odd()),
    }
}

/// A server that cannot do it at all says so in words, under one code for everything.
fn impossible(failure: Failure) -> Failure {
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
    Failure::NotSent(NotSentReason::Impossible { field: "min_fsyncs", wrong, expected })
}

fn says(error: &RedisError, text: &str) -> bool {
    error.detail().is_some_and(|detail| detail.contains(text)) || error.to_string().contains(text)
}

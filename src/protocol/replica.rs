//! Making sure that replicas have a lock: a write, and `WAIT` for it on the same connection.
//!
//! `WAIT` waits for the last write of its own connection, and a lock may have been granted on
//! another, or by the release of another client. What is written here comes after that, and replicas
//! take everything in order.

use redis::Value;

use crate::base::option::Replicas;
use crate::base::time::{Moment, millis};
use crate::protocol::Target;
use crate::protocol::answer::unexpected;
use crate::wire::connection::Connection;
use crate::wire::failure::Failure;
use crate::wire::script::{Call, Script};

static TOUCH: Script = Script::new(include_str!("script/touch.lua"));

/// Answers how many replicas have what was written for the lock so far; waits for as many as are
/// wanted, and no longer than they may take.
pub(crate) fn replicate(
    connection: &mut Connection,
    target: &Target,
    Replicas { least, within }: Replicas,
    deadline: Moment,
) -> Result<u32, Failure> {
    connection.call(&TOUCH.call(target.keys(), &[]), deadline)?;
    let (least, within) = (least.to_string(), millis(within).to_string());
    let wait = Call::plain(&[b"WAIT", least.as_bytes(), within.as_bytes()]);
    match connection.call(&wait, deadline)?.value {
        Value::Int(have) => u32::try_from(have).map_err(|_| unexpected(&Value::Int(have))),
        other => Err(unexpected(&other)),
    }
}

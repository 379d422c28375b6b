//! The reentrant lock: a hash from its owner to the hold count, in the layout of Redisson's plain
//! lock, so that both can contend for it.
//!
//! The owner is `<client>:<number>`, as Redisson's is `<client>:<thread>`. The number is new for
//! every attempt. With the number of the thread, a delayed request of an earlier hold could not be
//! distinguished from one of the present hold.
//!
//! There is no queue: all waiters subscribe to the channel and receive each release. The release
//! returns the number of receivers. The engine uses it for one purpose, to let slower clients go
//! before the process that releases (`engine::slot::fairness`); safety does not depend on it.

use std::time::Duration;

use crate::base::id::{Holder, Identity};
use crate::base::name::Name;
use crate::protocol::lock_kind::{LockKind, Scripts};
use crate::protocol::reply::unexpected;
use crate::wire::Value;
use crate::wire::failure::Failure;
use crate::wire::script::Call;

static SCRIPTS: Scripts = Scripts {
    acquire: script!("token.lua", "reentrant/owner.lua", "reentrant/acquire.lua"),
    release: script!("token.lua", "reentrant/owner.lua", "reentrant/wake.lua", "release.lua"),
    renew: script!("reentrant/owner.lua", "renew.lua"),
    touch: script!("reentrant/owner.lua", "touch.lua"),
    force: script!("token.lua", "reentrant/owner.lua", "reentrant/wake.lua", "force.lua"),
    request: None,
};

const CHANNEL: &str = "redisson_lock__channel";

/// The kind behind [`ReentrantLock`](crate::ReentrantLock).
#[derive(Debug)]
pub(crate) struct ReentrantKind;

impl LockKind for ReentrantKind {
    fn name(&self) -> &'static str {
        "reentrant lock"
    }

    fn extra_keys(&self, name: &Name) -> Vec<Vec<u8>> {
        // Not a key of any data. As one of the script's keys it must be in the slot of the lock,
        // where `SPUBLISH` is allowed in a cluster, and the script need not compute it.
        vec![channel(name)]
    }

    fn owner(
        &self,
        identity: &Identity,
        number: u64,
        _window: Duration,
        _hands_over: bool,
    ) -> Vec<u8> {
        // With hyphens, as Redisson writes its identifiers. Tools that parse such a field then know
        // ours, too.
        format!("{}:{number}", identity.uuid().hyphenated()).into_bytes()
    }

    fn shows_count(&self) -> bool {
        true
    }

    fn channel(&self, name: &Name) -> Option<Vec<u8>> {
        Some(channel(name))
    }

    fn scripts(&self) -> &'static Scripts {
        &SCRIPTS
    }

    fn inspect(&self, key: &[u8]) -> Call {
        Call::plain(&[b"HKEYS", key])
    }

    fn read_holder(&self, value: Value) -> Result<Option<Holder>, Failure> {
        // A set in RESP3, an array in RESP2. There is one field at most: both libraries add theirs
        // only to a key that does not exist.
        let owners = match value {
            Value::Array(owners) | Value::Set(owners) => owners,
            other => return Err(unexpected(&other)),
        };
        match owners.into_iter().next() {
            None => Ok(None),
            Some(Value::BulkString(owner)) => Ok(Some(Holder::of_owner(owner))),
            Some(other) => Err(unexpected(&other)),
        }
    }
}

fn channel(name: &Name) -> Vec<u8> {
    // Redisson's rule: braces around a name without any, so that channel and lock are in one slot.
    // With an own rule the two libraries would not wake each other's waiters.
    let name = name.as_bytes();
    let (open, close): (&[u8], &[u8]) =
        if name.contains(&b'{') { (b":", b"") } else { (b":{", b"}") };
    [CHANNEL.as_bytes(), open, name, close].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel_of(name: &str) -> String {
        String::from_utf8(channel(&Name::new(b"", name.as_bytes()).unwrap())).unwrap()
    }

    #[test]
    fn channel_name_matches_redisson() {
        assert_eq!(channel_of("orders"), "redisson_lock__channel:{orders}");
        assert_eq!(channel_of("{a}b"), "redisson_lock__channel:{a}b");
    }

    #[test]
    fn owner_value_has_redissons_form() {
        let owner =
            String::from_utf8(ReentrantKind.owner(&Identity::new(""), 12, Duration::ZERO, false))
                .unwrap();
        let (client, number) = owner.split_once(':').unwrap();
        assert_eq!((client.len(), number), (36, "12"));
    }
}

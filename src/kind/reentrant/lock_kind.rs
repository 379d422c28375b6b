//! The reentrant lock: a hash from its owner to the hold count, in the layout of Redisson's plain
//! lock, so that both can contend for it.
//!
//! The owner is `<client>:<number>`, as Redisson's is `<client>:<thread>`. The number is new for
//! every attempt. With the number of the thread, a delayed request of an earlier hold could not be
//! distinguished from one of the present hold.
//!
//! There is no queue: all waiters subscribe to the channel and receive each release. The release
//! returns the number of receivers. The engine uses it for one purpose: to leave the lock to each of them
//! before the process that releases asks again (`engine::slot::fairness`). Safety does not depend on it.

use uuid::{Uuid, Version};

use crate::base::id::Identity;
use crate::base::inspection::Origin;
use crate::base::kind::Kind;
use crate::base::name::Name;
use crate::base::share::Share;
use crate::kind::composition::reentrant;
use crate::protocol::lock_kind::{LockKind, Scripts, Window};
use crate::protocol::reply::unexpected;
use crate::wire::Value;
use crate::wire::failure::Failure;
use crate::wire::script::{Call, Script};

static SCRIPTS: Scripts = Scripts {
    acquire: Script::new(reentrant::ACQUIRE),
    release: Script::new(reentrant::RELEASE),
    renew: Script::new(reentrant::RENEW),
    touch: Script::new(reentrant::TOUCH),
    force: Script::new(reentrant::FORCE),
    inspect: Script::new(reentrant::INSPECT),
    request: None,
    proclaim: None,
    weighted: None,
};

const CHANNEL: &str = "redisson_lock__channel";
/// Where those stand that wait for Redisson's fair lock, whose own key is like that of its plain lock.
const FAIR_QUEUE: &str = "redisson_lock_queue";

/// The kind behind [`ReentrantLock`](crate::ReentrantLock).
#[derive(Debug)]
pub(crate) struct ReentrantKind;

impl LockKind for ReentrantKind {
    fn kind(&self) -> Kind {
        Kind::ReentrantLock
    }

    fn extra_keys(&self, name: &Name) -> Vec<Vec<u8>> {
        // Not a key of any data. As one of the script's keys it must be in the slot of the lock,
        // where `SPUBLISH` is allowed in a cluster, and the script need not compute it.
        vec![redissons(CHANNEL, name)]
    }

    fn owner(
        &self,
        identity: &Identity,
        number: u64,
        _window: Window,
        _hands_over: bool,
        _share: Share,
    ) -> Vec<u8> {
        // With hyphens, as Redisson writes its identifiers. Tools that parse such a field then know
        // ours, too.
        format!("{}:{number}", identity.uuid().hyphenated()).into_bytes()
    }

    fn shows_count(&self) -> bool {
        true
    }

    fn refuses_tail(&self) -> Option<&'static str> {
        Some("whose keys are Redisson's and have no place for it")
    }

    fn channel(&self, name: &Name) -> Option<Vec<u8>> {
        Some(redissons(CHANNEL, name))
    }

    fn scripts(&self) -> &'static Scripts {
        &SCRIPTS
    }

    fn look(&self, key: &[u8]) -> Call {
        Call::plain(&[b"HKEYS", key])
    }

    fn look_tells_locks(&self) -> bool {
        false
    }

    fn owners(&self, value: Value) -> Result<Vec<Vec<u8>>, Failure> {
        // A set in RESP3, an array in RESP2.
        let (Value::Array(fields) | Value::Set(fields)) = value else {
            return Err(unexpected(&value));
        };
        let owner = |field| match field {
            Value::BulkString(owner) => Ok(owner),
            other => Err(unexpected(&other)),
        };
        let owners: Result<Vec<Vec<u8>>, Failure> = fields.into_iter().map(owner).collect();
        // The mode of Redisson's read-write lock owns nothing.
        owners.map(|owners| owners.into_iter().filter(|owner| owner != b"mode").collect())
    }

    fn waiters_key(&self, name: &Name) -> Option<Vec<u8>> {
        Some(redissons(FAIR_QUEUE, name))
    }

    fn origin(&self, owner: &[u8], identity: &Identity) -> Option<Origin> {
        let (client, number) = std::str::from_utf8(owner).ok()?.split_once(':')?;
        let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        let client = Uuid::try_parse(client).ok().filter(|_| is_number)?;
        // Redisson's are of version 4.
        if client.get_version() != Some(Version::Custom) {
            return None;
        }
        let is_own = client == *identity.uuid();
        Some(if is_own { identity.origin().clone() } else { Origin::default() })
    }
}

/// What Redisson keeps beside a lock, in the same hash slot.
fn redissons(what: &str, name: &Name) -> Vec<u8> {
    // Redisson's rule: braces around a name without any, so that channel and lock are in one slot.
    // With an own rule the two libraries would not wake each other's waiters.
    let name = name.as_bytes();
    let (open, close): (&[u8], &[u8]) =
        if name.contains(&b'{') { (b":", b"") } else { (b":{", b"}") };
    [what.as_bytes(), open, name, close].concat()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn channel_of(name: &str) -> String {
        String::from_utf8(redissons(CHANNEL, &Name::new(b"", name.as_bytes()).unwrap())).unwrap()
    }

    #[test]
    fn channel_name_matches_redisson() {
        assert_eq!(channel_of("orders"), "redisson_lock__channel:{orders}");
        assert_eq!(channel_of("{a}b"), "redisson_lock__channel:{a}b");
    }

    #[test]
    fn owner_value_has_redissons_form() {
        let owner = String::from_utf8(ReentrantKind.owner(
            &Identity::new(""),
            12,
            Duration::ZERO.into(),
            false,
            Share::Whole,
        ))
        .unwrap();
        let (client, number) = owner.split_once(':').unwrap();
        assert_eq!((client.len(), number), (36, "12"));
    }

    #[test]
    fn owner_of_this_library_is_told_from_redissons() {
        let (here, there) = (Identity::new("here"), Identity::new("there"));
        let origin = |owner: &[u8]| ReentrantKind.origin(owner, &here);
        let owner =
            |of: &Identity| ReentrantKind.owner(of, 12, Duration::ZERO.into(), false, Share::Whole);
        assert_eq!(origin(&owner(&here)).as_ref(), Some(here.origin()));
        assert_eq!(origin(&owner(&there)), Some(Origin::default()));
        for foreign in [
            "6a5c1e0e-9d0b-4b4b-8d5b-6a5c1e0e9d0b:1",
            "6a5c1e0e-9d0b-8b4b-8d5b-6a5c1e0e9d0b:1:write",
            "6a5c1e0e-9d0b-8b4b-8d5b-6a5c1e0e9d0b:",
            "6a5c1e0e-9d0b-8b4b-8d5b-6a5c1e0e9d0b",
            "mode",
            "",
        ] {
            assert_eq!(origin(foreign.as_bytes()), None, "{foreign}");
        }
        assert_eq!(origin(b"\xff:1"), None);
    }
}

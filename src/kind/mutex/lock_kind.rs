//! The mutex: a string whose value is its owner.

use std::time::Duration;

use crate::base::id::Identity;
use crate::base::inspection::Origin;
use crate::base::kind::Kind;
use crate::base::name::Name;
use crate::base::option::Wait;
use crate::base::reserved;
use crate::base::share::Share;
use crate::kind::composition::mutex;
use crate::kind::owner_value;
use crate::protocol::lock_kind::{LockKind, Scripts, Window};
use crate::protocol::reply::unexpected;
use crate::wire::Value;
use crate::wire::failure::Failure;
use crate::wire::script::{Call, Script};

// `acquire` and `release` begin with their fast path, which returns before the functions of the
// other files are defined. The remaining scripts need those functions in any case.
static SCRIPTS: Scripts = Scripts {
    acquire: Script::new(mutex::ACQUIRE),
    release: Script::new(mutex::RELEASE),
    renew: Script::new(mutex::RENEW),
    touch: Script::new(mutex::TOUCH),
    force: Script::new(mutex::FORCE),
    inspect: Script::new(mutex::INSPECT),
    request: Some(Script::new(mutex::REQUEST)),
    proclaim: None,
    weighted: None,
};

/// The kind behind [`Mutex`](crate::Mutex).
#[derive(Debug)]
pub(crate) struct MutexKind;

impl LockKind for MutexKind {
    fn kind(&self) -> Kind {
        Kind::Mutex
    }

    fn extra_keys(&self, name: &Name) -> Vec<Vec<u8>> {
        // Two keys, because a waiter's place and its death change apart: a heartbeat must not move
        // it in the queue.
        vec![name.side_key(reserved::LINE_OF_MUTEX), name.side_key(reserved::SIGNS_OF_MUTEX)]
    }

    fn owner(
        &self,
        identity: &Identity,
        number: u64,
        window: Window,
        hands_over: bool,
        share: Share,
    ) -> Vec<u8> {
        owner_value::write(identity, number, window, hands_over, share)
    }

    fn refuses_tail(&self) -> Option<&'static str> {
        None
    }

    fn tail(&self, owner: &[u8]) -> Duration {
        owner_value::tail(owner, false)
    }

    fn usual_wait(&self) -> Wait {
        Wait::queue()
    }

    fn can_be_watched(&self) -> bool {
        // The key is a string, and without a queue there is nothing else to change in a release.
        true
    }

    fn scripts(&self) -> &'static Scripts {
        &SCRIPTS
    }

    fn look(&self, key: &[u8]) -> Call {
        Call::plain(&[b"GET", key])
    }

    fn owners(&self, value: Value) -> Result<Vec<Vec<u8>>, Failure> {
        match value {
            Value::Nil => Ok(Vec::new()),
            Value::BulkString(owner) => Ok(vec![owner]),
            other => Err(unexpected(&other)),
        }
    }

    fn waiters_key(&self, name: &Name) -> Option<Vec<u8>> {
        Some(name.side_key(reserved::LINE_OF_MUTEX))
    }

    fn origin(&self, owner: &[u8], _: &Identity) -> Option<Origin> {
        owner_value::origin(owner, false)
    }
}

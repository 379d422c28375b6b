//! The mutex over several servers: on each of them the layout of the [mutex](crate::kind::mutex)
//! over one, without a queue.

use std::time::Duration;

use crate::base::id::{Holder, Identity};
use crate::base::name::Name;
use crate::kind::mutex::MutexKind;
use crate::protocol::lock_kind::{LockKind, Scripts};
use crate::wire::Value;
use crate::wire::failure::Failure;
use crate::wire::script::Call;

static SCRIPTS: Scripts = Scripts {
    acquire: script!("token.lua", "mutex/quorum/acquire.lua"),
    release: script!("token.lua", "mutex/owner.lua", "mutex/quorum/wake.lua", "release.lua"),
    renew: script!("mutex/owner.lua", "renew.lua"),
    touch: script!("mutex/owner.lua", "touch.lua"),
    force: script!("token.lua", "mutex/owner.lua", "mutex/quorum/wake.lua", "force.lua"),
    request: None,
};

/// The kind behind a [`Mutex`](crate::Mutex) of a [`QuorumClient`](crate::QuorumClient).
#[derive(Debug)]
pub(crate) struct QuorumKind;

impl LockKind for QuorumKind {
    fn name(&self) -> &'static str {
        "mutex"
    }

    /// Of a holder that hands over to nobody.
    fn owner(&self, identity: &Identity, number: u64, window: Duration, _: bool) -> Vec<u8> {
        MutexKind.owner(identity, number, window, false)
    }

    fn channel(&self, name: &Name) -> Option<Vec<u8>> {
        // wake.lua has the same.
        Some([b"leasehold:released:", name.as_bytes()].concat())
    }

    fn scripts(&self) -> &'static Scripts {
        &SCRIPTS
    }

    fn inspect(&self, key: &[u8]) -> Call {
        MutexKind.inspect(key)
    }

    fn read_holder(&self, value: Value) -> Result<Option<Holder>, Failure> {
        MutexKind.read_holder(value)
    }
}

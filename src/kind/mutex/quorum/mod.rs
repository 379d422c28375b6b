//! The mutex over several servers. On each of them it has the layout of the
//! [mutex](crate::kind::mutex) on one server, without a queue.

use crate::base::id::Identity;
use crate::base::inspection::Origin;
use crate::base::kind::Kind;
use crate::base::name::Name;
use crate::base::share::Share;
use crate::kind::composition::quorum;
use crate::kind::mutex::MutexKind;
use crate::protocol::lock_kind::{LockKind, Scripts, Window};
use crate::wire::Value;
use crate::wire::failure::Failure;
use crate::wire::script::{Call, Script};

static SCRIPTS: Scripts = Scripts {
    acquire: Script::new(quorum::ACQUIRE),
    release: Script::new(quorum::RELEASE),
    renew: Script::new(quorum::RENEW),
    touch: Script::new(quorum::TOUCH),
    force: Script::new(quorum::FORCE),
    inspect: Script::new(quorum::INSPECT),
    request: None,
    proclaim: None,
    weighted: None,
};

/// The kind behind a [`Mutex`](crate::Mutex) of a [`QuorumClient`](crate::QuorumClient).
#[derive(Debug)]
pub(crate) struct QuorumKind;

impl LockKind for QuorumKind {
    fn kind(&self) -> Kind {
        Kind::Mutex
    }

    fn owner(
        &self,
        identity: &Identity,
        number: u64,
        window: Window,
        _: bool,
        share: Share,
    ) -> Vec<u8> {
        // Never with the mark of a queue. A hand-over is decided by one server, and a lock of a
        // majority cannot be given away by one of them.
        MutexKind.owner(identity, number, window, false, share)
    }

    fn refuses_tail(&self) -> Option<&'static str> {
        Some("whose votes over several servers would be free one after the other")
    }

    fn channel(&self, name: &Name) -> Option<Vec<u8>> {
        // The same text as in wake.lua. In the library's own part of the name space, so that no
        // lock has it.
        Some([b"leasehold:released:", name.as_bytes()].concat())
    }

    fn hears_own_releases(&self) -> bool {
        // Each server repeats the message of a release, so the listener of a quorum drops its own ones.
        false
    }

    fn scripts(&self) -> &'static Scripts {
        &SCRIPTS
    }

    fn look(&self, key: &[u8]) -> Call {
        MutexKind.look(key)
    }

    fn owners(&self, value: Value) -> Result<Vec<Vec<u8>>, Failure> {
        MutexKind.owners(value)
    }

    fn origin(&self, owner: &[u8], identity: &Identity) -> Option<Origin> {
        MutexKind.origin(owner, identity)
    }

    fn reserved_tokens(&self) -> u64 {
        31
    }
}

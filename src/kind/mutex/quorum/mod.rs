//! The mutex over several servers: on each of them the layout of the [mutex](crate::kind::mutex)
//! over one, without a queue.

use std::time::Duration;

use crate::base::id::{Holder, Identity};
use crate::base::name::Name;
use crate::base::reserved;
use crate::kind::mutex::MutexKind;
use crate::protocol::recipe::{Kind, Scripts};
use crate::wire::Value;
use crate::wire::failure::Failure;
use crate::wire::script::{Call, Script};

static SCRIPTS: Scripts = Scripts {
    acquire: Script::new(concat!(include_str!("../../token.lua"), include_str!("acquire.lua"))),
    release: Script::new(concat!(include_str!("../../token.lua"), include_str!("release.lua"))),
    renew: Script::new(include_str!("../renew.lua")),
    force: Script::new(include_str!("force.lua")),
    request: None,
};

/// The kind behind a [`Mutex`](crate::Mutex) of a [`QuorumClient`](crate::QuorumClient).
#[derive(Debug)]
pub(crate) struct QuorumKind;

impl Kind for QuorumKind {
    fn name(&self) -> &'static str {
        "mutex"
    }

    fn keys(&self, name: &Name) -> Vec<Vec<u8>> {
        vec![name.as_bytes().to_vec(), name.beside(reserved::FENCE)]
    }

    /// Of a holder that hands over to nobody.
    fn owner(&self, identity: &Identity, number: u64, window: Duration, _: bool) -> Vec<u8> {
        MutexKind.owner(identity, number, window, false)
    }

    fn shows_count(&self) -> bool {
        false
    }

    fn channel(&self, name: &Name) -> Option<Vec<u8>> {
        // The scripts that release have the same.
        Some([b"leasehold:released:", name.as_bytes()].concat())
    }

    fn scripts(&self) -> &'static Scripts {
        &SCRIPTS
    }

    fn inspect(&self, key: &[u8]) -> Call {
        MutexKind.inspect(key)
    }

    fn inspected(&self, value: Value) -> Result<Option<Holder>, Failure> {
        MutexKind.inspected(value)
    }
}

//! What the kinds have in common whose holders have weights: semaphores and read-write locks.
//!
//! Redis has one sorted set for each lock, and the same scripts serve both kinds; state.lua says what is in it.

use std::time::Duration;

use crate::base::id::Identity;
use crate::base::inspection::Origin;
use crate::base::name::Name;
use crate::base::option::Wait;
use crate::base::reserved;
use crate::base::share::Share;
use crate::kind::owner_value;
use crate::protocol::lock_kind::{LockKind, Scripts, WeightedScripts};
use crate::protocol::reply::unexpected;
use crate::wire::Value;
use crate::wire::failure::Failure;
use crate::wire::script::Call;

// `acquire` and `release` begin with their fast path, which returns before the functions of the
// other files are defined. The remaining scripts need those functions in any case.
static SCRIPTS: Scripts = Scripts {
    acquire: script!(
        "weighted/state.lua",
        "weighted/acquire.lua",
        "token.lua",
        "weighted/hold.lua",
        "weighted/give.lua",
        "line.lua",
        "weighted/serve.lua",
        "weighted/wait.lua"
    ),
    release: script!(
        "weighted/state.lua",
        "weighted/release.lua",
        "token.lua",
        "weighted/hold.lua",
        "weighted/give.lua",
        "line.lua",
        "weighted/serve.lua",
        "weighted/leave.lua"
    ),
    renew: script!("token.lua", "weighted/renew.lua"),
    touch: script!("token.lua", "weighted/owner.lua", "touch.lua"),
    force: script!(
        "weighted/state.lua",
        "token.lua",
        "weighted/hold.lua",
        "weighted/give.lua",
        "line.lua",
        "weighted/serve.lua",
        "weighted/force.lua"
    ),
    inspect: script!("token.lua", "weighted/inspect.lua"),
    request: None,
    weighted: Some(WeightedScripts {
        change: script!(
            "weighted/state.lua",
            "token.lua",
            "weighted/hold.lua",
            "weighted/give.lua",
            "line.lua",
            "weighted/serve.lua",
            "weighted/change.lua"
        ),
        resize: script!(
            "weighted/state.lua",
            "token.lua",
            "weighted/hold.lua",
            "weighted/give.lua",
            "line.lua",
            "weighted/serve.lua",
            "weighted/resize.lua"
        ),
        transaction: script!("token.lua", "weighted/owner.lua", "weighted/transaction.lua"),
    }),
};

/// A kind whose holders have weights.
#[derive(Debug)]
pub(crate) struct WeightedKind(&'static str);

/// The kind behind a semaphore.
pub(crate) static SEMAPHORE: WeightedKind = WeightedKind("semaphore");
/// The kind behind a read-write lock.
pub(crate) static RW_LOCK: WeightedKind = WeightedKind("read-write lock");

impl LockKind for WeightedKind {
    fn name(&self) -> &'static str {
        self.0
    }

    fn extra_keys(&self, name: &Name) -> Vec<Vec<u8>> {
        // Not the queue of a mutex: a lock of the other kind would grant its waiters once the key is
        // gone (rule 43).
        vec![name.side_key(reserved::LINE), name.side_key(reserved::SIGNS)]
    }

    fn renewal_keys(&self) -> usize {
        // The line too: a renewal returns how many wait in it, so that nothing is shared past them.
        3
    }

    fn owner(
        &self,
        identity: &Identity,
        number: u64,
        window: Duration,
        _hands_over: bool,
        share: Share,
    ) -> Vec<u8> {
        // Each holder hands over, also one that waits by asking again and again: the script that releases
        // grants those in the line.
        owner_value::write(identity, number, window, true, share)
    }

    fn overlaps(&self) -> bool {
        true
    }

    fn usual_wait(&self) -> Wait {
        Wait::queue()
    }

    fn scripts(&self) -> &'static Scripts {
        &SCRIPTS
    }

    fn look(&self, key: &[u8]) -> Call {
        // Those whose score is the end of a lease: state.lua has the bands. A lease that has ended is
        // among them until a script takes it out.
        Call::plain(&[b"ZRANGE", key, b"1099511627776", b"+inf", b"BYSCORE"])
    }

    fn owners(&self, value: Value) -> Result<Vec<Vec<u8>>, Failure> {
        let Value::Array(attempts) = value else { return Err(unexpected(&value)) };
        let owner = |attempt| match attempt {
            Value::BulkString(owner) => Ok(owner),
            other => Err(unexpected(&other)),
        };
        attempts.into_iter().map(owner).collect()
    }

    fn waiters_key(&self, name: &Name) -> Option<Vec<u8>> {
        Some(name.side_key(reserved::LINE))
    }

    fn origin(&self, owner: &[u8], _: &Identity) -> Option<Origin> {
        owner_value::origin(owner, true)
    }
}

//! What the kinds have in common whose holders have weights: semaphores and read-write locks.
//!
//! Redis has one sorted set for each lock; state.lua describes its members. The same scripts serve both kinds, and each
//! script is told its kind.

use crate::base::id::Identity;
use crate::base::inspection::Origin;
use crate::base::kind::Kind;
use crate::base::name::Name;
use crate::base::option::Wait;
use crate::base::reserved;
use crate::base::share::Share;
use crate::kind::composition::{rw_lock, semaphore};
use crate::kind::owner_value;
use crate::protocol::lock_kind::{LockKind, Parts, Scripts, WeightedScripts, Window};
use crate::protocol::reply::unexpected;
use crate::wire::Value;
use crate::wire::failure::Failure;
use crate::wire::script::{Call, Script};

/// The scripts of one kind. Each begins with the file that names the kind, and then state.lua (rule 43).
//
// `acquire` and `release` go on with their fast path, which returns before the functions of the
// other files are defined. The remaining scripts need those functions in any case.
macro_rules! scripts {
    ($kind:ident) => {
        Scripts {
            acquire: Script::new($kind::ACQUIRE),
            release: Script::new($kind::RELEASE),
            renew: Script::new($kind::RENEW),
            touch: Script::new($kind::TOUCH),
            force: Script::new($kind::FORCE),
            inspect: Script::new($kind::INSPECT),
            request: None,
            proclaim: None,
            weighted: Some(WeightedScripts {
                change: Script::new($kind::CHANGE),
                resize: Script::new($kind::RESIZE),
                transaction: Script::new($kind::TRANSACTION),
            }),
        }
    };
}

static SCRIPTS_OF_SEMAPHORE: Scripts = scripts!(semaphore);
static LOOK_AT_SEMAPHORE: Script = Script::new(semaphore::LOOK);
static SCRIPTS_OF_RW_LOCK: Scripts = scripts!(rw_lock);
static LOOK_AT_RW_LOCK: Script = Script::new(rw_lock::LOOK);

/// A kind whose holders have weights.
#[derive(Debug)]
pub(crate) struct WeightedKind {
    kind: Kind,
    scripts: &'static Scripts,
    look: &'static Script,
    parts: Parts,
}

/// The kind behind a semaphore.
pub(crate) static SEMAPHORE: WeightedKind = WeightedKind {
    kind: Kind::Semaphore,
    scripts: &SCRIPTS_OF_SEMAPHORE,
    look: &LOOK_AT_SEMAPHORE,
    parts: Parts::Permits,
};
/// The kind behind a read-write lock.
pub(crate) static RW_LOCK: WeightedKind = WeightedKind {
    kind: Kind::RwLock,
    scripts: &SCRIPTS_OF_RW_LOCK,
    look: &LOOK_AT_RW_LOCK,
    parts: Parts::Access,
};

impl LockKind for WeightedKind {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn parts(&self) -> Parts {
        self.parts
    }

    fn extra_keys(&self, name: &Name) -> Vec<Vec<u8>> {
        // Not the queue of a mutex: a lock of the other kind would grant its waiters once the key is
        // gone (rule 43).
        vec![name.side_key(reserved::LINE_OF_WEIGHTED), name.side_key(reserved::SIGNS_OF_WEIGHTED)]
    }

    fn renewal_keys(&self) -> usize {
        // The line and the signs of life too: a renewal returns how many wait, so that nothing is shared past them.
        4
    }

    fn owner(
        &self,
        identity: &Identity,
        number: u64,
        window: Window,
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
        self.scripts
    }

    fn look(&self, key: &[u8]) -> Call {
        // Not a plain `ZRANGE`: a user's own set may have members in the band of leases.
        self.look.call(&[key.to_vec()], [])
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
        Some(name.side_key(reserved::LINE_OF_WEIGHTED))
    }

    fn origin(&self, owner: &[u8], _: &Identity) -> Option<Origin> {
        owner_value::origin(owner, true)
    }
}

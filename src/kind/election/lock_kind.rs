//! The election: a string whose value is its leader, and a word beside it.
//!
//! Its scripts are those of the mutex, each between two files of this folder. So the queue, the deadlines and the tokens
//! are the mutex's, and only what follows a change of the leader is the election's: the word of the new term, and the
//! message to the observers.

use std::time::Duration;

use crate::base::id::Identity;
use crate::base::inspection::Origin;
use crate::base::kind::Kind;
use crate::base::name::Name;
use crate::base::option::Wait;
use crate::base::reserved;
use crate::base::share::Share;
use crate::kind::composition::election;
use crate::kind::mutex::MutexKind;
use crate::kind::owner_value;
use crate::protocol::lock_kind::{LockKind, Parts, Scripts, Window};
use crate::wire::Value;
use crate::wire::failure::Failure;
use crate::wire::script::{Call, Script};

static SCRIPTS: Scripts = Scripts {
    acquire: Script::new(election::ACQUIRE),
    release: Script::new(election::RELEASE),
    renew: Script::new(election::RENEW),
    touch: Script::new(election::TOUCH),
    force: Script::new(election::FORCE),
    inspect: Script::new(election::INSPECT),
    request: None,
    proclaim: Some(Script::new(election::PROCLAIM)),
    weighted: None,
};

/// The kind behind [`Election`](crate::Election).
#[derive(Debug)]
pub(crate) struct ElectionKind;

/// The channel on which each change of the leader and of the word is published.
pub(super) fn channel(name: &Name) -> Vec<u8> {
    // Named after a key, so that it hashes to the slot of the lock: in a cluster the message reaches the node that
    // publishes it at once, and the others later. It has the prefix of all channels of this library.
    [b"leasehold:", name.side_key(reserved::WORD_OF_ELECTION).as_slice()].concat()
}

impl LockKind for ElectionKind {
    fn kind(&self) -> Kind {
        Kind::Election
    }

    fn parts(&self) -> Parts {
        Parts::Lead
    }

    fn extra_keys(&self, name: &Name) -> Vec<Vec<u8>> {
        // Not the queue of a mutex, which would grant its waiters once the key is gone (rule 43). The word comes
        // first: it exists for as long as somebody leads.
        let words =
            [reserved::WORD_OF_ELECTION, reserved::LINE_OF_ELECTION, reserved::SIGNS_OF_ELECTION];
        words.map(|word| name.side_key(word)).into()
    }

    fn lease_keys(&self) -> usize {
        3
    }

    fn owner(
        &self,
        identity: &Identity,
        number: u64,
        window: Window,
        _hands_over: bool,
        _share: Share,
    ) -> Vec<u8> {
        // Each leader hands over, also one that polled: the script that ends its term grants those in the line.
        owner_value::write(identity, number, window, true, Share::Lead)
    }

    fn refuses_tail(&self) -> Option<&'static str> {
        None
    }

    fn tail(&self, owner: &[u8]) -> Duration {
        owner_value::tail(owner, true)
    }

    fn usual_wait(&self) -> Wait {
        Wait::queue()
    }

    fn scripts(&self) -> &'static Scripts {
        &SCRIPTS
    }

    fn look(&self, key: &[u8]) -> Call {
        MutexKind.look(key)
    }

    fn look_tells_locks(&self) -> bool {
        // A string may be a mutex.
        false
    }

    fn owners(&self, value: Value) -> Result<Vec<Vec<u8>>, Failure> {
        MutexKind.owners(value)
    }

    fn waiters_key(&self, name: &Name) -> Option<Vec<u8>> {
        Some(name.side_key(reserved::LINE_OF_ELECTION))
    }

    fn origin(&self, owner: &[u8], _: &Identity) -> Option<Origin> {
        owner_value::origin(owner, true)
    }
}

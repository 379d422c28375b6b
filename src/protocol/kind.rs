//! The recipe of a kind of lock, and a lock of some kind.

use std::fmt;
use std::time::Duration;

use redis::Value;

use crate::base::id::{Holder, Identity};
use crate::base::name::Name;
use crate::base::sync::Arc;
use crate::base::time::millis;
use crate::wire::failure::Failure;
use crate::wire::script::{Call, Script};

/// Everything that differs between kinds of lock.
pub(crate) trait Kind: Send + Sync + fmt::Debug {
    /// What the kind is called.
    fn name(&self) -> &'static str;

    /// The owner's value of one attempt.
    fn owner(&self, identity: &Identity, attempt: u64) -> Vec<u8>;

    /// Whether the hold count is shown in Redis.
    fn shows_count(&self) -> bool;

    /// The channel on which those who wait are told of a release.
    fn channel(&self, name: &Name) -> Vec<u8>;

    /// The scripts, whose keys, arguments and answers are told in their own headers.
    fn scripts(&self) -> &'static Scripts;

    /// Asks who holds it.
    fn inspect(&self, key: &[u8]) -> Call;

    /// Reads the answer to that.
    fn inspected(&self, value: Value) -> Result<Option<Holder>, Failure>;
}

/// The scripts of a kind; all kinds take the same keys and arguments.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) release: Script,
    pub(crate) renew: Script,
}

static FORCE_RELEASE: Script = Script::new(include_str!("script/force_release.lua"));

/// The tokens of a lock outlive its lease at least this long.
const SHORTEST_FENCE: Duration = Duration::from_secs(1);

/// One lock: its kind, its name, its keys.
pub(crate) struct Target {
    kind: &'static dyn Kind,
    name: Name,
    fence: Vec<u8>,
    channel: Vec<u8>,
}

impl Target {
    pub(crate) fn new(kind: &'static dyn Kind, name: Name) -> Arc<Target> {
        let fence = name.beside("fence");
        let channel = kind.channel(&name);
        Arc::new(Target { kind, name, fence, channel })
    }

    pub(crate) fn kind(&self) -> &'static dyn Kind {
        self.kind
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.name.as_bytes()
    }

    pub(crate) fn acquire(&self, owner: &[u8], ttl: Duration, deadline_micros: u64) -> Call {
        self.kind.scripts().acquire.call(
            &[self.key(), &self.fence],
            &[
                owner,
                number(millis(ttl)).as_bytes(),
                number(deadline_micros).as_bytes(),
                number(millis(ttl.max(SHORTEST_FENCE))).as_bytes(),
            ],
        )
    }

    pub(crate) fn release(&self, owner: &[u8]) -> Call {
        self.kind.scripts().release.call(&[self.key(), &self.channel], &[owner])
    }

    pub(crate) fn renew(&self, owner: &[u8], ttl: Duration, count: u32) -> Call {
        self.kind.scripts().renew.call(
            &[self.key()],
            &[owner, number(millis(ttl)).as_bytes(), number(count.into()).as_bytes()],
        )
    }

    pub(crate) fn inspect(&self) -> Call {
        self.kind.inspect(self.key())
    }

    pub(crate) fn force_release(&self) -> Call {
        FORCE_RELEASE.call(&[self.key(), &self.channel], &[])
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.kind.name(), self.name)
    }
}

fn number(number: u64) -> String {
    number.to_string()
}

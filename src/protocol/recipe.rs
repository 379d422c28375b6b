//! The recipe of a kind of lock, and a lock of some kind.

use std::fmt;
use std::time::Duration;

use crate::base::id::{Holder, Identity};
use crate::base::name::Name;
use crate::wire::Value;
use crate::wire::failure::Failure;
use crate::wire::script::{Call, Script};

/// Everything that differs between kinds of lock.
pub(crate) trait Kind: Send + Sync + fmt::Debug {
    /// What the kind is called.
    fn name(&self) -> &'static str;

    /// The keys that every script of the kind is given, the lock's own first.
    fn keys(&self, name: &Name) -> Vec<Vec<u8>>;

    /// The owner's value of one attempt. `hands_over` tells that its holder serves the queue, and
    /// `window` for how long the lock may be kept for it until it is heard of.
    fn owner(
        &self,
        identity: &Identity,
        number: u64,
        window: Duration,
        hands_over: bool,
    ) -> Vec<u8>;

    /// Whether several holds of one process may exist at once.
    fn overlaps(&self) -> bool {
        false
    }

    /// Whether the hold count is shown in Redis.
    fn shows_count(&self) -> bool;

    /// The channel of one name on which releases are told, if the kind has one.
    fn channel(&self, name: &Name) -> Option<Vec<u8>>;

    /// The scripts, whose keys, arguments and answers are told in their own headers.
    fn scripts(&self) -> &'static Scripts;

    /// Asks who holds it.
    fn inspect(&self, key: &[u8]) -> Call;

    /// Reads the answer to that.
    fn inspected(&self, value: Value) -> Result<Option<Holder>, Failure>;
}

/// The scripts of a kind; those of all kinds take the same arguments.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) release: Script,
    pub(crate) renew: Script,
    pub(crate) force: Script,
    /// Asks the holder to let go, where the kind can.
    pub(crate) request: Option<Script>,
}

//! What only the one server that has a lock can do, beyond what every topology does.

use crate::base::glob::Glob;
use crate::base::option::Durability;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::protocol::index::ScanPosition;
use crate::protocol::reply::{ChangeReply, Ownership};
use crate::protocol::request::{ChangeRequest, ProclaimRequest, ResizeRequest};
use crate::protocol::target::Target;
use crate::wire::failure::Failure;
use crate::wire::script::Call;
use crate::wire::{Cmd, Value};

/// The engine's view of servers of which one at a time has a lock.
pub(crate) trait ServerProtocol {
    /// Makes the weight of a hold another.
    fn change(
        &self,
        target: &Target,
        request: &ChangeRequest<'_>,
        deadline: Moment,
    ) -> Result<ChangeReply, Failure>;

    /// Sets the limit of a semaphore that is in force, if no other limit was declared for it than the request says.
    /// Returns that limit if one was.
    fn resize(
        &self,
        target: &Target,
        request: ResizeRequest,
        deadline: Moment,
    ) -> Result<Option<u64>, Failure>;

    /// Says a word for the leader of an election, if this owner still leads.
    fn proclaim(
        &self,
        target: &Target,
        request: &ProclaimRequest<'_>,
        deadline: Moment,
    ) -> Result<Ownership, Failure>;

    /// Waits until the lock has the wanted number of copies. Returns how many it has, or the
    /// ownership if this owner does not have the lock.
    fn replicate(
        &self,
        target: &Target,
        owner: &[u8],
        wanted: Durability,
        deadline: Moment,
    ) -> Result<Result<Durability, Ownership>, Failure>;

    /// Notes in the index that these locks are in use.
    fn announce(&self, targets: &[Arc<Target>], deadline: Moment) -> Result<(), Failure>;

    /// The kinds and names of the locks in the index.
    fn announced(&self, deadline: Moment) -> Result<Vec<(String, Vec<u8>)>, Failure>;

    /// One step of a scan for keys that match. Returns none where the last server is done.
    fn scan(
        &self,
        position: &mut ScanPosition,
        pattern: &Glob,
        deadline: Moment,
    ) -> Result<Option<Vec<Vec<u8>>>, Failure>;

    /// Makes a call that only reads at the server of the lock.
    fn look(&self, target: &Target, call: &Call, deadline: Moment) -> Result<Value, Failure>;

    /// Sends a command of the user to the server of this key, once.
    fn query(&self, key: &[u8], command: &Cmd, deadline: Moment) -> Result<Value, Failure>;
}

//! Downgrades: a hold of a read-write lock gets a lesser access.

use std::time::Duration;

use crate::base::error::Result;
use crate::base::share::Access;
use crate::base::time::Moment;
use crate::engine::holding::Holding;
use crate::engine::ownership::taken_by_wrong_type;
use crate::protocol::reply::{ChangeReply, Ownership};
use crate::protocol::request::{ChangeRequest, ChangeTo};
use crate::wire::failure::Failure;

impl Holding {
    /// Lowers the access of the hold to this one, unless it is that low already. Fails only if the hold is lost.
    pub(crate) fn downgrade(&self, to: Access) -> Result<()> {
        if self.hold.lease.access() <= Some(to) {
            return self.check_valid().map_err(|error| error.of(self.name()));
        }
        // The access is lowered here before the request is sent: when Redis lets others in, no thread here takes this
        // for a writer (rule 36).
        let number = self.hold.lease.begin_change(to);
        let deadline = self.context().exchange_deadline();
        self.settle_change(number, to, deadline).map_err(|error| error.of(self.name()))
    }

    /// Sends a change to a lesser hold. Without a reply by `deadline` the worker goes on until there is one.
    pub(super) fn settle_change(&self, number: u64, to: Access, deadline: Moment) -> Result<()> {
        self.check_valid()?;
        let send = || self.send_change(number, ChangeTo::Access(to), Duration::ZERO, deadline);
        let ownership = match Failure::retry_disconnected(send) {
            Ok(ChangeReply::Gone) => Ownership::Gone,
            Ok(ChangeReply::Changed { waiters, .. }) => {
                self.hold.lease.counted(Moment::PAST, Some(waiters));
                Ownership::Owned
            }
            // A later change has replaced this one.
            Ok(ChangeReply::Stale | ChangeReply::Waits(_)) => Ownership::Owned,
            Err(failure) => match taken_by_wrong_type(failure) {
                Ok(ownership) => ownership,
                Err(failure) => {
                    self.hold.lease.leave_change(number);
                    self.slot.change_soon(&self.hold.lease);
                    log!(debug, "lock {:?}: {failure}; the worker goes on", self.name());
                    Ownership::Owned
                }
            },
        };
        self.check_ownership(ownership)
    }

    pub(super) fn send_change(
        &self,
        number: u64,
        to: ChangeTo,
        dies_after: Duration,
        deadline: Moment,
    ) -> std::result::Result<ChangeReply, Failure> {
        let (owner, ttl) = (&self.hold.lease.value.bytes, self.hold.lease.ttl());
        let request = ChangeRequest { owner, ttl, number, to, dies_after };
        self.context().exchange(|it| it.server()?.change(self.slot.target(), &request, deadline))
    }
}

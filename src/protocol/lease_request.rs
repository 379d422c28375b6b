//! The requests of the worker, many leases at once.

use std::time::Duration;

use crate::base::share::Access;
use crate::protocol::reply::{ChangeReply, Ownership, OwnershipReply, changed, renewed};
use crate::protocol::request::{ChangeRequest, ChangeTo};
use crate::protocol::target::Target;
use crate::wire::connection::Reply;
use crate::wire::failure::Failure;
use crate::wire::script::Call;

/// One request of the worker about one lease.
#[derive(Debug)]
pub(crate) struct LeaseRequest<'a> {
    pub(crate) target: &'a Target,
    pub(crate) owner: &'a [u8],
    pub(crate) command: LeaseCommand,
}

impl LeaseRequest<'_> {
    /// Parses the reply, and notes the server's time where it tells that.
    pub(crate) fn read(&self, reply: &Reply) -> Result<OwnershipReply, Failure> {
        // Not one parser for both. A release of some kinds returns an array; if a renewal accepted
        // that, a reply that is out of step by one would renew a lease in this process alone.
        match self.command {
            LeaseCommand::Renew { .. } | LeaseCommand::RenewOrYield { .. } => {
                renewed(reply, self.target.weighted().is_some())
            }
            LeaseCommand::Change { .. } => {
                let (ownership, waiters) = match changed(reply)? {
                    ChangeReply::Gone => (Ownership::Gone, 0),
                    ChangeReply::Changed { waiters, micros, .. } => {
                        reply.note_time(micros);
                        (Ownership::Owned, waiters)
                    }
                    // A later change was made.
                    ChangeReply::Stale | ChangeReply::Waits(_) => (Ownership::Owned, 0),
                };
                let waiters = Some(waiters);
                Ok(OwnershipReply { waiters, ..OwnershipReply::new(ownership, reply.sent) })
            }
            LeaseCommand::Release { .. } => {
                let ownership = self.target.released(&reply.value)?.ownership;
                Ok(OwnershipReply::new(ownership, reply.sent))
            }
        }
    }

    /// The command to send.
    pub(crate) fn call(&self) -> Call {
        match self.command {
            LeaseCommand::Renew { ttl, count } => self.target.renew(self.owner, ttl, count),
            LeaseCommand::RenewOrYield { ttl, tail, is_silent } => {
                self.target.renew_or_yield(self.owner, ttl, tail, is_silent)
            }
            LeaseCommand::Release { ttl, last_token } => {
                self.target.release(self.owner, ttl, last_token)
            }
            LeaseCommand::Change { ttl, number, to } => {
                let to = ChangeTo::Access(to);
                let owner = self.owner;
                let request = ChangeRequest { owner, ttl, number, to, dies_after: ttl };
                match self.target.weighted() {
                    Some(scripts) => self.target.change(scripts, &request),
                    // Nothing of it can be changed, so there is only the lease.
                    None => self.target.renew(owner, ttl, 1),
                }
            }
        }
    }
}

/// What to do with the lease.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeaseCommand {
    /// Make it last this long from now on, and write its hold count if the kind shows one.
    Renew { ttl: Duration, count: u32 },
    /// The same for a lease with a tail, but leave it as it is if it is over and others wait. `is_silent` says whether its
    /// holder knows that it is over.
    RenewOrYield { ttl: Duration, tail: Duration, is_silent: bool },
    /// Release it, or leave the queue.
    Release { ttl: Duration, last_token: Option<u64> },
    /// Make it a lesser hold of a read-write lock.
    Change { ttl: Duration, number: u64, to: Access },
}

//! What the worker does for many leases at once.

use std::time::Duration;

use crate::protocol::reply::{OwnershipReply, released, renewed};
use crate::protocol::target::Target;
use crate::wire::connection::Reply;
use crate::wire::failure::Failure;
use crate::wire::script::Call;

/// What the worker has to say about one lease.
#[derive(Debug)]
pub(crate) struct LeaseRequest<'a> {
    pub(crate) target: &'a Target,
    pub(crate) owner: &'a [u8],
    pub(crate) command: LeaseCommand,
}

impl LeaseRequest<'_> {
    /// Reads the answer. A renewal is not answered like a release, so that no reply to another command is
    /// taken for one.
    pub(crate) fn read(&self, reply: &Reply) -> Result<OwnershipReply, Failure> {
        match self.command {
            LeaseCommand::Renew { .. } => renewed(reply),
            LeaseCommand::Release { .. } => {
                let ownership = released(&reply.value)?.ownership;
                Ok(OwnershipReply { ownership, sent: reply.sent })
            }
        }
    }

    /// The command that does it.
    pub(crate) fn call(&self) -> Call {
        match self.command {
            LeaseCommand::Renew { ttl, count } => self.target.renew(self.owner, ttl, count),
            LeaseCommand::Release { ttl, last_token } => {
                self.target.release(self.owner, ttl, last_token)
            }
        }
    }
}

/// What the request is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeaseCommand {
    /// Make it live this long from now on, and show its hold count where its kind does.
    Renew { ttl: Duration, count: u32 },
    /// Give it back, or take it out of the queue.
    Release { ttl: Duration, last_token: Option<u64> },
}

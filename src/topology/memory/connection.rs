//! One connection of a client to a server in memory.

use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::wire::connection::{Reply, Session};
use crate::wire::failure::Failure;
use crate::wire::script::Call;

use super::link::FaultyLink;
use super::server::MemoryServer;

/// As for a real connection, this part of the time for a reply is kept for the way there and back.
const MARGIN: u32 = 10;

/// A connection on which a client may watch keys.
pub(super) struct MemoryConnection<'a> {
    server: &'a Arc<MemoryServer>,
    link: &'a FaultyLink,
    number: u64,
    /// It failed: a request may still be on its way, whose reply the client will not receive.
    is_poisoned: bool,
}

impl<'a> MemoryConnection<'a> {
    pub(super) fn open(
        server: &'a Arc<MemoryServer>,
        link: &'a FaultyLink,
    ) -> MemoryConnection<'a> {
        MemoryConnection { server, link, number: server.open_session(), is_poisoned: false }
    }
}

impl Session for MemoryConnection<'_> {
    fn call(&mut self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        let mut replies = self.call_all(std::slice::from_ref(call), deadline);
        replies.pop().unwrap_or_else(|| Err(Failure::silent()))
    }

    fn call_all(&mut self, calls: &[Call], deadline: Moment) -> Vec<Result<Reply, Failure>> {
        if self.is_poisoned {
            return calls.iter().map(|_| Err(Failure::reset())).collect();
        }
        let replies = self.server.exchange(self.link, Some(self.number), calls, deadline);
        // As a real connection. Otherwise a transaction could go on after its `WATCH` got no reply,
        // and a test would pass here that fails on a server.
        self.is_poisoned =
            replies.iter().any(|reply| reply.as_ref().is_err_and(Failure::is_unknown));
        replies
    }

    /// Waits for the whole time `within`: this server has no replicas that could end the wait
    /// earlier.
    fn call_slow(
        &mut self,
        call: &Call,
        within: Duration,
        deadline: Moment,
    ) -> Result<Reply, Failure> {
        let reply = self.call(call, deadline)?;
        self.server.wait(self.link, reply.received.after(within).min(deadline));
        Ok(Reply { received: self.server.now(), ..reply })
    }

    fn longest_wait(&self, deadline: Moment) -> Duration {
        let left = deadline.since(self.server.now());
        left - left / MARGIN
    }

    fn poison(&mut self) {
        self.is_poisoned = true;
    }
}

impl Drop for MemoryConnection<'_> {
    fn drop(&mut self) {
        self.server.close_session(self.number);
    }
}

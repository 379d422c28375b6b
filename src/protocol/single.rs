//! The protocol over one server.

use std::time::Duration;

use redis::Value;

use crate::base::id::{Holder, Identity};
use crate::base::option::ReleaseKind;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::protocol::answer::{acquired, unexpected, verdict};
use crate::protocol::{Answer, Errand, Protocol, Target, Task, Told, Verdict, watch};
use crate::wire::failure::Failure;
use crate::wire::script::Call;
use crate::wire::transport::Transport;

/// Locks on one server, on behalf of one client.
#[derive(Debug)]
pub(crate) struct Single {
    transport: Arc<Transport>,
    identity: Arc<Identity>,
}

impl Single {
    pub(crate) fn new(transport: Arc<Transport>, identity: Arc<Identity>) -> Single {
        Single { transport, identity }
    }

    /// An answer that cannot be read may belong to another command, so no connection is trusted
    /// any longer.
    fn read<T>(&self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(failure) = &outcome
            && failure.is_unknown()
        {
            self.transport.distrust();
        }
        outcome
    }
}

impl Protocol for Single {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn acquire(
        &self,
        target: &Target,
        owner: &[u8],
        ttl: Duration,
        deadline: Moment,
    ) -> Result<Answer, Failure> {
        let clock = self.transport.server_clock();
        if !clock.is_known() {
            self.transport.connect(deadline)?;
        }
        let call = target.acquire(owner, ttl, clock.reached_at(deadline).unwrap_or(0));
        let reply = self.transport.call(&call, deadline)?;
        let (answer, micros) = self.read(acquired(&reply, ttl))?;
        clock.note(micros, reply.received);
        Ok(answer)
    }

    fn release(
        &self,
        target: &Target,
        owner: &[u8],
        how: ReleaseKind,
        deadline: Moment,
    ) -> Result<Verdict, Failure> {
        match how {
            ReleaseKind::Lua => {
                let reply = self.transport.call(&target.release(owner), deadline)?;
                self.read(verdict(&reply.value))
            }
            ReleaseKind::Watch => self.transport.exchange(deadline, |connection| {
                watch::release(connection, target.key(), owner, deadline)
            }),
        }
    }

    fn extend(
        &self,
        target: &Target,
        owner: &[u8],
        ttl: Duration,
        count: u32,
        deadline: Moment,
    ) -> Result<Told, Failure> {
        let reply = self.transport.call(&target.renew(owner, ttl, count), deadline)?;
        Ok(Told { verdict: self.read(verdict(&reply.value))?, sent: reply.sent })
    }

    fn run(&self, errands: &[Errand<'_>], deadline: Moment) -> Vec<Result<Told, Failure>> {
        let calls: Vec<Call> = errands
            .iter()
            .map(|errand| match errand.task {
                Task::Renew { ttl, count } => errand.target.renew(errand.owner, ttl, count),
                Task::Release => errand.target.release(errand.owner),
            })
            .collect();
        self.transport
            .call_all(&calls, deadline)
            .into_iter()
            .map(|reply| {
                let reply = reply?;
                Ok(Told { verdict: self.read(verdict(&reply.value))?, sent: reply.sent })
            })
            .collect()
    }

    fn holder(&self, target: &Target, deadline: Moment) -> Result<Option<Holder>, Failure> {
        let reply = self.transport.call(&target.inspect(), deadline)?;
        self.read(target.kind().inspected(reply.value))
    }

    fn force_release(&self, target: &Target, deadline: Moment) -> Result<bool, Failure> {
        match self.transport.call(&target.force_release(), deadline)?.value {
            Value::Int(held) => Ok(held > 0),
            other => self.read(Err(unexpected(&other))),
        }
    }
}

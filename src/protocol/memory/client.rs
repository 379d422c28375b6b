//! The protocol of one client of a server in memory.

use std::fmt;
use std::time::Duration;

use crate::base::id::{Holder, Identity};
use crate::base::option::ReleaseKind;
use crate::base::sync::Arc;
use crate::base::sync::channel::RecvTimeoutError;
use crate::base::time::Moment;
use crate::protocol::answer::{Acquired, Answer, Released, Told};
use crate::protocol::answer::{Forced, acquired, flag, forced, released, renewed};
use crate::protocol::errand::Errand;
use crate::protocol::request::{Attempt, Return};
use crate::protocol::target::Target;
use crate::protocol::transaction::Applied;
use crate::protocol::wake::{GrantMessage, Listener, Wake};
use crate::protocol::{Protocol, wake};
use crate::wire::Pipeline;
use crate::wire::connection::Reply;
use crate::wire::failure::{Failure, Hindrance};
use crate::wire::server_clock::ServerClock;

use super::link::Link;
use super::request::Request;
use super::server::{Ear, Server};

/// Locks on a server in memory, on behalf of one client.
#[derive(Debug)]
pub(crate) struct Memory {
    server: Arc<Server>,
    identity: Arc<Identity>,
    link: Arc<Link>,
    server_clock: ServerClock,
}

impl Memory {
    pub(crate) fn new(server: Arc<Server>, identity: Arc<Identity>) -> Memory {
        Memory { server, identity, link: Arc::default(), server_clock: ServerClock::default() }
    }

    /// What lies between this client and the server.
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    fn exchange(
        &self,
        target: &Target,
        request: Request,
        deadline: Moment,
    ) -> Result<Reply, Failure> {
        let mut replies = self.server.exchange(&self.link, &[(target, request)], deadline);
        replies.pop().unwrap_or_else(|| Err(Failure::silent()))
    }
}

impl Memory {
    fn ask(
        &self,
        target: &Target,
        attempt: &Attempt<'_>,
        deadline: Moment,
    ) -> Result<Answer, Failure> {
        let clock = &self.server_clock;
        if !clock.is_known() {
            if self.link.is_cut() {
                return Err(Failure::no_connection());
            }
            let now = self.server.now();
            clock.note(0, self.server.micros(), now, self.server.now());
        }
        let mut again = true;
        loop {
            let by = clock.deadline(deadline);
            let reply = self.exchange(target, Request::acquire(attempt, by), deadline)?;
            let (answer, micros) = acquired(&reply, attempt.ttl)?;
            clock.note(reply.epoch, micros, reply.sent, reply.received);
            if answer != Answer::Late || !std::mem::take(&mut again) {
                return Ok(answer);
            }
        }
    }
}

impl Protocol for Memory {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn acquire(&self, target: &Target, attempt: &Attempt<'_>, deadline: Moment) -> Acquired {
        Acquired { outcome: self.ask(target, attempt, deadline), is_spent: false }
    }
    fn release(
        &self,
        target: &Target,
        returned: &Return<'_>,
        deadline: Moment,
    ) -> Result<Released, Failure> {
        let Return { owner, ttl, last_token, how } = *returned;
        let request = match how {
            ReleaseKind::Lua => Request::release(owner, ttl, last_token),
            ReleaseKind::Watch => Request::delete(owner, ttl, last_token),
        };
        released(&self.exchange(target, request, deadline)?.value)
    }

    fn extend(
        &self,
        target: &Target,
        owner: &[u8],
        ttl: Duration,
        count: u32,
        deadline: Moment,
    ) -> Result<Told, Failure> {
        renewed(&self.exchange(target, Request::renew(owner, ttl, count), deadline)?)
    }

    fn run(&self, errands: &[Errand<'_>], deadline: Moment) -> Vec<Result<Told, Failure>> {
        let requests: Vec<_> =
            errands.iter().map(|errand| (errand.target, Request::of(errand))).collect();
        let replies = self.server.exchange(&self.link, &requests, deadline);
        errands.iter().zip(replies).map(|(errand, reply)| errand.read(&reply?)).collect()
    }

    fn holder(&self, target: &Target, deadline: Moment) -> Result<Option<Holder>, Failure> {
        let reply = Failure::repeating(|| self.exchange(target, Request::Inspect, deadline))?;
        target.kind().inspected(reply.value)
    }

    fn force_release(
        &self,
        target: &Target,
        owner: &[u8],
        deadline: Moment,
    ) -> Result<bool, Failure> {
        let clock = &self.server_clock;
        let mut again = true;
        loop {
            let by = clock.deadline(deadline);
            let reply = self.exchange(target, Request::force(owner, by), deadline)?;
            match forced(&reply.value)? {
                Forced::Done(had) => return Ok(had),
                Forced::Late(micros) => clock.note(reply.epoch, micros, reply.sent, reply.received),
            }
            if !std::mem::take(&mut again) {
                return Err(Failure::NotSent(Hindrance::Overdue));
            }
        }
    }

    fn apply(
        &self,
        _target: &Target,
        _owner: &[u8],
        _pipeline: &Pipeline,
        _deadline: Moment,
    ) -> Result<Applied, Failure> {
        Err(Failure::only_on_a_server())
    }

    fn request_release(&self, target: &Target, deadline: Moment) -> Result<bool, Failure> {
        flag(&self.exchange(target, Request::Ask, deadline)?.value)
    }

    fn listen(&self) -> Result<Box<dyn Listener>, Failure> {
        if self.link.is_cut() {
            return Err(Failure::no_connection());
        }
        let own = wake::client_channel(&self.identity);
        Ok(Box::new(Listening { ear: self.server.listen(&self.link, &own), own }))
    }

    fn listen_to(&self, _channel: &[u8], _deadline: Moment) -> Result<(), Failure> {
        self.server.publish(&wake::client_channel(&self.identity), wake::NUDGE);
        Ok(())
    }

    fn granted_after(
        &self,
        grant: &GrantMessage,
        received: Moment,
        _queued: Option<Moment>,
    ) -> Option<Moment> {
        self.server_clock.not_before(grant.epoch, grant.micros, received)
    }
}

/// A listener on a server in memory.
struct Listening {
    ear: Ear,
    own: Vec<u8>,
}

impl Listener for Listening {
    fn next(&mut self, wait: Duration) -> Result<Wake, Failure> {
        self.ear.handled();
        // In real time: there is nothing to do here for the sake of time alone.
        match self.ear.events().recv_timeout(wait) {
            Ok(event) => Ok(wake::understand(event, &self.own)),
            Err(RecvTimeoutError::Timeout) => Ok(Wake::Nothing),
            Err(RecvTimeoutError::Disconnected) => Err(Failure::reset()),
        }
    }

    fn add(&mut self, channel: &[u8]) -> Result<(), Failure> {
        self.ear.subscribe(channel);
        Ok(())
    }

    fn remove(&mut self, channel: &[u8]) -> Result<(), Failure> {
        self.ear.unsubscribe(channel);
        Ok(())
    }
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening").finish_non_exhaustive()
    }
}

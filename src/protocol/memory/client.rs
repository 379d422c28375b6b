//! The protocol of one client of a server in memory.

use std::fmt;
use std::time::Duration;

use crate::base::id::{Holder, Identity};
use crate::base::option::{Copies, Least, ReleaseKind};
use crate::base::sync::Arc;
use crate::base::sync::channel::RecvTimeoutError;
use crate::base::time::Moment;
use crate::protocol::answer::{Forced, acquired, flag, forced, released, renewed};
use crate::protocol::{
    Answer, Applied, Attempt, Errand, GrantMessage, Listener, Protocol, Released, Return, Target,
    Told, Verdict, Wake, replica, transaction, wake,
};
use crate::wire::Pipeline;
use crate::wire::connection::Reply;
use crate::wire::failure::{Failure, Hindrance};
use crate::wire::script::Call;
use crate::wire::server_clock::ServerClock;

use super::link::Link;
use super::server::{Ear, Server};
use super::session::Connection;

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

    fn call(&self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        let calls = std::slice::from_ref(call);
        let mut replies = self.server.exchange(&self.link, None, calls, deadline);
        replies.pop().unwrap_or_else(|| Err(Failure::silent()))
    }
}

impl Protocol for Memory {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn acquire(
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
            let reply = self.call(&target.acquire(attempt, by), deadline)?;
            let (answer, micros) = acquired(&reply, attempt.ttl)?;
            clock.note(reply.epoch, micros, reply.sent, reply.received);
            if answer != Answer::Late || !std::mem::take(&mut again) {
                return Ok(answer);
            }
        }
    }

    fn release(
        &self,
        target: &Target,
        returned: &Return<'_>,
        deadline: Moment,
    ) -> Result<Released, Failure> {
        let Return { owner, ttl, last_token, how } = *returned;
        if how == ReleaseKind::Watch {
            let mut session = Connection::open(&self.server, &self.link);
            let outcome = transaction::release(&mut session, target, returned, deadline);
            if !outcome.as_ref().is_err_and(Failure::is_out_of_memory) {
                return outcome.map(Released::from);
            }
        }
        released(&self.call(&target.release(owner, ttl, last_token), deadline)?.value)
    }

    fn extend(
        &self,
        target: &Target,
        owner: &[u8],
        ttl: Duration,
        count: u32,
        deadline: Moment,
    ) -> Result<Told, Failure> {
        renewed(&self.call(&target.renew(owner, ttl, count), deadline)?)
    }

    fn replicate(
        &self,
        target: &Target,
        owner: &[u8],
        copies: Copies,
        deadline: Moment,
    ) -> Result<Result<Least, Verdict>, Failure> {
        let mut session = Connection::open(&self.server, &self.link);
        replica::replicate(&mut session, target, owner, copies, deadline)
    }

    fn run(&self, errands: &[Errand<'_>], deadline: Moment) -> Vec<Result<Told, Failure>> {
        let calls: Vec<_> = errands.iter().map(Errand::call).collect();
        let replies = self.server.exchange(&self.link, None, &calls, deadline);
        errands.iter().zip(replies).map(|(errand, reply)| errand.read(&reply?)).collect()
    }

    fn holder(&self, target: &Target, deadline: Moment) -> Result<Option<Holder>, Failure> {
        let reply = Failure::repeating(|| self.call(&target.inspect(), deadline))?;
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
            let reply = self.call(&target.force(owner, by), deadline)?;
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
        target: &Target,
        owner: &[u8],
        pipeline: &Pipeline,
        deadline: Moment,
    ) -> Result<Applied, Failure> {
        let mut session = Connection::open(&self.server, &self.link);
        let calls = pipeline.cmd_iter().map(Call::of).collect();
        transaction::apply(&mut session, target, owner, calls, deadline)
    }

    fn request_release(&self, target: &Target, deadline: Moment) -> Result<bool, Failure> {
        let Some(call) = target.request() else { return Ok(false) };
        flag(&self.call(&call, deadline)?.value)
    }

    fn listen(&self) -> Result<Box<dyn Listener>, Failure> {
        if self.link.is_cut() {
            return Err(Failure::no_connection());
        }
        let own = wake::client_channel(&self.identity);
        Ok(Box::new(Listening { ear: self.server.listen(&self.link, &own), own }))
    }

    fn nudge_listener(&self, _deadline: Moment) -> Result<(), Failure> {
        let channel = wake::client_channel(&self.identity);
        let told = self.server.call(&[b"PUBLISH", &channel, wake::NUDGE]);
        told.map(drop).map_err(|error| Failure::refused(error.text()))
    }

    fn not_before(&self, grant: &GrantMessage, now: Moment) -> Option<Moment> {
        self.server_clock.not_before(grant.epoch, grant.micros, now)
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

//! The backend of one client of a server in memory.

use std::time::Duration;

use crate::base::id::Identity;
use crate::base::sync::Arc;
use crate::base::sync::channel::RecvTimeoutError;
use crate::base::time::Moment;
use crate::protocol::backend::{Backend, RoundTrips};
use crate::protocol::target::Target;
use crate::protocol::wake_message::{self, GrantMessage, Publisher, Publishers, SinglePublisher};
use crate::wire::connection::{Reply, Session};
use crate::wire::failure::Failure;
use crate::wire::script::Call;
use crate::wire::server_clock::ServerClock;
use crate::wire::subscription::{Event, Subscriber};

use super::link::Link;
use super::server::{Ear, Server};
use super::session::Connection;

/// A server in memory, on behalf of one client.
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

    /// The way between this client and the server.
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }
}

impl Backend for Memory {
    type Server<'a> = Memory;

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn at<T>(
        &self,
        _target: &Target,
        _trips: RoundTrips,
        _deadline: Moment,
        mut operation: impl FnMut(&Memory) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        operation(self)
    }

    fn call_many(
        &self,
        _targets: &[&Target],
        calls: &[Call],
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        self.server.exchange(&self.link, None, calls, deadline)
    }

    /// There is no connection that could be out of step.
    fn discard_connections(&self, _target: &Target) {}

    fn publishers(&self) -> Arc<dyn Publishers> {
        let (server, link) = (Arc::clone(&self.server), Arc::clone(&self.link));
        Arc::new(SinglePublisher(Arc::new(Way { server, link })))
    }

    /// The nudge is no part of what is played: it meets no fault.
    fn listen_to(&self, _channel: &[u8], _deadline: Moment) -> Result<(), Failure> {
        let channel = wake_message::client_channel(&self.identity);
        let told = self.server.call(&[b"PUBLISH", &channel, wake_message::WAKE_LISTENER]);
        told.map(drop).map_err(|error| Failure::refused(error.text()))
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

impl crate::protocol::backend::Server for Memory {
    fn call(&self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        let calls = std::slice::from_ref(call);
        let mut replies = self.server.exchange(&self.link, None, calls, deadline);
        replies.pop().unwrap_or_else(|| Err(Failure::silent()))
    }

    fn call_with(
        &self,
        request: impl FnOnce() -> Call,
        deadline: Moment,
    ) -> Result<Reply, Failure> {
        self.call(&request(), deadline)
    }

    fn session<T>(
        &self,
        _deadline: Moment,
        operation: impl FnOnce(&mut dyn Session) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        operation(&mut Connection::open(&self.server, &self.link))
    }

    fn connect(&self, _deadline: Moment) -> Result<(), Failure> {
        if self.link.is_cut() {
            return Err(Failure::no_connection());
        }
        let now = self.server.now();
        self.server_clock.note(0, self.server.micros(), now, self.server.now());
        Ok(())
    }

    fn clock(&self) -> &ServerClock {
        &self.server_clock
    }

    fn reply_by(&self, deadline: Moment) -> Moment {
        deadline
    }

    fn discard_connections(&self) {}
}

/// The way of a client to the server, as it listens there.
struct Way {
    server: Arc<Server>,
    link: Arc<Link>,
}

impl Publisher for Way {
    fn address(&self) -> String {
        "memory".to_owned()
    }

    fn subscribe(&self, channel: &[u8]) -> Result<Box<dyn Subscriber>, Failure> {
        if self.link.is_cut() {
            return Err(Failure::no_connection());
        }
        Ok(Box::new(self.server.listen(&self.link, channel)))
    }
}

impl Subscriber for Ear {
    fn next(&mut self, wait: Duration) -> Result<Event, Failure> {
        self.handled();
        // In real time: there is nothing to do here for the sake of time alone.
        match self.events().recv_timeout(wait) {
            Ok(event) => Ok(event),
            Err(RecvTimeoutError::Timeout) => Ok(Event::Nothing),
            Err(RecvTimeoutError::Disconnected) => Err(Failure::reset()),
        }
    }

    fn subscribe(&mut self, channel: &[u8]) -> Result<(), Failure> {
        Ear::subscribe(self, channel);
        Ok(())
    }

    fn unsubscribe(&mut self, channel: &[u8]) -> Result<(), Failure> {
        Ear::unsubscribe(self, channel);
        Ok(())
    }
}

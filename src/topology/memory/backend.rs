//! The backend of one client of a server in memory.

use std::time::Duration;

use crate::base::glob::Glob;
use crate::base::id::Identity;
use crate::base::reserved;
use crate::base::sync::channel::RecvTimeoutError;
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::base::time::Moment;
use crate::protocol::backend::{Backend, RoundTrips, Sending};
use crate::protocol::index::ScanPosition;
use crate::protocol::target::Target;
use crate::protocol::wake_message::{self, GrantMessage, Publisher, Publishers, SinglePublisher};
use crate::wire::Value;
use crate::wire::connection::{Reply, Session};
use crate::wire::failure::Failure;
use crate::wire::script::Call;
use crate::wire::server_clock::{Reading, ServerClock, ServerClocks};
use crate::wire::subscription::{Event, Subscriber};

use super::connection::MemoryConnection;
use super::link::FaultyLink;
use super::server::{MemoryServer, MemorySubscriber};

/// A server in memory, on behalf of one client.
#[derive(Debug)]
pub(crate) struct MemoryBackend {
    server: Arc<MemoryServer>,
    identity: Arc<Identity>,
    link: Arc<FaultyLink>,
    server_clock: Arc<ServerClock>,
    /// How often the server had closed all connections when that for requests was made.
    connected: AtomicU64,
}

impl MemoryBackend {
    pub(crate) fn new(server: Arc<MemoryServer>, identity: Arc<Identity>) -> MemoryBackend {
        let connected = AtomicU64::new(server.breaks());
        let (link, server_clock) = (Arc::default(), Arc::default());
        MemoryBackend { server, identity, link, server_clock, connected }
    }

    /// The same, where the server's clock is one of these.
    pub(crate) fn timed(self, clocks: &Arc<ServerClocks>) -> MemoryBackend {
        MemoryBackend { server_clock: clocks.add(), ..self }
    }

    /// Sends commands, whose replies are those of the server with this clock.
    fn exchange(
        &self,
        link: &FaultyLink,
        calls: &[Call],
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        self.look_at_connection();
        // The epoch is always 0, because this server never moves.
        let clock = Some((Arc::clone(&self.server_clock), 0));
        let timed = |reply: Reply| Reply { clock: clock.clone(), ..reply };
        let replies = self.server.exchange(link, None, calls, deadline);
        replies.into_iter().map(|reply| reply.map(timed)).collect()
    }

    /// A connection that has ended is noticed where it is looked at, or used, and no earlier.
    fn look_at_connection(&self) {
        let breaks = self.server.breaks();
        if self.connected.swap(breaks, Ordering::SeqCst) != breaks {
            self.server_clock.note_break(self.server.now());
        }
    }

    /// The link between this client and the server.
    pub(crate) fn link(&self) -> &Arc<FaultyLink> {
        &self.link
    }
}

impl Backend for MemoryBackend {
    type Server<'a> = MemoryBackend;

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn with_server<T>(
        &self,
        _target: &Target,
        _trips: RoundTrips,
        _deadline: Moment,
        mut operation: impl FnMut(&MemoryBackend) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        operation(self)
    }

    fn call_many(
        &self,
        keys: &[&[u8]],
        calls: &[Call],
        _sending: Sending,
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        // A fault for the next exchange is meant for a request of a lock. When the worker announces what is in
        // use is not for a test to foresee.
        if keys == [reserved::INDEX] {
            return match self.link.is_cut() {
                true => vec![Err(Failure::no_connection())],
                false => self.exchange(&FaultyLink::default(), calls, deadline),
            };
        }
        self.exchange(&self.link, calls, deadline)
    }

    /// All in one step.
    fn scan(
        &self,
        position: &mut ScanPosition,
        pattern: &Glob,
        _deadline: Moment,
    ) -> Result<Option<Value>, Failure> {
        if position.choose(&[""])?.is_none() {
            return Ok(None);
        }
        if self.link.is_cut() {
            return Err(Failure::no_connection());
        }
        let kind = Value::SimpleString(position.type_name().to_owned());
        let is_wanted = |key: &Vec<u8>| {
            pattern.rest(key).is_some()
                && self.server.call(&[b"TYPE", key]).is_ok_and(|it| it == kind)
        };
        let keys = self.server.keys().into_iter().filter(is_wanted).map(Value::BulkString);
        let end = Value::BulkString(b"0".to_vec());
        Ok(Some(Value::Array(vec![end, Value::Array(keys.collect())])))
    }

    fn keep_worker_connections(&self, _until: Moment) -> bool {
        self.look_at_connection();
        self.link.worker_connection_orders().is_none()
    }

    fn connect_worker(&self) {
        self.link.order_worker_connection();
    }

    /// Does nothing: replies here cannot be out of step.
    fn discard_connections(&self, _key: &[u8]) -> String {
        "a server in memory".to_owned()
    }

    fn publishers(&self) -> Arc<dyn Publishers> {
        let (server, link) = (Arc::clone(&self.server), Arc::clone(&self.link));
        let server_clock = Arc::clone(&self.server_clock);
        Arc::new(SinglePublisher(Arc::new(MemoryPublisher { server, link, server_clock })))
    }

    /// Wakes the listener, past the link.
    fn listen_to(&self, _channel: &[u8], _deadline: Moment) -> Result<(), Failure> {
        // A fault that a test sets for "the next exchange" is meant for a request of a lock. If
        // this one took it, whether the fault hits its target would depend on the listener's
        // timing.
        let channel = wake_message::client_channel(&self.identity);
        let outcome = self.server.call(&[b"PUBLISH", &channel, wake_message::WAKE_LISTENER]);
        outcome.map(drop).map_err(|error| Failure::refused(error.text()))
    }

    fn unbroken_since(&self, _target: &Target) -> Moment {
        self.server_clock.epochs().unbroken_since()
    }

    fn granted_after(
        &self,
        _target: &Target,
        grant: &GrantMessage,
        received: Moment,
        _queued: Option<Moment>,
    ) -> Option<Moment> {
        self.server_clock.not_before(grant.run, grant.micros, received)
    }
}

impl crate::protocol::backend::LockServer for MemoryBackend {
    fn call(&self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        let calls = std::slice::from_ref(call);
        let mut replies = self.exchange(&self.link, calls, deadline);
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
        operation(&mut MemoryConnection::open(&self.server, &self.link))
    }

    fn connect(&self, _deadline: Moment) -> Result<(), Failure> {
        if self.link.is_cut() {
            return Err(Failure::no_connection());
        }
        let (sent, micros, received) = (self.server.now(), self.server.micros(), self.server.now());
        self.server_clock.note(Reading { epoch: 0, micros, sent, received });
        Ok(())
    }

    fn clock(&self) -> &Arc<ServerClock> {
        &self.server_clock
    }

    // The engine's bound for a reply is the only limit here; a transport would add
    // `command_timeout`.
    fn reply_by(&self, deadline: Moment) -> Moment {
        deadline
    }

    fn discard_connections(&self) -> String {
        "a server in memory".to_owned()
    }
}

/// The server as a client's listener sees it.
struct MemoryPublisher {
    server: Arc<MemoryServer>,
    link: Arc<FaultyLink>,
    server_clock: Arc<ServerClock>,
}

impl Publisher for MemoryPublisher {
    fn address(&self) -> String {
        "memory".to_owned()
    }

    fn subscribe(&self, channel: &[u8]) -> Result<Box<dyn Subscriber>, Failure> {
        if self.link.is_cut() {
            return Err(Failure::no_connection());
        }
        Ok(Box::new(self.server.listen(&self.link, channel)))
    }

    fn clock_faults(&self) -> u64 {
        self.server_clock.faults()
    }

    fn lost(&self, began: Moment, at: Moment) {
        self.server_clock.note_subscription_end(began, at);
    }
}

impl Subscriber for MemorySubscriber {
    fn next(&mut self, wait: Duration) -> Result<Event, Failure> {
        // A call for the next event shows that the ones before have been handled.
        self.handled();
        // Waits in real time, although the server's clock may stand still. A listener does nothing
        // for the sake of time alone, so that the clock need not wake it; and its polls go on while
        // it stands.
        match self.events().recv_timeout(wait) {
            Ok(event) => Ok(event),
            Err(RecvTimeoutError::Timeout) => Ok(Event::Nothing),
            Err(RecvTimeoutError::Disconnected) => Err(Failure::reset()),
        }
    }

    fn subscribe(&mut self, channel: &[u8]) -> Result<(), Failure> {
        MemorySubscriber::subscribe(self, channel);
        Ok(())
    }

    fn unsubscribe(&mut self, channel: &[u8]) -> Result<(), Failure> {
        MemorySubscriber::unsubscribe(self, channel);
        Ok(())
    }
}

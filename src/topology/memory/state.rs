//! The state of a server in memory: its store, its connections, and requests on their way.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::sync::channel::Sender;
use crate::base::sync::{Arc, ThreadId};
use crate::wire::Value;
use crate::wire::subscription::Event;

use super::link::FaultyLink;
use super::redis::{self, ErrorReply, Published, Store};

/// The store, the connections, and the requests that have not arrived yet.
#[derive(Default)]
pub(super) struct State {
    pub(super) store: Store,
    pub(super) subscribers: BTreeMap<u64, SubscriberQueue>,
    pub(super) last_subscriber: u64,
    pub(super) sessions: BTreeMap<u64, OpenSession>,
    pub(super) last_session: u64,
    /// Requests that arrive later, by the server's time of arrival and a running number. The number
    /// keeps the order of those that arrive at the same time, as one connection does.
    pub(super) late: BTreeMap<(u64, u64), LateRequest>,
    pub(super) last_late: u64,
}

/// The server's end of a connection on which keys are watched.
#[derive(Default)]
pub(super) struct OpenSession {
    inner: redis::ConnectionState,
    /// The client has closed it, and a request is still on its way.
    pub(super) is_closed: bool,
}

/// A request that is on its way.
pub(super) struct LateRequest {
    pub(super) session: Option<u64>,
    pub(super) words: Vec<Vec<u8>>,
}

/// The server's end of a connection for messages.
pub(super) struct SubscriberQueue {
    pub(super) link: Arc<FaultyLink>,
    pub(super) sender: Sender<Event>,
    /// The thread that receives them.
    pub(super) thread: ThreadId,
    pub(super) sent: u64,
    /// How many of them the thread has handled.
    pub(super) handled: u64,
}

impl State {
    /// Runs a command, in a session or in none. Then notes the touched keys in all sessions, and
    /// delivers the messages.
    pub(super) fn call(
        &mut self,
        session: Option<u64>,
        words: &[Vec<u8>],
        micros: u64,
    ) -> Result<Value, ErrorReply> {
        // Before the command: also an `EXEC` must find that a watched key has expired by now, as it
        // does in Redis.
        let expired = self.store.expire(micros);
        self.note(&expired);

        let State { store, sessions, .. } = self;
        let session = session.and_then(|number| sessions.get_mut(&number));
        let (outcome, effects) = store.run(micros, |run| match session {
            Some(session) => session.inner.call(run, words),
            None => redis::call(run, words),
        });

        // After the command, so that a transaction is not outdated by its own writes before it ran.
        // The messages come last: a listener that wakes must find what was written (rule 12).
        self.note(&effects.touched);
        self.deliver(effects.published);
        outcome
    }

    /// Notes in all sessions which keys were touched.
    pub(super) fn note(&mut self, touched: &BTreeSet<Vec<u8>>) {
        self.sessions.values_mut().for_each(|session| session.inner.note(touched));
    }

    /// Removes a session that its client has closed, once no request of it is on its way any more.
    pub(super) fn forget_session(&mut self, number: Option<u64>) {
        let Some(number) = number else { return };
        // A real server reads what arrived before the connection was closed. So a closed session
        // stays until its delayed commands have run, within the transaction to which they belong.
        let is_closed = self.sessions.get(&number).is_some_and(|session| session.is_closed);
        if is_closed && self.late.values().all(|late| late.session != Some(number)) {
            self.sessions.remove(&number);
        }
    }

    pub(super) fn subscribe(&mut self, subscriber: u64, channel: &[u8]) {
        let State { store, subscribers, .. } = self;
        // A subscriber that was disconnected finds that out when it reads.
        if let Some(queue) = subscribers.get_mut(&subscriber) {
            store.subscribe(subscriber, channel);
            queue.push(Event::Subscribed { channel: channel.to_vec() });
        }
    }

    fn deliver(&mut self, published: Vec<Published>) {
        let State { store, subscribers, .. } = self;
        for Published { channel, payload } in published {
            for subscriber in store.hearers(&channel) {
                // The loss is on the way: `PUBLISH` has counted this subscriber all the same, as
                // Redis counts one whose connection is about to break.
                if let Some(queue) = subscribers.get_mut(&subscriber)
                    && queue.link.lets_message_through()
                {
                    let (channel, payload) = (channel.clone(), payload.clone());
                    queue.push(Event::Message { channel, payload });
                }
            }
        }
    }
}

impl SubscriberQueue {
    fn push(&mut self, event: Event) {
        // Fails if the receiving end was dropped, which is no concern of the server.
        let _ = self.sender.send(event);
        self.sent += 1;
    }
}

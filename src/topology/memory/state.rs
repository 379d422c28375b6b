//! What a server in memory keeps: its store, its connections, and what is on its way.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::sync::channel::Sender;
use crate::base::sync::{Arc, ThreadId};
use crate::wire::Value;
use crate::wire::subscription::Event;

use super::link::FaultyLink;
use super::redis::{self, ErrorReply, Published, Store};

/// The store, the connections, and what is on its way from them.
#[derive(Default)]
pub(super) struct State {
    pub(super) store: Store,
    pub(super) subscribers: BTreeMap<u64, SubscriberQueue>,
    pub(super) last_subscriber: u64,
    pub(super) sessions: BTreeMap<u64, OpenSession>,
    pub(super) last_session: u64,
    /// Commands that arrive later, by the server's time and the order in which they were sent.
    pub(super) late: BTreeMap<(u64, u64), LateRequest>,
    pub(super) last_late: u64,
}

/// The server's end of a connection on which keys are watched.
#[derive(Default)]
pub(super) struct OpenSession {
    inner: redis::ConnectionState,
    /// Its client sends nothing more, and something is still on its way.
    pub(super) is_closed: bool,
}

/// A command that is on its way.
pub(super) struct LateRequest {
    pub(super) session: Option<u64>,
    pub(super) words: Vec<Vec<u8>>,
}

/// The server's end of a connection that listens.
pub(super) struct SubscriberQueue {
    pub(super) link: Arc<FaultyLink>,
    pub(super) sender: Sender<Event>,
    /// Who listens.
    pub(super) thread: ThreadId,
    pub(super) sent: u64,
    /// How much of that its listener is done with.
    pub(super) handled: u64,
}

impl State {
    /// Runs a command, in a session or in none, and tells the others of it.
    pub(super) fn call(
        &mut self,
        session: Option<u64>,
        words: &[Vec<u8>],
        micros: u64,
    ) -> Result<Value, ErrorReply> {
        let expired = self.store.expire(micros);
        self.note(&expired);
        let State { store, sessions, .. } = self;
        let session = session.and_then(|number| sessions.get_mut(&number));
        let (outcome, effects) = store.run(micros, |run| match session {
            Some(session) => session.inner.call(run, words),
            None => redis::call(run, words),
        });
        self.note(&effects.touched);
        self.deliver(effects.published);
        outcome
    }

    /// Tells all sessions which keys were touched.
    pub(super) fn note(&mut self, touched: &BTreeSet<Vec<u8>>) {
        self.sessions.values_mut().for_each(|session| session.inner.note(touched));
    }

    /// Forgets a session that its client has closed, once nothing is on its way any more.
    pub(super) fn forget_session(&mut self, number: Option<u64>) {
        let Some(number) = number else { return };
        let is_closed = self.sessions.get(&number).is_some_and(|session| session.is_closed);
        if is_closed && self.late.values().all(|late| late.session != Some(number)) {
            self.sessions.remove(&number);
        }
    }

    pub(super) fn subscribe(&mut self, subscriber: u64, channel: &[u8]) {
        let State { store, subscribers, .. } = self;
        // One that was disconnected finds out by itself.
        if let Some(queue) = subscribers.get_mut(&subscriber) {
            store.subscribe(subscriber, channel);
            queue.push(Event::Subscribed { channel: channel.to_vec() });
        }
    }

    fn deliver(&mut self, published: Vec<Published>) {
        let State { store, subscribers, .. } = self;
        for Published { channel, payload } in published {
            for subscriber in store.hearers(&channel) {
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
        // A listener that is gone has taken its end along.
        let _ = self.sender.send(event);
        self.sent += 1;
    }
}

//! A store that several clients share, with a clock, and with what is still on its way.

use std::fmt;
use std::time::Duration;

use crate::base::sync::channel::{Receiver, unbounded};
use crate::base::sync::{self, Arc, Mutex, MutexGuard};
use crate::base::time::{Clock, Moment};
use crate::wire::Value;
use crate::wire::connection::Reply;
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::script::Call;
use crate::wire::subscription::Event;

use super::link::{Delivery, FaultyLink};
use super::redis::ErrorReply;
use super::state::{LateRequest, OpenSession, State, SubscriberQueue};

/// The server's time when the clients' clock shows nothing: far from both 0 and 2^53, in
/// microseconds.
const EPOCH: u64 = 1_700_000_000_000_000;

/// A server in memory.
pub(crate) struct MemoryServer {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

impl MemoryServer {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<MemoryServer> {
        Arc::new(MemoryServer { clock, state: Mutex::default() })
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// The server's own time in microseconds.
    pub(crate) fn micros(&self) -> u64 {
        micros_at(self.clock.now())
    }

    /// The state once everything that was on its way until now has arrived.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        let micros = self.micros();
        while let Some(entry) = state.late.first_entry()
            && entry.key().0 <= micros
        {
            let ((at, _), LateRequest { session, words }) = entry.remove_entry();
            // Nobody waits for the reply.
            let _ = state.call(session, &words, at);
            state.forget_session(session);
        }
        state
    }

    /// When the next of what is on its way arrives.
    pub(crate) fn next_arrival(&self) -> Option<Moment> {
        let micros = self.state.lock().late.keys().next()?.0;
        Some(Moment::PAST.after(Duration::from_micros(micros.saturating_sub(EPOCH))))
    }

    /// Takes commands to the server, which runs one after the other, and its replies back. They are those of a
    /// session, or need none.
    pub(crate) fn exchange(
        &self,
        link: &FaultyLink,
        session: Option<u64>,
        calls: &[Call],
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        let sent = self.now();
        let all = |failure: Failure| calls.iter().map(|_| Err(failure.clone())).collect();
        let serve = || self.serve(session, calls, sent);
        if deadline <= sent {
            return all(Failure::NotSent(NotSentReason::DeadlinePassed));
        }
        match link.fate() {
            Delivery::Served => serve(),
            Delivery::Unsent => all(Failure::NotSent(NotSentReason::DeadlinePassed)),
            Delivery::Refused => all(Failure::no_connection()),
            Delivery::RequestLost => all(Failure::reset()),
            Delivery::ReplyLost => {
                serve();
                all(Failure::reset())
            }
            Delivery::Silence => {
                self.wait(link, deadline);
                all(Failure::silent())
            }
            Delivery::ReplyDelayed(by) => {
                let replies = serve();
                self.wait(link, deadline.min(sent.after(by)));
                let received = self.now();
                if received >= deadline {
                    return all(Failure::silent());
                }
                let late = |reply: Reply| Reply { received, ..reply };
                replies.into_iter().map(|reply| reply.map(late)).collect()
            }
            Delivery::RequestDelayed(by) => {
                let arrives = sent.after(by);
                if arrives < deadline {
                    self.wait(link, arrives);
                    return serve();
                }
                self.send_late(session, calls, arrives);
                self.wait(link, deadline);
                all(Failure::silent())
            }
        }
    }

    fn serve(
        &self,
        session: Option<u64>,
        calls: &[Call],
        sent: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        let mut state = self.state();
        let mut serve = |call: &Call| {
            let outcome = state.call(session, &call.words(), self.micros());
            let value = outcome.map_err(|error| Failure::refused(error.text()))?;
            Ok(Reply { value, sent, received: self.now(), epoch: 0 })
        };
        calls.iter().map(&mut serve).collect()
    }

    fn send_late(&self, session: Option<u64>, calls: &[Call], arrives: Moment) {
        let mut state = self.state();
        for call in calls {
            state.last_late += 1;
            let key = (micros_at(arrives), state.last_late);
            state.late.insert(key, LateRequest { session, words: call.words() });
        }
    }

    /// Opens a connection on which keys can be watched.
    pub(super) fn open_session(&self) -> u64 {
        let mut state = self.state();
        state.last_session += 1;
        let number = state.last_session;
        state.sessions.insert(number, OpenSession::default());
        number
    }

    /// Closes it. What was sent on it may still arrive.
    pub(super) fn close_session(&self, number: u64) {
        let mut state = self.state();
        if let Some(session) = state.sessions.get_mut(&number) {
            session.is_closed = true;
        }
        state.forget_session(Some(number));
    }

    pub(super) fn wait(&self, link: &FaultyLink, until: Moment) {
        link.wait(|| {
            while self.now() < until {
                self.clock.wait_until(until, &mut sync::sleep);
            }
        });
    }

    /// Runs a command as an operator would.
    pub(crate) fn call(&self, words: &[&[u8]]) -> Result<Value, ErrorReply> {
        let words: Vec<_> = words.iter().map(|word| word.to_vec()).collect();
        self.state().call(None, &words, self.micros())
    }

    /// The keys that there are.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        self.state().store.live_keys(self.micros()).map(<[u8]>::to_vec).collect()
    }

    /// Forgets all keys (`FLUSHALL`).
    pub(crate) fn flush(&self) {
        let mut state = self.state();
        let gone = state.store.flush();
        state.note(&gone);
    }

    /// Sets whether memory is full.
    pub(crate) fn set_out_of_memory(&self, is_full: bool) {
        self.state().store.set_out_of_memory(is_full);
    }

    /// Opens a connection on which this thread listens, to a first channel.
    pub(crate) fn listen(
        self: &Arc<MemoryServer>,
        link: &Arc<FaultyLink>,
        channel: &[u8],
    ) -> MemorySubscriber {
        let (sender, events) = unbounded();
        let mut state = self.state();
        state.last_subscriber += 1;
        let subscriber =
            MemorySubscriber { server: Arc::clone(self), number: state.last_subscriber, events };
        let (link, thread) = (Arc::clone(link), sync::current());
        state.store.put_at_replica(subscriber.number, link.listens_at_replica());
        state.subscribers.insert(
            subscriber.number,
            SubscriberQueue { link, sender, thread, sent: 0, handled: 0 },
        );
        state.subscribe(subscriber.number, channel);
        subscriber
    }

    /// Closes all connections that listen, or those of one client.
    pub(crate) fn disconnect(&self, of: Option<&FaultyLink>) {
        let mut state = self.state();
        let State { store, subscribers, .. } = &mut *state;
        subscribers.retain(|&number, queue| {
            let stays = of.is_some_and(|link| !std::ptr::eq(link, &*queue.link));
            if !stays {
                store.disconnect(number);
            }
            stays
        });
    }

    /// Puts a client's listener at a replica of this server, or at this server.
    pub(crate) fn put_listener_at_replica(&self, link: &FaultyLink, there: bool) {
        let mut state = self.state();
        link.put_listener_at_replica(there);
        let State { store, subscribers, .. } = &mut *state;
        let of_client = subscribers.iter().filter(|(_, queue)| std::ptr::eq(link, &*queue.link));
        of_client.for_each(|(&subscriber, _)| store.put_at_replica(subscriber, there));
    }

    /// Whether all that was told to listeners is done with, but for those that wait themselves.
    pub(crate) fn is_at_rest(&self) -> bool {
        let state = self.state();
        let waits = |queue: &SubscriberQueue| queue.link.is_waited_for_by(queue.thread);
        state.subscribers.values().all(|queue| queue.handled >= queue.sent || waits(queue))
    }
}

fn micros_at(moment: Moment) -> u64 {
    EPOCH + moment.as_nanos() / 1000
}

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// A connection that listens.
pub(crate) struct MemorySubscriber {
    server: Arc<MemoryServer>,
    number: u64,
    events: Receiver<Event>,
}

impl MemorySubscriber {
    /// What comes; it ends when the server closes the connection.
    pub(crate) fn events(&self) -> &Receiver<Event> {
        &self.events
    }

    /// All that was taken from the events has had its effect.
    pub(crate) fn handled(&self) {
        let mut state = self.server.state();
        if let Some(queue) = state.subscribers.get_mut(&self.number) {
            queue.handled = queue.sent - self.events.len() as u64;
        }
    }

    /// Listens to a channel; asked again, it is confirmed again.
    pub(crate) fn subscribe(&self, channel: &[u8]) {
        self.server.state().subscribe(self.number, channel);
    }

    pub(crate) fn unsubscribe(&self, channel: &[u8]) {
        self.server.state().store.unsubscribe(self.number, channel);
    }
}

impl Drop for MemorySubscriber {
    fn drop(&mut self) {
        let mut state = self.server.state();
        state.subscribers.remove(&self.number);
        state.store.disconnect(self.number);
    }
}

//! A store that several clients share, with a clock, and with the requests on their way.

use std::fmt;
use std::time::Duration;

use crate::base::sync::channel::{Receiver, unbounded};
use crate::base::sync::{self, Arc, AtomicU64, Mutex, MutexGuard, Ordering};
use crate::base::time::{Clock, Moment};
use crate::wire::Value;
use crate::wire::connection::Reply;
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::script::Call;
use crate::wire::subscription::Event;

use super::link::{Delivery, FaultyLink};
use super::redis::ErrorReply;
use super::state::{LateRequest, OpenSession, State, SubscriberQueue};

/// The server's time in microseconds when the clients' clock is at zero: far from both 0 and 2^53,
/// so that code which mixes up the two clocks fails.
const EPOCH: u64 = 1_700_000_000_000_000;

/// A server in memory.
pub(crate) struct MemoryServer {
    clock: Arc<dyn Clock>,
    /// By how much its own clock was set forward, in microseconds. Wraps around where it was set back.
    ahead: AtomicU64,
    breaks: AtomicU64,
    state: Mutex<State>,
}

impl MemoryServer {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<MemoryServer> {
        let (ahead, breaks) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(MemoryServer { clock, ahead, breaks, state: Mutex::default() })
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// The server's own time in microseconds.
    pub(crate) fn micros(&self) -> u64 {
        self.shown(micros_at(self.clock.now()))
    }

    /// What its clock shows at this time of the clients' clock.
    fn shown(&self, micros: u64) -> u64 {
        micros.wrapping_add(self.ahead.load(Ordering::SeqCst))
    }

    /// Sets its clock forward, or back, by microseconds.
    #[cfg(test)]
    pub(crate) fn set_clock(&self, by: i64) {
        self.ahead.fetch_add(by.cast_unsigned(), Ordering::SeqCst);
    }

    /// The state, in which every request that was due until now has arrived.
    fn state(&self) -> MutexGuard<'_, State> {
        // There is no thread that delivers late requests. Everybody who looks at the state delivers
        // those that are due first, so nobody can see a state that the network would not allow, and
        // a test with a standing clock decides exactly when a request arrives.
        let mut state = self.state.lock();
        let micros = micros_at(self.clock.now());
        while let Some(entry) = state.late.first_entry()
            && entry.key().0 <= micros
        {
            let ((at, _), LateRequest { session, words }) = entry.remove_entry();
            // At the time of arrival, not now: the clock may have been put far forward. Nobody
            // waits for the reply.
            let _ = state.call(session, &words, self.shown(at));
            state.forget_session(session);
        }
        state
    }

    /// When the next request on its way arrives.
    pub(crate) fn next_arrival(&self) -> Option<Moment> {
        // Not `state()`, which would deliver it.
        let micros = self.state.lock().late.keys().next()?.0;
        Some(Moment::PAST.after(Duration::from_micros(micros.saturating_sub(EPOCH))))
    }

    /// Sends commands to the server, which runs them one after the other, and returns the replies.
    /// The commands belong to a session, or need none.
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
        // Before the fate is taken: a call that is not sent must not use up a fault.
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
                // Queued before this thread waits. It would otherwise arrive only when this thread
                // runs again, and a test that puts the clock past both moments could see either
                // order.
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
        // One lock for all commands: a pipeline is not atomic in Redis, but a test needs one order.
        let mut state = self.state();
        let mut serve = |call: &Call| {
            let outcome = state.call(session, &call.words(), self.micros());
            let value = outcome.map_err(|error| Failure::refused(error.text()))?;
            Ok(Reply { value, sent, received: self.now(), clock: None })
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

    /// Closes a session. A request that was sent on it may still arrive.
    pub(super) fn close_session(&self, number: u64) {
        let mut state = self.state();
        if let Some(session) = state.sessions.get_mut(&number) {
            session.is_closed = true;
        }
        state.forget_session(Some(number));
    }

    pub(super) fn wait(&self, link: &FaultyLink, until: Moment) {
        link.wait(until, || {
            // A loop, because a clock may end a wait early.
            while self.now() < until {
                self.clock.wait_until(until, &mut sync::sleep);
            }
        });
    }

    /// Runs a command as an operator would, past all links.
    pub(crate) fn call(&self, words: &[&[u8]]) -> Result<Value, ErrorReply> {
        let words: Vec<_> = words.iter().map(|word| word.to_vec()).collect();
        self.state().call(None, &words, self.micros())
    }

    /// The keys that exist.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        self.state().store.live_keys(self.micros()).map(<[u8]>::to_vec).collect()
    }

    /// Deletes all keys (`FLUSHALL`).
    pub(crate) fn flush(&self) {
        let mut state = self.state();
        let gone = state.store.flush();
        state.note(&gone);
    }

    /// Restarts it empty: all connections break.
    pub(crate) fn restart(&self) {
        self.flush();
        self.break_connections();
    }

    /// Closes all connections.
    pub(crate) fn break_connections(&self) {
        // Before a listener can notice it.
        self.breaks.fetch_add(1, Ordering::SeqCst);
        self.disconnect(None);
    }

    /// How often it has closed all connections.
    pub(super) fn breaks(&self) -> u64 {
        self.breaks.load(Ordering::SeqCst)
    }

    /// Sets whether memory is full.
    pub(crate) fn set_out_of_memory(&self, is_full: bool) {
        self.state().store.set_out_of_memory(is_full);
    }

    /// Opens a connection on which this thread receives messages, and subscribes to a first
    /// channel.
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

    /// Closes all connections for messages, or those of one client. A receiver notices it when its
    /// channel ends.
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

    /// How many connections for messages there were so far.
    #[cfg(test)]
    pub(crate) fn subscriptions(&self) -> u64 {
        self.state.lock().last_subscriber
    }

    /// Whether the listeners have handled all messages, except those that wait for a reply
    /// themselves.
    pub(crate) fn is_at_rest(&self) -> bool {
        let now = self.now();
        let state = self.state();
        // A test puts the clock forward when this is true. A listener that itself waits for a late
        // reply can go on only when time passes, so waiting for it here would never end.
        let waits = |queue: &SubscriberQueue| queue.link.is_waited_for_by(queue.thread, now);
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

/// A connection for messages.
pub(crate) struct MemorySubscriber {
    server: Arc<MemoryServer>,
    number: u64,
    events: Receiver<Event>,
}

impl MemorySubscriber {
    /// The events of this connection. They end when the server closes it.
    pub(crate) fn events(&self) -> &Receiver<Event> {
        &self.events
    }

    /// Notes that all events taken so far have had their effect.
    pub(crate) fn handled(&self) {
        let mut state = self.server.state();
        if let Some(queue) = state.subscribers.get_mut(&self.number) {
            queue.handled = queue.sent - self.events.len() as u64;
        }
    }

    /// Subscribes to a channel. A repeated subscription is confirmed again, as in Redis.
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

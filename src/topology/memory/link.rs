//! The link between one client and a server in memory, and the faults that a test sets on it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::sync::{self, Mutex, ThreadId};
use crate::base::time::Moment;

/// The fate of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Served,
    /// The thread is delayed, and the deadline passes before it sends.
    Unsent,
    /// No connection can be made.
    Refused,
    /// The connection breaks before the request arrives.
    RequestLost,
    /// The request runs, and the connection breaks before the reply arrives.
    ReplyLost,
    /// The request does not arrive, and no reply comes.
    Silence,
    /// The request arrives later; the caller waits until its deadline at most.
    RequestDelayed(Duration),
    /// The request runs at once, and its reply arrives later.
    ReplyDelayed(Duration),
}

/// The link between one client and the server.
#[derive(Debug, Default)]
pub(crate) struct FaultyLink(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The fate of every exchange, until the link is healed.
    lasting: Option<Delivery>,
    /// The fates of the next exchanges.
    next: VecDeque<Delivery>,
    lost_messages: u64,
    /// The client's listener is at a replica of the server.
    listens_at_replica: bool,
    faults: u64,
    exchanges: u64,
    /// The threads that wait for a reply that is late or lost, and until when.
    waiting: Vec<(ThreadId, Moment)>,
    /// How often the worker's connection was ordered, if it is missing.
    orders: Option<u64>,
}

impl FaultyLink {
    /// The fate of an exchange that begins now.
    pub(super) fn fate(&self) -> Delivery {
        let mut state = self.0.lock();
        // A lasting fault leaves the scripted ones for later, so that a test can set both in any
        // order.
        state.exchanges += 1;
        let fate = state.lasting.or_else(|| state.next.pop_front()).unwrap_or(Delivery::Served);
        state.faults += u64::from(fate != Delivery::Served);
        fate
    }

    /// Whether a message reaches the client.
    pub(super) fn lets_message_through(&self) -> bool {
        let mut state = self.0.lock();
        // Any lasting fault loses messages too: a link that is silent for requests is silent for
        // all.
        let lost = state.lasting.is_some() || state.lost_messages > 0;
        state.lost_messages = state.lost_messages.saturating_sub(u64::from(lost));
        state.faults += u64::from(lost);
        !lost
    }

    /// Whether this client's listener is at a replica: it receives all messages, and the server
    /// does not count it.
    pub(super) fn listens_at_replica(&self) -> bool {
        self.0.lock().listens_at_replica
    }

    /// Puts the listener at a replica of the server, or at the server.
    pub(super) fn put_listener_at_replica(&self, there: bool) {
        self.0.lock().listens_at_replica = there;
    }

    /// Whether no connection can be made.
    pub(super) fn is_cut(&self) -> bool {
        self.0.lock().lasting == Some(Delivery::Refused)
    }

    /// Notes, while `work` runs, that this thread waits until a moment for a reply that is late or lost.
    pub(super) fn wait(&self, until: Moment, work: impl FnOnce()) {
        let thread = sync::current();
        self.0.lock().waiting.push((thread, until));
        work();
        self.0.lock().waiting.retain(|&(waits, _)| waits != thread);
    }

    /// Until when threads wait for replies that are late or lost; `None` if none does.
    ///
    /// The test double lets time pass only when every client is at rest, as such a thread is: it can go on only when time
    /// passes.
    pub(crate) fn waited_for_until(&self, now: Moment) -> Option<Moment> {
        let state = self.0.lock();
        state.waiting.iter().map(|&(_, until)| until).filter(|&until| now < until).min()
    }

    /// Whether a thread has waited long enough, and may not have had a processor since.
    pub(crate) fn has_due(&self, now: Moment) -> bool {
        self.0.lock().waiting.iter().any(|&(_, until)| until <= now)
    }

    /// Whether a certain thread waits for such a reply.
    pub(super) fn is_waited_for_by(&self, thread: ThreadId, now: Moment) -> bool {
        self.0.lock().waiting.iter().any(|&(waits, until)| waits == thread && now < until)
    }

    /// Sets the fate of the next exchanges, after those that were set before.
    pub(crate) fn script(&self, fate: Delivery, count: u32) {
        self.0.lock().next.extend((0..count).map(|_| fate));
    }

    /// Sets the fate of all exchanges from now on.
    pub(crate) fn set_lasting(&self, fate: Option<Delivery>) {
        self.0.lock().lasting = fate;
    }

    /// Loses this number of the next messages.
    pub(crate) fn lose_messages(&self, count: u64) {
        self.0.lock().lost_messages = count;
    }

    /// Removes all faults.
    pub(crate) fn heal(&self) {
        let mut state = self.0.lock();
        state.lasting = None;
        state.next.clear();
        state.lost_messages = 0;
    }

    /// How many exchanges there were.
    #[cfg(test)]
    pub(crate) fn exchanges(&self) -> u64 {
        self.0.lock().exchanges
    }

    /// The worker has no connection from now on.
    #[cfg(test)]
    pub(crate) fn miss_worker_connection(&self) {
        self.0.lock().orders = Some(0);
    }

    /// Orders the worker's connection, which does not come.
    pub(super) fn order_worker_connection(&self) {
        let orders = &mut self.0.lock().orders;
        *orders = orders.map(|count| count + 1);
    }

    /// How often the worker's connection was ordered, if it is missing.
    pub(crate) fn worker_connection_orders(&self) -> Option<u64> {
        self.0.lock().orders
    }

    /// How many exchanges and messages met a fault.
    pub(crate) fn faults(&self) -> u64 {
        self.0.lock().faults
    }
}

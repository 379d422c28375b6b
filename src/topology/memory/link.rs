//! What lies between one client and a server in memory, and what is scripted to go wrong there.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::sync::{self, Mutex, ThreadId};

/// What becomes of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Served,
    /// Its thread is kept from sending it until it is overdue.
    Unsent,
    /// No connection is made.
    Refused,
    /// The connection breaks before the server has it.
    RequestLost,
    /// It is done, and the connection breaks.
    ReplyLost,
    /// Nothing is done, and nothing comes.
    Silence,
    /// It is done later; the caller waits no longer than it would.
    RequestDelayed(Duration),
    /// It is done, and the answer comes later.
    ReplyDelayed(Duration),
}

/// The way between one client and the server.
#[derive(Debug, Default)]
pub(crate) struct FaultyLink(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// What befalls every exchange, until it is restored.
    lasting: Option<Delivery>,
    /// What befalls the next ones.
    next: VecDeque<Delivery>,
    lost_messages: u64,
    /// Its listener is at a replica of the server.
    listens_at_replica: bool,
    faults: u64,
    waiting: Vec<ThreadId>,
}

impl FaultyLink {
    /// What becomes of an exchange that begins now.
    pub(super) fn fate(&self) -> Delivery {
        let mut state = self.0.lock();
        let fate = state.lasting.or_else(|| state.next.pop_front()).unwrap_or(Delivery::Served);
        state.faults += u64::from(fate != Delivery::Served);
        fate
    }

    /// Whether a message gets through.
    pub(super) fn lets_message_through(&self) -> bool {
        let mut state = self.0.lock();
        let lost = state.lasting.is_some() || state.lost_messages > 0;
        state.lost_messages = state.lost_messages.saturating_sub(u64::from(lost));
        state.faults += u64::from(lost);
        !lost
    }

    /// Whether this client's listener is at a replica: it hears all the same, and the server does not
    /// count it.
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

    /// This thread waits, while that goes on, for what does not come.
    pub(super) fn wait(&self, work: impl FnOnce()) {
        let thread = sync::current();
        self.0.lock().waiting.push(thread);
        work();
        self.0.lock().waiting.retain(|waits| *waits != thread);
    }

    /// Whether a thread waits for what does not come.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.0.lock().waiting.is_empty()
    }

    /// Whether a certain thread waits for what does not come.
    pub(super) fn is_waited_for_by(&self, thread: ThreadId) -> bool {
        self.0.lock().waiting.contains(&thread)
    }

    /// The fate of the next exchanges, after those that have theirs already.
    pub(crate) fn script(&self, fate: Delivery, count: u32) {
        self.0.lock().next.extend((0..count).map(|_| fate));
    }

    /// The fate of all exchanges from now on.
    pub(crate) fn set_lasting(&self, fate: Option<Delivery>) {
        self.0.lock().lasting = fate;
    }

    /// So many of the next messages do not arrive.
    pub(crate) fn lose_messages(&self, count: u64) {
        self.0.lock().lost_messages = count;
    }

    /// Forgets what was scripted.
    pub(crate) fn heal(&self) {
        let mut state = self.0.lock();
        state.lasting = None;
        state.next.clear();
        state.lost_messages = 0;
    }

    /// How many exchanges and messages met a fault.
    pub(crate) fn faults(&self) -> u64 {
        self.0.lock().faults
    }
}

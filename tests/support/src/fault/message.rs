//! The faults of a [`Proxy`](crate::Proxy), and their triggers.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::fault::Operation;

/// Which way a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Request,
    /// From the server to the client, published messages included.
    Reply,
}

/// Which message sets a fault off: the `nth` that holds the pattern, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trigger {
    /// Which way the message goes.
    pub direction: Direction,
    /// Bytes that the message contains; none means every message.
    pub pattern: Vec<u8>,
    /// The operation of the message, or of the request that it replies to; `None` matches all.
    pub operation: Option<Operation>,
    /// Which one of those messages, across all connections, since the fault was added.
    pub nth: u64,
}

/// The action on a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Resets the connection instead: a request never arrives, a reply is lost.
    Cut,
    /// Passes on the first half, then ends the connection: a request by a reset, a reply in
    /// order, so that the half surely arrives.
    CutHalf,
    /// Passes the request on and, once it is answered, resets the connection instead.
    LoseReply,
    /// Passes the request on, then half the reply, then ends the connection.
    HalfReply,
    /// Puts these bytes in the reply's place.
    Garbage(Vec<u8>),
    /// Keeps the message, and all later ones on its connection, until
    /// [`Injection::release`], even if the client is gone by then.
    Hold,
    /// Passes the message on after this time; later ones wait too.
    Delay(Duration),
    /// Swallows the message; the connection stays.
    Drop,
    /// Passes the message on twice; a request's second reply is swallowed.
    Twice,
    /// Passes the message on after the next one of its direction.
    Swap,
}

/// A trigger and its action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The trigger.
    pub when: Trigger,
    /// The action.
    pub action: Action,
    /// Whether it happens to every later match too; else once.
    pub sticky: bool,
}

impl Fault {
    /// Returns a fault for the first request that contains the pattern.
    pub fn request(pattern: impl AsRef<[u8]>, action: Action) -> Self {
        Self::new(Direction::Request, pattern.as_ref(), action)
    }

    /// Returns a fault for the first reply or published message that contains the pattern.
    pub fn reply(pattern: impl AsRef<[u8]>, action: Action) -> Self {
        Self::new(Direction::Reply, pattern.as_ref(), action)
    }

    fn new(direction: Direction, pattern: &[u8], action: Action) -> Self {
        let pattern = pattern.to_vec();
        Self {
            when: Trigger { direction, pattern, operation: None, nth: 1 },
            action,
            sticky: false,
        }
    }

    /// Restricts it to messages of this operation.
    pub fn at(mut self, operation: Operation) -> Self {
        self.when.operation = Some(operation);
        self
    }

    /// Waits for the nth match, counted from 1, which is the default.
    pub fn nth(mut self, nth: u64) -> Self {
        self.when.nth = nth;
        self
    }

    /// Goes on for every later match; the default is once.
    pub fn sticky(mut self) -> Self {
        self.sticky = true;
        self
    }
}

/// A fault in a proxy; clones are the same one.
#[derive(Debug, Clone)]
pub struct Injection(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    fault: Fault,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    seen: u64,
    taken: bool,
    fired: u64,
    released: bool,
    removed: bool,
}

impl Injection {
    pub(crate) fn new(fault: Fault) -> Self {
        Self(Arc::new(Shared { fault, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Returns how often its action took effect.
    pub fn fired(&self) -> u64 {
        self.state().fired
    }

    /// Waits until it has fired, and returns whether it did in time.
    pub fn wait_fired(&self, timeout: Duration) -> bool {
        let state = self.state();
        let result = self.0.changed.wait_timeout_while(state, timeout, |state| state.fired == 0);
        result.unwrap_or_else(PoisonError::into_inner).0.fired > 0
    }

    /// Lets go of the messages that an [`Action::Hold`] holds, and holds no more.
    pub fn release(&self) {
        self.state().released = true;
        self.0.changed.notify_all();
    }

    /// Ends the fault, and lets go of held messages.
    pub fn remove(&self) {
        self.state().removed = true;
        self.release();
    }

    pub(crate) fn action(&self) -> &Action {
        &self.0.fault.action
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.state().removed
    }

    /// Counts a message, and returns whether the fault is due for it.
    pub(crate) fn sees(&self, direction: Direction, operation: Operation, message: &[u8]) -> bool {
        let Fault { when, sticky, .. } = &self.0.fault;
        let meant = when.direction == direction
            && when.operation.is_none_or(|wanted| wanted == operation)
            && contains(message, &when.pattern);
        if !meant {
            return false;
        }
        let mut state = self.state();
        state.seen += 1;
        !state.removed && state.seen >= when.nth && (*sticky || !state.taken)
    }

    pub(crate) fn take(&self) {
        self.state().taken = true;
    }

    pub(crate) fn fire(&self) {
        self.state().fired += 1;
        self.0.changed.notify_all();
    }

    /// Waits for the release while `goes_on` returns true.
    pub(crate) fn hold(&self, goes_on: impl Fn() -> bool) {
        let mut state = self.state();
        while !state.released && goes_on() {
            let pause = Duration::from_millis(20);
            let result = self.0.changed.wait_timeout(state, pause);
            state = result.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn contains(message: &[u8], pattern: &[u8]) -> bool {
    pattern.is_empty() || message.windows(pattern.len()).any(|part| part == pattern)
}

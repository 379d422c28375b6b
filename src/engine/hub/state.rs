//! What callers and the listening thread share: the channels, and which of them are heard.

use std::collections::HashMap;
use std::time::Duration;

use crate::base::sync::{Arc, AtomicBool, Condvar, Mutex, Ordering, Weak};
use crate::base::time::Clock;
use crate::protocol::wake::Wake;
use crate::wire::failure::Failure;

/// How often the thread looks whether its client has gone.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// Is told the messages that are for the slots of a name, or for all.
pub(super) type Tell = Box<dyn Fn(Wake) + Send + Sync>;

/// Waits for releases that are published on a channel: a slot.
pub(crate) trait HearsReleases: Send + Sync {
    /// Whether anybody waits here.
    fn is_waited_for(&self) -> bool;

    /// Somebody released the lock, perhaps this process.
    fn hear_release(&self);

    /// The client listens for releases anew.
    fn listen_anew(&self);

    /// Makes the delegate ask again at once.
    fn nudge(&self);
}

pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
    pub(super) live: AtomicBool,
    pub(super) closed: AtomicBool,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tell: Tell,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) started: bool,
    pub(super) refused: Option<Failure>,
    pub(super) channels: HashMap<Vec<u8>, Channel>,
}

/// A channel on which releases are published.
pub(super) struct Channel {
    /// The slots that wait there. Locks may share a channel: `orders` and `{orders}` do.
    pub(super) slots: Vec<Weak<dyn HearsReleases>>,
    pub(super) heard: Heard,
    /// Whether it was heard before and has not been since.
    pub(super) missed: bool,
}

pub(super) enum Heard {
    /// It is to be asked for.
    Wished,
    /// It was asked for.
    Asked,
    Confirmed,
    Refused(Failure),
}

impl Channel {
    pub(super) fn new() -> Channel {
        Channel { slots: Vec::new(), heard: Heard::Wished, missed: false }
    }

    pub(super) fn add<S: HearsReleases + 'static>(&mut self, slot: &Arc<S>) {
        if mutated!("one-waiter-of-a-shared-channel") {
            self.slots.clear();
        }
        let slot: Weak<dyn HearsReleases> = Arc::<S>::downgrade(slot);
        if !self.slots.iter().any(|other| other.ptr_eq(&slot)) {
            self.slots.push(slot);
        }
    }

    /// The slots that exist. The caller drops them when the state is unlocked, since it may hold the last
    /// reference to one.
    pub(super) fn waiters(&self) -> Vec<Arc<dyn HearsReleases>> {
        self.slots.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Shared {
    pub(super) fn new(clock: Arc<dyn Clock>, tell: Tell) -> Shared {
        Shared {
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
            live: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            clock,
            tell,
        }
    }

    pub(super) fn fail(&self, failure: Failure) {
        let text = failure.to_string();
        self.forget((!failure.is_passing()).then_some(failure));
        log!(debug, "wake-ups are not heard: {text}");
    }

    /// No channel is heard any more.
    pub(super) fn forget(&self, refused: Option<Failure>) {
        let mut state = self.state.lock();
        for channel in state.channels.values_mut() {
            channel.missed |= matches!(channel.heard, Heard::Confirmed);
            channel.heard = Heard::Wished;
        }
        state.refused = refused;
        self.changed.notify_all();
    }

    /// Does not knock again before somebody waits.
    pub(super) fn rest_while_refused(&self) {
        let mut state = self.state.lock();
        while state.refused.is_some() && !self.closed.load(Ordering::Acquire) {
            self.changed.wait_for(&mut state, LOOK);
        }
    }
}

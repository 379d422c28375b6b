//! The thread that follows the master: it listens to a sentinel, and looks again itself.
//!
//! A server that is no longer the master may live on and take what it is sent, until its sentinels
//! reach it. So nobody waits for its errors: when another is told of, all connections are closed.
//!
//! Sentinels that refuse the user are left alone until the client next connects for a caller: nothing else
//! tells that the password was mended, and each attempt is noted there.

use std::time::Duration;

use crate::base::sync::{self, Arc, Weak};
use crate::base::thread::{Role, Threads};
use crate::wire::failure::{self, Failure, is_denial};
use crate::wire::manager::{Attempts, Manager};
use crate::wire::retry::Pauses;
use crate::wire::subscription::Event;

/// How often it looks whether its client has gone, and where the master is: one sentinel may be cut
/// off from the others.
const LOOK: Duration = Duration::from_millis(500);
/// How soon it looks again when the master is gone.
const SOON: Duration = Duration::from_millis(200);
/// How long it rests when a sentinel is gone, at first and at most.
const FIRST_REST: Duration = Duration::from_millis(200);
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Follows the master for as long as the manager lives, if sentinels tell where it is.
pub(crate) fn follow(manager: &Arc<Manager>, threads: Threads) {
    if !manager.has_sentinels() {
        return;
    }
    let weak = Arc::downgrade(manager);
    let body = move || {
        let mut follower = Follower::new(weak);
        while follower.manager.strong_count() > 0 {
            if let Err(failure) = follower.listen() {
                log::debug!("a sentinel is not heard: {failure}");
                follower.rest(&failure);
            }
        }
    };
    if let Err(error) = sync::spawn(&threads.name(Role::Follower), body) {
        log::error!("no thread to listen to sentinels could be started: {error}");
    }
}

struct Follower {
    manager: Weak<Manager>,
    pauses: Pauses,
    /// How many sentinels refused to be listened to since the last one was heard.
    refusals: usize,
}

impl Follower {
    fn new(manager: Weak<Manager>) -> Follower {
        let pauses = Pauses::between(FIRST_REST, LONGEST_REST);
        Follower { manager, pauses, refusals: 0 }
    }

    /// Rests before it listens to another sentinel. When all have refused, it rests until a connection was
    /// tried for a caller.
    fn rest(&mut self, failure: &Failure) {
        let Some(manager) = self.manager.upgrade() else { return };
        manager.doubt();
        self.refusals = if failure.is_passing() { 0 } else { self.refusals + 1 };
        let all = self.refusals >= manager.sentinel_count();
        let seen = manager.attempts();
        drop(manager);
        sync::sleep(self.pauses.next());
        while all && !mutated!("refusing-sentinel-asked-again") {
            match self.manager.upgrade() {
                Some(manager) if manager.attempts() == seen => {}
                _ => return,
            }
            sync::sleep(LOOK);
        }
    }

    /// Listens to one sentinel until it fails, or the client has gone (`Ok`).
    fn listen(&mut self) -> Result<(), Failure> {
        let Some(manager) = self.manager.upgrade() else { return Ok(()) };
        let (number, mut subscription) = manager.subscribe_to_sentinel()?;
        drop(manager);
        let mut next = Next::new();
        loop {
            let event = subscription.next(next.wait)?;
            let Some(manager) = self.manager.upgrade() else { return Ok(()) };
            match event {
                Event::Message { payload, .. } if manager.is_switch(&payload) => {
                    // Also where nobody can be asked for the new one.
                    manager.move_on();
                    next.look(&manager, true);
                }
                // Something else was told, or nothing for a while.
                Event::Message { .. } => {}
                // A message may have been missed, and this sentinel may be the last to know.
                Event::Subscribed { .. } | Event::Nothing => {
                    if matches!(event, Event::Subscribed { .. }) {
                        (self.refusals, _) = (0, self.pauses.reset());
                    }
                    manager.doubt();
                    next.look(&manager, false);
                }
            }
            // Nothing breaks where it lost its power.
            if !manager.sentinel_speaks(number) {
                return Err(Failure::silent());
            }
        }
    }
}

/// When it looks again where the master is.
struct Next {
    wait: Duration,
    /// The attempts to connect at the time when all sentinels refused to tell.
    refused: Option<Attempts>,
}

impl Next {
    fn new() -> Next {
        Next { wait: LOOK, refused: None }
    }

    /// Looks where the master is. A look that fails says nothing of the sentinel that is listened to.
    fn look(&mut self, manager: &Manager, asks_all: bool) {
        let attempts = manager.attempts();
        if self.refused == Some(attempts) && !asks_all {
            return;
        }
        let outcome = manager.look(asks_all);
        (self.wait, self.refused) = match &outcome {
            Ok(()) => (LOOK, None),
            Err(error) if is_denial(error) => (LOOK, Some(attempts)),
            Err(_) => (SOON, None),
        };
        if let Err(error) = outcome {
            log::debug!("the master is not found: {}", failure::shown(&error));
        }
    }
}

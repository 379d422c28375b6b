//! The thread that follows the master: it listens to a sentinel, and looks again itself.
//!
//! A server that is no longer the master may live on and take what it is sent, until its sentinels
//! reach it. So nobody waits for its errors: when another is told of, all connections are closed.

use std::time::Duration;

use crate::base::sync::{self, Arc, Weak};
use crate::base::thread::{Role, Threads};
use crate::wire::failure::{self, Failure};
use crate::wire::manager::Manager;
use crate::wire::subscription::Event;

/// How often it looks whether its client has gone, and where the master is: one sentinel may be cut
/// off from the others.
const LOOK: Duration = Duration::from_millis(500);
/// How long it rests when a sentinel is gone, or the master is.
const REST: Duration = Duration::from_millis(200);

/// Follows the master for as long as the manager lives, if sentinels tell where it is.
pub(crate) fn follow(manager: &Arc<Manager>, threads: Threads) {
    if !manager.has_sentinels() {
        return;
    }
    let weak = Arc::downgrade(manager);
    let body = move || {
        while weak.strong_count() > 0 {
            if let Err(failure) = listen(&weak) {
                log::debug!("a sentinel is not heard: {failure}");
                if let Some(manager) = weak.upgrade() {
                    manager.doubt();
                }
                sync::sleep(REST);
            }
        }
    };
    if let Err(error) = sync::spawn(&threads.name(Role::Follower), body) {
        log::error!("no thread to listen to sentinels could be started: {error}");
    }
}

/// Listens to one sentinel until it fails, or the client has gone (`Ok`).
fn listen(weak: &Weak<Manager>) -> Result<(), Failure> {
    let Some(manager) = weak.upgrade() else { return Ok(()) };
    let (number, mut subscription) = manager.subscribe_to_sentinel()?;
    drop(manager);
    let mut wait = LOOK;
    loop {
        let event = subscription.next(wait)?;
        let Some(manager) = weak.upgrade() else { return Ok(()) };
        match event {
            Event::Message { payload, .. } if manager.is_switch(&payload) => {
                // Also where nobody can be asked for the new one.
                manager.move_on();
                wait = look(&manager, true);
            }
            // Something else was told, or nothing for a while.
            Event::Message { .. } => {}
            // A message may have been missed, and this sentinel may be the last to know.
            Event::Subscribed { .. } | Event::Nothing => {
                manager.doubt();
                wait = look(&manager, false);
            }
        }
        // Nothing breaks where it lost its power.
        if !manager.sentinel_speaks(number) {
            return Err(Failure::silent());
        }
    }
}

/// Looks where the master is; answers after how long to look again. A look that fails says nothing of
/// the sentinel that is listened to.
fn look(manager: &Manager, asks_all: bool) -> Duration {
    match manager.look(asks_all) {
        Ok(()) => LOOK,
        Err(error) => {
            log::debug!("the master is not found: {}", failure::shown(&error));
            REST
        }
    }
}

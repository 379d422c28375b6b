//! The thread that listens for what wakes waiters: one per client, with its own connection. Where there
//! are several servers, each of them has a thread and a connection besides.
//!
//! | state | meaning | goes to |
//! | --- | --- | --- |
//! | idle | nobody has waited yet: no thread, no connection | down |
//! | down | it connects, again and again | live, refused |
//! | live | the client's channel is confirmed | down |
//! | refused | the server does not let this user listen; tried again when somebody waits | down |
//!
//! Whenever it comes to be live, all waiters are woken to ask again: what was said meanwhile was
//! said to nobody. Others ask it to listen to one more channel by leaving the wish here and
//! publishing to the client's own channel.

mod ear;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::base::error::Error;
use crate::base::sync::{self, Arc, MutexGuard, Ordering};
use crate::base::thread::Role;
use crate::base::time::{Clock, Moment};
use crate::protocol::Protocol;
use crate::protocol::wake::Wake;
use crate::wire::failure::Failure;

use ear::run;
pub(crate) use state::HearsReleases;
use state::{Channel, Heard, Shared, State};

/// The client's ear.
pub(crate) struct Hub {
    shared: Arc<Shared>,
    protocol: Arc<dyn Protocol>,
}

impl Hub {
    /// What messages say of a name, or of all, is told to `tell`.
    pub(crate) fn new(
        protocol: Arc<dyn Protocol>,
        clock: Arc<dyn Clock>,
        tell: impl Fn(Wake) + Send + Sync + 'static,
    ) -> Hub {
        Hub { shared: Arc::new(Shared::new(clock, Box::new(tell))), protocol }
    }

    /// Whether messages are heard.
    pub(crate) fn is_live(&self) -> bool {
        self.shared.live.load(Ordering::Acquire)
    }

    /// Begins to listen, without waiting for it.
    pub(crate) fn start(&self) {
        let mut state = self.shared.state.lock();
        if state.started {
            return;
        }
        let thread = self.protocol.identity().threads().name(Role::Listener);
        let (shared, protocol) = (Arc::clone(&self.shared), Arc::downgrade(&self.protocol));
        match sync::spawn(&thread, move || run(&shared, &protocol)) {
            Ok(()) => state.started = true,
            Err(error) => log!(error, "no thread to listen for wake-ups could be started: {error}"),
        }
    }

    /// Waits until messages are heard.
    pub(crate) fn ready(&self, deadline: Moment) -> Result<(), Error> {
        if self.is_live() {
            return Ok(());
        }
        self.start();
        let mut state = self.shared.state.lock();
        // Whoever was refused is asked about once more.
        state.refused = None;
        self.shared.changed.notify_all();
        self.wait(state, deadline, |_| self.is_live().then_some(Ok(())))
    }

    /// Whether a channel of one name is heard, as far as is known.
    pub(crate) fn hears(&self, name: &[u8]) -> bool {
        let state = self.shared.state.lock();
        state.channels.get(name).is_some_and(|channel| matches!(channel.heard, Heard::Confirmed))
    }

    /// Leaves the wish to hear a channel, and tells the listener of it. Does not wait for the confirmation.
    pub(crate) fn wish_for<S: HearsReleases + 'static>(
        &self,
        name: &[u8],
        slot: &Arc<S>,
        deadline: Moment,
    ) {
        self.start();
        let mut state = self.shared.state.lock();
        let channel = state.channels.entry(name.to_vec()).or_insert_with(Channel::new);
        channel.add(slot);
        let is_new = matches!(channel.heard, Heard::Wished);
        drop(state);
        // A listener that connects asks for all that is wished for.
        if is_new && self.is_live() {
            // Where that fails, the listener looks by itself, a little later.
            let _ = self.protocol.listen_to(name, deadline);
        }
    }

    /// Waits until a channel is heard, whose messages wake the slot's delegate.
    pub(crate) fn listen_to<S: HearsReleases + 'static>(
        &self,
        name: &[u8],
        slot: &Arc<S>,
        deadline: Moment,
    ) -> Result<(), Error> {
        self.ready(deadline)?;
        let mut state = self.shared.state.lock();
        let channel = state.channels.entry(name.to_vec()).or_insert_with(Channel::new);
        channel.add(slot);
        match channel.heard {
            Heard::Confirmed => return Ok(()),
            // The user may be allowed to listen there by now.
            Heard::Refused(_) => channel.heard = Heard::Wished,
            Heard::Wished | Heard::Asked => {}
        }
        drop(state);
        match self.protocol.listen_to(name, deadline) {
            // The listener looks by itself, a little later.
            Err(failure) if failure.is_passing() && !mutated!("untold-listener-ends-the-wait") => {}
            told => told?,
        }
        self.wait(self.shared.state.lock(), deadline, |state| {
            match &state.channels.get(name)?.heard {
                Heard::Confirmed => Some(Ok(())),
                Heard::Refused(failure) => Some(Err(refusal(failure.clone()))),
                Heard::Wished | Heard::Asked => None,
            }
        })
    }

    /// Waits for an outcome, or until the server refuses to let this user listen at all.
    fn wait(
        &self,
        mut state: MutexGuard<'_, State>,
        deadline: Moment,
        outcome: impl Fn(&State) -> Option<Result<(), Error>>,
    ) -> Result<(), Error> {
        loop {
            if let Some(outcome) = outcome(&state) {
                return outcome;
            }
            if let Some(failure) = &state.refused {
                return Err(refusal(failure.clone()));
            }
            if deadline <= self.shared.clock.now() {
                return Err(Error::unreachable(
                    "the connection that listens for releases is not there yet; look whether Redis hangs",
                ));
            }
            self.shared.clock.doze(deadline, &mut |left| {
                self.shared.changed.wait_for(&mut state, left);
            });
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.changed.notify_all();
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("live", &self.is_live()).finish_non_exhaustive()
    }
}

fn refusal(failure: Failure) -> Error {
    Error::denied(format!(
        "waiting needs publish/subscribe, which this user is denied ({failure}); allow SUBSCRIBE on \
         the channels leasehold:* and redisson_lock__channel:*, or use Wait::spin()"
    ))
}

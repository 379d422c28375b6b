//! The listener: one thread for each server that publishes, with a connection of its own. It receives the
//! messages that wake waiters.
//!
//! | the client is | meaning | goes to |
//! | --- | --- | --- |
//! | idle | nobody has waited yet: no thread, no connection | down |
//! | down | too few servers are listened to: their threads connect, again and again | live, refused |
//! | live | enough servers have confirmed the client's channel, and one still listens | down |
//! | refused | too many servers do not let this user listen; tried again when somebody waits | down |
//!
//! | a server is | when | its thread |
//! | --- | --- | --- |
//! | connecting | it is new | connects |
//! | listening | it has confirmed the client's channel | subscribes to the channels wished for there, and passes messages on |
//! | down | its connection failed, or it refuses the user | rests for a time that grows to seconds, or until a waiter needs it; after a refusal, while others are listened to, until a caller has tried to connect to it, or for a minute |
//! | gone | the publishers do not have it any more | ends |
//!
//! | a channel of a name is | when |
//! | --- | --- |
//! | wished for | a slot waits there |
//! | confirmed | enough of the servers that have it confirmed the wish |
//! | refused | too few are left to confirm it; asked for again when somebody waits |
//!
//! A client that holds locks of a cluster and never waits listens only to the masters of those locks. It counts as not live:
//! its first waiter makes it listen to all.
//!
//! One server, a cluster and a quorum differ in which servers there are and which of their messages are
//! believed: [`Publishers`]. Whenever the client becomes live, all waiters are woken to ask again,
//! because messages published before are lost. The same holds for the waiters of one channel whenever
//! enough servers confirm it again (rule 12). A caller adds a channel by leaving its wish here and
//! publishing to the client's own channel, which wakes the threads.

mod server_thread;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::base::error::Error;
use crate::base::sync::{Arc, AtomicBool, Condvar, Mutex, MutexGuard, Ordering};
use crate::base::thread::Threads;
use crate::base::time::{Clock, Moment};
use crate::protocol::Protocol;
use crate::protocol::wake_message::{Publishers, WakeMessage, client_channel};
use crate::wire::failure::Failure;

pub(crate) use state::ReleaseListener;
use state::{ChannelState, State};

/// The part that the callers and the threads of one client share.
struct Shared {
    publishers: Arc<dyn Publishers>,
    /// The client's own channel.
    own: Vec<u8>,
    /// The name of the threads.
    threads: Threads,
    state: Mutex<State>,
    changed: Condvar,
    /// Written while `state` is locked, and read without it on the path of each lock.
    live: AtomicBool,
    /// Whether it listens only where the locks are that this client holds. Written while `state` is locked.
    partial: AtomicBool,
    closed: AtomicBool,
    clock: Arc<dyn Clock>,
    /// Receives the messages for the slots of a name, or for all.
    on_wake: Box<dyn Fn(WakeMessage) + Send + Sync>,
}

/// The listener of a client.
pub(crate) struct WakeListener {
    shared: Arc<Shared>,
    protocol: Arc<dyn Protocol>,
}

impl WakeListener {
    /// `on_wake` receives the messages for the slots of a name, or for all.
    pub(crate) fn new(
        protocol: Arc<dyn Protocol>,
        clock: Arc<dyn Clock>,
        on_wake: impl Fn(WakeMessage) + Send + Sync + 'static,
    ) -> WakeListener {
        let identity = protocol.identity();
        let shared = Shared {
            publishers: protocol.publishers(),
            own: client_channel(identity),
            threads: identity.threads(),
            state: Mutex::default(),
            changed: Condvar::new(),
            live: AtomicBool::new(false),
            partial: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            clock,
            on_wake: Box::new(on_wake),
        };
        WakeListener { shared: Arc::new(shared), protocol }
    }

    /// Whether the client listens, as a waiter needs it: to each server that there is.
    pub(crate) fn is_live(&self) -> bool {
        self.shared.live.load(Ordering::Acquire) && !self.shared.partial.load(Ordering::Acquire)
    }

    /// Starts to listen, and does not wait until it does.
    pub(crate) fn start(&self) {
        let mut state = self.shared.state.lock();
        if state.scope.widen() {
            state.seen = None;
            self.shared.partial.store(false, Ordering::Release);
        }
        let is_due = state.seen.is_none();
        drop(state);
        if is_due {
            self.shared.update_servers();
        }
    }

    /// The same for a client that holds a lock in this hash slot and waits for none: in a cluster it listens to the master of
    /// the slot alone. A message comes later if the slot has just moved.
    pub(crate) fn start_at(&self, hash_slot: u16) {
        if !self.shared.publishers.have_homes() {
            return self.start();
        }
        let mut state = self.shared.state.lock();
        if state.scope.add(hash_slot) {
            state.seen = None;
            self.shared.partial.store(true, Ordering::Release);
        }
        drop(state);
        self.shared.update_servers();
    }

    /// Whether it was started.
    #[cfg(test)]
    pub(crate) fn is_started(&self) -> bool {
        !matches!(self.shared.state.lock().scope, state::Scope::Nothing)
    }

    /// Waits until the client listens.
    pub(crate) fn ready(&self, deadline: Moment) -> Result<(), Error> {
        if self.is_live() {
            return Ok(());
        }
        self.start();
        let mut state = self.shared.state.lock();
        // Somebody may have changed the rights of this user since the refusal. The threads that rest
        // because of it compare `retries`, and try again.
        state.retries += u64::from(state.refused.take().is_some());
        state.asked += 1;
        self.shared.changed.notify_all();
        self.wait(state, deadline, |_| self.is_live().then_some(Ok(())))
    }

    /// Whether the client listens to the channel of a name, as far as is known.
    pub(crate) fn is_subscribed(&self, name: &[u8]) -> bool {
        let state = self.shared.state.lock();
        let channel = state.channels.get(name);
        channel.is_some_and(|channel| matches!(channel.state, ChannelState::Confirmed))
    }

    /// Leaves a wish for a channel, and wakes the threads. Does not wait for the confirmation.
    pub(crate) fn wish_for<S: ReleaseListener + 'static>(
        &self,
        name: &[u8],
        slot: &Arc<S>,
        deadline: Moment,
    ) {
        self.start();

        let mut state = self.shared.state.lock();
        let is_new = matches!(state.wish(name, slot, false), ChannelState::Wished);
        drop(state);
        // A thread that connects subscribes to everything that is wished for.
        if is_new && self.is_live() {
            // If that fails the threads find the wish by themselves, a little later.
            let _ = self.protocol.listen_to(name, deadline);
        }
    }

    /// Waits until the client listens to a channel, whose messages wake the acquirer of the slot.
    pub(crate) fn listen_to<S: ReleaseListener + 'static>(
        &self,
        name: &[u8],
        slot: &Arc<S>,
        deadline: Moment,
    ) -> Result<(), Error> {
        self.ready(deadline)?;
        let mut state = self.shared.state.lock();
        // The wish comes before the message that wakes the threads, or a thread could look in between and
        // find nothing.
        if matches!(state.wish(name, slot, true), ChannelState::Confirmed) {
            return Ok(());
        }
        drop(state);

        match self.protocol.listen_to(name, deadline) {
            // The threads find the wish by themselves, a little later. That is no reason to end a wait.
            Err(failure) if failure.is_transient() => {}
            outcome => outcome?,
        }
        self.wait(self.shared.state.lock(), deadline, |state| {
            match &state.channels.get(name)?.state {
                ChannelState::Confirmed => Some(Ok(())),
                ChannelState::Refused(failure) => Some(Err(refusal(failure))),
                ChannelState::Wished => None,
            }
        })
    }

    /// Waits for an outcome, or until it is known that this user may not listen at all.
    fn wait(
        &self,
        mut state: MutexGuard<'_, State>,
        deadline: Moment,
        outcome: impl Fn(&State) -> Option<Result<(), Error>>,
    ) -> Result<(), Error> {
        loop {
            // Before the deadline is looked at, so that an outcome that came in time counts however late
            // this thread wakes.
            if let Some(outcome) = outcome(&state) {
                return outcome;
            }
            if let Some(failure) = &state.refused {
                return Err(refusal(failure));
            }
            if deadline <= self.shared.clock.now() {
                return Err(Error::unreachable(
                    "the connection that listens for releases is not there yet; look whether Redis hangs",
                ));
            }
            self.shared.clock.wait_until(deadline, &mut |left| {
                self.shared.changed.wait_for(&mut state, left);
            });
        }
    }
}

impl Drop for WakeListener {
    fn drop(&mut self) {
        // The threads look at this at each of their intervals, so it does not matter if one misses the
        // wake-up. They are not waited for: the last reference to the client may be dropped on any
        // thread, also on one of these.
        self.shared.closed.store(true, Ordering::Release);
        self.shared.changed.notify_all();
    }
}

impl fmt::Debug for WakeListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeListener").field("live", &self.is_live()).finish_non_exhaustive()
    }
}

fn refusal(failure: &Failure) -> Error {
    Error::denied(format!(
        "waiting needs publish/subscribe, which this user is denied ({failure}); allow SUBSCRIBE on \
         the channels leasehold:* and redisson_lock__channel:*, or use Wait::spin()"
    ))
}

//! The thread that listens for what wakes waiters: one per client, with its own connection.
//!
//! | state | meaning | goes to |
//! | --- | --- | --- |
//! | idle | nobody has waited yet: no thread, no connection | down |
//! | down | it connects, again and again | live, refused |
//! | live | the client's channel is confirmed | down |
//! | refused | the server does not let this user listen; tried again when asked | live |
//!
//! Whenever it comes to be live, all waiters are woken to ask again: what was said meanwhile was
//! said to nobody. Others ask it to listen to one more channel by leaving the wish here and
//! publishing to the client's own channel.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::sync::{self, Arc, AtomicBool, Condvar, Mutex, Ordering, Weak};
use crate::base::time::Moment;
use crate::engine::Engine;
use crate::engine::backoff::Backoff;
use crate::engine::release::give_back;
use crate::engine::slot::Slot;
use crate::engine::worker::News;
use crate::protocol::{Listener, Protocol, Wake};
use crate::wire::failure::Failure;

/// How often the thread looks whether its client has gone.
const LOOK: Duration = Duration::from_millis(500);
/// After this much silence it asks for a sign of life…
const SILENCE: Duration = Duration::from_secs(10);
/// …which must come within this time.
const SIGN_OF_LIFE: Duration = Duration::from_secs(3);

/// The client's ear.
pub(crate) struct Hub(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    live: AtomicBool,
    closed: AtomicBool,
}

#[derive(Default)]
struct State {
    started: bool,
    refused: Option<Failure>,
    /// Channels of single names, and who waits there.
    channels: HashMap<Vec<u8>, Weak<Slot>>,
    /// Those of them that are listened to.
    confirmed: HashSet<Vec<u8>>,
    /// Those of them that are to be asked for.
    wishes: Vec<Vec<u8>>,
}

impl Hub {
    pub(crate) fn new() -> Hub {
        Hub(Arc::new(Shared {
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
            live: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }))
    }

    /// Whether messages are heard.
    pub(crate) fn is_live(&self) -> bool {
        self.0.live.load(Ordering::Acquire)
    }

    /// Begins to listen, without waiting for it.
    pub(crate) fn start(&self, engine: &Arc<Engine>) {
        let mut state = self.0.state.lock();
        if state.started {
            return;
        }
        let (shared, engine) = (Arc::clone(&self.0), Arc::downgrade(engine));
        match sync::spawn("leasehold-wakes", move || run(&shared, &engine)) {
            Ok(()) => state.started = true,
            Err(error) => log::error!("no thread to listen for wake-ups could be started: {error}"),
        }
    }

    /// Waits until messages are heard.
    pub(crate) fn ready(&self, engine: &Arc<Engine>, deadline: Moment) -> Result<(), Error> {
        if self.is_live() {
            return Ok(());
        }
        self.start(engine);
        let mut state = self.0.state.lock();
        loop {
            if self.is_live() {
                return Ok(());
            }
            if let Some(failure) = &state.refused {
                return Err(refusal(failure.clone()));
            }
            let left = deadline.since(engine.now());
            if left.is_zero() {
                return Err(Error::unreachable(
                    "the channel for wake-ups is not connected: Redis does not answer there",
                ));
            }
            self.0.changed.wait_for(&mut state, left);
        }
    }

    /// Waits until a channel of one name is heard, whose messages wake the slot's delegate.
    pub(crate) fn listen_to(
        &self,
        channel: &[u8],
        slot: &Arc<Slot>,
        deadline: Moment,
    ) -> Result<(), Error> {
        let engine = slot.engine();
        self.ready(engine, deadline)?;
        let mut state = self.0.state.lock();
        state.channels.insert(channel.to_vec(), Arc::downgrade(slot));
        if state.confirmed.contains(channel) {
            return Ok(());
        }
        state.wishes.push(channel.to_vec());
        drop(state);
        engine.protocol().nudge_listener(deadline)?;
        let mut state = self.0.state.lock();
        while !state.confirmed.contains(channel) {
            if let Some(failure) = &state.refused {
                return Err(refusal(failure.clone()));
            }
            let left = deadline.since(engine.now());
            if left.is_zero() {
                return Err(Error::unreachable(
                    "the lock's channel could not be listened to in time",
                ));
            }
            self.0.changed.wait_for(&mut state, left);
        }
        Ok(())
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("live", &self.is_live()).finish_non_exhaustive()
    }
}

fn refusal(failure: Failure) -> Error {
    Error::denied(format!(
        "waiting needs publish/subscribe, which this user is refused ({failure}); allow SUBSCRIBE on \
         the channels leasehold:* and redisson_lock__channel:*, or use Wait::spin()"
    ))
}

fn run(shared: &Arc<Shared>, engine: &Weak<Engine>) {
    let mut backoff = Backoff::new();
    while !shared.closed.load(Ordering::Acquire) {
        let Some(protocol) = engine.upgrade().map(|engine| engine.protocol_handle()) else {
            return;
        };
        let outcome = protocol
            .listen()
            .and_then(|listener| Ear { shared, engine, protocol: &*protocol, listener }.listen());
        if shared.live.swap(false, Ordering::AcqRel) {
            backoff = Backoff::new();
        }
        let Err(failure) = outcome else { return };
        let pause = if failure.is_passing() { backoff.next() } else { LOOK };
        shared.fail(failure);
        drop(protocol);
        sync::sleep(pause);
    }
}

impl Shared {
    fn fail(&self, failure: Failure) {
        log::debug!("wake-ups are not heard: {failure}");
        let mut state = self.state.lock();
        state.confirmed.clear();
        state.refused = (!failure.is_passing()).then_some(failure);
        self.changed.notify_all();
    }
}

/// The thread while it is connected.
struct Ear<'a> {
    shared: &'a Shared,
    engine: &'a Weak<Engine>,
    protocol: &'a dyn Protocol,
    listener: Box<dyn Listener>,
}

impl Ear<'_> {
    /// Listens until the client has gone (`Ok`) or the connection has failed.
    fn listen(mut self) -> Result<(), Failure> {
        let wishes: Vec<_> = {
            let mut state = self.shared.state.lock();
            state.channels.retain(|_, slot| slot.strong_count() > 0);
            state.wishes.clear();
            state.channels.keys().cloned().collect()
        };
        for channel in wishes {
            self.listener.add(&channel)?;
        }
        let mut heard = self.now()?;
        let mut asked = None;
        while !self.shared.closed.load(Ordering::Acquire) {
            let wake = self.listener.next(LOOK)?;
            let Ok(now) = self.now() else { return Ok(()) };
            if wake != Wake::Nothing {
                heard = now;
                asked = None;
            }
            self.take(wake)?;
            let wishes = std::mem::take(&mut self.shared.state.lock().wishes);
            for channel in wishes {
                self.listener.add(&channel)?;
            }
            match asked {
                None if now.since(heard) >= SILENCE => {
                    self.listener.ping()?;
                    asked = Some(now);
                }
                Some(asked) if now.since(asked) >= SIGN_OF_LIFE => {
                    return Err(Failure::silent());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn now(&self) -> Result<Moment, Failure> {
        self.engine.upgrade().map(|engine| engine.now()).ok_or_else(Failure::silent)
    }

    fn take(&mut self, wake: Wake) -> Result<(), Failure> {
        let Some(engine) = self.engine.upgrade() else { return Ok(()) };
        match wake {
            Wake::Grant { name, grant } => {
                engine.table().of_name(&name).iter().for_each(|slot| slot.hear_grant(grant));
            }
            Wake::Retry { name } => {
                for slot in engine.table().of_name(&name) {
                    slot.nudge();
                }
            }
            Wake::Wanted { name, number, waiters } => {
                for slot in engine.table().of_name(&name) {
                    if let Some(lease) = slot.hear_wanted(number, waiters) {
                        give_back(&lease);
                    }
                }
            }
            Wake::Request { name, number } => self.request(&engine, &name, number),
            Wake::Released { channel } => {
                let slot = self.shared.state.lock().channels.get(&channel).and_then(Weak::upgrade);
                if !slot.is_some_and(|slot| slot.nudge()) {
                    // Nobody waits there any longer.
                    self.listener.remove(&channel)?;
                    let mut state = self.shared.state.lock();
                    state.channels.remove(&channel);
                    state.confirmed.remove(&channel);
                }
            }
            Wake::Live => self.come_live(&engine),
            Wake::Listening { channel } => {
                self.shared.state.lock().confirmed.insert(channel);
                self.shared.changed.notify_all();
            }
            Wake::Nothing => {}
        }
        Ok(())
    }

    fn come_live(&self, engine: &Engine) {
        let mut state = self.shared.state.lock();
        state.refused = None;
        let came = !self.shared.live.swap(true, Ordering::AcqRel);
        self.shared.changed.notify_all();
        drop(state);
        if came {
            // What was said while nobody listened is made good by asking (rule 12).
            for slot in engine.table().all() {
                slot.nudge();
            }
        }
    }

    fn request(&self, engine: &Engine, name: &[u8], number: u64) {
        for slot in engine.table().of_name(name) {
            let (held, lingering) = slot.hear_request(number);
            if let Some(lease) = lingering {
                give_back(&lease);
            }
            if held {
                engine.worker().announce(News::Requested(name.to_vec()));
            }
        }
    }
}

impl fmt::Debug for Ear<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ear").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

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

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::sync::{self, Arc, AtomicBool, Condvar, Mutex, MutexGuard, Ordering, Weak};
use crate::base::tag::hash_slot;
use crate::base::thread::Role;
use crate::base::time::Moment;
use crate::engine::Engine;
use crate::engine::backoff::Backoff;
use crate::engine::callback::{News, survive};
use crate::engine::slot::{Ending, Slot};
use crate::protocol::Protocol;
use crate::protocol::wake::{Listener, Wake};
use crate::wire::failure::Failure;

/// How often the thread looks whether its client has gone.
const LOOK: Duration = Duration::from_millis(500);

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
    channels: HashMap<Vec<u8>, Channel>,
}

/// A channel on which releases are published.
struct Channel {
    /// The slots that wait there. Locks may share a channel: `orders` and `{orders}` do.
    slots: Vec<Weak<Slot>>,
    heard: Heard,
    /// Whether it was heard before and has not been since.
    missed: bool,
}

enum Heard {
    /// It is to be asked for.
    Wished,
    /// It was asked for.
    Asked,
    Confirmed,
    Refused(Failure),
}

impl Channel {
    fn new() -> Channel {
        Channel { slots: Vec::new(), heard: Heard::Wished, missed: false }
    }

    fn add(&mut self, slot: &Arc<Slot>) {
        if mutated!("one-waiter-of-a-shared-channel") {
            self.slots.clear();
        }
        let slot = Arc::downgrade(slot);
        if !self.slots.iter().any(|other| other.ptr_eq(&slot)) {
            self.slots.push(slot);
        }
    }

    /// The slots that exist. The caller drops them when the state is unlocked, since it may hold the last
    /// reference to one.
    fn waiters(&self) -> Vec<Arc<Slot>> {
        self.slots.iter().filter_map(Weak::upgrade).collect()
    }
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
        let thread = engine.protocol().identity().threads().name(Role::Listener);
        let (shared, engine) = (Arc::clone(&self.0), Arc::downgrade(engine));
        match sync::spawn(&thread, move || run(&shared, &engine)) {
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
        // Whoever was refused is asked about once more.
        state.refused = None;
        self.0.changed.notify_all();
        loop {
            if self.is_live() {
                return Ok(());
            }
            if let Some(failure) = &state.refused {
                return Err(refusal(failure.clone()));
            }
            self.wait(&mut state, engine, deadline)?;
        }
    }

    /// Whether a channel of one name is heard, as far as is known.
    pub(crate) fn hears(&self, name: &[u8]) -> bool {
        let state = self.0.state.lock();
        state.channels.get(name).is_some_and(|channel| matches!(channel.heard, Heard::Confirmed))
    }

    /// Leaves the wish to hear a channel, and tells the listener of it. Does not wait for the confirmation.
    pub(crate) fn wish_for(&self, name: &[u8], slot: &Arc<Slot>, deadline: Moment) {
        let engine = slot.engine();
        self.start(engine);
        let mut state = self.0.state.lock();
        let channel = state.channels.entry(name.to_vec()).or_insert_with(Channel::new);
        channel.add(slot);
        let is_new = matches!(channel.heard, Heard::Wished);
        drop(state);
        // A listener that connects asks for all that is wished for.
        if is_new && self.is_live() {
            // Where that fails, the listener looks by itself, a little later.
            let _ = engine.protocol().listen_to(name, deadline);
        }
    }

    /// Waits until a channel is heard, whose messages wake the slot's delegate.
    pub(crate) fn listen_to(
        &self,
        name: &[u8],
        slot: &Arc<Slot>,
        deadline: Moment,
    ) -> Result<(), Error> {
        let engine = slot.engine();
        self.ready(engine, deadline)?;
        let mut state = self.0.state.lock();
        let channel = state.channels.entry(name.to_vec()).or_insert_with(Channel::new);
        channel.add(slot);
        match channel.heard {
            Heard::Confirmed => return Ok(()),
            // The user may be allowed to listen there by now.
            Heard::Refused(_) => channel.heard = Heard::Wished,
            Heard::Wished | Heard::Asked => {}
        }
        drop(state);
        match engine.protocol().listen_to(name, deadline) {
            // The listener looks by itself, a little later.
            Err(failure) if failure.is_passing() && !mutated!("untold-listener-ends-the-wait") => {}
            told => told?,
        }
        let mut state = self.0.state.lock();
        loop {
            match state.channels.get(name).map(|channel| &channel.heard) {
                Some(Heard::Confirmed) => return Ok(()),
                Some(Heard::Refused(failure)) => return Err(refusal(failure.clone())),
                _ => {}
            }
            if let Some(failure) = &state.refused {
                return Err(refusal(failure.clone()));
            }
            self.wait(&mut state, engine, deadline)?;
        }
    }

    fn wait(
        &self,
        state: &mut MutexGuard<'_, State>,
        engine: &Engine,
        deadline: Moment,
    ) -> Result<(), Error> {
        if deadline <= engine.now() {
            return Err(Error::unreachable(
                "the connection that listens for releases is not there yet; look whether Redis hangs",
            ));
        }
        engine.doze(deadline, &mut |left| {
            self.0.changed.wait_for(state, left);
        });
        Ok(())
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.changed.notify_all();
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

fn run(shared: &Arc<Shared>, engine: &Weak<Engine>) {
    while survive("the listener, which starts again,", || run_inner(shared, engine)).is_none() {
        shared.live.store(false, Ordering::Release);
        shared.forget(None);
        sync::sleep(LOOK);
    }
}

fn run_inner(shared: &Arc<Shared>, engine: &Weak<Engine>) {
    let mut backoff = Backoff::new();
    while !shared.closed.load(Ordering::Acquire) {
        let Some(protocol) = engine.upgrade().map(|engine| engine.protocol_handle()) else {
            return;
        };
        let outcome = protocol
            .listen()
            .and_then(|listener| Ear { shared, engine, protocol: &*protocol, listener }.listen());
        let was_live = shared.live.swap(false, Ordering::AcqRel);
        if was_live {
            backoff = Backoff::new();
        }
        drop(protocol);
        let Err(failure) = outcome else { return };
        // The address still leads to a replica: many clients wait for the same fail-over.
        let awaits_master = !was_live && failure.is_not_a_master();
        shared.fail(failure);
        sync::sleep(if awaits_master { LOOK.mul_f64(fastrand::f64()) } else { backoff.next() });
        shared.rest_while_refused();
    }
}

impl Shared {
    fn fail(&self, failure: Failure) {
        let text = failure.to_string();
        self.forget((!failure.is_passing()).then_some(failure));
        log::debug!("wake-ups are not heard: {text}");
    }

    /// No channel is heard any more.
    fn forget(&self, refused: Option<Failure>) {
        let mut state = self.state.lock();
        for channel in state.channels.values_mut() {
            channel.missed |= matches!(channel.heard, Heard::Confirmed);
            channel.heard = Heard::Wished;
        }
        state.refused = refused;
        self.changed.notify_all();
    }

    /// Does not knock again before somebody waits.
    fn rest_while_refused(&self) {
        let mut state = self.state.lock();
        while state.refused.is_some() && !self.closed.load(Ordering::Acquire) {
            self.changed.wait_for(&mut state, LOOK);
        }
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
        let mut swept = self.now()?;
        while !self.shared.closed.load(Ordering::Acquire) {
            let wake = match self.listener.next(LOOK) {
                Err(failure @ Failure::Refused(_)) => self.refuse(failure)?,
                wake => wake?,
            };
            let Ok(now) = self.now() else { return Ok(()) };
            self.take(wake)?;
            self.ask()?;
            if now.since(swept) >= LOOK * 2 {
                swept = now;
                self.sweep()?;
            }
        }
        Ok(())
    }

    /// Asks for the channels that are wished for.
    fn ask(&mut self) -> Result<(), Failure> {
        let mut state = self.shared.state.lock();
        for (name, channel) in &mut state.channels {
            if matches!(channel.heard, Heard::Wished) {
                self.listener.add(name)?;
                channel.heard = Heard::Asked;
            }
        }
        Ok(())
    }

    /// Forgets the slots that wait no longer, and leaves the channels without a slot.
    fn sweep(&mut self) -> Result<(), Failure> {
        let mut left = Vec::new();
        // Dropped after the lock is free: ours may be the last reference to a slot.
        let mut slots = Vec::new();
        self.shared.state.lock().channels.retain(|name, channel| {
            channel.slots.retain(|slot| {
                let slot = slot.upgrade();
                let waits = slot.as_ref().is_some_and(|slot| slot.is_waited_for());
                slots.extend(slot);
                waits
            });
            let waits = !channel.slots.is_empty();
            if !waits {
                left.push(name.clone());
            }
            waits
        });
        left.iter().try_for_each(|name| self.listener.remove(name))
    }

    /// The server refused something: a channel that was asked for, or all of it. Where it is not known which
    /// channel that is, it may be any that was asked for.
    fn refuse(&mut self, failure: Failure) -> Result<Wake, Failure> {
        let refused = self.listener.refused();
        let mut state = self.shared.state.lock();
        // The channel may be wished for no longer, or anew.
        let mut found = refused.is_some();
        for (name, channel) in &mut state.channels {
            if matches!(channel.heard, Heard::Asked)
                && refused.as_ref().is_none_or(|refused| refused == name)
            {
                channel.heard = Heard::Refused(failure.clone());
                found = true;
            }
        }
        self.shared.changed.notify_all();
        if found && self.shared.live.load(Ordering::Acquire) {
            Ok(Wake::Nothing)
        } else {
            Err(failure)
        }
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
                    give_back(slot.hear_wanted(number, waiters), &engine);
                }
            }
            Wake::Request { name, number } => self.request(&engine, &name, number),
            Wake::Evicted { name, number } => {
                for slot in engine.table().of_name(&name) {
                    give_back(slot.hear_evicted(number), &engine);
                }
            }
            Wake::Released { channel } => {
                let state = self.shared.state.lock();
                let slots = state.channels.get(&channel).map(Channel::waiters);
                drop(state);
                slots.iter().flatten().for_each(|slot| slot.hear_release());
            }
            Wake::Live => self.come_live(&engine),
            Wake::Missed { slots } => {
                let has = |slot: &Slot| {
                    let place = hash_slot(slot.target().key());
                    slots.iter().any(|range| range.contains(&place))
                };
                for slot in engine.table().all().iter().filter(|slot| has(slot)) {
                    slot.nudge();
                }
            }
            Wake::Listening { channel } => {
                let mut state = self.shared.state.lock();
                let (mut slots, mut missed) = (Vec::new(), false);
                // A confirmation of an earlier question says nothing of a wish that was left since.
                if let Some(channel) = state.channels.get_mut(&channel)
                    && matches!(channel.heard, Heard::Asked)
                {
                    channel.heard = Heard::Confirmed;
                    slots = channel.waiters();
                    // Before anybody can see that it is heard, and release the lock.
                    slots.iter().for_each(|slot| slot.listen_anew());
                    missed = std::mem::take(&mut channel.missed);
                }
                drop(state);
                self.shared.changed.notify_all();
                // What was said there since is made good by asking, too (rule 12).
                slots.iter().filter(|_| missed).for_each(|slot| slot.nudge());
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
        if came && !mutated!("reconnect-wakes-nobody") {
            // What was said while nobody listened is made good by asking (rule 12).
            for slot in engine.table().all() {
                slot.nudge();
            }
        }
    }

    fn request(&self, engine: &Engine, name: &[u8], number: u64) {
        for slot in engine.table().of_name(name) {
            let (held, lingering) = slot.hear_request(number);
            give_back(lingering, engine);
            if held {
                engine.worker().announce(News::Requested(name.to_vec()));
            }
        }
    }
}

/// Gives back a lease that lingers no longer: at once and here, since another thread would take longer
/// to wake than this takes.
fn give_back(ending: Option<Ending>, engine: &Engine) {
    if let Some(ending) = ending {
        ending.give_back_now(engine.exchange_deadline());
    }
}

impl fmt::Debug for Ear<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ear").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

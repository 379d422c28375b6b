//! The thread that listens to one server.

use std::collections::HashMap;
use std::time::Duration;

use crate::base::panic::catch_panic;
use crate::base::sync::{self, Arc, Ordering};
use crate::base::time::Moment;
use crate::engine::listener::Shared;
use crate::engine::listener::state::{
    ChannelState, ServerLink, ServerState, State, SubscribeReply,
};
use crate::protocol::wake_message::{Publisher, WakeMessage, read};
use crate::wire::failure::Failure;
use crate::wire::retry::{Refusal, RetryBackoff};
use crate::wire::subscription::{Event, Subscriber};

/// How often a thread looks whether it is still wanted, and what is wished for.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How often the channels are looked through for those that nobody waits at.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(10);
const MAX_RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The same while no server is heard, unless each is a replica: then many clients wait for one fail-over.
const MAX_RETRY_PAUSE_UNHEARD: Duration = Duration::from_millis(100);

impl Shared {
    /// Listens to those servers that there are now, and to no others.
    pub(super) fn update_servers(self: &Arc<Shared>) {
        let version = self.publishers.version();
        let mut state = self.state.lock();
        let late = state.seen.is_some();
        if state.seen == Some(version) {
            return;
        }
        if !late {
            state.swept = self.clock.now();
        }
        state.seen = Some(version);
        let all = self.publishers.all();
        state.servers.retain(|server| {
            let number = server.publisher.number();
            let stays = all.iter().any(|publisher| publisher.number() == number);
            if !stays {
                server.publisher.set_listening(false);
            }
            stays
        });
        self.go_down_if_unheard(&mut state);
        let mut unstarted = None;
        for publisher in all {
            let is_it = |server: &ServerState| server.publisher.number() == publisher.number();
            if state.servers.iter().any(is_it) {
                continue;
            }
            state.count += 1;
            let number = state.count;
            let thread = ServerThread { shared: Arc::clone(self), number, publisher };
            let server = thread.state(late);
            match sync::spawn(&self.thread, move || thread.run()) {
                Ok(()) => state.servers.push(server),
                Err(error) => (state.seen, unstarted) = (None, Some(error)),
            }
        }
        drop(state);
        if let Some(error) = unstarted {
            log!(error, "no thread to listen for wake-ups could be started: {error}");
        }
    }

    /// A server is heard no longer. Returns whether it was, and whether others still are.
    pub(super) fn lose(&self, number: u64, failure: Failure) -> (bool, bool) {
        let enough = self.publishers.required();
        let mut state = self.state.lock();
        let Some(server) = state.server(number) else { return (false, true) };
        let was_listening = matches!(server.link, ServerLink::Listening);
        (server.link, server.late, server.seen) = (ServerLink::Down(failure), true, None);
        server.asked.clear();
        server.publisher.set_listening(false);
        let down = |server: &ServerState| match &server.link {
            ServerLink::Down(failure) => Some(failure.clone()),
            ServerLink::Connecting | ServerLink::Listening => None,
        };
        let down: Vec<Failure> = state.servers.iter().filter_map(down).collect();
        let is_lost = down.len() == state.servers.len();
        let mut refusals: Vec<_> = down.into_iter().filter(|it| !it.is_transient()).collect();
        let is_refused = refusals.len() + enough > state.servers.len();
        state.refused = refusals.pop().filter(|_| is_lost || is_refused);
        if is_refused {
            self.go_down(&mut state);
        }
        self.go_down_if_unheard(&mut state);
        self.changed.notify_all();
        (was_listening, state.listening() > 0)
    }

    /// The client is not live while no server is heard, also while it still connects to some.
    fn go_down_if_unheard(&self, state: &mut State) {
        if state.listening() == 0 {
            self.go_down(state);
        }
    }

    fn go_down(&self, state: &mut State) {
        self.live.store(false, Ordering::Release);
        state.forget();
    }

    /// Leaves the channels that nobody waits at.
    fn sweep(&self) {
        let now = self.clock.now();
        // Dropped after the lock is free: ours may be the last reference to a slot.
        let mut slots = Vec::new();
        let mut state = self.state.lock();
        if now.since(state.swept) < SWEEP_INTERVAL {
            return;
        }
        let State { swept, channels, wishes, .. } = &mut *state;
        *swept = now;
        channels.retain(|_, channel| {
            channel.slots.retain(|slot| {
                let slot = slot.upgrade();
                let waits = slot.as_ref().is_some_and(|slot| slot.has_waiters());
                slots.extend(slot);
                waits
            });
            let waits = !channel.slots.is_empty();
            *wishes += u64::from(!waits);
            waits
        });
        drop(state);
    }
}

/// What the thread of one server has.
pub(super) struct ServerThread {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
    pub(super) publisher: Arc<dyn Publisher>,
}

impl ServerThread {
    pub(super) fn state(&self, late: bool) -> ServerState {
        let (publisher, asked) = (Arc::clone(&self.publisher), HashMap::new());
        let (number, link) = (self.number, ServerLink::Connecting);
        ServerState { number, publisher, link, late, asked, seen: None }
    }

    fn run(&self) {
        let mut pauses = RetryBackoff::between(FIRST_RETRY_PAUSE, MAX_RETRY_PAUSE);
        while self.is_wanted() {
            let round = || self.listen_and_rest(&mut pauses);
            if catch_panic("the listener, which starts again,", round).is_none() {
                self.shared.lose(self.number, Failure::silent());
                sync::sleep(POLL_INTERVAL);
            }
        }
    }

    fn is_wanted(&self) -> bool {
        self.is_wanted_in(&mut self.shared.state.lock())
    }

    fn is_wanted_in(&self, state: &mut State) -> bool {
        !self.shared.closed.load(Ordering::Acquire) && state.server(self.number).is_some()
    }

    fn listen_and_rest(&self, pauses: &mut RetryBackoff) {
        // A caller whose attempt comes after the refusal may have found it mended.
        let refusal = Refusal::before(self.publisher.connect_attempts(), self.shared.clock.now());
        let retries = self.shared.state.lock().retries;
        let mut delayed = Delayed::default();
        let outcome = self.listen(&mut delayed);
        self.wake(delayed.take(Moment::FAR));
        let Err(failure) = outcome else { return };
        let (was_listening, is_listening) = self.shared.lose(self.number, failure.clone());
        log!(debug, "wake-ups of {} are not heard: {failure}", self.publisher.address());
        if was_listening {
            pauses.reset();
        }
        self.shared.update_servers();
        let rest = pauses.next();
        let is_urgent = !is_listening && !failure.is_not_a_master();
        sync::sleep(if is_urgent { rest.min(MAX_RETRY_PAUSE_UNHEARD) } else { rest });
        if !failure.is_transient() {
            self.rest_while_refused(refusal, retries);
        }
    }

    /// Rests until a waiter needs the listener. While enough other servers are heard none does, so then the rest
    /// ends with a caller's attempt to connect, or after a minute.
    fn rest_while_refused(&self, refusal: Refusal, retries: u64) {
        let mut state = self.shared.state.lock();
        let is_over =
            || refusal.is_over(self.publisher.connect_attempts(), self.shared.clock.now());
        while self.is_wanted_in(&mut state)
            && state.retries == retries
            && (state.refused.is_some() || !is_over())
        {
            self.shared.changed.wait_for(&mut state, POLL_INTERVAL);
        }
    }

    /// Listens until nobody wants it (`Ok`) or the connection has failed.
    fn listen(&self, delayed: &mut Delayed) -> Result<(), Failure> {
        let mut subscriber = self.publisher.subscribe(&self.shared.own)?;
        while self.is_wanted() {
            self.subscribe_wished(&mut *subscriber)?;
            let now = self.shared.clock.now();
            self.wake(delayed.take(now));
            match subscriber.next(delayed.next(now).min(POLL_INTERVAL)) {
                Ok(event) => self.on_event(event, subscriber.epoch(), delayed),
                Err(failure @ Failure::Refused(_)) => self.refuse(subscriber.refused(), failure)?,
                Err(failure) => return Err(failure),
            }
            self.shared.update_servers();
            self.shared.sweep();
        }
        Ok(())
    }

    /// Asks for the channels that are wished for here, and leaves the others.
    pub(super) fn subscribe_wished(&self, subscriber: &mut dyn Subscriber) -> Result<(), Failure> {
        let version = self.shared.publishers.version();
        let mut state = self.shared.state.lock();
        let State { servers, channels, wishes, .. } = &mut *state;
        let seen = Some((*wishes, version));
        let Some(server) = servers.iter_mut().find(|server| server.number == self.number) else {
            return Ok(());
        };
        if server.seen == seen {
            return Ok(());
        }
        server.seen = seen;
        let is_due = |name: &[u8]| channels.contains_key(name) && self.publisher.serves(name);
        let left = server.asked.extract_if(|name, _| !is_due(name));
        let left: Vec<Vec<u8>> = left.map(|(name, _)| name).collect();
        let mut asked = Vec::new();
        for (name, channel) in channels.iter().filter(|(name, _)| self.publisher.serves(name)) {
            if server.asked.get(name).is_none_or(|(wish, _)| *wish != channel.wish) {
                server.asked.insert(name.clone(), (channel.wish, SubscribeReply::Due));
                asked.push(name.clone());
            }
        }
        drop(state);
        asked.iter().try_for_each(|name| subscriber.subscribe(name))?;
        left.iter().try_for_each(|name| subscriber.unsubscribe(name))
    }

    /// The server refused something: a channel that was asked for, or all of it. Where it is not known which
    /// channel that is, it may be any that was asked for.
    pub(super) fn refuse(&self, refused: Option<Vec<u8>>, failure: Failure) -> Result<(), Failure> {
        let refused = refused.filter(|name| *name != self.shared.own);
        let mut state = self.shared.state.lock();
        let Some(server) = state.server(self.number) else { return Ok(()) };
        // The channel may be wished for no longer, or anew.
        let mut found = refused.is_some();
        let mut names = Vec::new();
        for (name, (wish, reply)) in &mut server.asked {
            if *reply == SubscribeReply::Due
                && refused.as_ref().is_none_or(|refused| refused == name)
            {
                (*reply, found) = (SubscribeReply::Refused, true);
                names.push((name.clone(), *wish));
            }
        }
        if !found || !matches!(server.link, ServerLink::Listening) {
            return Err(failure);
        }
        for (name, wish) in names {
            let (refusals, able) = state.replies(&name, wish, SubscribeReply::Refused);
            if let Some(channel) = state.channels.get_mut(&name)
                && channel.wish == wish
                && refusals + self.shared.publishers.required() > able
            {
                channel.state = ChannelState::Refused(failure.clone());
            }
        }
        self.shared.changed.notify_all();
        Ok(())
    }

    pub(super) fn on_event(&self, event: Event, epoch: u64, delayed: &mut Delayed) {
        let Shared { publishers, own, on_wake, .. } = &*self.shared;
        match event {
            Event::Message { channel, payload } if channel == *own => {
                // Also from a server that has gone: its message is a repetition wherever else it is heard.
                if publishers.accepts(true, &payload) {
                    let mut wake = read(&payload);
                    if let WakeMessage::Grant { grant, .. } = &mut wake {
                        grant.epoch = epoch;
                    }
                    on_wake(wake);
                }
            }
            Event::Message { channel, payload } => {
                if publishers.accepts(false, &payload) {
                    self.wake_later(channel, WakeReason::Released, delayed);
                }
            }
            Event::Subscribed { channel } if channel == *own => self.on_live(),
            Event::Subscribed { channel } => self.confirm(channel, delayed),
            Event::Nothing => {}
        }
    }

    /// Wakes those that wait at a channel after the pause of the publishers, and meanwhile goes on reading.
    fn wake_later(&self, channel: Vec<u8>, reason: WakeReason, delayed: &mut Delayed) {
        let pause = self.shared.publishers.pause();
        if pause.is_zero() {
            self.wake(vec![(channel, reason)]);
        } else {
            delayed.add(channel, reason, self.shared.clock.now().after(pause.min(POLL_INTERVAL)));
        }
    }

    fn wake(&self, channels: Vec<(Vec<u8>, WakeReason)>) {
        for (channel, reason) in channels {
            let state = self.shared.state.lock();
            let slots = state.channels.get(&channel).map(|channel| channel.waiters());
            drop(state);
            slots.iter().flatten().for_each(|slot| match reason {
                WakeReason::Released => slot.on_release(),
                WakeReason::Missed => slot.request_retry(),
            });
        }
    }

    /// The client's own channel is confirmed.
    fn on_live(&self) {
        let mut state = self.shared.state.lock();
        let Some(server) = state.server(self.number) else { return };
        let late = server.late && !matches!(server.link, ServerLink::Listening);
        server.link = ServerLink::Listening;
        self.publisher.set_listening(true);
        if state.listening() < self.shared.publishers.required() {
            return;
        }
        state.refused = None;
        let came = !self.shared.live.swap(true, Ordering::AcqRel);
        self.shared.changed.notify_all();
        drop(state);
        if came {
            (self.shared.on_wake)(WakeMessage::Listening);
        } else if late {
            (self.shared.on_wake)(self.publisher.missed_wake());
        }
    }

    /// The channel of a name is confirmed.
    fn confirm(&self, channel: Vec<u8>, delayed: &mut Delayed) {
        let name = channel.as_slice();
        let mut state = self.shared.state.lock();
        let Some(wish) = state.channels.get(name).map(|channel| channel.wish) else { return };
        // A confirmation of an earlier question says nothing of a wish that was left since.
        let asked = state.server(self.number).and_then(|server| server.asked.get_mut(name));
        match asked {
            Some((asked, reply)) if *asked == wish && *reply != SubscribeReply::Confirmed => {
                *reply = SubscribeReply::Confirmed;
            }
            _ => return,
        }
        if state.replies(name, wish, SubscribeReply::Confirmed).0
            != self.shared.publishers.required()
        {
            return;
        }
        let Some(known) = state.channels.get_mut(name) else { return };
        let was_listening = matches!(known.state, ChannelState::Confirmed);
        let missed = was_listening | std::mem::take(&mut known.missed);
        known.state = ChannelState::Confirmed;
        let slots = known.waiters();
        // Before anybody can see that it is heard, and release the lock.
        slots.iter().for_each(|slot| slot.on_resubscribe());
        drop(state);
        self.shared.changed.notify_all();
        if missed {
            // What was published since is made good by asking (rule 12).
            self.wake_later(channel, WakeReason::Missed, delayed);
        }
    }
}

/// Why those that wait at a channel ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WakeReason {
    Released,
    /// What was published meanwhile was not heard.
    Missed,
}

/// The channels at which waiters are woken a little later, since all clients hear of a release at once.
#[derive(Debug, Default)]
pub(super) struct Delayed(Vec<(Moment, Vec<u8>, WakeReason)>);

impl Delayed {
    pub(super) fn add(&mut self, channel: Vec<u8>, reason: WakeReason, due: Moment) {
        let is_known =
            |(_, other, why): &(_, Vec<u8>, WakeReason)| *other == channel && *why == reason;
        if !self.0.iter().any(is_known) {
            self.0.push((due, channel, reason));
        }
    }

    /// How long it is until the first of them.
    pub(super) fn next(&self, now: Moment) -> Duration {
        let due = self.0.iter().map(|(due, ..)| *due).min().unwrap_or(Moment::FAR);
        // A socket takes no time-out of zero.
        due.since(now).max(Duration::from_millis(1))
    }

    /// Takes out those that are due.
    pub(super) fn take(&mut self, now: Moment) -> Vec<(Vec<u8>, WakeReason)> {
        self.0.extract_if(.., |(due, ..)| *due <= now).map(|(_, name, why)| (name, why)).collect()
    }
}

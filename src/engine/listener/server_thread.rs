//! The thread that listens to one server. Its code also keeps the shared state: there is no thread above
//! those of the servers.

use std::collections::HashMap;
use std::time::Duration;

use crate::base::panic::catch_panic;
use crate::base::sync::{self, Arc, Ordering};
use crate::base::thread::Role;
use crate::base::time::Moment;
use crate::engine::listener::Shared;
use crate::engine::listener::state::{
    ChannelState, ServerLink, ServerState, State, SubscribeReply,
};
use crate::observe::observers::begin_client_work;
use crate::protocol::wake_message::{Publisher, WakeMessage, read};
use crate::wire::failure::Failure;
use crate::wire::retry::{ConnectRefusal, RetryBackoff};
use crate::wire::server_clock::ClockRun;
use crate::wire::subscription::{Event, Subscriber};

/// How often a thread looks whether it is still wanted, and which channels are.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How often the channels are swept.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(10);
/// Nobody may wait, and the server may be down for days.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(5);
/// The same at the beginning of an outage, while no server is listened to, and where the server is a replica: many
/// clients may wait for one fail-over.
const MAX_RETRY_PAUSE_UNHEARD: Duration = Duration::from_millis(100);
const MAX_RETRY_PAUSE_AT_REPLICA: Duration = Duration::from_millis(500);
/// When the outage has lasted for this long, pauses grow to the longest.
const LONG_OUTAGE: Duration = Duration::from_secs(2);

impl Shared {
    /// Starts a thread for each new server, and ends those of servers that are gone.
    pub(super) fn update_servers(self: &Arc<Shared>) {
        // Read before the servers are: a change in between is noted under the old version, and found the
        // next time.
        let version = self.publishers.version();
        let mut state = self.state.lock();
        // Servers that come later may have published already; before the first wait there was nobody to
        // miss anything.
        let late = state.seen.is_some();
        if state.seen == Some(version) {
            return;
        }
        if !late {
            state.swept = self.clock.now();
        }
        state.seen = Some(version);

        let mut all = self.publishers.all();
        all.retain(|publisher| state.scope.has(&**publisher));
        state.servers.retain(|server| {
            let number = server.publisher.number();
            let stays = all.iter().any(|publisher| publisher.number() == number);
            if !stays {
                server.publisher.set_listening(false);
            }
            stays
        });
        // The last server that was listened to may be among those that have gone.
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
            let body = move || {
                begin_client_work();
                thread.run();
            };
            match self.threads.spawn(Role::Listener, body) {
                Ok(()) => state.servers.push(server),
                // `None` makes the next call try again.
                Err(error) => (state.seen, unstarted) = (None, Some(error)),
            }
        }
        drop(state);
        if let Some(error) = unstarted {
            log!(error, "no thread to listen for wake-ups could be started: {error}");
        }
    }

    /// A server is not listened to any more. Returns whether it was, and whether others still are.
    pub(super) fn lose(&self, number: u64, failure: Failure) -> (bool, bool) {
        let enough = self.publishers.required();
        let mut state = self.state.lock();
        // Gone meanwhile. With others listened to there is no hurry, so the thread rests and ends.
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
        // Either too many refuse for the client ever to listen, or some refuse and the rest cannot be
        // reached. While one still connects there is no verdict, unless the rest cannot be enough.
        state.refused = refusals.pop().filter(|_| is_lost || is_refused);

        if is_refused {
            self.go_down(&mut state);
        }
        self.go_down_if_unheard(&mut state);
        self.changed.notify_all();
        (was_listening, state.listening() > 0)
    }

    /// The client is not live while no server is listened to, also while it connects to some.
    fn go_down_if_unheard(&self, state: &mut State) {
        if state.listening() == 0 {
            self.go_down(state);
        }
    }

    fn go_down(&self, state: &mut State) {
        self.live.store(false, Ordering::Release);
        state.forget();
    }

    /// Drops the wishes for channels at which nobody waits.
    fn sweep(&self) {
        let now = self.clock.now();
        // Dropped after the lock is released: these may be the last references to slots, whose
        // destructors take locks.
        let mut slots = Vec::new();
        let mut state = self.state.lock();
        // Every thread comes here after each event. A channel also stays for a while after its last wait,
        // so that a lock that is used in turns does not subscribe for each of them.
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

/// The thread of one server.
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
        let mut outage = Outage::new();
        while self.is_wanted() {
            let round = || self.listen_and_rest(&mut outage);
            // The slots and `on_wake` run on this thread. A panic ends the connection, as if it had
            // failed, and the waiters ask again when it is back.
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

    fn listen_and_rest(&self, outage: &mut Outage) {
        // Both before the attempt to listen: a caller that connects, or asks to try again, after the
        // refusal may have found that this user has the right by now, and must not count as one that came
        // before.
        let began = self.shared.clock.now();
        let refusal = ConnectRefusal::before(self.publisher.connect_attempts(), began);
        let made = self.publisher.connections_made();
        let (retries, asked) = {
            let state = self.shared.state.lock();
            (state.retries, state.asked)
        };

        let mut delayed = Delayed::default();
        let outcome = self.listen(&mut delayed);
        // A release whose wake-up was delayed is not announced again.
        self.wake(delayed.take(Moment::FAR));

        let Err(failure) = outcome else { return };
        let (was_listening, is_listening) = self.shared.lose(self.number, failure.clone());
        log!(debug, "cannot listen to {}: {failure}", self.publisher.address());
        // The connection was good for a time, so this is not the next failure in a row.
        let now = self.shared.clock.now();
        if was_listening {
            outage.begin(now);
            self.publisher.lost(began, now);
        }
        // A connection often fails because the servers have changed. This thread may be the only one left
        // to see that.
        self.shared.update_servers();

        // Until a server is listened to, grants come as late as heartbeats.
        let most = match (is_listening, failure.is_not_a_master()) {
            (_, true) => MAX_RETRY_PAUSE_AT_REPLICA,
            (false, false) if outage.lasted(now) < LONG_OUTAGE => MAX_RETRY_PAUSE_UNHEARD,
            _ => MAX_RETRY_PAUSE,
        };
        self.rest(outage.pauses.next().min(most), made, asked);
        if !failure.is_transient() {
            self.rest_while_refused(refusal, retries);
        }
    }

    /// Rests for this long after a failure, and no longer once a caller is connected, or a waiter needs the listener: its
    /// request has just had a reply. Then the server is back.
    fn rest(&self, span: Duration, made: u64, asked: u64) {
        let least = span.min(MAX_RETRY_PAUSE_UNHEARD);
        sync::sleep(least);
        let end = self.shared.clock.now().after(span - least);
        let mut state = self.shared.state.lock();
        while state.asked == asked
            && self.publisher.connections_made() == made
            && self.is_wanted_in(&mut state)
        {
            let left = end.since(self.shared.clock.now());
            if left.is_zero() {
                break;
            }
            // The rest is cut into intervals, because the end of the client wakes only threads that wait here just then.
            self.shared.changed.wait_for(&mut state, left.min(POLL_INTERVAL));
        }
    }

    /// Rests after a refusal. If the client cannot listen because of it, the rest ends when somebody
    /// waits. Otherwise it ends when a caller has tried to connect to this server, or after a minute.
    fn rest_while_refused(&self, refusal: ConnectRefusal, retries: u64) {
        let mut state = self.shared.state.lock();
        let is_over =
            || refusal.is_over(self.publisher.connect_attempts(), self.shared.clock.now());
        while self.is_wanted_in(&mut state)
            && state.retries == retries
            && (state.refused.is_some() || !is_over())
        {
            // The rest is cut into intervals: attempts to connect are counted elsewhere, and wake nobody here.
            self.shared.changed.wait_for(&mut state, POLL_INTERVAL);
        }
    }

    /// Listens until nobody wants it any more (`Ok`), or until the connection fails.
    fn listen(&self, delayed: &mut Delayed) -> Result<(), Failure> {
        let mut subscriber = self.publisher.subscribe(&self.shared.own)?;
        while self.is_wanted() {
            self.subscribe_wished(&mut *subscriber)?;
            // Wishes come with a message on the client's own channel, which ends the wait below. The
            // interval is for those whose message was lost.
            let now = self.shared.clock.now();
            self.wake(delayed.take(now));
            // Before the message: it may be from before a fault that is found meanwhile.
            let faults = self.publisher.clock_faults();
            match subscriber.next(delayed.next(now).min(POLL_INTERVAL)) {
                Ok(event) => {
                    let run = ClockRun { epoch: subscriber.epoch(), faults };
                    self.on_event(event, run, delayed);
                }
                Err(failure @ Failure::Refused(_)) => self.refuse(subscriber.refused(), failure)?,
                Err(failure) => return Err(failure),
            }
            self.shared.update_servers();
            self.shared.sweep();
        }
        Ok(())
    }

    /// Subscribes to the channels that are wished for here, and leaves the others.
    pub(super) fn subscribe_wished(&self, subscriber: &mut dyn Subscriber) -> Result<(), Failure> {
        let version = self.shared.publishers.version();
        let mut state = self.shared.state.lock();
        let State { servers, channels, wishes, .. } = &mut *state;
        let seen = Some((*wishes, version));
        let Some(server) = servers.iter_mut().find(|server| server.number == self.number) else {
            return Ok(());
        };
        // This runs after every message, and there may be thousands of channels.
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
                // Noted before it is sent, so that a confirmation always finds its request.
                server.asked.insert(name.clone(), (channel.wish, SubscribeReply::Due));
                asked.push(name.clone());
            }
        }
        // No I/O under the lock. If a write fails the connection is over, and `lose` forgets what was
        // requested.
        drop(state);
        asked.iter().try_for_each(|name| subscriber.subscribe(name))?;
        left.iter().try_for_each(|name| subscriber.unsubscribe(name))
    }

    /// The server refused a channel, or the client's own, which is to refuse everything. If it does not
    /// say which, it may be any that has no reply yet.
    pub(super) fn refuse(&self, refused: Option<Vec<u8>>, failure: Failure) -> Result<(), Failure> {
        let refused = refused.filter(|name| *name != self.shared.own);
        let mut state = self.shared.state.lock();
        let Some(server) = state.server(self.number) else { return Ok(()) };

        // A known channel counts as found even if nobody wishes for it any more, or somebody does again.
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
        // The refusal is about the client's own channel: without that the connection is of no use.
        if !found || !matches!(server.link, ServerLink::Listening) {
            return Err(failure);
        }

        for (name, wish) in names {
            let (refusals, able) = state.replies(&name, wish, SubscribeReply::Refused);
            if let Some(channel) = state.channels.get_mut(&name)
                && channel.wish == wish
                // The channel is refused only when the servers that have not refused it are too
                // few. A reply to an earlier wish does not count.
                && refusals + self.shared.publishers.required() > able
            {
                channel.state = ChannelState::Refused(failure.clone());
            }
        }
        self.shared.changed.notify_all();
        Ok(())
    }

    pub(super) fn on_event(&self, event: Event, run: ClockRun, delayed: &mut Delayed) {
        let Shared { publishers, own, on_wake, .. } = &*self.shared;
        match event {
            Event::Message { channel, payload } if channel == *own => {
                // A server that has gone meanwhile counts too: it sent this while it still had the lock, and
                // `accepts` sorts out what others repeat.
                if publishers.accepts(true, &payload) {
                    let mut wake = read(payload);
                    if let WakeMessage::Grant { grant, .. } = &mut wake {
                        // The clock that dates the grant is that of the server at the time (rule 10).
                        grant.run = run;
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

    /// Wakes the waiters of a channel after the pause of the publishers, during which the thread goes on
    /// reading.
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
            // The references in the list end without the lock: one may be the last, and the destructor of
            // a slot takes locks.
            drop(state);
            slots.iter().flatten().for_each(|slot| match reason {
                WakeReason::Released => slot.on_release(),
                WakeReason::Missed => slot.request_retry(),
            });
        }
    }

    /// The server has confirmed the client's own channel.
    fn on_live(&self) {
        let mut state = self.shared.state.lock();
        let Some(server) = state.server(self.number) else { return };
        // A channel may be confirmed twice on one connection. Only the first time something may have been
        // missed.
        let late = server.late && !matches!(server.link, ServerLink::Listening);
        server.link = ServerLink::Listening;
        self.publisher.set_listening(true);

        if state.listening() < self.shared.publishers.required() {
            return;
        }
        state.refused = None;
        // Live before the waiters are woken: a waiter that asks again must find that it may join (rule
        // 12).
        let came = !self.shared.live.swap(true, Ordering::AcqRel);
        self.shared.changed.notify_all();
        drop(state);

        // Woken only now, when the subscription is confirmed: asked before, a waiter could miss a message
        // that is published between its request and the subscription.
        if came {
            (self.shared.on_wake)(WakeMessage::Listening);
        } else if late {
            (self.shared.on_wake)(self.publisher.missed_wake());
        }
    }

    /// The server has confirmed the channel of a name.
    fn confirm(&self, channel: Vec<u8>, delayed: &mut Delayed) {
        let name = channel.as_slice();
        let mut state = self.shared.state.lock();
        let Some(wish) = state.channels.get(name).map(|channel| channel.wish) else { return };
        // A confirmation of an earlier request says nothing about a wish that came since: the channel may
        // have been left in between.
        let asked = state.server(self.number).and_then(|server| server.asked.get_mut(name));
        match asked {
            Some((asked, reply)) if *asked == wish && *reply != SubscribeReply::Confirmed => {
                *reply = SubscribeReply::Confirmed;
            }
            _ => return,
        }
        // Equal and not at least: the waiters are woken once, by the server that makes it enough.
        if state.replies(name, wish, SubscribeReply::Confirmed).0
            != self.shared.publishers.required()
        {
            return;
        }

        let Some(known) = state.channels.get_mut(name) else { return };
        let was_listening = matches!(known.state, ChannelState::Confirmed);
        // `|` and not `||`, because the flag must be cleared in both cases.
        let missed = was_listening | std::mem::take(&mut known.missed);
        known.state = ChannelState::Confirmed;

        let slots = known.waiters();
        // Still under the lock, before any thread can see the channel as confirmed. A thread that saw it
        // and released the lock would have the message of its own release counted as another client's.
        slots.iter().for_each(|slot| slot.on_resubscribe());

        drop(state);
        self.shared.changed.notify_all();
        if missed {
            // Messages may have been missed, so the waiters ask (rule 12).
            self.wake_later(channel, WakeReason::Missed, delayed);
        }
    }
}

/// The time since a server was last listened to.
struct Outage {
    since: Option<Moment>,
    pauses: RetryBackoff,
}

impl Outage {
    fn new() -> Outage {
        let pauses = RetryBackoff::between(FIRST_RETRY_PAUSE, MAX_RETRY_PAUSE);
        Outage { since: None, pauses }
    }

    /// The connection was good until now.
    fn begin(&mut self, now: Moment) {
        self.since = Some(now);
        self.pauses.reset();
    }

    fn lasted(&mut self, now: Moment) -> Duration {
        now.since(*self.since.get_or_insert(now))
    }
}

/// Why the waiters of a channel ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WakeReason {
    Released,
    /// Messages may have been missed.
    Missed,
}

/// Wake-ups that are delayed a little, because all clients receive a release at once.
#[derive(Debug, Default)]
pub(super) struct Delayed(Vec<(Moment, Vec<u8>, WakeReason)>);

impl Delayed {
    pub(super) fn add(&mut self, channel: Vec<u8>, reason: WakeReason, due: Moment) {
        // The first wake-up stands and is not put off: a channel with many releases would otherwise wake
        // nobody.
        let is_known =
            |(_, other, why): &(_, Vec<u8>, WakeReason)| *other == channel && *why == reason;
        if !self.0.iter().any(is_known) {
            self.0.push((due, channel, reason));
        }
    }

    /// How long until the first of them.
    pub(super) fn next(&self, now: Moment) -> Duration {
        let due = self.0.iter().map(|(due, ..)| *due).min().unwrap_or(Moment::FAR);
        due.since(now)
    }

    /// Removes and returns those that are due.
    pub(super) fn take(&mut self, now: Moment) -> Vec<(Vec<u8>, WakeReason)> {
        self.0.extract_if(.., |(due, ..)| *due <= now).map(|(_, name, why)| (name, why)).collect()
    }
}

//! Listening to several servers at once.
//!
//! | a server's thread | does | then |
//! | --- | --- | --- |
//! | connects | within the server's time-outs | listens, or rests |
//! | listens | asks for the channels that are wished for there, passes on what is news | rests when the connection fails |
//! | rests | for a time that grows while the server cannot be listened to; one that refuses the user, until a connection to it was tried for a caller, or a minute | connects |
//!
//! Each ends soon after its server was removed, or the relay dropped, whatever it does at that time.
//!
//! The driver has nothing to wait on for several connections at once. A thread for each server is what
//! keeps one that is dead, slow to connect or silent from holding up what the others say.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::base::sync::channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use crate::base::sync::{self, Arc, AtomicBool, Mutex, Ordering};
use crate::base::thread::{Role, Threads};
use crate::base::time::Moment;
use crate::wire::failure::Failure;
use crate::wire::retry::{Pauses, Refusal};
use crate::wire::subscription::{Event, Subscription};

/// How often a thread looks whether it is still wanted, and what is wished for.
const LOOK: Duration = Duration::from_millis(200);
const FIRST_REST: Duration = Duration::from_millis(20);
const LONGEST_REST: Duration = Duration::from_secs(1);

/// A server that can be listened to.
pub(crate) trait Station: Send + Sync {
    /// Its address, without user information.
    fn address(&self) -> String;

    /// A connection that listens to a channel, made on this thread.
    fn subscribe(&self, channel: &[u8]) -> Result<Subscription, Failure>;

    /// How many connections were tried for callers so far, whatever came of it.
    fn tried(&self) -> u64;

    fn now(&self) -> Moment;

    /// Whether a channel that is wished for is to be asked for here.
    fn has(&self, _channel: &[u8]) -> bool {
        true
    }

    /// Changes whenever the answer of [`has`](Station::has) may.
    fn version(&self) -> u64 {
        0
    }

    /// Whether what was heard here is to be told.
    fn is_news(&self, _event: &Event) -> bool {
        true
    }
}

/// The channels to listen to, whoever listens.
#[derive(Debug, Default)]
pub(crate) struct Wishes(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    /// Grows with every change.
    version: u64,
    /// The number of a wish tells it from an earlier one for the same channel.
    channels: HashMap<Vec<u8>, u64>,
}

/// What one server was asked for.
#[derive(Debug, Default)]
struct Asked {
    /// The versions by which it was.
    seen: Option<(u64, u64)>,
    channels: HashMap<Vec<u8>, u64>,
}

impl Wishes {
    pub(crate) fn add(&self, channel: &[u8]) {
        let list = &mut *self.0.lock();
        if !list.channels.contains_key(channel) {
            list.version += 1;
            list.channels.insert(channel.to_vec(), list.version);
        }
    }

    pub(crate) fn remove(&self, channel: &[u8]) {
        self.retain(|other| other != channel);
    }

    pub(crate) fn retain(&self, keep: impl Fn(&[u8]) -> bool) {
        let list = &mut *self.0.lock();
        list.version += 1;
        list.channels.retain(|channel, _| keep(channel));
    }

    pub(crate) fn contains(&self, channel: &[u8]) -> bool {
        self.0.lock().channels.contains_key(channel)
    }

    /// Makes a listener ask for what is wished for there now and was not when it last asked.
    fn follow(
        &self,
        asked: &mut Asked,
        station: &dyn Station,
        subscription: &mut Subscription,
    ) -> Result<(), Failure> {
        let version = station.version();
        let list = self.0.lock();
        let seen = Some((list.version, version));
        if asked.seen == seen {
            return Ok(());
        }
        let mut wishes = list.channels.clone();
        drop(list);
        wishes.retain(|channel, _| station.has(channel));
        for (channel, _) in
            wishes.iter().filter(|(name, wish)| asked.channels.get(*name) != Some(wish))
        {
            subscription.subscribe(channel)?;
        }
        for channel in asked.channels.keys().filter(|name| !wishes.contains_key(*name)) {
            subscription.unsubscribe(channel)?;
        }
        *asked = Asked { seen, channels: wishes };
        Ok(())
    }
}

/// What was heard of one server.
#[derive(Debug)]
pub(crate) enum Heard {
    Event(Event),
    /// A channel that was asked for is not to be heard there; all else is.
    Refused(Failure),
    /// Nothing is, until it is [`Event::Subscribed`] anew.
    Down(Failure),
    /// Nothing is any more: there is no thread.
    Over,
}

/// The threads, one for each server. They end soon after this is dropped.
pub(crate) struct Relay {
    own: Vec<u8>,
    wishes: Arc<Wishes>,
    /// What its threads are called.
    thread: String,
    sender: Sender<(usize, Heard)>,
    heard: Receiver<(usize, Heard)>,
    /// Which of them are to end, by number.
    closed: HashMap<usize, Arc<AtomicBool>>,
    count: usize,
}

impl Relay {
    /// Listens to nobody yet; then to this channel at each server, and to those that are wished for.
    pub(crate) fn new(own: &[u8], wishes: &Arc<Wishes>, threads: Threads) -> Relay {
        let (sender, heard) = unbounded();
        let (own, wishes) = (own.to_vec(), Arc::clone(wishes));
        let thread = threads.name(Role::Listener);
        Relay { own, wishes, thread, sender, heard, closed: HashMap::new(), count: 0 }
    }

    /// Begins to listen to a server. Answers its number, which is how many there were before.
    pub(crate) fn add(&mut self, station: Arc<dyn Station>) -> usize {
        let number = self.count;
        self.count += 1;
        let closed = Arc::new(AtomicBool::new(false));
        self.closed.insert(number, Arc::clone(&closed));
        let ear = Ear {
            station,
            number,
            own: self.own.clone(),
            wishes: Arc::clone(&self.wishes),
            closed,
            heard: self.sender.clone(),
        };
        if let Err(error) = sync::spawn(&self.thread, move || ear.run()) {
            log!(error, "no thread to listen for wake-ups could be started: {error}");
        }
        number
    }

    /// Listens to a server no longer. What it said before may still be told.
    pub(crate) fn remove(&mut self, number: usize) {
        if let Some(closed) = self.closed.remove(&number) {
            closed.store(true, Ordering::Release);
        }
    }

    /// The next that is heard, and of which server; `None` if there is nothing for so long.
    pub(crate) fn next(&self, wait: Duration) -> Result<Option<(usize, Heard)>, Failure> {
        match self.heard.recv_timeout(wait) {
            // All of them begin anew.
            Ok((_, Heard::Over)) | Err(RecvTimeoutError::Disconnected) => Err(Failure::silent()),
            Ok(heard) => Ok(Some(heard)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.closed.values().for_each(|closed| closed.store(true, Ordering::Release));
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("servers", &self.closed.len()).finish_non_exhaustive()
    }
}

/// One server's thread.
struct Ear {
    station: Arc<dyn Station>,
    number: usize,
    own: Vec<u8>,
    wishes: Arc<Wishes>,
    closed: Arc<AtomicBool>,
    heard: Sender<(usize, Heard)>,
}

impl Ear {
    fn run(self) {
        let mut rests = Pauses::between(FIRST_REST, LONGEST_REST);
        while !self.is_closed() {
            let before = Refusal::before(self.station.tried(), self.station.now());
            let Err((failure, listened)) = self.listen() else { return };
            if listened {
                rests.reset();
            }
            log!(debug, "wake-ups of {} are not heard: {failure}", self.station.address());
            let refusal = (!failure.is_passing()).then_some(before);
            if !self.tell(Heard::Down(failure)) {
                return;
            }
            self.rest(rests.next(), refusal);
        }
    }

    /// Rests for a while, and then until the refusal is over, if the server refused to be listened to. Nobody
    /// waits for its end.
    fn rest(&self, mut left: Duration, refusal: Option<Refusal>) {
        while !left.is_zero() && !self.is_closed() {
            let part = left.min(LOOK);
            sync::sleep(part);
            left -= part;
            if left.is_zero()
                && refusal.is_some_and(|it| !it.is_over(self.station.tried(), self.station.now()))
                && !mutated!("refusing-server-listened-to-again")
            {
                left = LOOK;
            }
        }
    }

    /// Listens until nobody wants it (`Ok`) or the connection fails; then also whether there was one.
    fn listen(&self) -> Result<(), (Failure, bool)> {
        let mut subscription =
            self.station.subscribe(&self.own).map_err(|failure| (failure, false))?;
        let mut asked = Asked::default();
        let mut confirmed = false;
        while !self.is_closed() {
            let event = self
                .wishes
                .follow(&mut asked, &*self.station, &mut subscription)
                .and_then(|()| subscription.next(LOOK));
            let heard = match event {
                Ok(Event::Nothing) => continue,
                Ok(event) => {
                    confirmed |=
                        matches!(&event, Event::Subscribed { channel } if *channel == self.own);
                    if !self.station.is_news(&event) {
                        continue;
                    }
                    Heard::Event(event)
                }
                // Which of several was refused is not told.
                Err(failure @ Failure::Refused(_)) if confirmed => Heard::Refused(failure),
                Err(failure) => return Err((failure, confirmed)),
            };
            if !self.tell(heard) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether anybody is there to be told.
    fn tell(&self, heard: Heard) -> bool {
        self.heard.send((self.number, heard)).is_ok()
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        // It panicked, or was never run.
        if !self.is_closed() {
            let _ = self.heard.send((self.number, Heard::Over));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::driven::DrivenClock;
    use crate::base::sync::AtomicU64;
    use crate::base::time::Clock as _;
    use crate::wire::retry::REFUSED;

    /// The longest that a test waits for what must come.
    const LONG: Duration = Duration::from_secs(20);

    /// A server that refuses to be listened to. Its clock stands still.
    struct Refusing {
        clock: DrivenClock,
        tried: AtomicU64,
        /// How many callers connect between the first refusals and the rests after them.
        callers: AtomicU64,
    }

    impl Refusing {
        fn with_callers(callers: u64) -> Arc<Refusing> {
            let (tried, callers) = (AtomicU64::new(0), AtomicU64::new(callers));
            Arc::new(Refusing { clock: DrivenClock::new(false), tried, callers })
        }
    }

    impl Station for Refusing {
        fn address(&self) -> String {
            "refusing:1".to_owned()
        }

        fn subscribe(&self, _: &[u8]) -> Result<Subscription, Failure> {
            if self.callers.load(Ordering::SeqCst) > 0 {
                self.callers.fetch_sub(1, Ordering::SeqCst);
                self.tried.fetch_add(1, Ordering::SeqCst);
            }
            Err(Failure::wrong_type())
        }

        fn tried(&self) -> u64 {
            self.tried.load(Ordering::SeqCst)
        }

        fn now(&self) -> Moment {
            self.clock.now()
        }
    }

    fn listen_to(station: &Arc<Refusing>) -> Relay {
        let mut relay = Relay::new(b"own", &Arc::default(), Threads::of_a_new_client());
        relay.add(station.clone());
        relay
    }

    fn is_refused(relay: &Relay, within: Duration) -> bool {
        matches!(relay.next(within).unwrap(), Some((0, Heard::Down(_))))
    }

    #[test]
    fn attempt_between_refusal_and_rest_ends_the_rest() {
        let relay = listen_to(&Refusing::with_callers(1));
        assert!(is_refused(&relay, LONG));
        assert!(is_refused(&relay, LONG), "it rests on");
    }

    #[test]
    fn refusing_server_is_tried_again_after_a_minute() {
        let station = Refusing::with_callers(0);
        let relay = listen_to(&station);
        assert!(is_refused(&relay, LONG));
        assert!(!is_refused(&relay, LOOK * 5), "unasked");
        station.clock.put_forward(station.clock.now().after(REFUSED));
        assert!(is_refused(&relay, LONG), "it rests on");
    }
}

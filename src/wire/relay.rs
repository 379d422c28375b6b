//! Listening to several servers at once.
//!
//! | a server's thread | does | then |
//! | --- | --- | --- |
//! | connects | within the server's time-outs | listens, or rests |
//! | listens | asks for the channels that are wished for, passes on what it hears, asks for a sign of life after a long silence | rests when the connection fails |
//! | rests | for a time that grows while the server cannot be listened to | connects |
//!
//! The driver has nothing to wait on for several connections at once. A thread for each server is what
//! keeps one that is dead, slow to connect or silent from holding up what the others say.

use std::collections::HashMap;
use std::time::Duration;

use crate::base::sync::channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use crate::base::sync::{self, Arc, AtomicBool, Mutex, Ordering};
use crate::wire::failure::Failure;
use crate::wire::node::Node;
use crate::wire::subscription::{Event, Subscription};

/// How often a thread looks whether it is still wanted, and what is wished for.
const LOOK: Duration = Duration::from_millis(200);
/// After so many looks in silence it asks for a sign of life, which must come within so many more.
const SILENT_LOOKS: u32 = 50;
const DEAD_LOOKS: u32 = SILENT_LOOKS + 15;
const FIRST_REST: Duration = Duration::from_millis(20);
const LONGEST_REST: Duration = Duration::from_secs(1);

/// The channels to listen to, whoever listens. The number of a wish tells it from an earlier one for
/// the same channel.
#[derive(Debug, Default)]
pub(crate) struct Wishes(Mutex<(u64, HashMap<Vec<u8>, u64>)>);

impl Wishes {
    pub(crate) fn add(&self, channel: &[u8]) {
        let (number, wishes) = &mut *self.0.lock();
        if !wishes.contains_key(channel) {
            *number += 1;
            wishes.insert(channel.to_vec(), *number);
        }
    }

    pub(crate) fn remove(&self, channel: &[u8]) {
        self.0.lock().1.remove(channel);
    }

    pub(crate) fn contains(&self, channel: &[u8]) -> bool {
        self.0.lock().1.contains_key(channel)
    }

    /// Makes a listener ask for what is wished for now and was not when it last asked.
    fn follow(
        &self,
        known: &mut HashMap<Vec<u8>, u64>,
        subscription: &mut Subscription,
    ) -> Result<(), Failure> {
        let wishes = self.0.lock().1.clone();
        if *known != wishes {
            for (channel, _) in wishes.iter().filter(|(name, wish)| known.get(*name) != Some(wish))
            {
                subscription.subscribe(channel)?;
            }
            for channel in known.keys().filter(|name| !wishes.contains_key(*name)) {
                subscription.unsubscribe(channel)?;
            }
            *known = wishes;
        }
        Ok(())
    }
}

/// What was heard of one server.
#[derive(Debug)]
pub(crate) enum Heard {
    Event(Event),
    /// Nothing is, until it is [`Event::Subscribed`] anew.
    Down(Failure),
}

/// The threads. They end soon after this is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    heard: Receiver<(usize, Heard)>,
    closed: Arc<AtomicBool>,
}

impl Relay {
    /// Begins to listen to all servers, on this channel and on those that are wished for.
    pub(crate) fn start(nodes: &Arc<[Node]>, own: &[u8], wishes: &Arc<Wishes>) -> Relay {
        let (sender, heard) = unbounded();
        let closed = Arc::new(AtomicBool::new(false));
        for number in 0..nodes.len() {
            let ear = Ear {
                nodes: Arc::clone(nodes),
                number,
                own: own.to_vec(),
                wishes: Arc::clone(wishes),
                closed: Arc::clone(&closed),
                heard: sender.clone(),
            };
            if let Err(error) = sync::spawn("leasehold-wakes", move || ear.run()) {
                log::error!("no thread to listen for wake-ups could be started: {error}");
                // Nobody hears it, which the receiver must know.
                let down = Heard::Down(Failure::Unknown(error.into()));
                let _ = sender.send((number, down));
            }
        }
        Relay { heard, closed }
    }

    /// The next that is heard, and of which server; `None` if there is nothing for so long.
    pub(crate) fn next(&self, wait: Duration) -> Result<Option<(usize, Heard)>, Failure> {
        match self.heard.recv_timeout(wait) {
            Ok(heard) => Ok(Some(heard)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Failure::silent()),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
    }
}

/// One server's thread.
struct Ear {
    nodes: Arc<[Node]>,
    number: usize,
    own: Vec<u8>,
    wishes: Arc<Wishes>,
    closed: Arc<AtomicBool>,
    heard: Sender<(usize, Heard)>,
}

impl Ear {
    fn run(self) {
        let mut rest = FIRST_REST;
        while !self.is_closed() {
            let Err((failure, listened)) = self.listen() else { return };
            rest = if listened { FIRST_REST } else { (rest * 2).min(LONGEST_REST) };
            log::debug!("wake-ups of {} are not heard: {failure}", self.node().address());
            if !self.tell(Heard::Down(failure)) {
                return;
            }
            // Also where it rests for long nobody waits for its end.
            let mut left = rest;
            while !left.is_zero() && !self.is_closed() {
                let part = left.min(LOOK);
                sync::sleep(part);
                left -= part;
            }
        }
    }

    /// Listens until nobody wants it (`Ok`) or the connection fails; then also whether there was one.
    fn listen(&self) -> Result<(), (Failure, bool)> {
        let mut subscription =
            self.node().subscribe(&self.own).map_err(|failure| (failure, false))?;
        let mut known = HashMap::new();
        let mut silent_looks = 0;
        while !self.is_closed() {
            let event = self
                .wishes
                .follow(&mut known, &mut subscription)
                .and_then(|()| subscription.next(LOOK))
                .map_err(|failure| (failure, true))?;
            if matches!(event, Event::Nothing) {
                silent_looks += 1;
                match silent_looks {
                    // Asking again for what one has is answered, and needs no other permission.
                    SILENT_LOOKS => {
                        subscription.subscribe(&self.own).map_err(|failure| (failure, true))?;
                    }
                    DEAD_LOOKS.. => return Err((Failure::silent(), true)),
                    _ => {}
                }
            } else {
                silent_looks = 0;
                if !self.tell(Heard::Event(event)) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Whether anybody is there to be told.
    fn tell(&self, heard: Heard) -> bool {
        self.heard.send((self.number, heard)).is_ok()
    }

    fn node(&self) -> &Node {
        &self.nodes[self.number]
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

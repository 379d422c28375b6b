//! What several servers tell of releases, heard as if it were one.
//!
//! | a channel is | when |
//! | --- | --- |
//! | listened to | so many servers confirmed it that every majority which is released has one of them |
//! | heard | the first server tells of a release: a moment later its waiter is woken, once |
//! | suspect | too few servers are listened to; when they are enough again, its waiter is woken |
//!
//! A majority of `need` out of `n` servers has a server in common with any `n - need + 1`. Locks can be
//! taken only while `need` servers answer, which are no fewer, so whoever can take a lock can be told
//! of its release too. Until then, and where the one server in common goes down, a waiter asks again at
//! its next heartbeat.
//!
//! All that wait hear of a release at the same time. Were they to ask at once they would split the
//! votes between them, so each lets a random part of a round's time pass.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::base::time::{Clock, Moment};
use crate::protocol::wake;
use crate::protocol::wake::{Listener, Wake};
use crate::topology::several::relay::{Heard, Relay, Wishes};
use crate::wire::failure::Failure;
use crate::wire::subscription::Event;

/// Waiters do not drift apart by less than this.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// So many releases of one lock are known: each is told by all servers, the slowest of which may be late.
const KNOWN: usize = 8;

/// How long a round takes when all is well.
#[derive(Debug)]
pub(super) struct Pace(AtomicU64);

impl Pace {
    pub(super) fn new() -> Pace {
        Pace(AtomicU64::new(u64::try_from(SHORTEST_PAUSE.as_nanos()).unwrap_or(0)))
    }

    /// A round took so long. One that waited for a silent server is an outlier.
    pub(super) fn note(&self, took: Duration) {
        let most = self.0.load(Ordering::Relaxed).saturating_mul(2);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(took.min(most).max(10_000), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// The channel of one lock.
#[derive(Debug, Default)]
struct Channel {
    /// Who confirmed it.
    servers: u64,
    confirmed: bool,
    /// The owners whose releases were told.
    released: VecDeque<Vec<u8>>,
    /// When its waiter is to be woken.
    due: Option<Moment>,
}

/// One listener for all servers.
pub(super) struct Chorus {
    relay: Relay,
    wishes: Arc<Wishes>,
    clock: Arc<dyn Clock>,
    pace: Arc<Pace>,
    /// The client's own channel, and what its owners' values have in them.
    own: Vec<u8>,
    client: Vec<u8>,
    /// How many servers must be listened to.
    enough: usize,
    /// Who is, and who was refused for good.
    servers: u64,
    refused: u64,
    all: usize,
    channels: HashMap<Vec<u8>, Channel>,
    wakes: VecDeque<Wake>,
}

/// What a [`Chorus`] is about.
pub(super) struct Audience {
    pub(super) wishes: Arc<Wishes>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) pace: Arc<Pace>,
    pub(super) own: Vec<u8>,
    pub(super) client: Vec<u8>,
    pub(super) all: usize,
    pub(super) need: usize,
}

impl Chorus {
    pub(super) fn new(relay: Relay, audience: Audience) -> Chorus {
        let Audience { wishes, clock, pace, own, client, all, need } = audience;
        Chorus {
            relay,
            wishes,
            clock,
            pace,
            own,
            client,
            enough: all - need + 1,
            servers: 0,
            refused: 0,
            all,
            channels: HashMap::new(),
            wakes: VecDeque::new(),
        }
    }

    fn is_enough(&self, servers: u64) -> bool {
        servers.count_ones() as usize >= self.enough
    }

    /// When a waiter is woken that is to be woken now: a moment later, and not when all others are.
    fn soon(&self) -> Moment {
        let most = self.pace.get().max(SHORTEST_PAUSE);
        self.clock.now().after(most.mul_f64(fastrand::f64()))
    }

    fn take(&mut self, server: usize, heard: Heard) -> Result<(), Failure> {
        let bit = 1 << server;
        match heard {
            Heard::Down(failure) => return self.down(bit, failure),
            Heard::Refused(failure) => return self.refuse(bit, failure),
            Heard::Over => return Err(Failure::silent()),
            Heard::Event(Event::Subscribed { channel }) if channel == self.own => {
                self.refused &= !bit;
                let before = self.servers;
                self.servers |= bit;
                if !self.is_enough(before) && self.is_enough(self.servers) {
                    self.wakes.push_back(Wake::Live);
                }
            }
            Heard::Event(Event::Subscribed { channel }) => self.confirm(channel, bit),
            Heard::Event(Event::Message { channel, payload }) if channel == self.own => {
                // Each server tells of its own vote, so the last one tells of all. Nothing else is told
                // to one client here.
                if let wake @ Wake::Evicted { .. } = wake::read(&payload) {
                    self.wakes.push_back(wake);
                }
            }
            Heard::Event(Event::Message { channel, payload }) => self.hear(&channel, payload),
            Heard::Event(Event::Nothing) => {}
        }
        Ok(())
    }

    fn confirm(&mut self, name: Vec<u8>, bit: u64) {
        if !self.wishes.contains(&name) {
            return;
        }
        let soon = self.soon();
        let enough = self.enough;
        let channel = self.channels.entry(name.clone()).or_default();
        let before = channel.servers;
        channel.servers |= bit;
        let was = before.count_ones() as usize >= enough;
        if was || (channel.servers.count_ones() as usize) < enough {
            return;
        }
        if channel.confirmed {
            // What was told meanwhile nobody may have heard.
            channel.due = channel.due.or(Some(soon));
        } else {
            channel.confirmed = true;
            self.wakes.push_back(Wake::Listening { channel: name });
        }
    }

    fn hear(&mut self, name: &[u8], owner: Vec<u8>) {
        let soon = self.soon();
        // Threads of this process that wait know of its own releases.
        let ours = owner.windows(self.client.len()).any(|part| part == self.client);
        let Some(channel) = self.channels.get_mut(name) else { return };
        if ours || channel.released.contains(&owner) {
            return;
        }
        channel.released.truncate(KNOWN - 1);
        channel.released.push_front(owner);
        channel.due = channel.due.or(Some(soon));
    }

    fn down(&mut self, bit: u64, failure: Failure) -> Result<(), Failure> {
        self.servers &= !bit;
        for channel in self.channels.values_mut() {
            channel.servers &= !bit;
        }
        self.refused &= !bit;
        if failure.is_passing() { Ok(()) } else { self.refuse(bit, failure) }
    }

    fn refuse(&mut self, bit: u64, failure: Failure) -> Result<(), Failure> {
        self.refused |= bit;
        // So many that the others are not enough.
        if (self.refused.count_ones() as usize) > self.all - self.enough {
            return Err(failure);
        }
        Ok(())
    }

    /// What is due, and when the next is.
    fn look(&mut self, now: Moment) -> Option<Moment> {
        let mut next = None;
        for (name, channel) in &mut self.channels {
            match channel.due {
                Some(due) if due <= now => {
                    channel.due = None;
                    self.wakes.push_back(Wake::Released { channel: name.clone() });
                }
                Some(due) => next = Some(next.map_or(due, |next: Moment| next.min(due))),
                None => {}
            }
        }
        next
    }
}

impl Listener for Chorus {
    fn next(&mut self, wait: Duration) -> Result<Wake, Failure> {
        let until = self.clock.now().after(wait);
        loop {
            let now = self.clock.now();
            let due = self.look(now);
            if let Some(wake) = self.wakes.pop_front() {
                return Ok(wake);
            }
            if now >= until {
                return Ok(Wake::Nothing);
            }
            let until = due.map_or(until, |due| due.min(until));
            if let Some((server, heard)) = self.relay.next(until.since(now))? {
                self.take(server, heard)?;
                // What was wished for may be asked for by who listens.
                if self.wakes.is_empty() && self.look(now).is_none() {
                    return Ok(Wake::Nothing);
                }
            }
        }
    }

    fn add(&mut self, name: &[u8]) -> Result<(), Failure> {
        self.wishes.add(name);
        let channel = self.channels.entry(name.to_vec()).or_default();
        if channel.confirmed {
            self.wakes.push_back(Wake::Listening { channel: name.to_vec() });
        }
        Ok(())
    }

    fn remove(&mut self, name: &[u8]) -> Result<(), Failure> {
        self.wishes.remove(name);
        self.channels.remove(name);
        Ok(())
    }
}

impl fmt::Debug for Chorus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chorus").field("servers", &self.servers).finish_non_exhaustive()
    }
}

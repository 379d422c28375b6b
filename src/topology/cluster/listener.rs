//! What the masters of a cluster tell, heard as if it were one server.
//!
//! | a master is | when | goes to |
//! | --- | --- | --- |
//! | sought | it is on the map: its thread connects | heard, down |
//! | heard | the client's own channel is confirmed there | down |
//! | down | its connection failed, or it refuses; its thread tries again, and asks the nodes who is in its place | heard |
//! | gone | it is on the map no longer: its thread ends | |
//!
//! A script publishes at the master that has its slot. Whoever listens there hears it at once; the other
//! nodes get to know of it too, but it may take them 40 ms and more to pass it on.
//!
//! *The client's own channel* is listened to at all masters, so everything is said as often as there are
//! masters. The first to say it is believed, and the [echoes](Echoes) are not passed on: neither a slot
//! that moves nor a node that is silent can keep a message back that any other brings. What may be meant
//! each time that it is said, as a request to let go, has the time in it at which it was said.
//!
//! *The channel of one name* is listened to at the one master that has the word on its slot: the one that
//! has it, if that is heard, and else any that is.
//!
//! The client hears ([`Wake::Live`]) as soon as one master is heard, and until none is: one that cannot
//! be listened to makes what is said there late, and nobody deaf. When a master is heard again, or a new
//! one for the first time, those who wait for names there ask again; so do those who wait at the channel
//! of a name that another has the word on now (rule 12).
//!
//! A node that becomes a replica is listened to until the map has another in its place. Nodes pass on
//! what is published by themselves, not by replication, so a replica hears what its master hears, and a
//! listener that left it early would hear less.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::time::Duration;

use crate::base::sync::{Arc, Mutex};
use crate::base::tag::hash_slot;
use crate::base::time::Moment;
use crate::protocol::wake::{Listener, Wake};
use crate::protocol::wake::{NUDGE, understand};
use crate::topology::cluster::directory::Directory;
use crate::topology::cluster::member::Member;
use crate::topology::several::relay::{Heard, Relay, Station, Wishes};
use crate::wire::failure::Failure;
use crate::wire::subscription::{Event, Subscription};

/// How often it is looked whether other masters are to be listened to.
const LOOK: Duration = Duration::from_millis(200);
/// What is said again within this time is an echo, and may be taken for one for twice as long: until then
/// whoever was told to ask again, or that somebody waits, has not forgotten.
const ECHO: Duration = Duration::from_secs(1);

/// What was said in the last while.
#[derive(Debug, Default)]
struct Echoes(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    lately: HashSet<Vec<u8>>,
    before: HashSet<Vec<u8>>,
    /// When `lately` becomes `before`.
    over: Moment,
}

impl Echoes {
    /// Whether nobody has said this yet.
    fn is_first(&self, payload: &[u8], now: Moment) -> bool {
        let said = &mut *self.0.lock();
        if said.over <= now {
            said.before = std::mem::take(&mut said.lately);
            said.over = said.over.after(ECHO);
            if said.over <= now {
                said.before.clear();
                said.over = now.after(ECHO);
            }
        }
        !said.before.contains(payload) && said.lately.insert(payload.to_vec())
    }
}

/// One master as it is listened to.
struct Post {
    directory: Arc<Directory>,
    member: Arc<Member>,
    own: Arc<[u8]>,
    echoes: Arc<Echoes>,
}

impl Station for Post {
    fn address(&self) -> String {
        self.member.shown()
    }

    fn tried(&self) -> u64 {
        self.member.tried()
    }

    fn now(&self) -> Moment {
        self.directory.now()
    }

    fn subscribe(&self, channel: &[u8]) -> Result<Subscription, Failure> {
        self.directory.subscribe(&self.member, channel)
    }

    fn has(&self, channel: &[u8]) -> bool {
        self.directory.has_word(hash_slot(channel), &self.member)
            || mutated!("cluster-name-listened-to-everywhere")
    }

    fn version(&self) -> u64 {
        self.directory.changes()
    }

    fn is_news(&self, event: &Event) -> bool {
        match event {
            Event::Message { channel, payload } if **channel == *self.own && payload != NUDGE => {
                self.echoes.is_first(payload, self.directory.now()) || mutated!("cluster-echo-told")
            }
            _ => true,
        }
    }
}

#[derive(Debug)]
enum State {
    Sought,
    Heard,
    Down(Failure),
}

/// A master that is listened to.
struct Voice {
    number: usize,
    member: Arc<Member>,
    state: State,
    /// Whether something may be said there before it is heard, of which no other tells.
    late: bool,
}

/// One listener for all masters.
pub(super) struct Choir {
    directory: Arc<Directory>,
    relay: Relay,
    wishes: Arc<Wishes>,
    own: Arc<[u8]>,
    echoes: Arc<Echoes>,
    voices: Vec<Voice>,
    /// By which changes of the nodes these are they.
    seen: Option<u64>,
    live: bool,
    /// Channels of names that were confirmed.
    channels: HashSet<Vec<u8>>,
    wakes: VecDeque<Wake>,
}

impl Choir {
    /// Begins to listen to all masters. May take as long as asking for them does.
    pub(super) fn new(
        directory: &Arc<Directory>,
        own: Vec<u8>,
        wishes: &Arc<Wishes>,
    ) -> Result<Choir, Failure> {
        let mut choir = Choir::of_nobody(directory, own, wishes);
        choir.follow()?;
        Ok(choir)
    }

    fn of_nobody(directory: &Arc<Directory>, own: Vec<u8>, wishes: &Arc<Wishes>) -> Choir {
        Choir {
            directory: Arc::clone(directory),
            relay: Relay::new(&own, wishes, directory.threads()),
            wishes: Arc::clone(wishes),
            own: own.into(),
            echoes: Arc::default(),
            voices: Vec::new(),
            seen: None,
            live: false,
            channels: HashSet::new(),
            wakes: VecDeque::new(),
        }
    }

    /// Listens to whoever is a master now, and to nobody else.
    fn follow(&mut self) -> Result<(), Failure> {
        let changes = self.directory.changes();
        if self.seen == Some(changes) {
            return Ok(());
        }
        let late = self.seen.is_some();
        if late && mutated!("cluster-new-master-not-listened-to") {
            return Ok(());
        }
        let mut members = self.directory.audible()?;
        if mutated!("cluster-one-master-listened-to") {
            members.truncate(1);
        }
        let (relay, directory) = (&mut self.relay, &self.directory);
        self.voices.retain(|voice| {
            let stays = members.iter().any(|member| Arc::ptr_eq(member, &voice.member));
            if !stays {
                relay.remove(voice.number);
                directory.set_heard(&voice.member, false);
            }
            stays
        });
        for member in members {
            if self.voices.iter().any(|voice| Arc::ptr_eq(&voice.member, &member)) {
                continue;
            }
            let number = self.relay.add(Arc::new(Post {
                directory: Arc::clone(&self.directory),
                member: Arc::clone(&member),
                own: Arc::clone(&self.own),
                echoes: Arc::clone(&self.echoes),
            }));
            self.voices.push(Voice { number, member, state: State::Sought, late });
        }
        self.seen = Some(changes);
        Ok(())
    }

    fn take(&mut self, number: usize, heard: Heard) -> Result<(), Failure> {
        let Some(place) = self.voices.iter().position(|voice| voice.number == number) else {
            // It has gone since. What it was the first to say is an echo wherever else it is heard.
            if let Heard::Event(event @ Event::Message { .. }) = heard
                && !mutated!("cluster-gone-master-not-believed")
            {
                self.wakes.push_back(understand(event, &self.own));
            }
            return Ok(());
        };
        match heard {
            Heard::Event(Event::Subscribed { channel }) if *channel == *self.own => {
                self.hear(place);
            }
            Heard::Event(Event::Subscribed { channel }) => self.confirm(channel),
            Heard::Event(event) => self.wakes.push_back(understand(event, &self.own)),
            Heard::Refused(failure) => {
                let channels = &self.channels;
                self.wishes.retain(|channel| channels.contains(channel));
                return Err(failure);
            }
            Heard::Down(failure) => return self.down(place, failure),
            Heard::Over => return Err(Failure::silent()),
        }
        Ok(())
    }

    /// The client's own channel is confirmed by a master.
    fn hear(&mut self, place: usize) {
        let voice = &mut self.voices[place];
        if matches!(voice.state, State::Heard) {
            return;
        }
        voice.state = State::Heard;
        self.directory.set_heard(&voice.member, true);
        if !std::mem::replace(&mut self.live, true) {
            self.wakes.push_back(Wake::Live);
        } else if voice.late && !mutated!("cluster-return-wakes-nobody") {
            self.wakes.push_back(Wake::Missed { slots: self.directory.slots_of(&voice.member) });
        }
    }

    /// The channel of a name is confirmed by a master.
    fn confirm(&mut self, channel: Vec<u8>) {
        if !self.wishes.contains(&channel) {
            return;
        }
        let wake = if self.channels.insert(channel.clone()) {
            Wake::Listening { channel }
        } else {
            // What was told meanwhile nobody may have heard.
            Wake::Released { channel }
        };
        self.wakes.push_back(wake);
    }

    /// Fails when none is heard any more, or none ever could be.
    fn down(&mut self, place: usize, failure: Failure) -> Result<(), Failure> {
        let voice = &mut self.voices[place];
        (voice.state, voice.late) = (State::Down(failure.clone()), true);
        self.directory.set_heard(&voice.member, false);
        let mut refusal = None;
        for voice in &self.voices {
            match &voice.state {
                State::Down(failure) if failure.is_passing() => {}
                State::Down(failure) => refusal = Some(failure),
                State::Sought | State::Heard => return Ok(()),
            }
        }
        match refusal {
            Some(refusal) => Err(refusal.clone()),
            None if self.live => Err(failure),
            None => Ok(()),
        }
    }
}

impl Listener for Choir {
    fn next(&mut self, wait: Duration) -> Result<Wake, Failure> {
        self.follow()?;
        if let Some(wake) = self.wakes.pop_front() {
            return Ok(wake);
        }
        if let Some((number, heard)) = self.relay.next(wait.min(LOOK))? {
            self.take(number, heard)?;
        }
        Ok(self.wakes.pop_front().unwrap_or(Wake::Nothing))
    }

    fn add(&mut self, channel: &[u8]) -> Result<(), Failure> {
        self.wishes.add(channel);
        if self.channels.contains(channel) {
            self.wakes.push_back(Wake::Listening { channel: channel.to_vec() });
        }
        Ok(())
    }

    fn remove(&mut self, channel: &[u8]) -> Result<(), Failure> {
        self.wishes.remove(channel);
        self.channels.remove(channel);
        Ok(())
    }
}

impl Drop for Choir {
    fn drop(&mut self) {
        self.voices.iter().for_each(|voice| self.directory.set_heard(&voice.member, false));
    }
}

impl fmt::Debug for Choir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Choir").field("masters", &self.voices.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::thread::Threads;
    use crate::base::time::BootClock;
    use crate::topology::cluster::ClusterSettings;
    use crate::wire::endpoint;
    use crate::wire::manager::Timeouts;
    use crate::wire::pool::PoolSettings;

    #[test]
    fn what_a_master_said_before_it_went_is_believed() {
        let timeouts = Timeouts::both(ECHO);
        let (pool, threads) = (PoolSettings::default(), Threads::of_a_new_client());
        let settings = ClusterSettings { pool, timeouts, threads };
        let info = endpoint::parse("redis://127.0.0.1:1").unwrap();
        let directory = Directory::new(Vec::new(), info, settings, Arc::new(BootClock));
        let mut choir = Choir::of_nobody(&Arc::new(directory), b"own".to_vec(), &Arc::default());
        let message = |payload: &[u8]| {
            Heard::Event(Event::Message { channel: b"own".to_vec(), payload: payload.to_vec() })
        };
        choir.take(7, message(b"r 1f x")).unwrap();
        choir.take(7, Heard::Down(Failure::silent())).unwrap();
        choir.take(7, message(b"p 1f 9 x")).unwrap();
        let (name, number) = (b"x".to_vec(), 31);
        assert_eq!(
            choir.wakes,
            [Wake::Retry { name: name.clone() }, Wake::Request { name, number }]
        );
    }

    #[test]
    fn what_is_said_again_soon_is_an_echo() {
        let (echoes, begin) = (Echoes::default(), Moment::PAST.after(Duration::from_secs(100)));
        let at = |seconds: f64| begin.after(Duration::from_secs_f64(seconds));
        assert!(echoes.is_first(b"a", at(0.0)));
        assert!(echoes.is_first(b"b", at(0.9)));
        assert!(!echoes.is_first(b"a", at(0.9)));
        assert!(!echoes.is_first(b"b", at(1.8)));
        assert!(echoes.is_first(b"a", at(2.0)), "over twice as long as an echo is expected");
        assert!(echoes.is_first(b"b", at(3.1)));
        assert!(!echoes.is_first(b"a", at(3.2)));
        assert!(echoes.is_first(b"a", at(4.1)));
        assert!(echoes.is_first(b"a", at(9.0)));
    }
}

//! The keys of one lock at a server, in ticks.

use ::redis::{Value, from_redis_value};

use crate::encoding::{self, BEATS, FENCE, LOCK, QUEUE, WORD, channel, integer};
use crate::protocol::{Attempt, Time, Token};
use crate::redis::{Store, call};
use crate::scenario::Setting;
use crate::unit::{
    micros_at, moment_of_micros, moment_of_millis, place_of_micros, token_of_micros,
};

/// A sorted set with a time to live: members and their scores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sorted {
    pub(crate) members: Vec<(Attempt, Time)>,
    /// `None`: without end, which no key may be.
    pub(crate) until: Option<Time>,
}

impl Sorted {
    pub(crate) fn contains(&self, attempt: Attempt) -> bool {
        self.members.iter().any(|(member, _)| *member == attempt)
    }
}

/// The owner of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) owner: Attempt,
    /// The first tick at which the key is gone. `None`: it never expires, which no key may do.
    pub(crate) until: Option<Time>,
}

/// The counter of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) token: Token,
    /// Its end in milliseconds of the server: it may outlast its lease by a part of a tick.
    pub(crate) until: Option<i64>,
}

/// The keys of a lock, and the subscribers.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) lock: Option<Lock>,
    pub(crate) fence: Option<Fence>,
    pub(crate) queue: Sorted,
    pub(crate) beats: Sorted,
    /// The term of an election's word, with its end.
    pub(crate) word: Option<Fence>,
    /// Whose channel is subscribed to, a bit for each client.
    heard: u8,
    /// Whose listener is counted at this server.
    counted: u8,
}

impl Content {
    pub(crate) fn owner(&self) -> Option<Attempt> {
        self.lock.map(|lock| lock.owner)
    }

    /// Whether a client's listener is at this server, and so is counted.
    pub(crate) fn counts(&self, client: u8) -> bool {
        self.counted & (1 << client) != 0
    }

    /// Whether a message reaches a client's listener, be it here or at a replica.
    pub(crate) fn reaches(&self, client: u8) -> bool {
        self.heard & (1 << client) != 0
    }

    pub(crate) fn read(store: &mut Store, now: Time, clients: u8, setting: &Setting) -> Content {
        let heard = |client: &u8| store.hearers(&channel(*client)).next().is_some();
        let heard = bits((0..clients).filter(heard));
        let at = micros_at(now, setting).unsigned_abs();
        let (read, _) = store.run(at, |run| {
            let ask = |words: &[Vec<u8>]| call(run, words).expect("no error");
            Content { heard, ..Reader { ask, setting }.read(clients) }
        });
        read
    }
}

/// A bit for each client.
fn bits(clients: impl Iterator<Item = u8>) -> u8 {
    clients.map(|client| 1 << client).sum()
}

/// Asks a store by commands.
struct Reader<'a, A> {
    ask: A,
    setting: &'a Setting,
}

impl<A: FnMut(&[Vec<u8>]) -> Value> Reader<'_, A> {
    fn read(mut self, clients: u8) -> Content {
        let setting = self.setting;
        let owner = self.text(LOCK).map(|value| encoding::attempt(value.as_bytes()));
        let token = self.text(FENCE).map(|token| token_of_micros(integer(&token), setting));
        let word = self.text(WORD).map(|word| {
            let (term, _) = word.split_once(' ').expect("a term and a number");
            token_of_micros(integer(term), setting)
        });
        Content {
            lock: owner.map(|owner| Lock { owner, until: self.until(LOCK) }),
            fence: token.map(|token| Fence { token, until: self.ends(FENCE) }),
            queue: self.sorted(QUEUE, |place| place_of_micros(place, setting)),
            beats: self.sorted(BEATS, |death| moment_of_micros(death, setting)),
            word: word.map(|token| Fence { token, until: self.ends(WORD) }),
            heard: 0,
            counted: bits((0..clients).filter(|client| self.counts(*client))),
        }
    }

    fn ask(&mut self, words: &[&str]) -> Value {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        (self.ask)(&words)
    }

    fn text(&mut self, key: &str) -> Option<String> {
        from_redis_value(self.ask(&["GET", key])).expect("a text")
    }

    /// When a key ends, in milliseconds of the server.
    fn ends(&mut self, key: &str) -> Option<i64> {
        match self.ask(&["PEXPIRETIME", key]) {
            Value::Int(end) if end >= 0 => Some(end),
            _ => None,
        }
    }

    fn until(&mut self, key: &str) -> Option<Time> {
        self.ends(key).map(|end| moment_of_millis(end, self.setting))
    }

    fn sorted(&mut self, key: &str, ticks: impl Fn(i64) -> Time) -> Sorted {
        let members = self.ask(&["ZRANGE", key, "0", "-1", "WITHSCORES"]);
        let members: Vec<(String, i64)> = from_redis_value(members).expect("members");
        let members = members.into_iter();
        let members =
            members.map(|(value, score)| (encoding::attempt(value.as_bytes()), ticks(score)));
        Sorted { members: members.collect(), until: self.until(key) }
    }

    fn counts(&mut self, client: u8) -> bool {
        let channel = channel(client);
        let channel = String::from_utf8_lossy(&channel);
        let reply = self.ask(&["PUBSUB", "NUMSUB", &channel]);
        let (_, count): (String, u8) = from_redis_value(reply).expect("a count");
        count > 0
    }
}

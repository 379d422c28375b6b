//! Keys that expire, and subscribers.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use super::number::Score;
use super::reply::ErrorReply;

/// A field of a hash, and its value.
pub(super) type Field = (Vec<u8>, Vec<u8>);
/// A member of a sorted set, after its score.
pub(super) type Member = (Score, Vec<u8>);

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Data {
    Text(Vec<u8>),
    /// In order of insertion.
    Hash(Vec<Field>),
    /// By score, and by member among equal scores.
    Sorted(Vec<Member>),
    List(Vec<Vec<u8>>),
}

impl Data {
    /// Whether the key must be removed: Redis has no empty collections.
    fn is_nothing(&self) -> bool {
        match self {
            Data::Text(_) => false,
            Data::Hash(fields) => fields.is_empty(),
            Data::Sorted(scores) => scores.is_empty(),
            Data::List(items) => items.is_empty(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Entry {
    data: Data,
    /// The last millisecond in which it exists; `None` without an expiry.
    ends: Option<i64>,
}

/// A published message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Published {
    pub(crate) channel: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// The effects of a run besides its reply.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) published: Vec<Published>,
    /// The keys that were written or expired, for the sessions that watch them.
    pub(crate) touched: BTreeSet<Vec<u8>>,
}

/// The data of a server. Equal stores behave equally from then on, so that the explorer can compare
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Store {
    keys: BTreeMap<Vec<u8>, Entry>,
    /// The channels of each subscriber.
    listeners: BTreeMap<u64, BTreeSet<Vec<u8>>>,
    /// The subscribers at a replica: they receive every message, and are not counted here.
    at_replica: BTreeSet<u64>,
    is_out_of_memory: bool,
}

impl Store {
    /// Subscribes to a channel.
    pub(crate) fn subscribe(&mut self, listener: u64, channel: &[u8]) {
        self.listeners.entry(listener).or_default().insert(channel.to_vec());
    }

    /// Unsubscribes from a channel.
    pub(crate) fn unsubscribe(&mut self, listener: u64, channel: &[u8]) {
        if let Some(channels) = self.listeners.get_mut(&listener) {
            channels.remove(channel);
        }
    }

    /// Removes a subscriber whose connection was closed.
    pub(crate) fn disconnect(&mut self, listener: u64) {
        self.listeners.remove(&listener);
        self.at_replica.remove(&listener);
    }

    /// Moves a subscriber to a replica of this server, or back.
    pub(crate) fn put_at_replica(&mut self, listener: u64, there: bool) {
        if there {
            self.at_replica.insert(listener);
        } else {
            self.at_replica.remove(&listener);
        }
    }

    /// The subscribers of a channel.
    pub(crate) fn hearers<'a>(&'a self, channel: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
        self.listeners
            .iter()
            .filter(move |(_, channels)| channels.contains(channel))
            .map(|(&listener, _)| listener)
    }

    /// The keys that have not expired, as `SCAN` would return them.
    pub(crate) fn live_keys(&self, micros: u64) -> impl Iterator<Item = &[u8]> {
        let now = millis(micros);
        let lives = move |(_, entry): &(_, &Entry)| entry.ends.is_none_or(|ends| now <= ends);
        self.keys.iter().filter(lives).map(|(key, _)| key.as_slice())
    }

    /// Sets whether memory is full. Redis then refuses commands that may need more memory.
    pub(crate) fn set_out_of_memory(&mut self, is_full: bool) {
        self.is_out_of_memory = is_full;
    }

    /// Deletes all keys (`FLUSHALL`), and returns them.
    pub(crate) fn flush(&mut self) -> BTreeSet<Vec<u8>> {
        mem::take(&mut self.keys).into_keys().collect()
    }

    /// Removes the expired keys, and returns them.
    pub(crate) fn expire(&mut self, micros: u64) -> BTreeSet<Vec<u8>> {
        let now = millis(micros);
        let dies = |entry: &Entry| entry.ends.is_some_and(|ends| now > ends);
        let dead = self.keys.iter().filter(|(_, entry)| dies(entry));
        let dead: BTreeSet<_> = dead.map(|(key, _)| key.clone()).collect();
        for key in &dead {
            self.keys.remove(key);
        }
        dead
    }

    /// Runs commands at one moment of the server, as one atomic step.
    pub(crate) fn run<T>(
        &mut self,
        micros: u64,
        work: impl FnOnce(&mut Execution) -> T,
    ) -> (T, Effects) {
        // Time stands still during a script, as in Redis: a key that exists at its start exists
        // until its end, so keys expire only here.
        let effects = Effects { published: Vec::new(), touched: self.expire(micros) };
        // Moved out and back: the closures of Lua must own the store while a script runs.
        let store = mem::take(self);
        let mut run = Execution { store, micros, effects, has_written: false };
        let value = work(&mut run);
        *self = run.store;
        (value, run.effects)
    }
}

fn millis(micros: u64) -> i64 {
    // A quotient by 1000 always fits into an `i64`.
    (micros / 1000).cast_signed()
}

/// A store at one moment.
#[derive(Debug, Default)]
pub(crate) struct Execution {
    store: Store,
    micros: u64,
    effects: Effects,
    has_written: bool,
}

impl Execution {
    /// The server's time in microseconds.
    pub(super) fn micros(&self) -> u64 {
        self.micros
    }

    /// The server's time in milliseconds, by which keys expire.
    pub(super) fn millis(&self) -> i64 {
        millis(self.micros)
    }

    /// Whether a command that needs memory is refused.
    pub(super) fn refuses_growth(&self) -> bool {
        // Redis lets a script go on after its first write, since it cannot undo that. Releases rely
        // on it: they begin with a write that needs no memory (rule 16).
        self.store.is_out_of_memory && !self.has_written
    }

    /// Notes that a command that may write has begun.
    pub(super) fn note_write(&mut self) {
        self.has_written = true;
    }

    pub(super) fn data(&self, key: &[u8]) -> Option<&Data> {
        self.store.keys.get(key).map(|entry| &entry.data)
    }

    /// The last millisecond in which a key exists: `None` without the key, `Some(None)` without an
    /// expiry.
    pub(super) fn ends(&self, key: &[u8]) -> Option<Option<i64>> {
        self.store.keys.get(key).map(|entry| entry.ends)
    }

    /// Deletes a key. Returns whether it existed.
    pub(super) fn delete(&mut self, key: &[u8]) -> bool {
        let found = self.store.keys.remove(key).is_some();
        if found {
            self.touch(key);
        }
        found
    }

    /// Sets the expiry of a key. One in the past deletes the key at once.
    pub(super) fn set_end(&mut self, key: &[u8], ends: Option<i64>) {
        if ends.is_some_and(|ends| ends <= self.millis()) {
            self.delete(key);
        } else if let Some(entry) = self.store.keys.get_mut(key) {
            entry.ends = ends;
            self.touch(key);
        }
    }

    /// Writes a string in place of any value.
    pub(super) fn set_text(&mut self, key: &[u8], text: Vec<u8>, ends: Option<i64>) {
        self.store.keys.insert(key.to_vec(), Entry { data: Data::Text(text), ends });
        self.touch(key);
    }

    pub(super) fn text(&self, key: &[u8]) -> Result<Option<&[u8]>, ErrorReply> {
        match self.data(key) {
            None => Ok(None),
            Some(Data::Text(text)) => Ok(Some(text)),
            Some(_) => Err(ErrorReply::wrong_type()),
        }
    }

    pub(super) fn hash(&self, key: &[u8]) -> Result<&[Field], ErrorReply> {
        match self.data(key) {
            None => Ok(&[]),
            Some(Data::Hash(fields)) => Ok(fields),
            Some(_) => Err(ErrorReply::wrong_type()),
        }
    }

    pub(super) fn sorted(&self, key: &[u8]) -> Result<&[Member], ErrorReply> {
        match self.data(key) {
            None => Ok(&[]),
            Some(Data::Sorted(scores)) => Ok(scores),
            Some(_) => Err(ErrorReply::wrong_type()),
        }
    }

    pub(super) fn list(&self, key: &[u8]) -> Result<&[Vec<u8>], ErrorReply> {
        match self.data(key) {
            None => Ok(&[]),
            Some(Data::List(items)) => Ok(items),
            Some(_) => Err(ErrorReply::wrong_type()),
        }
    }

    /// The fields of a hash, to be changed; the hash is created if there is none. The caller must
    /// call
    /// [`settle`](Execution::settle) afterwards.
    pub(super) fn hash_mut(&mut self, key: &[u8]) -> Result<&mut Vec<Field>, ErrorReply> {
        match self.data_mut(key, Data::Hash(Vec::new())) {
            Data::Hash(fields) => Ok(fields),
            _ => Err(ErrorReply::wrong_type()),
        }
    }

    /// The same for a sorted set.
    pub(super) fn sorted_mut(&mut self, key: &[u8]) -> Result<&mut Vec<Member>, ErrorReply> {
        match self.data_mut(key, Data::Sorted(Vec::new())) {
            Data::Sorted(scores) => Ok(scores),
            _ => Err(ErrorReply::wrong_type()),
        }
    }

    /// The same for a list.
    pub(super) fn list_mut(&mut self, key: &[u8]) -> Result<&mut Vec<Vec<u8>>, ErrorReply> {
        match self.data_mut(key, Data::List(Vec::new())) {
            Data::List(items) => Ok(items),
            _ => Err(ErrorReply::wrong_type()),
        }
    }

    fn data_mut(&mut self, key: &[u8], empty: Data) -> &mut Data {
        let entry = || Entry { data: empty, ends: None };
        &mut self.store.keys.entry(key.to_vec()).or_insert_with(entry).data
    }

    /// Ends a change of a collection, and removes the key if the collection is empty.
    pub(super) fn settle(&mut self, key: &[u8], has_changed: bool) {
        if self.data(key).is_some_and(Data::is_nothing) {
            self.store.keys.remove(key);
        }
        // A command without an effect must not touch the key: `HDEL` of an absent field does not
        // outdate a `WATCH` in Redis.
        if has_changed {
            self.touch(key);
        }
    }

    fn touch(&mut self, key: &[u8]) {
        self.effects.touched.insert(key.to_vec());
    }

    /// Publishes a message. Returns the number of subscribers at this server, without those at a
    /// replica.
    pub(super) fn publish(&mut self, channel: &[u8], payload: &[u8]) -> u64 {
        let published = Published { channel: channel.to_vec(), payload: payload.to_vec() };
        self.effects.published.push(published);
        self.subscribers(channel)
    }

    /// The number of subscribers of a channel at this server.
    pub(super) fn subscribers(&self, channel: &[u8]) -> u64 {
        let is_here = |listener: &u64| !self.store.at_replica.contains(listener);
        self.store.hearers(channel).filter(is_here).count() as u64
    }
}

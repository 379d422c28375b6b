//! Keys that expire, and listeners.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use super::number::Score;
use super::reply::ErrorReply;

/// A field of a hash, and its value.
pub(super) type Field = (Vec<u8>, Vec<u8>);
/// A member of a sorted set, after its score.
pub(super) type Member = (Score, Vec<u8>);

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Data {
    Text(Vec<u8>),
    /// In the order in which the fields came.
    Hash(Vec<Field>),
    /// The lowest score first, and by member where scores are equal.
    Sorted(Vec<Member>),
    List(Vec<Vec<u8>>),
}

impl Data {
    /// An empty collection is no key any more.
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
    /// The last millisecond of its life.
    ends: Option<i64>,
}

/// A message that was published, as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Published {
    pub(crate) channel: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// What a run did besides its reply.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) published: Vec<Published>,
    /// The keys that a session which watches them must hear of: those that were written, and those that
    /// expired.
    pub(crate) touched: BTreeSet<Vec<u8>>,
}

/// All that a server keeps. Equal stores behave alike from then on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Store {
    keys: BTreeMap<Vec<u8>, Entry>,
    /// Who listens to which channels.
    listeners: BTreeMap<u64, BTreeSet<Vec<u8>>>,
    /// Which of them listen at a replica: they hear everything, and are not counted here.
    at_replica: BTreeSet<u64>,
    is_out_of_memory: bool,
}

impl Store {
    /// Lets a listener hear a channel.
    pub(crate) fn subscribe(&mut self, listener: u64, channel: &[u8]) {
        self.listeners.entry(listener).or_default().insert(channel.to_vec());
    }

    /// Lets a listener hear a channel no longer.
    pub(crate) fn unsubscribe(&mut self, listener: u64, channel: &[u8]) {
        if let Some(channels) = self.listeners.get_mut(&listener) {
            channels.remove(channel);
        }
    }

    /// Forgets a listener whose connection is gone.
    pub(crate) fn disconnect(&mut self, listener: u64) {
        self.listeners.remove(&listener);
        self.at_replica.remove(&listener);
    }

    /// Puts a listener at a replica of this server, or at this server.
    pub(crate) fn put_at_replica(&mut self, listener: u64, there: bool) {
        if there {
            self.at_replica.insert(listener);
        } else {
            self.at_replica.remove(&listener);
        }
    }

    /// The listeners that hear a channel.
    pub(crate) fn hearers<'a>(&'a self, channel: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
        self.listeners
            .iter()
            .filter(move |(_, channels)| channels.contains(channel))
            .map(|(&listener, _)| listener)
    }

    /// The keys that live, as `SCAN` would return them.
    pub(crate) fn live_keys(&self, micros: u64) -> impl Iterator<Item = &[u8]> {
        let now = millis(micros);
        let lives = move |(_, entry): &(_, &Entry)| entry.ends.is_none_or(|ends| now <= ends);
        self.keys.iter().filter(lives).map(|(key, _)| key.as_slice())
    }

    /// Sets whether memory is full: then Redis refuses commands that may need more of it.
    pub(crate) fn set_out_of_memory(&mut self, is_full: bool) {
        self.is_out_of_memory = is_full;
    }

    /// Forgets everything that was stored (`FLUSHALL`); returns the keys that there were.
    pub(crate) fn flush(&mut self) -> BTreeSet<Vec<u8>> {
        mem::take(&mut self.keys).into_keys().collect()
    }

    /// Forgets the keys whose end has come, and returns them.
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

    /// Runs commands at one moment of the server, without another's between them.
    pub(crate) fn run<T>(
        &mut self,
        micros: u64,
        work: impl FnOnce(&mut Execution) -> T,
    ) -> (T, Effects) {
        let effects = Effects { published: Vec::new(), touched: self.expire(micros) };
        // Lua needs the store for its own while a script runs.
        let store = mem::take(self);
        let mut run = Execution { store, micros, effects, has_written: false };
        let value = work(&mut run);
        *self = run.store;
        (value, run.effects)
    }
}

fn millis(micros: u64) -> i64 {
    // Below 2^54.
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

    /// The server's time in milliseconds, by which keys end.
    pub(super) fn millis(&self) -> i64 {
        millis(self.micros)
    }

    /// Whether a command that needs memory is refused. A script that has written is no longer (rule 16).
    pub(super) fn refuses_growth(&self) -> bool {
        self.store.is_out_of_memory && !self.has_written
    }

    /// A command that may write has begun.
    pub(super) fn note_write(&mut self) {
        self.has_written = true;
    }

    pub(super) fn data(&self, key: &[u8]) -> Option<&Data> {
        self.store.keys.get(key).map(|entry| &entry.data)
    }

    /// The last millisecond of a key's life; nothing without the key, `Some(None)` without an end.
    pub(super) fn ends(&self, key: &[u8]) -> Option<Option<i64>> {
        self.store.keys.get(key).map(|entry| entry.ends)
    }

    /// Whether there was anything to delete.
    pub(super) fn delete(&mut self, key: &[u8]) -> bool {
        let found = self.store.keys.remove(key).is_some();
        if found {
            self.touch(key);
        }
        found
    }

    /// Gives a key another end. One that is over ends it at once.
    pub(super) fn set_end(&mut self, key: &[u8], ends: Option<i64>) {
        if ends.is_some_and(|ends| ends <= self.millis()) {
            self.delete(key);
        } else if let Some(entry) = self.store.keys.get_mut(key) {
            entry.ends = ends;
            self.touch(key);
        }
    }

    /// Writes a string in the place of whatever there is.
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

    /// The fields of a hash to change, an empty one where there is none. [`settle`](Execution::settle) is owed.
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

    /// Ends what may have changed a collection.
    pub(super) fn settle(&mut self, key: &[u8], has_changed: bool) {
        if self.data(key).is_some_and(Data::is_nothing) {
            self.store.keys.remove(key);
        }
        if has_changed {
            self.touch(key);
        }
    }

    fn touch(&mut self, key: &[u8]) {
        self.effects.touched.insert(key.to_vec());
    }

    /// Returns how many hear it at this server, but for those that listen at a replica.
    pub(super) fn publish(&mut self, channel: &[u8], payload: &[u8]) -> u64 {
        let published = Published { channel: channel.to_vec(), payload: payload.to_vec() };
        self.effects.published.push(published);
        self.subscribers(channel)
    }

    /// How many listen to a channel at this server.
    pub(super) fn subscribers(&self, channel: &[u8]) -> u64 {
        let is_here = |listener: &u64| !self.store.at_replica.contains(listener);
        self.store.hearers(channel).filter(is_here).count() as u64
    }
}

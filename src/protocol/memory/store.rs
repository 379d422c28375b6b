//! Keys in memory, with the commands that the scripts call. It has neither a clock nor threads:
//! the server's time comes with every run.

use std::collections::{BTreeMap, BTreeSet};

/// The key holds something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongType;

pub(super) type Outcome<T> = Result<T, WrongType>;

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Data {
    Text(Vec<u8>),
    /// In the order in which the fields came.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    Sorted(BTreeMap<Vec<u8>, i64>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Entry {
    data: Data,
    /// The last millisecond of its life.
    ends: Option<u64>,
}

/// A message that was published, as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Published {
    pub(crate) channel: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// All that a server keeps. Equal stores behave alike from then on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Store {
    keys: BTreeMap<Vec<u8>, Entry>,
    /// Who listens to which channels.
    listeners: BTreeMap<u64, BTreeSet<Vec<u8>>>,
    /// Which of them listen at a replica: they hear everything, and are not counted here.
    at_replica: BTreeSet<u64>,
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

    /// Who hears a channel.
    pub(crate) fn hearers<'a>(&'a self, channel: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
        self.listeners
            .iter()
            .filter(move |(_, channels)| channels.contains(channel))
            .map(|(&listener, _)| listener)
    }

    /// How many listeners of a channel this server knows of.
    fn subscribers(&self, channel: &[u8]) -> u64 {
        self.hearers(channel).filter(|listener| !self.at_replica.contains(listener)).count() as u64
    }

    /// The keys that live, as `SCAN` would tell them.
    pub(crate) fn live_keys(&self, micros: u64) -> impl Iterator<Item = &[u8]> {
        let at = micros / 1000;
        self.keys
            .iter()
            .filter(move |(_, entry)| entry.ends.is_none_or(|ends| at <= ends))
            .map(|(key, _)| key.as_slice())
    }

    /// Forgets everything that was stored (`FLUSHALL`).
    pub(crate) fn flush(&mut self) {
        self.keys.clear();
    }

    /// Begins a run of commands at one moment of the server, as a script is.
    pub(crate) fn at(&mut self, micros: u64) -> Run<'_> {
        self.keys.retain(|_, entry| entry.ends.is_none_or(|ends| micros / 1000 <= ends));
        Run { store: self, micros, published: Vec::new() }
    }
}

/// Commands that run at one moment, without another's between them.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    store: &'a mut Store,
    micros: u64,
    published: Vec<Published>,
}

impl Run<'_> {
    /// `TIME`, in microseconds.
    pub(crate) fn now(&self) -> u64 {
        self.micros
    }

    /// What was published in this run.
    pub(crate) fn into_published(self) -> Vec<Published> {
        self.published
    }

    fn ends_after(&self, ttl: u64) -> u64 {
        (self.micros / 1000).saturating_add(ttl)
    }

    pub(crate) fn exists(&self, key: &[u8]) -> bool {
        self.store.keys.contains_key(key)
    }

    /// Whether there was anything to delete.
    pub(crate) fn del(&mut self, key: &[u8]) -> bool {
        self.store.keys.remove(key).is_some()
    }

    /// What remains in milliseconds; −1 without an end, −2 without the key.
    pub(crate) fn pttl(&self, key: &[u8]) -> i64 {
        match self.store.keys.get(key).map(|entry| entry.ends) {
            None => -2,
            Some(None) => -1,
            Some(Some(ends)) => {
                i64::try_from(ends.saturating_sub(self.micros / 1000)).unwrap_or(i64::MAX)
            }
        }
    }

    /// Whether there was anything whose end to set.
    pub(crate) fn pexpire(&mut self, key: &[u8], ttl: u64) -> bool {
        let ends = self.ends_after(ttl);
        self.store.keys.get_mut(key).map(|entry| entry.ends = Some(ends)).is_some()
    }

    /// `PEXPIRE … GT`: only ever later. What has no end stays without.
    pub(crate) fn pexpire_later(&mut self, key: &[u8], ttl: u64) {
        let ends = self.ends_after(ttl);
        if let Some(entry) = self.store.keys.get_mut(key) {
            entry.ends = entry.ends.map(|old| old.max(ends));
        }
    }

    /// `PEXPIRE … NX`: only where there is no end; whether there was none.
    pub(crate) fn pexpire_new(&mut self, key: &[u8], ttl: u64) -> bool {
        let ends = self.ends_after(ttl);
        match self.store.keys.get_mut(key) {
            Some(entry) if entry.ends.is_none() => {
                entry.ends = Some(ends);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
        match self.store.keys.get(key).map(|entry| &entry.data) {
            None => Ok(None),
            Some(Data::Text(text)) => Ok(Some(text.clone())),
            Some(_) => Err(WrongType),
        }
    }

    /// `SET`, which takes the place of whatever is there.
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8], ttl: Option<u64>) {
        let ends = ttl.map(|ttl| self.ends_after(ttl));
        self.store.keys.insert(key.to_vec(), Entry { data: Data::Text(value.to_vec()), ends });
    }

    /// `SET … GET`: what was there before.
    pub(crate) fn set_get(
        &mut self,
        key: &[u8],
        value: &[u8],
        ttl: u64,
    ) -> Outcome<Option<Vec<u8>>> {
        let old = self.get(key)?;
        self.set(key, value, Some(ttl));
        Ok(old)
    }

    fn hash(&self, key: &[u8]) -> Outcome<&[(Vec<u8>, Vec<u8>)]> {
        match self.store.keys.get(key).map(|entry| &entry.data) {
            None => Ok(&[]),
            Some(Data::Hash(fields)) => Ok(fields),
            Some(_) => Err(WrongType),
        }
    }

    pub(crate) fn hkeys(&self, key: &[u8]) -> Outcome<Vec<Vec<u8>>> {
        Ok(self.hash(key)?.iter().map(|(field, _)| field.clone()).collect())
    }

    pub(crate) fn hget(&self, key: &[u8], field: &[u8]) -> Outcome<Option<Vec<u8>>> {
        let fields = self.hash(key)?;
        Ok(fields.iter().find(|(name, _)| name == field).map(|(_, value)| value.clone()))
    }

    pub(crate) fn hset(&mut self, key: &[u8], field: &[u8], value: &[u8]) -> Outcome<()> {
        self.hash(key)?;
        let entry = Entry { data: Data::Hash(Vec::new()), ends: None };
        let entry = self.store.keys.entry(key.to_vec()).or_insert(entry);
        if let Data::Hash(fields) = &mut entry.data {
            match fields.iter_mut().find(|(name, _)| name == field) {
                Some((_, old)) => *old = value.to_vec(),
                None => fields.push((field.to_vec(), value.to_vec())),
            }
        }
        Ok(())
    }

    fn sorted(&self, key: &[u8]) -> Outcome<Option<&BTreeMap<Vec<u8>, i64>>> {
        match self.store.keys.get(key).map(|entry| &entry.data) {
            None => Ok(None),
            Some(Data::Sorted(scores)) => Ok(Some(scores)),
            Some(_) => Err(WrongType),
        }
    }

    pub(crate) fn zscore(&self, key: &[u8], member: &[u8]) -> Outcome<Option<i64>> {
        Ok(self.sorted(key)?.and_then(|scores| scores.get(member).copied()))
    }

    pub(crate) fn zcard(&self, key: &[u8]) -> Outcome<u64> {
        Ok(self.sorted(key)?.map_or(0, |scores| scores.len() as u64))
    }

    /// All members with their scores, the lowest first.
    pub(crate) fn zrange(&self, key: &[u8]) -> Outcome<Vec<(i64, Vec<u8>)>> {
        let mut found: Vec<(i64, Vec<u8>)> = self
            .sorted(key)?
            .into_iter()
            .flatten()
            .map(|(member, &score)| (score, member.clone()))
            .collect();
        found.sort();
        Ok(found)
    }

    pub(crate) fn zadd(&mut self, key: &[u8], member: &[u8], score: i64) -> Outcome<()> {
        self.sorted(key)?;
        let entry = Entry { data: Data::Sorted(BTreeMap::new()), ends: None };
        let entry = self.store.keys.entry(key.to_vec()).or_insert(entry);
        if let Data::Sorted(scores) = &mut entry.data {
            scores.insert(member.to_vec(), score);
        }
        Ok(())
    }

    /// A sorted set without a member is no key any more.
    pub(crate) fn zrem(&mut self, key: &[u8], member: &[u8]) -> Outcome<()> {
        self.sorted(key)?;
        if let Some(Entry { data: Data::Sorted(scores), .. }) = self.store.keys.get_mut(key) {
            scores.remove(member);
            if scores.is_empty() {
                self.store.keys.remove(key);
            }
        }
        Ok(())
    }

    /// Returns how many heard it at this server, but for those who listen at a replica.
    pub(crate) fn publish(&mut self, channel: &[u8], payload: Vec<u8>) -> u64 {
        self.published.push(Published { channel: channel.to_vec(), payload });
        self.store.subscribers(channel)
    }

    /// `PUBSUB NUMSUB` for one channel: how many listen to it at this server.
    pub(crate) fn numsub(&self, channel: &[u8]) -> u64 {
        self.store.subscribers(channel)
    }
}

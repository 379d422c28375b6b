//! A queue of timers with keys: a key has one timer, which can be moved or removed. A heap would keep the
//! old entry of each timer that is moved, and grow with every hold.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use crate::base::time::Moment;

/// Values in the order of their due times, one for each key.
#[derive(Debug)]
pub(super) struct Timers<K, V> {
    queue: BTreeMap<(Moment, K), V>,
    due: HashMap<K, Moment>,
}

impl<K: Clone + Eq + Hash + Ord, V> Timers<K, V> {
    pub(super) fn new() -> Timers<K, V> {
        Timers { queue: BTreeMap::new(), due: HashMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.queue.values()
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.due.contains_key(key)
    }

    /// When the timer of a key is due, if it has one.
    pub(super) fn due(&self, key: &K) -> Option<Moment> {
        self.due.get(key).copied()
    }

    /// The moment when the first of them is due; [`Moment::FAR`] if there is none.
    pub(super) fn next(&self) -> Moment {
        self.queue.first_key_value().map_or(Moment::FAR, |((due, _), _)| *due)
    }

    /// Sets the timer of a key, and replaces the one that it has.
    pub(super) fn put(&mut self, key: K, due: Moment, value: V) {
        if let Some(before) = self.due.insert(key.clone(), due)
            // The same moment makes the same key of the map, whose value `insert` replaces.
            && before != due
        {
            self.queue.remove(&(before, key.clone()));
        }
        self.queue.insert((due, key), value);
    }

    /// Removes the timer of a key. Returns it with its due time.
    pub(super) fn remove(&mut self, key: &K) -> Option<(Moment, V)> {
        let (key, due) = self.due.remove_entry(key)?;
        self.queue.remove(&(due, key)).map(|value| (due, value))
    }

    /// Moves each timer that is due later than `due(value)` to that moment.
    pub(super) fn bring_forward(&mut self, due: impl Fn(&V) -> Moment) {
        // The queue was taken out, while `self.due` still has the old times. So `put` tries to
        // remove an old entry that is not there, which does no harm.
        for ((before, key), value) in std::mem::take(&mut self.queue) {
            self.put(key, before.min(due(&value)), value);
        }
    }

    /// Removes the first timer, if it is due. Returns it with its key.
    pub(super) fn pop(&mut self, now: Moment) -> Option<(K, V)> {
        if self.next() > now {
            return None;
        }
        let ((_, key), value) = self.queue.pop_first()?;
        self.due.remove(&key);
        Some((key, value))
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.due.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    #[test]
    fn a_key_has_one_timer_wherever_it_is_moved() {
        let mut timers = Timers::new();
        for due in [5, 3, 9, 9] {
            timers.put('a', at(due), due);
        }
        timers.put('b', at(4), 4);
        assert_eq!((timers.len(), timers.next()), (2, at(4)));
        assert_eq!(timers.pop(at(8)), Some(('b', 4)));
        assert_eq!(timers.pop(at(8)), None);
        assert!(timers.contains(&'a') && !timers.contains(&'b'));
        assert_eq!(timers.remove(&'a'), Some((at(9), 9)));
        assert_eq!(timers.remove(&'a'), None);
        assert_eq!((timers.len(), timers.next()), (0, Moment::FAR));
    }

    #[test]
    fn timers_are_brought_forward_and_never_put_off() {
        let mut timers = Timers::new();
        for (key, due) in [('a', 5), ('b', 3), ('c', 9)] {
            timers.put(key, at(due), key);
        }
        timers.bring_forward(|_| at(4));
        assert_eq!((timers.len(), timers.due(&'b')), (3, Some(at(3))));
        assert_eq!((timers.due(&'a'), timers.due(&'c')), (Some(at(4)), Some(at(4))));
        let popped = std::iter::from_fn(|| timers.pop(at(4)));
        let popped: Vec<char> = popped.map(|(key, _)| key).collect();
        assert_eq!(popped, ['b', 'a', 'c']);
        assert_eq!((timers.len(), timers.next()), (0, Moment::FAR));
    }

    #[test]
    fn timers_of_one_moment_are_kept_apart() {
        let mut timers = Timers::new();
        ('a'..='e').for_each(|key| timers.put(key, at(1), key));
        timers.remove(&'c');
        let popped = std::iter::from_fn(|| timers.pop(at(1)));
        let popped: Vec<char> = popped.map(|(key, _)| key).collect();
        assert_eq!(popped, ['a', 'b', 'd', 'e']);
    }
}

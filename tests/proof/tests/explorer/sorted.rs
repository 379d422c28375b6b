//! A sorted set of attempts, as the queue and the beats are.

use crate::protocol::{Attempt, Time};

/// A sorted set with a time to live: a member and its score.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Sorted {
    pub(crate) members: Vec<(Attempt, Time)>,
    /// `None`: without end, which no key may be.
    pub(crate) until: Option<Time>,
}

impl Sorted {
    pub(crate) fn score(&self, attempt: Attempt) -> Option<Time> {
        self.members.iter().find(|(member, _)| *member == attempt).map(|(_, score)| *score)
    }

    pub(crate) fn contains(&self, attempt: Attempt) -> bool {
        self.score(attempt).is_some()
    }

    pub(crate) fn add(&mut self, attempt: Attempt, score: Time) {
        self.members.retain(|(member, _)| *member != attempt);
        let at =
            self.members.partition_point(|(member, other)| (*other, *member) < (score, attempt));
        self.members.insert(at, (attempt, score));
    }

    pub(crate) fn remove(&mut self, attempt: Attempt) {
        self.members.retain(|(member, _)| *member != attempt);
        if self.members.is_empty() {
            self.until = None;
        }
    }

    pub(crate) fn expire_at(&mut self, until: Time) {
        if !self.members.is_empty() {
            self.until = Some(until);
        }
    }

    pub(crate) fn purge(&mut self, now: Time) {
        if self.until.is_some_and(|until| until <= now) {
            *self = Sorted::default();
        }
    }
}

//! Periods during which a server stays in one place, as far as a client can tell.
//!
//! An address may begin to lead to another server: a sentinel or a cluster reports it, or the
//! former master refuses a write because it is a replica now. Everything that a client has of its
//! server belongs to an [`Epoch`] and ends with it: connections, subscriptions, and the reading of
//! the server's clock.
//!
//! All parts of a client share one counter for each server, so a move that one of them notices is
//! known to all.

use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::base::time::{AtomicMoment, Moment};

/// Counts the epochs of one server, and the connections to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Epochs(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    epochs: AtomicU64,
    /// Counted because a new connection may lead to another server than the earlier ones.
    connections: AtomicU64,
    /// When its connections last ended, as far as is known, or the first one after that was made; the past before that.
    unbroken_since: AtomicMoment,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            epochs: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            unbroken_since: AtomicMoment::new(Moment::PAST),
        }
    }
}

/// A period during which the server is in one place.
#[derive(Clone, Debug)]
pub(crate) struct Epoch {
    epochs: Epochs,
    number: u64,
}

impl Epochs {
    /// The present epoch, which lasts until a move is noticed.
    pub(crate) fn current(&self) -> Epoch {
        Epoch { epochs: self.clone(), number: self.number() }
    }

    pub(crate) fn number(&self) -> u64 {
        // `SeqCst` here and below, for simplicity. Readers combine this number with what is behind
        // other locks, such as the reading of the clock. A weaker order would need a proof for each
        // of them, and on x86 and ARMv8 the load costs hardly more.
        self.0.epochs.load(Ordering::SeqCst)
    }

    /// Begins another epoch, because the server has moved.
    pub(crate) fn advance(&self) {
        self.0.epochs.fetch_add(1, Ordering::SeqCst);
    }

    /// Since when the server was reached without a break: it is the one, with its memory, that replied to what was sent
    /// since.
    pub(crate) fn unbroken_since(&self) -> Moment {
        self.0.unbroken_since.get()
    }

    /// Notes a break at this moment.
    pub(super) fn note_break(&self, at: Moment) {
        self.0.unbroken_since.raise(at);
    }
}

impl Epoch {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn is_over(&self) -> bool {
        self.epochs.number() != self.number
    }

    /// Ends this epoch, unless it has ended.
    pub(crate) fn end(&self) {
        // Not `fetch_add`: all connections to a demoted master notice the same move, one after the
        // other. Each increment after the first would end the epoch of the new master, whose
        // connections are healthy.
        let (this, next) = (self.number, self.number + 1);
        let epochs = &self.epochs.0.epochs;
        let _ = epochs.compare_exchange(this, next, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Counts a new connection of a pool.
    pub(crate) fn count_connection(&self) {
        self.epochs.0.connections.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of connections so far, in all epochs.
    pub(crate) fn connections(&self) -> u64 {
        self.epochs.0.connections.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn move_seen_by_two_connections_ends_one_epoch() {
        let epochs = Epochs::default();
        let (one, other) = (epochs.current(), epochs.current());
        one.end();
        assert!(one.is_over() && other.is_over());
        let next = epochs.current();
        other.end();
        assert!(!next.is_over() && next.number() == one.number() + 1);
        epochs.advance();
        assert!(next.is_over());
    }
}

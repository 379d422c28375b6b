//! Where a server is, as far as a client can tell.
//!
//! An address may lead to another server than before: a sentinel or a cluster reports it, or a server
//! that was the master refuses a write as the replica that it is now. Everything that a client knows of
//! its server belongs to an [`Epoch`], and ends with it: connections, what they listen to, and the
//! server's clock.
//!
//! One counter serves all that a client has of one server, so that a move seen in one place is known in all.

use crate::base::sync::{Arc, AtomicU64, Ordering};

/// Counts the epochs of one server, and the connections to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Epochs(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    epochs: AtomicU64,
    /// A new connection may lead to another server than the connections before.
    connections: AtomicU64,
}

/// A time during which the server is in one place.
#[derive(Clone, Debug)]
pub(crate) struct Epoch {
    epochs: Epochs,
    number: u64,
}

impl Epochs {
    /// The epoch that lasts until the server is found to be elsewhere.
    pub(crate) fn current(&self) -> Epoch {
        Epoch { epochs: self.clone(), number: self.number() }
    }

    pub(crate) fn number(&self) -> u64 {
        self.0.epochs.load(Ordering::SeqCst)
    }

    /// The server is elsewhere: another epoch begins.
    pub(crate) fn advance(&self) {
        self.0.epochs.fetch_add(1, Ordering::SeqCst);
    }
}

impl Epoch {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn is_over(&self) -> bool {
        self.epochs.number() != self.number
    }

    /// Ends this epoch. Many connections may see the same move, and only the first begins another epoch.
    pub(crate) fn end(&self) {
        let (this, next) = (self.number, self.number + 1);
        let epochs = &self.epochs.0.epochs;
        let _ = epochs.compare_exchange(this, next, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Counts a connection that can be written on.
    pub(crate) fn count_connection(&self) {
        self.epochs.0.connections.fetch_add(1, Ordering::SeqCst);
    }

    /// How many connections were counted, in any epoch.
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

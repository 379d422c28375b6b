//! The intervals of the heartbeat.

use std::time::Duration;

/// A waiter in the queue sends a heartbeat this often (rule 8).
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
/// Without a heartbeat for this long a waiter counts as dead. The scripts compare it with the server's
/// clock.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(3);

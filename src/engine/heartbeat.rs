//! How a waiter in the queue shows that it lives.

use std::time::Duration;

/// A waiter in the queue says so this often (rule 8)…
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
/// …and is taken for dead after this.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(3);

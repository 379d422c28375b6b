//! The names of a client's background threads.

use std::io;

use crate::base::logging::Hurry;
use crate::base::sync::{self, Ordering, Tally};

/// Linux keeps 15 bytes of a thread's name, so the number has four digits at most.
const NUMBERS: u32 = 10_000;

/// The number of clients that this process has made.
static CLIENTS: Tally = Tally::new(0);

/// The names of one client's threads: `lease-work-3` is the worker of the third client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads {
    client: u32,
}

/// The task of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// Renews leases, and finishes the releases of callers.
    Worker,
    /// Receives the messages that wake waiters.
    Listener,
    /// Follows the master by the messages of a sentinel.
    Follower,
    /// Asks a sentinel for the master.
    Locator,
    /// Makes connections.
    Connector,
    /// Runs callbacks of the user.
    Callback,
    /// Refreshes the map of slots of a cluster.
    SlotRefresh,
    /// Deals with a fault of a server's clock.
    Clock,
}

impl Threads {
    /// The names for a new client.
    pub(crate) fn of_a_new_client() -> Threads {
        // Relaxed: only the number matters. After 10,000 clients numbers repeat, which is better
        // than a name that the system cuts off in its number.
        let before = CLIENTS.fetch_add(1, Ordering::Relaxed);
        Threads { client: before.wrapping_add(1) % NUMBERS }
    }

    /// Starts a thread that runs no code of the user: a logger does not hold it up.
    pub(crate) fn spawn(self, role: Role, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        sync::spawn(&self.name(role), move || {
            let _hurry = Hurry::begin();
            body();
        })
    }

    /// The name of a thread, with its task and the number of its client.
    pub(crate) fn name(self, role: Role) -> String {
        let role = match role {
            Role::Worker => "work",
            Role::Listener => "wake",
            Role::Follower => "sent",
            Role::Locator => "seek",
            Role::Connector => "conn",
            Role::Callback => "call",
            Role::SlotRefresh => "slot",
            Role::Clock => "time",
        };
        format!("lease-{role}-{}", self.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_thread_name_fits_into_15_bytes() {
        for role in [
            Role::Worker,
            Role::Listener,
            Role::Follower,
            Role::Locator,
            Role::Connector,
            Role::Callback,
            Role::SlotRefresh,
            Role::Clock,
        ] {
            let longest = Threads { client: NUMBERS - 1 };
            assert_eq!(longest.name(role).len(), 15);
        }
    }
}

//! What the background threads of a client are called.

use crate::base::sync::{Ordering, Tally};

/// Linux keeps 15 bytes of a thread's name, so the number has four digits at most.
const NUMBERS: u32 = 10_000;

/// How many clients this process has made.
static CLIENTS: Tally = Tally::new(0);

/// The names of one client's threads: `lease-work-3` is the worker of the third client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads {
    client: u32,
}

/// What a thread is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// Renews leases, and finishes what callers could not.
    Worker,
    /// Hears what wakes waiters.
    Listener,
    /// Hears of new masters from a sentinel.
    Follower,
    /// Makes connections.
    Connector,
    /// Runs callbacks of the user.
    Callback,
    /// Asks the nodes of a cluster where the slots are.
    SlotRefresh,
}

impl Threads {
    /// Those of a client that is being made.
    pub(crate) fn of_a_new_client() -> Threads {
        let before = CLIENTS.fetch_add(1, Ordering::Relaxed);
        Threads { client: before.wrapping_add(1) % NUMBERS }
    }

    /// The name of a thread, which tells what it is for, and whose it is.
    pub(crate) fn name(self, role: Role) -> String {
        let role = match role {
            Role::Worker => "work",
            Role::Listener => "wake",
            Role::Follower => "sent",
            Role::Connector => "conn",
            Role::Callback => "call",
            Role::SlotRefresh => "slot",
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
            Role::Connector,
            Role::Callback,
            Role::SlotRefresh,
        ] {
            let longest = Threads { client: NUMBERS - 1 };
            assert_eq!(longest.name(role).len(), 15);
        }
    }
}

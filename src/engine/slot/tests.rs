//! Which token the next hold of a lease has, and when it has one.

use std::time::Duration;

use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::option::LockOptions;
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::base::time::{Clock, Moment};
use crate::engine::lease::{Grant, LiveLease};
use crate::engine::{Bounds, Callbacks, Engine};
use crate::protocol::memory::client::Memory;
use crate::protocol::memory::server::Server;
use crate::protocol::mutex::MutexKind;

const SECOND: Duration = Duration::from_secs(1);

/// A clock on which each look takes as long as that.
#[derive(Debug)]
struct Ticking {
    nanos: AtomicU64,
    look: u64,
}

impl Clock for Ticking {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.nanos.fetch_add(self.look, Ordering::SeqCst))
    }
}

/// The tokens of the next holds of a lease that was granted just now with this token, while the server's
/// clock showed so many microseconds.
fn next_tokens(look: u64, token: u64, micros: u64, holds: usize) -> Vec<u64> {
    let clock = Arc::new(Ticking { nanos: AtomicU64::new(1_000_000_000_000), look });
    let as_clock = || Arc::clone(&clock) as Arc<dyn Clock>;
    let memory = Memory::new(Server::new(as_clock()), Arc::new(Identity::new("")));
    let bounds = Bounds { exchange: SECOND, give_up_after: SECOND };
    let engine = Engine::new(Arc::new(memory), as_clock(), bounds, Callbacks::default());
    let slot = engine.slot(&MutexKind, Name::new(b"", b"x").unwrap());
    let now = clock.now();
    let grant = Grant {
        owner: Arc::from(*b"owner"),
        token,
        ttl: SECOND * 30,
        sent: now,
        server_time: (micros, now),
        settled: Moment::PAST,
    };
    let options = LockOptions::new();
    let mut lease = LiveLease::new(slot, grant, options);
    let mut tokens = Vec::new();
    while tokens.len() < holds
        && let Some(next) = lease.successor(&options, clock.now())
    {
        let passed = (clock.nanos.load(Ordering::SeqCst) - now.as_nanos()) / 1_000;
        assert!(next.token().get() <= micros + passed, "ahead of the server's clock");
        tokens.push(next.token().get());
        lease = next;
    }
    tokens
}

#[test]
fn a_token_that_is_a_microsecond_ahead_is_waited_for() {
    let tokens = next_tokens(50, 1_000, 1_000, 1_000);
    assert_eq!(tokens, (1_001..=2_000).collect::<Vec<_>>());
}

#[test]
fn a_token_that_is_far_ahead_is_not_waited_for() {
    assert!(next_tokens(50, 9_000, 1_000, 1).is_empty());
}

#[test]
fn a_clock_that_stands_still_is_not_waited_for() {
    assert!(next_tokens(0, 1_000, 1_000, 1).is_empty());
}

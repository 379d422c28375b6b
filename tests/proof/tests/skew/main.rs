//! A lock comes to a server whose clock is ahead: for how long do two hold it?
//!
//! | module | what it has |
//! | --- | --- |
//! | `arena` | two servers, each with a wall clock of its own, and how a lock comes from one to the other |
//! | `hold` | the kinds of lock and of lease |
//! | `round` | one round: locks are taken, come to the other server, and are asked for there |
//! | `step` | a server's clock is set, or another server's differs by more than the bound: what the client does, and what it costs |
//!
//! The clock is ahead by a half, four fifths and twice the bound that is in force for the lease. With less than the
//! bound nobody may get a lock that another still relies on. With twice the bound somebody does: that is beyond the
//! promise, and shows that the test would see it.
//!
//! The rounds with leases of 30 s are long. Nobody waits for their ends: the other server's clock is put forward, and
//! what was skipped is taken off.
//!
//! ```text
//! cargo test --package leasehold-proof --test skew -- --include-ignored --nocapture --test-threads 1
//! ```
#![allow(clippy::print_stdout, reason = "it tells what was seen")]

mod arena;
mod hold;
mod round;
mod step;

use std::time::Duration;

use arena::{Arena, Atomic, Failover, Migrate, Promotion};
use leasehold_support::skip;
use round::rounds;

const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(30);

/// The rounds of one way in which a lock comes to another server.
fn show<A: Arena>(lease: Duration) {
    match A::start() {
        Some(mut arena) => rounds(&mut arena, lease),
        None => skip("this server has no atomic migration of slots"),
    }
}

#[test]
fn slot_that_is_migrated_key_by_key() {
    show::<Migrate>(SHORT);
}

#[test]
fn slot_that_is_migrated_as_a_whole() {
    show::<Atomic>(SHORT);
}

#[test]
fn failover_in_a_cluster() {
    show::<Failover>(SHORT);
}

#[test]
fn promotion_by_sentinels() {
    show::<Promotion>(SHORT);
}

#[test]
#[ignore = "long: leases of 30 s"]
fn long_lease_in_a_slot_that_is_migrated_key_by_key() {
    show::<Migrate>(LONG);
}

#[test]
#[ignore = "long: leases of 30 s"]
fn long_lease_in_a_slot_that_is_migrated_as_a_whole() {
    show::<Atomic>(LONG);
}

#[test]
#[ignore = "long: leases of 30 s"]
fn long_lease_and_a_failover_in_a_cluster() {
    show::<Failover>(LONG);
}

#[test]
#[ignore = "long: leases of 30 s"]
fn long_lease_and_a_promotion_by_sentinels() {
    show::<Promotion>(LONG);
}

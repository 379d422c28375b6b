//! What happens between servers: networks that are cut, fail-overs, slots that move, hosts that die, disks that lose and
//! refuse writes. The servers are real, and so are the networks.
//!
//! | module | what it has |
//! | --- | --- |
//! | `lab` | a process of its own for each test, with a network of its own; groups and clusters in it |
//! | `work` | clients that take locks all the time, and what was seen of them |
//! | `sentinel`, `cluster`, `quorum`, `server` | what happens there |
//!
//! Each test prints a row: what was granted, whether two held a lock at a time and for how long, which writes the token
//! refused, whether tokens grew, and how long nothing was granted. What must hold is the verdict of the row:
//!
//! | verdict | what must hold |
//! | --- | --- |
//! | always | no two hold a lock at a time; tokens grow; afterwards, locks are granted |
//! | the token | the tokens of each client grow; afterwards, locks are granted. Two may hold a lock at a time, and a resource that compares tokens refuses the lower one |
//!
//! That the fault happened is seen at the servers, with three exceptions: where two of five are cut off, the routes are
//! set, and locks are granted without these two; where one server, or one of a quorum, is killed, nothing but the kill shows
//! it; and a file that is synced at each write may have nothing to lose in a crash.
//! A window of a holder ends when its client was last asked and said that the lease is valid, so a slow machine makes no
//! overlap.
//!
//! ```text
//! cargo test --package leasehold-proof --test nemesis -- --include-ignored --nocapture --test-threads 2
//! ```
#![allow(clippy::print_stdout, reason = "it tells what was seen")]

mod cluster;
mod lab;
mod quorum;
mod sentinel;
mod server;
mod work;

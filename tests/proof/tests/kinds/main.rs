//! Torture of the locks that several may hold: processes take permits, and read and write, at the same time.
//!
//! ```text
//! LEASEHOLD_SECONDS=60 cargo test -p leasehold-proof --test kinds -- --nocapture
//! ```
#![allow(clippy::print_stdout, reason = "it tells what was tried")]

mod permits;
mod readers;

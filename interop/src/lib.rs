//! Processes that lock in one language each, and do what they are told line by line.

pub mod language;
pub mod peer;
pub mod worker;

pub use peer::{Peer, Result};

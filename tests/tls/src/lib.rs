//! What the tests over TLS stand on: certificates made for the occasion, a terminator that stands
//! before a private server, which may have been built without TLS, a relay that does harm, and a sentinel.

mod certificate;
mod relay;
mod sentinel;
mod terminator;

pub use certificate::{Authority, Certificate};
pub use relay::{Harm, Relay};
pub use sentinel::{sentinel, sentinel_at};
pub use terminator::Terminator;

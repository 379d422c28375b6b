//! What the tests over TLS stand on: certificates made for the occasion, a terminator that stands
//! before a private server, which may have been built without TLS, and a relay that does harm.

mod certificate;
mod relay;
mod terminator;

pub use certificate::{Authority, Certificate};
pub use relay::{Harm, Relay};
pub use terminator::Terminator;

//! What the tests over TLS stand on: certificates made for the occasion, and a terminator that
//! stands before a private server, which may have been built without TLS.

mod certificate;
mod terminator;

pub use certificate::{Authority, Certificate};
pub use terminator::Terminator;

//! Several locks at once.

mod acquire;
mod guard;
mod part;

pub(crate) use acquire::acquire_all;
pub use guard::MultiGuard;
pub use part::{Part, PartGuard};

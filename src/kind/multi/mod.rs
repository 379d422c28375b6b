//! Several locks at once.

mod acquire;
mod claim;
mod guard;
mod part;

pub(crate) use acquire::acquire_all;
pub(crate) use claim::{claim, release_leases};
pub use guard::MultiGuard;
pub use part::{Part, PartGuard};

//! The kinds of lock as their users see them, and what they have in their hands while they hold one.

mod guard;
mod handle;
pub(crate) mod mutex;
mod owned;
pub(crate) mod reentrant;
#[cfg(test)]
mod tests;

pub use guard::Guard;
pub(crate) use handle::Handle;
pub use mutex::Mutex;
pub use owned::OwnedLease;
pub use reentrant::ReentrantLock;

//! The reentrant lock.

mod lock_kind;

use crate::kind::Handle;
use crate::kind::method::{kind_methods, lock_methods};
use crate::kind::owned_method::owned_methods;

pub(crate) use lock_kind::ReentrantKind;

/// A lock whose hold count is visible in Redis, in the layout of Redisson's plain lock, so that a
/// Rust worker and a Java service can contend for one lock.
///
/// The key is a hash from the owner to the hold count. The count in Redis is for people and for Redisson's
/// `getHoldCount`; it follows the thread's own count shortly after, and nothing waits for it.
///
/// **What it guarantees**, **what breaks that**, and **how it differs from `std::sync`** are the same as for
/// [`Mutex`](crate::Mutex), which is reentrant too, and cheaper. Use this one for the shared layout;
/// [Waiting](crate::guide::waiting#beside-redisson) says who gets the lock when both want it.
///
/// ```no_run
/// use leasehold::LockClient;
///
/// # fn main() -> leasehold::Result<()> {
/// let client = LockClient::open("redis://127.0.0.1:6379")?;
/// let lock = client.reentrant("orders:42")?;
/// let outer = lock.lock()?;
/// let inner = lock.lock()?;
/// assert_eq!(lock.hold_count(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReentrantLock(Handle);

kind_methods!(ReentrantLock, "let lock = client.reentrant(\"orders:42\")?;");
lock_methods!(ReentrantLock, "let lock = client.reentrant(\"orders:42\")?;");
owned_methods! {
    ReentrantLock, "let lock = client.reentrant(\"orders:42\")?;", None, "", "lock";
    lock_owned, try_lock_owned, try_lock_owned_for, try_lock_owned_until
}

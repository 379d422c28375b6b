//! The reentrant lock.

use crate::lock::Handle;
use crate::lock::handle::lock_methods;

/// A lock whose hold count is visible in Redis, in the layout of Redisson's plain lock, so that a
/// Rust worker and a Java service can contend for one lock.
///
/// The key is a hash from the owner to the hold count. The count follows the thread's own shortly
/// after, for people and for Redisson's `getHoldCount`; what counts is the thread's own.
///
/// **How it shares the lock.** A process knows of its own release first, and would always have the lock
/// again before a listener of another process wakes. So after a release that others heard, no thread of
/// the process asks for it again before it has heard another release, or 5 ms and two round trips have
/// passed; and while others have listened in the last second, the lease is passed on between the threads
/// of the process for 1 ms at most. Where nobody listens, nothing is waited for. Where several such pauses
/// in a row were in vain, they become rare: then the listener does not want the lock.
///
/// **What it guarantees**, **what breaks that**, and **how it differs from `std::sync`** are as for
/// [`Mutex`](crate::Mutex), which is reentrant too, and cheaper. Use this one for the shared layout.
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

lock_methods!(ReentrantLock, "let lock = client.reentrant(\"orders:42\")?;");

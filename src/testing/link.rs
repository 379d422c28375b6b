//! What goes wrong between one client and the server.

use std::fmt;
use std::time::Duration;

use crate::base::sync::Arc;
use crate::topology::memory::link::{Delivery, FaultyLink};
use crate::topology::memory::server::MemoryServer;

/// The link between one client and a [`Server`](super::Server), and what goes wrong on it.
///
/// Faults with a count happen to the next exchanges of this client, in the order in which the test scripted
/// them, whether a call or the renewing worker begins the exchange. Several leases that are renewed together are
/// one exchange. [`faults`](Link::faults) returns how many faults happened, so that a test can prove that the
/// fault it is about did happen.
///
/// ```
/// use leasehold::testing::Server;
///
/// # fn main() -> leasehold::Result<()> {
/// let server = Server::new();
/// let client = server.client();
/// let link = server.link(&client);
///
/// // The lock is taken, and the reply is lost. The client asks again, and is recognised.
/// link.lose_answers(1);
/// let guard = client.mutex("orders:42")?.lock()?;
/// assert_eq!(link.faults(), 1);
/// guard.release()?;
/// assert!(!client.mutex("orders:42")?.is_locked()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Link {
    inner: Arc<FaultyLink>,
    server: Arc<MemoryServer>,
}

impl Link {
    /// How many exchanges there were.
    #[cfg(test)]
    pub(crate) fn exchanges(&self) -> u64 {
        self.inner.exchanges()
    }

    pub(super) fn new(inner: Arc<FaultyLink>, server: Arc<MemoryServer>) -> Link {
        Link { inner, server }
    }

    /// The connection breaks before the server receives the next `count` requests.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let (lock, link) = (client.mutex("orders:42")?, server.link(&client));
    /// link.lose_requests(1);
    /// // The request is sent again, and nobody notices.
    /// lock.lock()?.release()?;
    /// assert_eq!(link.faults(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lose_requests(&self, count: u32) {
        self.inner.script(Delivery::RequestLost, count);
    }

    /// The next `count` requests are not sent, as if their threads were kept from sending for too long.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let (lock, link) = (client.mutex("orders:42")?, server.link(&client));
    /// let guard = lock.lock()?;
    /// link.keep_requests(1);
    /// // Nobody could ask whether the lock is still ours; it is.
    /// assert!(guard.check().is_err());
    /// assert!(guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep_requests(&self, count: u32) {
        self.inner.script(Delivery::Unsent, count);
    }

    /// The next `count` requests are carried out, and the connection breaks before the reply.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let (lock, link) = (client.mutex("orders:42")?, server.link(&client));
    /// let guard = lock.lock()?;
    /// link.lose_answers(1);
    /// // The release was carried out. The client sends it again and finds no lock, which may have been lost before.
    /// assert!(guard.release().unwrap_err().is_unknown_outcome());
    /// assert!(!lock.is_locked()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lose_answers(&self, count: u32) {
        self.inner.script(Delivery::ReplyLost, count);
    }

    /// The next `count` requests reach the server only after the time `by`.
    ///
    /// If that is longer than the caller waits for a reply
    /// ([`command_timeout`](crate::LockClientBuilder::command_timeout)), the caller goes on without one, and the
    /// request still arrives: too late to take a lock, if all is well.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # use std::time::Duration;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let (lock, link) = (client.mutex("orders:42")?, server.link(&client));
    /// link.delay_requests(1, Duration::from_millis(50));
    /// lock.lock()?.release()?;
    /// assert!(server.elapsed() >= Duration::from_millis(50));
    /// # Ok(())
    /// # }
    /// ```
    pub fn delay_requests(&self, count: u32, by: Duration) {
        self.inner.script(Delivery::RequestDelayed(by), count);
    }

    /// The next `count` requests are carried out at once, and their replies come only after the time `by`, or
    /// never if that is longer than the caller waits.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # use std::time::Duration;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let (lock, link) = (client.mutex("orders:42")?, server.link(&client));
    /// link.delay_answers(1, Duration::from_millis(50));
    /// // The lease counts from before the request.
    /// assert!(lock.lock()?.remaining() < Duration::from_millis(29_950));
    /// # Ok(())
    /// # }
    /// ```
    pub fn delay_answers(&self, count: u32, by: Duration) {
        self.inner.script(Delivery::ReplyDelayed(by), count);
    }

    /// The next `count` messages that would wake this client's waiters do not arrive.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # use std::time::Duration;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let (here, there) = (server.client(), server.client());
    /// let guard = here.mutex("orders:42")?.lock()?;
    /// server.link(&there).lose_messages(1);
    /// let lock = there.mutex("orders:42")?;
    /// let waiter = std::thread::spawn(move || lock.with(|_guard| { /* the work */ }));
    /// guard.release()?;
    /// // A waiter that was not woken asks again by itself.
    /// server.advance(Duration::from_secs(2));
    /// waiter.join().unwrap()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lose_messages(&self, count: u64) {
        self.inner.lose_messages(count);
    }

    /// From now on, until [`restore`](Link::restore), the client's listener is at a replica of the server, as if
    /// the server that it once reached had been demoted. It hears every message, but the server does not count
    /// it, so it is passed over while others wait that are counted.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let (here, there) = (server.client(), server.client());
    /// server.link(&there).listen_at_replica();
    /// let guard = here.mutex("orders:42")?.lock()?;
    /// let lock = there.mutex("orders:42")?;
    /// let waiter = std::thread::spawn(move || lock.with(|_guard| { /* the work */ }));
    /// guard.release()?;
    /// // The waiter is told to ask, and finds the lock free.
    /// waiter.join().unwrap()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn listen_at_replica(&self) {
        self.server.put_listener_at_replica(&self.inner, true);
    }

    /// Cuts the client off until [`restore`](Link::restore): connections break, and new ones are refused.
    ///
    /// ```
    /// # use leasehold::LossCause;
    /// # use leasehold::testing::Server;
    /// # use std::time::Duration;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let (lock, link) = (client.mutex("orders:42")?, server.link(&client));
    /// let guard = lock.lock()?;
    /// link.cut();
    /// server.advance(Duration::from_secs(31));
    /// assert_eq!(guard.loss().unwrap().cause(), LossCause::Unreachable);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cut(&self) {
        self.inner.set_lasting(Some(Delivery::Refused));
        self.server.disconnect(Some(&self.inner));
    }

    /// Nothing that is sent arrives, in either direction, until [`restore`](Link::restore). Callers wait for
    /// their time-outs.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # use std::time::Duration;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let (lock, link) = (client.mutex("orders:42")?, server.link(&client));
    /// let guard = lock.lock()?;
    /// link.silence();
    /// server.advance(Duration::from_secs(31));
    /// assert!(!guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub fn silence(&self) {
        self.inner.set_lasting(Some(Delivery::Silence));
    }

    /// From now on nothing goes wrong. Scripted faults that have not happened yet are dropped.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let (lock, link) = (client.mutex("orders:42")?, server.link(&client));
    /// link.cut();
    /// assert!(lock.try_lock().unwrap_err().is_unreachable());
    /// link.restore();
    /// assert!(lock.try_lock()?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn restore(&self) {
        self.inner.heal();
        self.server.put_listener_at_replica(&self.inner, false);
    }

    /// How many requests and messages met a fault so far.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let (lock, link) = (client.mutex("orders:42")?, server.link(&client));
    /// link.lose_messages(1);
    /// lock.lock()?.release()?;
    /// // Nobody waited, so no message could be lost.
    /// assert_eq!(link.faults(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn faults(&self) -> u64 {
        self.inner.faults()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("faults", &self.faults()).finish_non_exhaustive()
    }
}

//! What goes wrong between one client and the server.

use std::fmt;
use std::time::Duration;

use crate::base::sync::Arc;
use crate::protocol::memory::link::{Fate, Link as Inner};
use crate::protocol::memory::server::Server;

/// What lies between one client and a [`Server`](super::Server), and what goes wrong there.
///
/// Faults that are counted befall the next exchanges of this client, whoever begins them: a call, or
/// the worker that renews; in the order in which they were scripted. Several leases that are renewed
/// together are one exchange. [`faults`](Link::faults) tells how many came to pass, so that a test can
/// prove that the fault it is about did happen.
///
/// ```
/// use leasehold::testing::Server;
///
/// # fn main() -> leasehold::Result<()> {
/// let server = Server::new();
/// let client = server.client();
/// let link = server.link(&client);
///
/// // The lock is taken, and the answer is lost. It is asked again, and recognised as ours.
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
    inner: Arc<Inner>,
    server: Arc<Server>,
}

impl Link {
    pub(super) fn new(inner: Arc<Inner>, server: Arc<Server>) -> Link {
        Link { inner, server }
    }

    /// The connection breaks under the next `count` requests before the server has them.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let (lock, link) = (client.mutex("orders:42")?, server.link(&client));
    /// link.lose_requests(1);
    /// // It is sent again, and nobody notices.
    /// lock.lock()?.release()?;
    /// assert_eq!(link.faults(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lose_requests(&self, count: u32) {
        self.inner.script(Fate::RequestLost, count);
    }

    /// The next `count` requests are not sent, as where their threads are kept from it for too long.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let (lock, link) = (client.mutex("orders:42")?, server.link(&client));
    /// let guard = lock.lock()?;
    /// link.keep_requests(1);
    /// // Whether the lock is still ours could not be asked; it is.
    /// assert!(guard.check().is_err());
    /// assert!(guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep_requests(&self, count: u32) {
        self.inner.script(Fate::Unsent, count);
    }

    /// The next `count` requests are carried out, and the connection breaks before the answer.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let (lock, link) = (client.mutex("orders:42")?, server.link(&client));
    /// let guard = lock.lock()?;
    /// link.lose_answers(1);
    /// // The release was carried out, which shows when it is sent again.
    /// guard.release()?;
    /// assert!(!lock.is_locked()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lose_answers(&self, count: u32) {
        self.inner.script(Fate::AnswerLost, count);
    }

    /// The next `count` requests reach the server only after this time.
    ///
    /// Where that is longer than the caller waits for an answer
    /// ([`command_timeout`](crate::LockClientBuilder::command_timeout)), the caller goes on without
    /// one, and the request still arrives: too late to take a lock, if all is well.
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
        self.inner.script(Fate::RequestDelayed(by), count);
    }

    /// The next `count` requests are carried out at once, and answered only after this time; never,
    /// where that is longer than the caller waits.
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
        self.inner.script(Fate::AnswerDelayed(by), count);
    }

    /// The next `count` messages that wake this client's waiters do not arrive.
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
    /// // Who was not woken asks again by itself.
    /// server.advance(Duration::from_secs(2));
    /// waiter.join().unwrap()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lose_messages(&self, count: u64) {
        self.inner.lose_messages(count);
    }

    /// The client's listener is at a replica of the server from now on, until [`restore`](Link::restore),
    /// as where the server that it once reached was demoted. It hears every message, and the server does
    /// not count it: so it is passed over while others wait who are counted.
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
    /// // It is told to ask, and finds the lock free.
    /// waiter.join().unwrap()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn listen_at_replica(&self) {
        self.server.put_listener_at_replica(&self.inner, true);
    }

    /// Cuts the client off: connections break, and new ones are refused, until
    /// [`restore`](Link::restore).
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
        self.inner.set_lasting(Some(Fate::Refused));
        self.server.disconnect(Some(&self.inner));
    }

    /// Nothing that is sent arrives, in either direction, until [`restore`](Link::restore). Callers
    /// wait for their time-outs.
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
        self.inner.set_lasting(Some(Fate::Silence));
    }

    /// From now on nothing goes wrong. What was scripted and has not come to pass is forgotten.
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

    /// How many requests and messages met a fault until now.
    ///
    /// ```
    /// # use leasehold::testing::Server;
    /// # fn main() -> leasehold::Result<()> {
    /// let server = Server::new();
    /// let client = server.client();
    /// let (lock, link) = (client.mutex("orders:42")?, server.link(&client));
    /// link.lose_messages(1);
    /// lock.lock()?.release()?;
    /// // Nobody waited, so there was no message to lose.
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

//! Losses for threads that wait for them.

use std::fmt;
use std::time::Duration;

use crate::base::loss::Loss;
use crate::base::sync::channel::{self, Receiver, Sender, TrySendError};
use crate::base::sync::{Arc, AtomicU64, Mutex, Ordering, Weak};
use crate::base::sync::{RecvError, RecvTimeoutError, TryRecvError};

/// So many losses wait to be read.
const ROOM: usize = 1024;

/// The losses of all locks of a client, for a thread that waits for them.
///
/// [`LockClient::losses`](crate::LockClient::losses) makes it. Each receiver gets every loss from then on,
/// in the order in which the client found them. A guard is invalid before its loss arrives here.
///
/// It has room for 1024 losses that nobody has read. While it is full it keeps no more;
/// [`missed`](LossReceiver::missed) counts the others. So a receiver that nobody reads costs little memory
/// and holds nobody up.
///
/// It ends when its client is shut down, or when the last clone, lock and guard of the client are dropped.
/// Losses that arrived before can still be read.
///
/// ```
/// # fn demo(client: &leasehold::LockClient) {
/// let losses = client.losses();
/// std::thread::spawn(move || {
///     for loss in losses {
///         eprintln!("{loss}");
///     }
/// });
/// # }
/// ```
///
/// To `select!` over it and other channels, send from [`on_loss`] to a channel of your own, or use the
/// feature `crossbeam`.
///
/// [`on_loss`]: crate::LockClientBuilder::on_loss
pub struct LossReceiver {
    losses: Receiver<Loss>,
    missed: Arc<AtomicU64>,
}

impl LossReceiver {
    /// Waits for the next loss.
    ///
    /// # Errors
    ///
    /// [`RecvError`](std::sync::mpsc::RecvError) when the client has ended.
    ///
    /// ```
    /// # fn demo(losses: &leasehold::LossReceiver) {
    /// while let Ok(loss) = losses.recv() {
    ///     eprintln!("{loss}");
    /// }
    /// println!("the client has ended");
    /// # }
    /// ```
    pub fn recv(&self) -> Result<Loss, RecvError> {
        self.losses.recv().map_err(|_| RecvError)
    }

    /// Waits for the next loss for at most `wait`.
    ///
    /// # Errors
    ///
    /// [`Timeout`](std::sync::mpsc::RecvTimeoutError::Timeout) when the time is over,
    /// [`Disconnected`](std::sync::mpsc::RecvTimeoutError::Disconnected) when the client has ended.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn demo(losses: &leasehold::LossReceiver) {
    /// if let Ok(loss) = losses.recv_timeout(Duration::from_secs(1)) {
    ///     eprintln!("{loss}");
    /// }
    /// # }
    /// ```
    pub fn recv_timeout(&self, wait: Duration) -> Result<Loss, RecvTimeoutError> {
        self.losses.recv_timeout(wait).map_err(|error| match error {
            channel::RecvTimeoutError::Timeout => RecvTimeoutError::Timeout,
            channel::RecvTimeoutError::Disconnected => RecvTimeoutError::Disconnected,
        })
    }

    /// Returns the next loss if one is there, and does not wait.
    ///
    /// # Errors
    ///
    /// [`Empty`](std::sync::mpsc::TryRecvError::Empty) when none is there,
    /// [`Disconnected`](std::sync::mpsc::TryRecvError::Disconnected) when none is there and the client has
    /// ended.
    ///
    /// ```
    /// use std::sync::mpsc::TryRecvError;
    /// use std::time::Duration;
    ///
    /// # fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
    /// let losses = client.losses();
    /// assert_eq!(losses.try_recv(), Err(TryRecvError::Empty));
    /// client.shutdown(Duration::from_secs(1))?;
    /// assert_eq!(losses.try_recv(), Err(TryRecvError::Disconnected));
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_recv(&self) -> Result<Loss, TryRecvError> {
        self.losses.try_recv().map_err(|error| match error {
            channel::TryRecvError::Empty => TryRecvError::Empty,
            channel::TryRecvError::Disconnected => TryRecvError::Disconnected,
        })
    }

    /// An iterator that waits for each loss, and ends with the client.
    ///
    /// ```
    /// # fn demo(losses: &leasehold::LossReceiver) {
    /// // Ends the process with the first order that is not protected any more.
    /// if losses.iter().any(|loss| loss.name().starts_with(b"orders:")) {
    ///     std::process::abort();
    /// }
    /// # }
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = Loss> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }

    /// How many losses this receiver did not keep because it was full.
    ///
    /// ```
    /// # fn demo(losses: &leasehold::LossReceiver) {
    /// while let Ok(loss) = losses.recv() {
    ///     eprintln!("{loss}, and {} were missed", losses.missed());
    /// }
    /// # }
    /// ```
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// The channel beneath, for `crossbeam_channel::select!`.
    ///
    /// It is a channel of crossbeam-channel 0.5 and follows that crate, so this method is not covered by the
    /// promise of a stable interface.
    ///
    /// ```
    /// # fn demo(losses: &leasehold::LossReceiver, stop: &crossbeam_channel::Receiver<()>) {
    /// crossbeam_channel::select! {
    ///     recv(losses.as_crossbeam()) -> loss => eprintln!("{loss:?}"),
    ///     recv(stop) -> _ => println!("told to go home"),
    /// }
    /// # }
    /// ```
    #[cfg(feature = "crossbeam")]
    #[cfg_attr(docsrs, doc(cfg(feature = "crossbeam")))]
    pub fn as_crossbeam(&self) -> &Receiver<Loss> {
        &self.losses
    }
}

impl IntoIterator for LossReceiver {
    type Item = Loss;
    type IntoIter = LossIter;

    fn into_iter(self) -> LossIter {
        LossIter(self)
    }
}

/// An iterator over the losses of a [`LossReceiver`], which ends with the client.
///
/// ```
/// use std::time::Duration;
///
/// # fn main() -> leasehold::Result<()> {
/// # let client = leasehold::LockClient::builder("redis://127.0.0.1:6379").build()?;
/// let mut losses = client.losses().into_iter();
/// client.shutdown(Duration::from_secs(1))?;
/// assert!(losses.next().is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LossIter(LossReceiver);

impl Iterator for LossIter {
    type Item = Loss;

    fn next(&mut self) -> Option<Loss> {
        self.0.recv().ok()
    }
}

impl fmt::Debug for LossReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossReceiver").field("missed", &self.missed()).finish_non_exhaustive()
    }
}

/// All receivers of a client; `None` once it has ended.
#[derive(Debug)]
pub(crate) struct Feeds(Mutex<Option<Vec<Feed>>>);

#[derive(Debug)]
struct Feed {
    losses: Sender<Loss>,
    missed: Weak<AtomicU64>,
}

impl Feeds {
    pub(crate) fn new() -> Feeds {
        Feeds(Mutex::new(Some(Vec::new())))
    }

    /// Makes a receiver, which has ended already if the client has.
    pub(crate) fn subscribe(&self) -> LossReceiver {
        let (sender, losses) = channel::bounded(ROOM);
        let missed = Arc::new(AtomicU64::new(0));
        if let Some(feeds) = &mut *self.0.lock() {
            // Those that nobody reads any more would pile up where no lock is ever lost.
            feeds.retain(|feed| feed.missed.strong_count() > 0);
            feeds.push(Feed { losses: sender, missed: Arc::downgrade(&missed) });
        }
        LossReceiver { losses, missed }
    }

    /// Tells all receivers, and waits for none.
    pub(crate) fn send(&self, loss: &Loss) {
        let mut feeds = self.0.lock();
        for feed in feeds.iter_mut().flatten() {
            if let Err(TrySendError::Full(_)) = feed.losses.try_send(loss.clone())
                && let Some(missed) = feed.missed.upgrade()
            {
                missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Ends all receivers.
    pub(crate) fn close(&self) {
        *self.0.lock() = None;
    }
}

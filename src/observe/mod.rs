//! Events about a client's locks while it works: the trait [`Observer`], and what it receives.
//!
//! An observer is given to the builder of a client, which may have several. The features `metrics` and `tracing` bring
//! `MetricsObserver` and `TracingObserver`. [Operations](crate::guide::operations#metrics) lists the metrics, and what
//! to alert on.
//!
//! # Calls, holds and numbers
//!
//! A call for a lock has a *number*, which is unique in the process. The hold that it gets has the same number.
//!
//! | event | when | comes |
//! | --- | --- | --- |
//! | [`Waiting`] | a call for a lock begins | once for each call, except for a reentry |
//! | [`Acquired`] | the call has the lock | once for each call, if [`NotAcquired`] does not come |
//! | [`NotAcquired`] | the call ends without the lock | the other way round |
//! | [`Released`] | a hold ends, and was valid until then | once for each hold, if [`Lost`] does not come |
//! | [`Lost`] | a hold was lost before its release | the other way round |
//!
//! So what waits now is `Waiting` less the two ends of a call, and what is held is `Acquired` less the two ends of a
//! hold. Two kinds of [`Acquired`] begin no hold: a [reentry](How::Reentry) has the number of the hold that it enters,
//! and no end of its own; an [upgrade](How::Upgrade) ends a call, and the hold of the reader goes on with another token.
//!
//! | use | events |
//! | --- | --- |
//! | a reader that comes in with the entry of another one of its process | as for any other hold: [`How::Shared`] |
//! | permits, or another lease, that a thread passes on to another one | `Released` for the one, `Acquired` with [`How::LocalHandOff`] for the other |
//! | a lease that lingers | its hold has ended; the next one is [`How::Linger`] |
//! | [`lock_all`](crate::LockClient::lock_all) | those of each lock; `Acquired` comes when the call waits for none of the others, and `waited` is as long as that lock took |
//! | [`claim`](crate::LockClient::claim) | those of each lock that was tried: `Acquired` for those that the call has, when it waits for none of the others, and `NotAcquired` for the rest |
//! | a call that [`max_waiters`](crate::LockOptions::max_waiters) or [`reentrant(false)`](crate::LockOptions::reentrant) turns away | `NotAcquired` at once, with the holder; none where a thread would wait for itself without an end |
//! | `into_owned`, `into_guard`, a downgrade, `extend`, `confirm` | none: the hold goes on |
//! | [`keep_for`](crate::Guard::keep_for) | `Released` when the guard ends |
//! | a forced release | `Lost` in the client of the holder |
//! | [`close`](crate::LockClient::close) | `NotAcquired` for each wait, and `Released` or `Lost` for each hold |
//! | a lock that is given back before its call has it, such as for too few replicas | `NotAcquired` alone |
//!
//! # Threads
//!
//! | event | thread |
//! | --- | --- |
//! | [`Waiting`], [`Acquired`], [`NotAcquired`], [`Released`] | the one whose call it is, before the call returns |
//! | [`Lost`] | one of its own, like a callback for losses |
//! | [`Exchange`] | that of the call, at the end of the call; if the client does it by itself, one of its own |
//! | [`Renewed`], [`Unconfirmed`], [`ConfirmedAgain`], [`Reconnected`] | one of its own |
//!
//! `Acquired` comes before the end of the same hold. Otherwise events of different threads come in any order: of two
//! holds one after the other, the later may be reported first.
//!
//! # What an observer may do
//!
//! Nothing of the client is locked during a call of an observer, and the thread neither asks for a lock nor releases one. So an observer may use
//! locks of the client, also the one of the event, which its thread can enter once more if it has it. A permit is no
//! hold of the thread: an observer that waits for a permit which its own thread has just got may wait for ever. What an
//! observer does with locks is not observed, so no call ends in a circle.
//!
//! An observer holds up the thread that calls it, so it should be quick, and wait for nothing. What comes on a thread of
//! its own comes in order, and no more than 4,096 events wait for it: one that finds no room is left out, and the log says so. A panic in one is logged,
//! and goes no further. An observer must not own the client, which would then never end.

mod event;
#[cfg(any(test, feature = "metrics"))]
mod metrics;
pub(crate) mod observers;
#[cfg(any(test, feature = "tracing"))]
mod tracing;

#[cfg(any(test, feature = "metrics"))]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub use self::metrics::MetricsObserver;
#[cfg(any(test, feature = "tracing"))]
#[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
pub use self::tracing::TracingObserver;
pub use event::{
    Acquired, ConfirmedAgain, Exchange, How, Lost, NotAcquired, Reconnected, Released, Renewed,
    Unconfirmed, Waiting,
};

use crate::base::sync::Arc;

/// Learns of what a client does with its locks.
///
/// Every method does nothing unless it is written. [The module](crate::observe) says when each comes, on which thread,
/// and what an observer may do.
///
/// ```
/// use leasehold::observe::{Acquired, How};
/// use leasehold::{LockClient, Observer};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// /// Counts the locks that somebody else had at first.
/// #[derive(Default)]
/// struct Contended(AtomicU64);
///
/// impl Observer for Contended {
///     fn acquired(&self, event: &Acquired<'_>) {
///         if event.how == How::Queued {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// # fn main() -> leasehold::Result<()> {
/// let client = LockClient::builder("redis://127.0.0.1:6379").observer(Contended::default()).build()?;
/// # Ok(())
/// # }
/// ```
pub trait Observer: Send + Sync {
    /// A call for a lock begins.
    fn waiting(&self, _event: &Waiting<'_>) {}

    /// A call has the lock.
    fn acquired(&self, _event: &Acquired<'_>) {}

    /// A call ended without the lock.
    fn not_acquired(&self, _event: &NotAcquired<'_>) {}

    /// A hold has ended, and was valid until then.
    fn released(&self, _event: &Released<'_>) {}

    /// A hold was lost before its release.
    fn lost(&self, _event: &Lost<'_>) {}

    /// The lease of a hold is over, and the hold may come back.
    fn unconfirmed(&self, _event: &Unconfirmed<'_>) {}

    /// Such a hold is valid again.
    fn confirmed_again(&self, _event: &ConfirmedAgain<'_>) {}

    /// Leases were renewed.
    fn renewed(&self, _event: &Renewed) {}

    /// A request to Redis has ended.
    fn exchange(&self, _event: &Exchange) {}

    /// A connection was made in the place of one that broke or was silent.
    fn reconnected(&self, _event: &Reconnected<'_>) {}
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn waiting(&self, event: &Waiting<'_>) {
        (**self).waiting(event);
    }

    fn acquired(&self, event: &Acquired<'_>) {
        (**self).acquired(event);
    }

    fn not_acquired(&self, event: &NotAcquired<'_>) {
        (**self).not_acquired(event);
    }

    fn released(&self, event: &Released<'_>) {
        (**self).released(event);
    }

    fn lost(&self, event: &Lost<'_>) {
        (**self).lost(event);
    }

    fn unconfirmed(&self, event: &Unconfirmed<'_>) {
        (**self).unconfirmed(event);
    }

    fn confirmed_again(&self, event: &ConfirmedAgain<'_>) {
        (**self).confirmed_again(event);
    }

    fn renewed(&self, event: &Renewed) {
        (**self).renewed(event);
    }

    fn exchange(&self, event: &Exchange) {
        (**self).exchange(event);
    }

    fn reconnected(&self, event: &Reconnected<'_>) {
        (**self).reconnected(event);
    }
}

//! The events.

use std::time::Duration;

use crate::base::error::{Error, ErrorKind};
use crate::base::inspection::Holder;
use crate::base::loss::Loss;
use crate::base::share::Access;
use crate::base::token::FencingToken;

/// A call for a lock has begun.
///
/// ```
/// # use leasehold::{Observer, observe::Waiting};
/// # struct Printer;
/// impl Observer for Printer {
///     fn waiting(&self, event: &Waiting<'_>) {
///         println!("{}: somebody asks for {}", event.call, event.name.escape_ascii());
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Waiting<'a> {
    /// The number of the call, and of the hold that it gets.
    pub call: u64,
    /// The lock's name in Redis, the client's prefix included. It may be any bytes.
    pub name: &'a [u8],
    /// The [name](crate::Kind::name) of the kind of lock.
    pub kind: &'static str,
    /// As what a read-write lock is asked for; `None` for other kinds.
    pub access: Option<Access>,
}

/// A call has the lock.
///
/// ```
/// # use leasehold::{Observer, observe::Acquired};
/// # struct Printer;
/// impl Observer for Printer {
///     fn acquired(&self, event: &Acquired<'_>) {
///         if let Some(holder) = event.blocker {
///             println!("{}: waited {:?} for {holder}", event.call, event.waited);
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Acquired<'a> {
    /// The number of the call. A reentry has that of the hold.
    pub call: u64,
    /// The number of the hold: of the call that began it.
    pub hold: u64,
    /// The lock's name in Redis, the client's prefix included. It may be any bytes.
    pub name: &'a [u8],
    /// The [name](crate::Kind::name) of the kind of lock.
    pub kind: &'static str,
    /// As what a read-write lock was asked for; `None` for other kinds.
    pub access: Option<Access>,
    /// From the beginning of the call until the hold began; zero for a reentry.
    pub waited: Duration,
    /// Where the hold came from.
    pub how: How,
    /// The token of the hold.
    pub token: FencingToken,
    /// The holder for whom the call waited: the last one of which it learned. `None` if it waited for nobody, or learned
    /// of none.
    pub blocker: Option<&'a Holder>,
}

/// Where a hold came from.
///
/// ```
/// use leasehold::observe::How;
///
/// assert_eq!(How::LocalHandOff.text(), "local_hand_off");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum How {
    /// Redis granted it, and the call had learned of no holder before.
    Free,
    /// Redis granted it after somebody had it.
    Queued,
    /// Another thread of the process passed its lease on, without a command.
    LocalHandOff,
    /// The process had kept the lease of an earlier hold, by [`linger`](crate::LockOptions::linger).
    Linger,
    /// Readers of the process share what Redis knows as one of them, so it took no command, or one renewal.
    Shared,
    /// The thread had the lock already. No hold begins.
    Reentry,
    /// An upgradable reader became the writer. No hold begins.
    Upgrade,
}

impl How {
    /// All of them.
    #[cfg(any(test, feature = "metrics"))]
    pub(super) const ALL: [How; 7] = [
        How::Free,
        How::Queued,
        How::LocalHandOff,
        How::Linger,
        How::Shared,
        How::Reentry,
        How::Upgrade,
    ];

    /// Whether a hold begins.
    ///
    /// ```
    /// # use leasehold::observe::How;
    /// assert!(How::Free.begins_hold());
    /// assert!(!How::Reentry.begins_hold());
    /// ```
    pub fn begins_hold(self) -> bool {
        !matches!(self, How::Reentry | How::Upgrade)
    }

    /// Its name in small letters, for a label.
    ///
    /// ```
    /// # use leasehold::observe::How;
    /// assert_eq!(How::Free.text(), "free");
    /// ```
    pub fn text(self) -> &'static str {
        match self {
            How::Free => "free",
            How::Queued => "queued",
            How::LocalHandOff => "local_hand_off",
            How::Linger => "linger",
            How::Shared => "shared",
            How::Reentry => "reentry",
            How::Upgrade => "upgrade",
        }
    }
}

/// A call has ended without the lock.
///
/// ```
/// # use leasehold::{Observer, observe::NotAcquired};
/// # struct Printer;
/// impl Observer for Printer {
///     fn not_acquired(&self, event: &NotAcquired<'_>) {
///         match (event.error, event.blocker) {
///             (Some(error), _) => println!("{}: {error}", event.call),
///             (None, Some(holder)) => println!("{}: {holder} has it", event.call),
///             (None, None) => println!("{}: somebody has it", event.call),
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NotAcquired<'a> {
    /// The number of the call.
    pub call: u64,
    /// The lock's name in Redis, the client's prefix included. It may be any bytes.
    pub name: &'a [u8],
    /// The [name](crate::Kind::name) of the kind of lock.
    pub kind: &'static str,
    /// As what a read-write lock was asked for; `None` for other kinds.
    pub access: Option<Access>,
    /// How long the call took.
    pub waited: Duration,
    /// Why it failed; `None` if somebody else had the lock. The error of [`lock_all`](crate::LockClient::lock_all) comes
    /// with one of the locks that the call does not have, and the others have none.
    pub error: Option<&'a Error>,
    /// The holder for whom the call waited: the last one of which it learned. `None` if it learned of none.
    pub blocker: Option<&'a Holder>,
}

/// A hold has ended, and was valid until then.
///
/// ```
/// # use leasehold::{Observer, observe::Released};
/// # use std::time::Duration;
/// # struct Printer;
/// impl Observer for Printer {
///     fn released(&self, event: &Released<'_>) {
///         if event.held > Duration::from_secs(60) {
///             println!("{}: held for {:?}", event.hold, event.held);
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Released<'a> {
    /// The number of the hold.
    pub hold: u64,
    /// The lock's name in Redis, the client's prefix included. It may be any bytes.
    pub name: &'a [u8],
    /// The [name](crate::Kind::name) of the kind of lock.
    pub kind: &'static str,
    /// The last token of the hold.
    pub token: FencingToken,
    /// From the beginning of the hold until its release was done, or was left to the worker.
    pub held: Duration,
    /// What went wrong with the release, if the caller was told. The worker goes on with it.
    pub error: Option<&'a Error>,
}

/// A hold was lost before its release.
///
/// ```
/// # use leasehold::{Observer, observe::Lost};
/// # struct Printer;
/// impl Observer for Printer {
///     fn lost(&self, event: &Lost<'_>) {
///         println!("{}: {} after {:?}", event.hold, event.loss, event.held);
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Lost<'a> {
    /// The number of the hold.
    pub hold: u64,
    /// The [name](crate::Kind::name) of the kind of lock.
    pub kind: &'static str,
    /// From the beginning of the hold until the loss was found.
    pub held: Duration,
    /// The lock, the token and the cause.
    pub loss: &'a Loss,
}

/// The lease of a hold is over, and Redis has not confirmed it. It is [recoverable](crate::Lease::recoverable_for): nobody
/// else is known to have the lock, and the hold may come back.
///
/// The hold is not valid. It is [`ConfirmedAgain`] or [`Lost`] later, or is released.
///
/// ```
/// # use leasehold::{Observer, observe::Unconfirmed};
/// # struct Printer;
/// impl Observer for Printer {
///     fn unconfirmed(&self, event: &Unconfirmed<'_>) {
///         println!("{}: not confirmed for {:?}", event.name.escape_ascii(), event.unheard);
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Unconfirmed<'a> {
    /// The lock's name in Redis, the client's prefix included. It may be any bytes.
    pub name: &'a [u8],
    /// The [name](crate::Kind::name) of the kind of lock.
    pub kind: &'static str,
    /// The token of the hold.
    pub token: FencingToken,
    /// How long ago the last request was sent that Redis confirmed.
    pub unheard: Duration,
}

/// A hold that was [`Unconfirmed`] is valid again, with its token: nobody else has had the lock.
///
/// ```
/// # use leasehold::{Observer, observe::ConfirmedAgain};
/// # struct Printer;
/// impl Observer for Printer {
///     fn confirmed_again(&self, event: &ConfirmedAgain<'_>) {
///         println!("{}: confirmed after {:?}", event.name.escape_ascii(), event.unheard);
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConfirmedAgain<'a> {
    /// The lock's name in Redis, the client's prefix included. It may be any bytes.
    pub name: &'a [u8],
    /// The [name](crate::Kind::name) of the kind of lock.
    pub kind: &'static str,
    /// The token of the hold.
    pub token: FencingToken,
    /// For how long Redis had not confirmed it.
    pub unheard: Duration,
}

/// Leases were renewed, by one request.
///
/// ```
/// # use leasehold::{Observer, observe::Renewed};
/// # struct Printer;
/// impl Observer for Printer {
///     fn renewed(&self, event: &Renewed) {
///         println!("{} leases renewed in {:?}", event.count, event.took);
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Renewed {
    /// How many leases.
    pub count: u32,
    /// How long the request took.
    pub took: Duration,
}

/// A request to Redis has ended. One request may be a pipeline, or several round trips on one connection; over several
/// servers it is one for all of them.
///
/// ```
/// # use leasehold::{Observer, observe::Exchange};
/// # struct Printer;
/// impl Observer for Printer {
///     fn exchange(&self, event: &Exchange) {
///         if let Err(kind) = event.outcome {
///             println!("{kind:?} after {:?}", event.took);
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Exchange {
    /// How long it took, with the wait for a connection.
    pub took: Duration,
    /// The kind of its first failure, if it had one. A lock that somebody else has is none.
    pub outcome: Result<(), ErrorKind>,
}

/// A connection was made in the place of one that broke or was silent. It comes once for all connections to a server
/// that broke together, and not for those by which messages come.
///
/// ```
/// # use leasehold::{Observer, observe::Reconnected};
/// # struct Printer;
/// impl Observer for Printer {
///     fn reconnected(&self, event: &Reconnected<'_>) {
///         println!("connected to {} again", event.server);
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Reconnected<'a> {
    /// The address of the server.
    pub server: &'a str,
}

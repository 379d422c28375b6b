//! Why a lock is no longer held although its holder did not release it.

use std::fmt;

/// Which lock was lost before its release, which hold, and why.
///
/// ```
/// # fn demo(guard: &leasehold::Guard) {
/// if let Some(loss) = guard.loss() {
///     eprintln!("{loss}: {:?}", loss.cause());
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    name: Vec<u8>,
    shown: String,
    token: crate::FencingToken,
    cause: LossCause,
}

impl Loss {
    pub(crate) fn new(
        name: &crate::base::name::Name,
        token: crate::FencingToken,
        cause: LossCause,
    ) -> Loss {
        Loss { name: name.as_bytes().to_vec(), shown: name.to_string(), token, cause }
    }

    /// The lock's name in Redis, prefix included.
    ///
    /// ```
    /// # fn demo(loss: &leasehold::Loss) {
    /// if loss.name().starts_with(b"orders:") {
    ///     eprintln!("an order is not protected any more: {loss}");
    /// }
    /// # }
    /// ```
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The token of the hold that was lost.
    ///
    /// ```
    /// # fn demo(loss: &leasehold::Loss) {
    /// eprintln!("{loss}; look at what was written with token {}", loss.fencing_token());
    /// # }
    /// ```
    pub fn fencing_token(&self) -> crate::FencingToken {
        self.token
    }

    /// What ended the hold.
    ///
    /// ```
    /// use leasehold::LossCause;
    ///
    /// # fn demo(loss: &leasehold::Loss) {
    /// if loss.cause() == LossCause::MaxHold {
    ///     eprintln!("what does the work wait for?");
    /// }
    /// # }
    /// ```
    pub fn cause(&self) -> LossCause {
        self.cause
    }

    /// The name as it is shown.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock \"{}\" lost: {}", self.shown, self.cause)
    }
}

/// What ended a hold before its release.
///
/// ```
/// use leasehold::LossCause;
///
/// fn advice(cause: LossCause) -> &'static str {
///     match cause {
///         LossCause::Deleted | LossCause::Taken => "who changes the key?",
///         LossCause::Unreachable => "is Redis down?",
///         _ => "is the work too slow?",
///     }
/// }
/// assert_eq!(advice(LossCause::MaxHold), "is the work too slow?");
/// assert_eq!(LossCause::Deleted.to_string(), "its key was deleted");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossCause {
    /// The lease ran out: it was fixed, or this process was paused.
    Expired,
    /// The lease ran out after as many renewals as `max_renewals` allows.
    RenewalsUsedUp,
    /// Redis says that another holder has it.
    Taken,
    /// Redis says that the key is gone.
    Deleted,
    /// No renewal could be confirmed until the lease had run out.
    Unreachable,
    /// The hold lasted as long as `max_hold` allows.
    MaxHold,
    /// The client was shut down.
    ShutDown,
}

impl LossCause {
    /// What may keep it from happening again.
    pub(crate) fn advice(self) -> Option<&'static str> {
        match self {
            LossCause::Expired => Some("use Lease::renewed or a longer lease"),
            LossCause::RenewalsUsedUp => Some("raise max_renewals or shorten the work"),
            LossCause::Taken | LossCause::Deleted => {
                Some("find out what deletes, evicts or overwrites its key")
            }
            LossCause::Unreachable => Some("use a lease that is longer than the outage"),
            LossCause::MaxHold => Some("raise max_hold or shorten the work"),
            LossCause::ShutDown => Some("release the locks before the shutdown"),
        }
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LossCause::Expired => "its lease ran out",
            LossCause::RenewalsUsedUp => {
                "its lease ran out after the last renewal that max_renewals allows"
            }
            LossCause::Taken => "another holder has it",
            LossCause::Deleted => "its key was deleted",
            LossCause::Unreachable => "its lease ran out while Redis could not be reached",
            LossCause::MaxHold => "it was held as long as max_hold allows",
            LossCause::ShutDown => "its client was shut down",
        })
    }
}

//! Why a lock is no longer held although its holder did not release it.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::base::name::Name;
use crate::base::sync::Arc;
use crate::base::text::Span;
use crate::base::token::FencingToken;

/// The loss of a lock before its release: the lock, the hold, and the cause.
///
/// ```
/// # fn demo(guard: &leasehold::Guard) {
/// if let Some(loss) = guard.loss() {
///     eprintln!("{loss}: {:?}", loss.cause());
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Loss {
    name: Name,
    token: FencingToken,
    cause: LossCause,
    /// Whether the lease was a renewed one: it expires for other reasons than a fixed one.
    pub(crate) is_renewed: bool,
    /// The error of the last renewal.
    pub(crate) source: Option<Arc<dyn StdError + Send + Sync>>,
    /// For how long Redis had not heard of the holder when it learned that another had taken the lock.
    unheard: Option<Duration>,
}

impl Loss {
    pub(crate) fn new(name: Name, token: FencingToken, cause: LossCause, is_renewed: bool) -> Loss {
        Loss { name, token, cause, is_renewed, source: None, unheard: None }
    }

    /// The same for a holder of which Redis had not heard for so long.
    pub(crate) fn unheard(self, span: Duration) -> Loss {
        Loss { unheard: Some(span), ..self }
    }

    /// The same with the error of the last renewal.
    pub(crate) fn with_source(self, source: Arc<dyn StdError + Send + Sync>) -> Loss {
        Loss { source: Some(source), ..self }
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
        self.name.as_bytes()
    }

    /// The token of the hold that was lost.
    ///
    /// ```
    /// # fn demo(loss: &leasehold::Loss) {
    /// eprintln!("{loss}; look at what was written with token {}", loss.fencing_token());
    /// # }
    /// ```
    pub fn fencing_token(&self) -> FencingToken {
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

    /// The error of the last renewal, if the cause is [`Refused`](LossCause::Refused) or
    /// [`Unreachable`](LossCause::Unreachable): what the server replied, or why it could not be reached.
    ///
    /// ```
    /// # fn demo(loss: &leasehold::Loss) {
    /// if let Some(error) = loss.source() {
    ///     eprintln!("{loss}: {error}");
    /// }
    /// # }
    /// ```
    pub fn source(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.source.as_deref()
    }

    /// The lock's name.
    pub(crate) fn lock(&self) -> &Name {
        &self.name
    }

    /// The cause in words, for the texts of the loss and of its error.
    pub(crate) fn what(&self) -> Cow<'static, str> {
        match (self.cause, self.unheard) {
            (LossCause::Expired, _) if self.is_renewed => {
                "its lease ran out before it was renewed".into()
            }
            (cause, Some(span)) => {
                let what = cause.text();
                format!("{what}, after nothing was heard of this one for {}", Span(span)).into()
            }
            (cause, None) => cause.text().into(),
        }
    }

    /// Advice on how to avoid this loss.
    pub(crate) fn advice(&self) -> &'static str {
        match self.cause {
            // Not the server's fault: a renewal that fails makes the cause `Unreachable`. Here none
            // was sent in time, or its reply was not read.
            LossCause::Expired if self.is_renewed => {
                "look whether this process or its machine was paused, or use a longer lease"
            }
            LossCause::Expired => "use Lease::renewed or a longer lease",
            LossCause::RenewalsUsedUp => "raise max_renewals or shorten the work",
            LossCause::Taken if self.unheard.is_some() => {
                "look whether this process was paused or could not reach Redis, or use a longer lease"
            }
            LossCause::Taken => {
                "look for a force_release, for whatever deleted or overwrote its key, or for a restart \
                 or fail-over that lost writes"
            }
            LossCause::Deleted => {
                "look for a force_release, DEL or FLUSHALL, for eviction, or for a restart or fail-over \
                 that lost writes"
            }
            LossCause::Unreachable => {
                "look at the server and the network; a longer lease rides out more"
            }
            LossCause::Refused => {
                "look at what the server replied; with writes stopped by a full disk or by missing replicas no \
                 lock can be renewed"
            }
            LossCause::MaxHold => "raise max_hold or shorten the work",
            LossCause::ShutDown => {
                "release the locks before, or close the client with a longer grace"
            }
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock {:?}: lost: {}", self.name, self.what())
    }
}

impl PartialEq for Loss {
    /// The same loss of the same hold, whatever the last renewal's error.
    fn eq(&self, other: &Loss) -> bool {
        let key = |loss: &Loss| (loss.token, loss.cause, loss.is_renewed);
        self.name == other.name && key(self) == key(other)
    }
}

impl Eq for Loss {}

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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LossCause {
    /// The lease ran out: it was fixed, or this process was paused.
    Expired,
    /// The lease ran out after as many renewals as `max_renewals` allows.
    RenewalsUsedUp,
    /// Redis says that another holder has it, or has had it since.
    Taken,
    /// Redis says that the key is gone, and does not tell of another holder since.
    Deleted,
    /// The lease ran out while Redis could not be reached: no renewal was confirmed, and most had no reply.
    Unreachable,
    /// The lease ran out while the server refused most renewals: it cannot save to its disk, lacks replicas or memory, is a
    /// replica, has no connection left, or denies it to the user. [`Loss::source`] has the reply.
    Refused,
    /// The hold lasted as long as `max_hold` allows.
    MaxHold,
    /// The client was shut down, or closed with a grace that was too short for the work.
    ShutDown,
}

impl LossCause {
    fn text(self) -> &'static str {
        match self {
            LossCause::Expired => "its lease ran out",
            LossCause::RenewalsUsedUp => {
                "its lease ran out after the last renewal that max_renewals allows"
            }
            // It may have released it since.
            LossCause::Taken => "another holder got it",
            LossCause::Deleted => "its key was deleted",
            LossCause::Unreachable => "its lease ran out while Redis could not be reached",
            LossCause::Refused => "its lease ran out while the server refused to renew it",
            LossCause::MaxHold => "it was held as long as max_hold allows",
            LossCause::ShutDown => "its client was shut down",
        }
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

//! The guard of a leader.

use crate::base::error::Result;
use crate::base::sync::{AtomicU64, Ordering};
use crate::base::token::FencingToken;
use crate::kind::hold::OwnedHold;
use crate::kind::hold_method::hold_methods;

/// The lead of an [`Election`](crate::Election), for one term. It ends when this is dropped.
///
/// It belongs to no thread, and can be sent to another. It keeps alive what it needs, so it may outlive its election and
/// its client. A drop makes one attempt to resign, as with a [`Guard`](crate::Guard).
///
/// It can be lost like any lock. Look at [`is_valid`](Self::is_valid) before each step of the work, give
/// [`on_loss`](Self::on_loss) a callback, and send the [term](Self::term) along to what the leader writes to.
///
/// ```
/// # fn demo(election: &leasehold::Election) -> leasehold::Result<()> {
/// let leadership = election.campaign()?;
/// leadership.proclaim("10.0.0.7:8080")?;
/// while leadership.is_valid() {
///     // … one step of a leader's work …
/// #   break;
/// }
/// leadership.resign()
/// # }
/// ```
#[must_use = "if unused the leader resigns at once, also with `let _ = …`; keep it in a variable such as `_guard`"]
pub struct Leadership(OwnedHold, AtomicU64);

hold_methods! {
    Leadership {
        /// The token of this leadership, which is its [term](Self::term). No I/O.
        fencing_token;
        /// The callback belongs to this leadership.
        on_loss;
        transaction;
        ///
        /// It is [`resign`](Self::resign) by the name that all guards have.
        release
    }
}

impl Leadership {
    pub(super) fn new(hold: OwnedHold) -> Leadership {
        Leadership(hold, AtomicU64::new(0))
    }

    #[cfg(test)]
    pub(crate) fn hold(&self) -> &crate::base::sync::Arc<crate::engine::hold::Hold> {
        &self.holding().hold
    }

    /// The number of this leadership, greater than that of every leadership before it: its
    /// [fencing token](Self::fencing_token). No I/O.
    ///
    /// ```
    /// # fn demo(leadership: &leasehold::Leadership, highest: &mut leasehold::FencingToken) {
    /// // What the leader writes to refuses a leader that is late.
    /// if leadership.term() >= *highest {
    ///     *highest = leadership.term();
    ///     // … the write …
    /// }
    /// # }
    /// ```
    pub fn term(&self) -> FencingToken {
        self.fencing_token()
    }

    /// Says a word to everybody: [`Election::leader`](crate::Election::leader) returns it, and it is a change for each
    /// [`observe`](crate::Election::observe). For example the address under which the leader is reached. It replaces the
    /// word before.
    ///
    /// Redis keeps the word for as long as the lock, whose renewal renews it, and it counts in this term alone. Of words
    /// that several threads say at once, the one whose call began last stays.
    ///
    /// # Errors
    ///
    /// - [`is_config`](crate::Error::is_config) for more than 4,096 bytes;
    /// - [`is_lost`](crate::Error::is_lost) if this leadership is over. Nothing was said;
    /// - [`is_unknown_outcome`](crate::Error::is_unknown_outcome) if no reply came. The word was said, or not, or may yet
    ///   be, in this term and before any later word. It is safe to say it again;
    /// - an error of the connection, or of the permissions, if Redis cannot be asked.
    ///
    /// ```
    /// # fn demo(leadership: &leasehold::Leadership) -> leasehold::Result<()> {
    /// leadership.proclaim("10.0.0.7:8080")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<()> {
        // Drawn when the call begins. A request that is stuck on its way then has a lower number than a later call.
        let number = self.1.fetch_add(1, Ordering::Relaxed) + 1;
        self.holding().proclaim(value.as_ref(), number)
    }

    /// Ends this leadership, and returns an error if that went wrong. The next candidate leads at once.
    ///
    /// # Errors
    ///
    /// The same as for [`release`](Self::release), which it is.
    ///
    /// ```
    /// # fn demo(leadership: leasehold::Leadership) -> leasehold::Result<()> {
    /// // SIGTERM has come: another process shall lead now, and not when the lease ends.
    /// leadership.resign()
    /// # }
    /// ```
    pub fn resign(self) -> Result<()> {
        self.release()
    }
}

//! Fencing tokens.

use std::fmt;

/// A number that grows with every hold of a lock, for the resource to check.
///
/// A resource that remembers the highest token it has seen, and refuses lower ones, is safe even
/// from a holder that was paused past its lease. See [`Guard::fencing_token`], and the
/// [recipes](crate::guide::recipes#fence-writes-in-sql).
///
/// A token that Redis makes is at least the server's time in microseconds, so tokens keep growing
/// after the lock's keys expired or were flushed. A hold that is handed off inside a process has
/// the next number, once the server's clock has come so far. Two servers that both grant a lock, as
/// around a fail-over, can make one token in the same microsecond:
/// [limits](crate::guide::limits#what-breaks-the-order-of-tokens) says what a resource does about
/// that.
///
/// A token fits into 53 bits, and so exactly into a JavaScript or Lua number and into a signed
/// 64-bit column: `get() as i64` is the same number, for drivers that take no `u64`. A command to
/// Redis takes a token as it is.
///
/// ```
/// # fn demo(guard: &leasehold::Guard) {
/// let token = guard.fencing_token();
/// let column = token.get() as i64;
/// let mut command = leasehold::redis::cmd("SET");
/// command.arg("fence").arg(token);
/// # }
/// ```
///
/// [`Guard::fencing_token`]: crate::Guard::fencing_token
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct FencingToken(u64);

impl FencingToken {
    pub(crate) const fn new(token: u64) -> FencingToken {
        FencingToken(token)
    }

    /// The token as a number.
    ///
    /// ```
    /// # fn demo(guard: &leasehold::Guard, highest: u64) {
    /// if guard.fencing_token().get() < highest {
    ///     eprintln!("a later holder has been here");
    /// }
    /// # }
    /// ```
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> u64 {
        token.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

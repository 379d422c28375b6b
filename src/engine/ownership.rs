//! What a reply means for a lease.

use crate::base::loss::LossCause;
use crate::protocol::Protocol;
use crate::protocol::reply::{Ownership, Released};
use crate::wire::failure::{Failure, NotSentReason};

/// Reads a refusal as an ownership: a key of another type is taken, like a key with another owner. Other
/// failures stay failures.
pub(super) fn taken_by_wrong_type(failure: Failure) -> Result<Ownership, Failure> {
    if failure.is_wrong_type() { Ok(Ownership::Taken) } else { Err(failure) }
}

/// The same for a release.
pub(super) fn released_or_taken(reply: Result<Released, Failure>) -> Result<Released, Failure> {
    reply.or_else(|failure| taken_by_wrong_type(failure).map(Released::from))
}

/// The cause of a loss that a reply reports.
pub(super) fn loss_cause(ownership: Ownership) -> LossCause {
    match ownership {
        Ownership::Taken => LossCause::Taken,
        // Callers have dealt with `Owned` before.
        Ownership::Owned | Ownership::Gone => LossCause::Deleted,
    }
}

/// Whether a failed request to lengthen a lease may have been carried out, also by only some of several
/// servers.
pub(super) fn may_remain(protocol: &dyn Protocol, owner: &[u8], failure: &Failure) -> bool {
    // Both are found before anything is sent to any server. That matters for a quorum: `may_still_own` is
    // true for every hold that lives, so it must only be asked when this request may have added
    // something.
    let asked = !matches!(
        failure,
        Failure::NotSent(NotSentReason::InvalidSetting { .. } | NotSentReason::Forked)
    );
    failure.is_unknown() || asked && protocol.may_still_own(owner)
}

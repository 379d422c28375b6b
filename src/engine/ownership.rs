//! What a reply means for a lease.

use crate::base::loss::LossCause;
use crate::protocol::Protocol;
use crate::protocol::reply::Ownership;
use crate::wire::failure::{Failure, NotSentReason};

/// What a refusal says about the owner that was asked about: a key that holds something else is
/// another's, as one of the same type with another owner is.
pub(super) fn taken_by_wrong_type(failure: Failure) -> Result<Ownership, Failure> {
    if failure.is_wrong_type() { Ok(Ownership::Taken) } else { Err(failure) }
}

/// What Redis says about an owner that is not, as the cause of a loss.
pub(super) fn loss_cause(ownership: Ownership) -> LossCause {
    match ownership {
        Ownership::Taken => LossCause::Taken,
        Ownership::Owned | Ownership::Gone => LossCause::Deleted,
    }
}

/// Whether a request to lengthen an owner's lease that failed may have been carried out: of several
/// servers by some, even where the rest is known not to have.
pub(super) fn may_remain(protocol: &dyn Protocol, owner: &[u8], failure: &Failure) -> bool {
    let asked = !matches!(
        failure,
        Failure::NotSent(NotSentReason::InvalidSetting { .. } | NotSentReason::Forked)
    );
    failure.is_unknown() || asked && protocol.may_still_own(owner)
}

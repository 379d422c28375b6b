//! A holder as a server reports it, and its description for people.

use std::time::Duration;

use crate::base::id::Identity;
use crate::base::inspection::{HeldPart, Holder};
use crate::base::sync::Arc;
use crate::base::token::FencingToken;
use crate::protocol::lock_kind::LockKind;
use crate::wire::Value;

/// A holder as a server reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportedHolder {
    pub(crate) owner: Arc<[u8]>,
    /// How long its lease lasts; `None`: without an end.
    pub(crate) ttl: Option<Duration>,
    /// For how long its lease has been over, if its key is in its tail.
    pub(crate) overdue: Option<Duration>,
    /// What the fence has, if that was to be seen. It is this holder's only if this library gave it the lock.
    pub(crate) last_token: Option<u64>,
    /// The server's time then, in microseconds.
    pub(crate) micros: u64,
    pub(crate) part: HeldPart,
}

/// How long ago that was. A time that has not come yet tells nothing: the clock was set back.
pub(super) fn ago(then: u64, now: u64) -> Option<Duration> {
    now.checked_sub(then).map(Duration::from_micros)
}

impl ReportedHolder {
    /// Takes the tail off the time that its key has to live (rule 46).
    pub(super) fn take_off(&mut self, tail: Duration) {
        let Some(ttl) = self.ttl else { return };
        self.overdue = tail.checked_sub(ttl).filter(|span| !span.is_zero());
        self.ttl = Some(ttl.saturating_sub(tail));
    }

    /// Its description for people.
    pub(crate) fn identify(&self, kind: &dyn LockKind, identity: &Identity) -> Holder {
        let origin = kind.origin(&self.owner, identity);
        // Of a holder that took the lock in another way the fence knows nothing.
        let token = self.last_token.filter(|_| origin.is_some());
        let token = token.and_then(|last| last.checked_sub(kind.reserved_tokens()));
        Holder {
            owner: self.owner.to_vec(),
            origin,
            since: token.and_then(|minted| ago(minted, self.micros)),
            token: token.map(FencingToken::new),
            ttl: self.ttl,
            overdue: self.overdue,
            part: self.part.clone(),
        }
    }
}

/// A number, of which one below zero stands for what is not known.
pub(crate) fn known(value: &Value) -> Option<Option<u64>> {
    let Value::Int(number) = value else { return None };
    Some(u64::try_from(*number).ok())
}

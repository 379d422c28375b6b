//! The holder in the way of a thread that waits, and its description for people.
//!
//! A reply that refuses the lock names its holder, and a slot knows which thread of its own process has it. So a
//! wait costs no further command to be explained.

use crate::base::id::Identity;
use crate::base::inspection::{HeldPart, Holder};
use crate::base::sync::{Arc, Weak};
use crate::base::time::Moment;
use crate::base::token::FencingToken;
use crate::engine::hold::Hold;
use crate::engine::lease::Lease;
use crate::engine::owner_value::OwnerValue;
use crate::protocol::holder::ReportedHolder;
use crate::protocol::lock_kind::LockKind;

/// The holder of a lock for which a thread waits.
#[derive(Clone, Debug)]
pub(crate) enum Blocker {
    /// Another process, or a hold of this process that its slot does not know. Contains what Redis
    /// reported, and when it did.
    Remote(Arc<ReportedHolder>, Moment),
    /// A hold of this process, which began at `since`.
    Local { value: Arc<OwnerValue>, token: FencingToken, since: Moment, lease: Weak<Lease> },
}

impl Blocker {
    /// The blocker that a reply reports, which was received at `seen`.
    pub(crate) fn remote(reported: ReportedHolder, seen: Moment) -> Blocker {
        // Shared by all that learn of it. And a slot has room for two blockers, where this would be most of its size.
        Blocker::Remote(Arc::new(reported), seen)
    }

    /// The blocker for a hold that a thread of this process got at `since`.
    pub(crate) fn local(hold: &Hold, since: Moment) -> Blocker {
        let (value, token) = (Arc::clone(&hold.lease.value), hold.token());
        Blocker::Local { value, token, since, lease: Arc::downgrade(&hold.lease) }
    }

    /// Describes it to people. The caller has nothing locked: this may hold the last reference to a lease.
    pub(crate) fn identify(&self, kind: &dyn LockKind, identity: &Identity, now: Moment) -> Holder {
        match self {
            Blocker::Remote(reported, seen) => {
                let holder = reported.identify(kind, identity);
                let passed = now.since(*seen);
                Holder {
                    since: holder.since.map(|since| since.saturating_add(passed)),
                    ttl: holder.ttl.map(|ttl| ttl.saturating_sub(passed)),
                    ..holder
                }
            }
            Blocker::Local { value, token, since, lease } => {
                let until = lease.upgrade().map_or(now, |lease| lease.leased_until());
                Holder {
                    owner: value.bytes.to_vec(),
                    origin: Some(identity.origin().clone()),
                    token: Some(*token),
                    since: Some(now.since(*since)),
                    ttl: Some(until.since(now)),
                    overdue: None,
                    part: HeldPart::Whole,
                }
            }
        }
    }
}

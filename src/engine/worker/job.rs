//! What of the worker's duties goes to Redis, and what follows from the answer.

use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::lease::{LiveLease, UnderWay};
use crate::engine::ownership::{cause, may_remain};
use crate::engine::worker::duty::{Duty, Entry, GiveBack, Tended};
use crate::engine::worker::report::Report;
use crate::protocol::Protocol;
use crate::protocol::lease_request::{LeaseCommand, LeaseRequest};
use crate::protocol::reply::{Ownership, OwnershipReply};
use crate::wire::failure::Failure;

/// What failed is tried again after this share of the time that is left for it, within these bounds…
const RETRIES_PER_LEASE: u32 = 30;
pub(super) const SHORTEST_RETRY: Duration = Duration::from_millis(10);
pub(super) const LONGEST_RETRY: Duration = Duration::from_secs(1);
/// …rounded down to ticks of which a pause has between 4 and 8.
const TICKS_PER_PAUSE: u64 = 8;
/// Showing a count must not lengthen a lease.
const NO_LONGER: Duration = Duration::from_millis(1);

/// Something that is part of a pipeline. What is about a lease has the slot that it is of, too.
pub(super) enum Job {
    Renew(Arc<dyn Tended>, UnderWay),
    Show(Arc<dyn Tended>, UnderWay),
    GiveBack(Arc<GiveBack>),
}

impl Job {
    pub(super) fn request(&self) -> LeaseRequest<'_> {
        match self {
            Job::Renew(_, lease) => renewal(lease, lease.terms.ttl()),
            Job::Show(_, lease) => renewal(lease, NO_LONGER),
            Job::GiveBack(duty) => {
                let command = LeaseCommand::Release { ttl: duty.ttl, last_token: duty.last_token };
                LeaseRequest { target: &duty.target, owner: &duty.owner, command }
            }
        }
    }

    /// What it is for the agenda.
    pub(super) fn duty(&self) -> Duty {
        match self {
            Job::Renew(slot, _) | Job::Show(slot, _) => Duty::Look(Arc::downgrade(slot)),
            Job::GiveBack(duty) => Duty::GiveBack(Arc::clone(duty)),
        }
    }

    pub(super) fn gives_back(&self) -> Option<Arc<GiveBack>> {
        match self {
            Job::GiveBack(duty) => Some(Arc::clone(duty)),
            Job::Renew(..) | Job::Show(..) => None,
        }
    }

    /// When its lease ends, as far as that is ahead: by then it must be renewed, or found lost.
    pub(super) fn end(&self, now: Moment) -> Moment {
        match self {
            Job::Renew(_, lease) => match time_left(lease, now) {
                Duration::ZERO => Moment::FAR,
                left => now.after(left),
            },
            Job::Show(..) | Job::GiveBack(_) => Moment::FAR,
        }
    }

    /// Draws the conclusions from a reply. Returns what is to be done later.
    pub(super) fn settle(
        self,
        told: Result<OwnershipReply, Failure>,
        now: Moment,
        protocol: &dyn Protocol,
        report: &mut Report,
    ) -> Option<Entry> {
        let look =
            |slot: &Arc<dyn Tended>, due| Entry { due, duty: Duty::Look(Arc::downgrade(slot)) };
        match (self, told) {
            (Job::Renew(slot, lease), Ok(OwnershipReply { ownership: Ownership::Owned, sent })) => {
                lease.renewed(sent);
                lease.confirmed(sent);
                lease.is_live().then(|| look(&slot, lease.next_look()))
            }
            (Job::Show(_, lease), Ok(OwnershipReply { ownership: Ownership::Owned, sent })) => {
                lease.confirmed(sent);
                None
            }
            (
                Job::Renew(slot, lease) | Job::Show(slot, lease),
                Ok(OwnershipReply { ownership, .. }),
            ) => {
                if let Some(loss) = lease.lose(cause(ownership), now) {
                    slot.lost(&lease, loss.clone());
                    report.lost(loss);
                }
                None
            }
            (Job::Renew(slot, lease), Err(failure)) => {
                lease.renewal_failed();
                if may_remain(protocol, &lease.terms.owner, &failure) {
                    lease.may_last_until(now.after(lease.terms.ttl()));
                }
                let due = retry_at(time_left(&lease, now), now).min(lease.valid_until());
                let live = lease.is_live();
                report.failed(&lease, failure, live.then_some(due));
                live.then(|| look(&slot, due))
            }
            // A lease that is said to be another's is asked about until Redis has replied: there may be
            // no renewal to find out.
            (Job::Show(slot, lease), Err(_)) if lease.is_doubted() && lease.is_live() => {
                Some(look(&slot, retry_at(time_left(&lease, now), now)))
            }
            // The next renewal shows it too.
            (Job::Show(..), Err(_)) => None,
            (Job::GiveBack(duty), Ok(told)) if told.sent >= duty.settled => None,
            (Job::GiveBack(duty), Ok(_)) => {
                Some(Entry { due: duty.settled, duty: Duty::GiveBack(duty) })
            }
            (Job::GiveBack(duty), Err(_)) => {
                Some(Entry { due: retry_at(duty.ttl, now), duty: Duty::GiveBack(duty) })
            }
        }
    }
}

fn renewal(lease: &LiveLease, ttl: Duration) -> LeaseRequest<'_> {
    let command = LeaseCommand::Renew { ttl, count: lease.hold_count.show() };
    LeaseRequest { target: &lease.terms.target, owner: &lease.terms.owner, command }
}

/// How much time a renewal has: what is left of the validity, which after a hand-over is much less than
/// the lease (rules 7, 9).
fn time_left(lease: &LiveLease, now: Moment) -> Duration {
    lease.valid_until().since(now)
}

/// When to try again what has this much time. What failed together, with about as much time left, is tried
/// again together: such moments are rounded down to ticks, which are the same for similar pauses.
fn retry_at(left: Duration, now: Moment) -> Moment {
    let pause = (left / RETRIES_PER_LEASE).clamp(SHORTEST_RETRY, LONGEST_RETRY);
    let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX / 2);
    let tick = Duration::from_nanos(nanos.next_power_of_two() / TICKS_PER_PAUSE);
    now.after(pause).rounded_down(tick)
}

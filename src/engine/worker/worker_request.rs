//! What of the worker's tasks goes to Redis, and what follows from the answer.

use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::lease::{CommandGuard, HeldLease};
use crate::engine::ownership::{loss_cause, may_remain};
use crate::engine::worker::report::Report;
use crate::engine::worker::scheduled_task::{
    PendingRelease, RenewableSlot, ScheduledTask, TimedTask,
};
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
const MIN_RENEWAL: Duration = Duration::from_millis(1);

/// Something that is part of a pipeline. What is about a lease has the slot that it is of, too.
pub(super) enum WorkerRequest {
    Renew(Arc<dyn RenewableSlot>, CommandGuard),
    Show(Arc<dyn RenewableSlot>, CommandGuard),
    Release(Arc<PendingRelease>),
}

impl WorkerRequest {
    pub(super) fn request(&self) -> LeaseRequest<'_> {
        match self {
            WorkerRequest::Renew(_, lease) => renewal(lease, lease.terms.ttl()),
            WorkerRequest::Show(_, lease) => renewal(lease, MIN_RENEWAL),
            WorkerRequest::Release(task) => {
                let command = LeaseCommand::Release { ttl: task.ttl, last_token: task.last_token };
                LeaseRequest { target: &task.target, owner: &task.owner, command }
            }
        }
    }

    /// What it is for the task queue.
    pub(super) fn task(&self) -> ScheduledTask {
        match self {
            WorkerRequest::Renew(slot, _) | WorkerRequest::Show(slot, _) => {
                ScheduledTask::Check(Arc::downgrade(slot))
            }
            WorkerRequest::Release(task) => ScheduledTask::Release(Arc::clone(task)),
        }
    }

    pub(super) fn pending_release(&self) -> Option<Arc<PendingRelease>> {
        match self {
            WorkerRequest::Release(task) => Some(Arc::clone(task)),
            WorkerRequest::Renew(..) | WorkerRequest::Show(..) => None,
        }
    }

    /// When its lease ends, as far as that is ahead: by then it must be renewed, or found lost.
    pub(super) fn end(&self, now: Moment) -> Moment {
        match self {
            WorkerRequest::Renew(_, lease) => match time_left(lease, now) {
                Duration::ZERO => Moment::FAR,
                left => now.after(left),
            },
            WorkerRequest::Show(..) | WorkerRequest::Release(_) => Moment::FAR,
        }
    }

    /// Draws the conclusions from a reply. Returns what is to be done later.
    pub(super) fn handle_reply(
        self,
        reply: Result<OwnershipReply, Failure>,
        now: Moment,
        protocol: &dyn Protocol,
        report: &mut Report,
    ) -> Option<TimedTask> {
        let check = |slot: &Arc<dyn RenewableSlot>, due| TimedTask {
            due,
            task: ScheduledTask::Check(Arc::downgrade(slot)),
        };
        match (self, reply) {
            (
                WorkerRequest::Renew(slot, lease),
                Ok(OwnershipReply { ownership: Ownership::Owned, sent }),
            ) => {
                lease.renewed(sent);
                lease.confirmed(sent);
                lease.is_live().then(|| check(&slot, lease.next_check()))
            }
            (
                WorkerRequest::Show(_, lease),
                Ok(OwnershipReply { ownership: Ownership::Owned, sent }),
            ) => {
                lease.confirmed(sent);
                None
            }
            (
                WorkerRequest::Renew(slot, lease) | WorkerRequest::Show(slot, lease),
                Ok(OwnershipReply { ownership, .. }),
            ) => {
                if let Some(loss) = lease.lose(loss_cause(ownership), now) {
                    slot.lost(&lease, loss.clone());
                    report.lost(loss);
                }
                None
            }
            (WorkerRequest::Renew(slot, lease), Err(failure)) => {
                lease.renewal_failed();
                if may_remain(protocol, &lease.terms.owner, &failure) {
                    lease.may_last_until(now.after(lease.terms.ttl()));
                }
                let due = retry_at(time_left(&lease, now), now).min(lease.valid_until());
                let live = lease.is_live();
                report.failed(&lease, failure, live.then_some(due));
                live.then(|| check(&slot, due))
            }
            // A lease that is said to be another's is asked about until Redis has replied: there may be
            // no renewal to find out.
            (WorkerRequest::Show(slot, lease), Err(_)) if lease.is_doubted() && lease.is_live() => {
                Some(check(&slot, retry_at(time_left(&lease, now), now)))
            }
            // The next renewal shows it too.
            (WorkerRequest::Show(..), Err(_)) => None,
            (WorkerRequest::Release(task), Ok(reply)) if reply.sent >= task.settled => None,
            (WorkerRequest::Release(task), Ok(_)) => {
                Some(TimedTask { due: task.settled, task: ScheduledTask::Release(task) })
            }
            (WorkerRequest::Release(task), Err(_)) => {
                Some(TimedTask { due: retry_at(task.ttl, now), task: ScheduledTask::Release(task) })
            }
        }
    }
}

fn renewal(lease: &HeldLease, ttl: Duration) -> LeaseRequest<'_> {
    let command = LeaseCommand::Renew { ttl, count: lease.hold_count.show() };
    LeaseRequest { target: &lease.terms.target, owner: &lease.terms.owner, command }
}

/// How much time a renewal has: what is left of the validity, which after a hand-over is much less than
/// the lease (rules 7, 9).
fn time_left(lease: &HeldLease, now: Moment) -> Duration {
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

//! The worker's requests to Redis, and what follows from the replies.

use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::lease::{Change, CommandGuard, HeldLease};
use crate::engine::ownership::{loss_cause, may_remain};
use crate::engine::worker::report::Report;
use crate::engine::worker::scheduled_task::{
    PendingRelease, RenewableSlot, ScheduledTask, TimedTask,
};
use crate::protocol::Protocol;
use crate::protocol::lease_request::{LeaseCommand, LeaseRequest};
use crate::protocol::reply::{Ownership, OwnershipReply};
use crate::wire::failure::Failure;

/// A failed request is repeated after the time that is left for it divided by this, within the bounds
/// below.
const RETRIES_PER_LEASE: u32 = 30;
pub(crate) const SHORTEST_RETRY: Duration = Duration::from_millis(10);
pub(super) const LONGEST_RETRY: Duration = Duration::from_secs(1);
/// The moment of the repetition is rounded down to ticks, of which a pause has between 4 and 8.
const TICKS_PER_PAUSE: u64 = 8;
/// The time to live of a request that only shows a count. No script shortens a lease, so the lease stays
/// as it is.
const MIN_RENEWAL: Duration = Duration::from_millis(1);

/// One request of a pipeline. Requests about a lease have its slot too.
pub(super) enum WorkerRequest {
    Renew(Arc<dyn RenewableSlot>, CommandGuard),
    Show(Arc<dyn RenewableSlot>, CommandGuard),
    Change(Arc<dyn RenewableSlot>, CommandGuard, Change),
    Release(Arc<PendingRelease>),
}

impl WorkerRequest {
    pub(super) fn request(&self) -> LeaseRequest<'_> {
        match self {
            WorkerRequest::Renew(_, lease) => renewal(lease, lease.terms.ttl()),
            WorkerRequest::Show(_, lease) => renewal(lease, MIN_RENEWAL),
            WorkerRequest::Change(_, lease, Change { number, access, .. }) => {
                let command =
                    LeaseCommand::Change { ttl: lease.terms.ttl(), number: *number, to: *access };
                LeaseRequest { target: &lease.terms.target, owner: &lease.terms.owner, command }
            }
            WorkerRequest::Release(task) => {
                let command = LeaseCommand::Release { ttl: task.ttl, last_token: task.last_token };
                LeaseRequest { target: &task.target, owner: &task.owner, command }
            }
        }
    }

    /// The task of the queue from which it was made.
    pub(super) fn task(&self) -> ScheduledTask {
        match self {
            WorkerRequest::Renew(slot, _)
            | WorkerRequest::Show(slot, _)
            | WorkerRequest::Change(slot, ..) => ScheduledTask::Check(Arc::downgrade(slot)),
            WorkerRequest::Release(task) => ScheduledTask::Release(Arc::clone(task)),
        }
    }

    pub(super) fn pending_release(&self) -> Option<Arc<PendingRelease>> {
        match self {
            WorkerRequest::Release(task) => Some(Arc::clone(task)),
            WorkerRequest::Renew(..) | WorkerRequest::Show(..) | WorkerRequest::Change(..) => None,
        }
    }

    /// When its lease ends, if that is ahead: by then it must be renewed, or found lost.
    pub(super) fn end(&self, now: Moment) -> Moment {
        match self {
            WorkerRequest::Renew(_, lease) => match time_left(lease, now) {
                // Nothing is left to save, so it must not cut the time of the others.
                Duration::ZERO => Moment::FAR,
                left => now.after(left),
            },
            WorkerRequest::Show(..) | WorkerRequest::Change(..) | WorkerRequest::Release(_) => {
                Moment::FAR
            }
        }
    }

    /// Deals with a reply. Returns the task that is left.
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
                Ok(OwnershipReply { ownership: Ownership::Owned, sent, waiters }),
            ) => {
                // Whether this still counts the lease decides: it may have ended, or been released, since
                // the sending.
                lease.renewed(sent);
                lease.confirmed(sent);
                Arc::clone(&slot).renewed(&lease, sent, waiters);
                lease.is_live().then(|| check(&slot, lease.next_check()))
            }
            (
                WorkerRequest::Show(_, lease),
                Ok(OwnershipReply { ownership: Ownership::Owned, sent, .. }),
            ) => {
                lease.confirmed(sent);
                None
            }
            (
                WorkerRequest::Change(slot, lease, change),
                Ok(OwnershipReply { ownership: Ownership::Owned, .. }),
            ) => {
                lease.change_settled(change);
                lease.is_live().then(|| check(&slot, lease.next_check()))
            }
            // Until there is a reply, or the hold is over, which ends its changes too.
            (WorkerRequest::Change(slot, lease, _), Err(_)) => lease.is_live().then(|| {
                check(&slot, retry_at(time_left(&lease, now), now).min(lease.valid_until()))
            }),
            (
                WorkerRequest::Renew(slot, lease)
                | WorkerRequest::Show(slot, lease)
                | WorkerRequest::Change(slot, lease, _),
                Ok(OwnershipReply { ownership, .. }),
            ) => {
                // A release that has begun gets the same reply, and reports it. `lose` does nothing then.
                if let Some(loss) = lease.lose(loss_cause(ownership), now) {
                    slot.lost(&lease, loss.clone());
                    report.lost(loss);
                }
                None
            }
            (WorkerRequest::Renew(slot, lease), Err(failure)) => {
                lease.renewal_failed();
                // Redis may have renewed it all the same. Should the hold be lost, its release must reach
                // that far.
                if may_remain(protocol, &lease.terms.owner, &failure) {
                    lease.may_last_until(now.after(lease.terms.ttl()));
                }
                Arc::clone(&slot).not_renewed(&lease);
                // No later than the end, at which the check finds it lost.
                let due = retry_at(time_left(&lease, now), now).min(lease.valid_until());
                let live = lease.is_live();
                report.failed(&lease, failure, live.then_some(due));
                live.then(|| check(&slot, due))
            }
            // A lease in doubt is asked about until Redis has replied: a fixed lease has no renewal that
            // would find out.
            (WorkerRequest::Show(slot, lease), Err(_)) if lease.is_doubted() && lease.is_live() => {
                Some(check(&slot, retry_at(time_left(&lease, now), now)))
            }
            // The next renewal shows the count as well.
            (WorkerRequest::Show(..), Err(_)) => None,
            (WorkerRequest::Release(task), Ok(reply)) if reply.sent >= task.settled => None,
            // The reply is to a request that a later one may have overtaken: only a release that is sent
            // after the value settled is final (rule 6).
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

/// How much time a renewal has: the rest of the validity, which after a hand-over is much shorter than
/// the lease (rules 7, 9).
fn time_left(lease: &HeldLease, now: Moment) -> Duration {
    lease.valid_until().since(now)
}

/// When to repeat a request that has this much time left. Requests that failed together are repeated
/// together if they have about the same time: the moments are rounded down to ticks, which are the same
/// for similar pauses.
fn retry_at(left: Duration, now: Moment) -> Moment {
    let pause = (left / RETRIES_PER_LEASE).clamp(SHORTEST_RETRY, LONGEST_RETRY);
    let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX / 2);
    // The length of the tick is a power of two, so that pauses that differ a little have the same ticks.
    // Ticks of an eighth of each pause would never fall together.
    let tick = Duration::from_nanos(nanos.next_power_of_two() / TICKS_PER_PAUSE);
    now.after(pause).rounded_down(tick)
}

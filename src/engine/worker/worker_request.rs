//! The worker's requests to Redis, and what follows from the replies.

use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::lease::{Change, Lease, RenewalGuard};
use crate::engine::ownership::{loss_cause, may_remain};
use crate::engine::worker::removal::Removal;
use crate::engine::worker::report::Report;
use crate::engine::worker::scheduled_task::{ScheduledTask, TimedTask, Watched};
use crate::protocol::Protocol;
use crate::protocol::lease_request::{LeaseCommand, LeaseRequest};
use crate::protocol::reply::{Ownership, OwnershipReply};
use crate::wire::failure::Failure;

/// A failed request is repeated after the time that is left for it divided by this, within the bounds
/// below.
const RETRIES_PER_LEASE: u32 = 30;
pub(crate) const SHORTEST_RETRY: Duration = Duration::from_millis(10);
/// A server that has replied is not asked again before this, or a tenth of the time that is left: what it lacks takes
/// longer than a lost packet.
const REFUSED_RETRY: Duration = Duration::from_millis(100);
pub(super) const LONGEST_RETRY: Duration = Duration::from_secs(1);
/// The moment of the repetition is rounded down to ticks, of which a pause has between 4 and 8.
const TICKS_PER_PAUSE: u64 = 8;
/// The least time to live of a request that only shows a count or asks about a lease. No script shortens a lease, so the
/// lease stays as it is.
const MIN_RENEWAL: Duration = Duration::from_millis(1);

/// One request of a pipeline.
pub(super) enum WorkerRequest {
    Lease { need: LeaseNeed, watched: Watched, _under_way: RenewalGuard },
    Remove(Arc<Removal>),
}

/// For what a request about a lease is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseNeed {
    /// Renew it to this time to live.
    Renew(Duration),
    /// Show the count of reentries.
    Show,
    /// Ask whether a lease that is doubted is still there.
    Ask,
    Change(Change),
}

/// What follows from a reply.
pub(super) enum Next {
    Nothing,
    /// The worker looks at the lease again at this moment, or earlier if the lease needs that.
    Look(Watched, Moment),
    /// The lease is lost: its slot ends its holds.
    End(Watched),
    /// The release is done.
    Released(Arc<Removal>),
    Again(TimedTask),
}

impl WorkerRequest {
    pub(super) fn request(&self) -> LeaseRequest<'_> {
        match self {
            WorkerRequest::Lease { need, watched, .. } => {
                let lease = &*watched.lease;
                let count = || lease.count.show();
                let command = match *need {
                    LeaseNeed::Renew(ttl) => {
                        let ttl = lease.value.options.lease.key_ttl(ttl);
                        match lease.yields_for() {
                            Duration::ZERO => LeaseCommand::Renew { ttl, count: count() },
                            tail => {
                                let is_silent = lease.is_silent(lease.now());
                                LeaseCommand::RenewOrYield { ttl, tail, is_silent }
                            }
                        }
                    }
                    LeaseNeed::Show => LeaseCommand::Renew { ttl: MIN_RENEWAL, count: count() },
                    LeaseNeed::Ask => {
                        // It may end earlier there than its holder believes, as after a step of the server's clock. It is
                        // made as long as that, and no longer.
                        let left = lease.valid_until().since(lease.now());
                        let ttl = lease.value.options.lease.key_ttl(left);
                        LeaseCommand::Renew { ttl: ttl.max(MIN_RENEWAL), count: count() }
                    }
                    LeaseNeed::Change(Change { number, access, .. }) => {
                        LeaseCommand::Change { ttl: lease.value.key_ttl(), number, to: access }
                    }
                };
                LeaseRequest { target: &lease.value.target, owner: &lease.value.bytes, command }
            }
            WorkerRequest::Remove(task) => {
                let command = LeaseCommand::Release { ttl: task.ttl, last_token: task.last_token };
                LeaseRequest { target: &task.value.target, owner: &task.value.bytes, command }
            }
        }
    }

    pub(super) fn is_renewal(&self) -> bool {
        matches!(self, WorkerRequest::Lease { need: LeaseNeed::Renew(_), .. })
    }

    /// What is left to do if its reply cannot be dealt with.
    pub(super) fn repeated_at(&self, due: Moment) -> Next {
        match self {
            WorkerRequest::Lease { watched, .. } => Next::Look(watched.clone(), due),
            WorkerRequest::Remove(task) => {
                Next::Again(TimedTask { due, task: ScheduledTask::Remove(Arc::clone(task)) })
            }
        }
    }

    /// When its lease ends, if that is ahead: by then it must be renewed, or found lost.
    pub(super) fn end(&self, now: Moment) -> Moment {
        match self {
            WorkerRequest::Lease { need: LeaseNeed::Renew(_), watched, .. } => {
                match time_left(&watched.lease, now) {
                    // Nothing is left to save, so it must not cut the time of the others.
                    Duration::ZERO => Moment::FAR,
                    left => now.after(left),
                }
            }
            WorkerRequest::Lease { .. } | WorkerRequest::Remove(_) => Moment::FAR,
        }
    }

    /// Deals with a reply.
    pub(super) fn handle_reply(
        self,
        reply: Result<OwnershipReply, Failure>,
        now: Moment,
        protocol: &dyn Protocol,
        report: &mut Report,
    ) -> Next {
        match self {
            WorkerRequest::Lease { need, watched, _under_way } => match reply {
                Ok(OwnershipReply { ownership: Ownership::Owned, sent, waiters, fence: _ }) => {
                    let lease = &watched.lease;
                    // Whether this still counts the lease decides: it may have ended, or been released, since
                    // the sending.
                    match need {
                        LeaseNeed::Renew(ttl) => {
                            report.renewed(lease, lease.renewed(sent, ttl));
                            lease.confirmed(sent);
                            lease.counted(sent, waiters);
                        }
                        LeaseNeed::Show | LeaseNeed::Ask => lease.confirmed(sent),
                        LeaseNeed::Change(change) => lease.change_settled(change),
                    }
                    let due = lease.next_due(now);
                    Next::Look(watched, due)
                }
                // A release that has begun gets the same reply, and reports it. `lose` does nothing then.
                Ok(OwnershipReply { ownership, fence, .. }) => {
                    let ownership = watched.lease.ownership(ownership, fence);
                    match watched.lease.lose(loss_cause(ownership), now) {
                        true => Next::End(watched),
                        false => Next::Nothing,
                    }
                }
                Err(failure) => failed(need, watched, failure, now, protocol, report),
            },
            WorkerRequest::Remove(task) => match reply {
                Ok(reply) if task.is_final(reply.sent) => Next::Released(task),
                Ok(_) => Next::Again(TimedTask {
                    due: task.value.settled(),
                    task: ScheduledTask::Remove(task),
                }),
                Err(_) => Next::Again(TimedTask {
                    due: retry_at(task.ttl, now),
                    task: ScheduledTask::Remove(task),
                }),
            },
        }
    }
}

/// A request about a lease has failed.
fn failed(
    need: LeaseNeed,
    watched: Watched,
    failure: Failure,
    now: Moment,
    protocol: &dyn Protocol,
    report: &mut Report,
) -> Next {
    let lease = &watched.lease;
    // No later than the end, at which it is found lost.
    let left = time_left(lease, now);
    let least = if failure.is_refusal() { REFUSED_RETRY.min(left / 10) } else { Duration::ZERO };
    let retry = retry_at(left, now).max(now.after(least)).min(lease.lost_at());
    let is_live = !lease.is_over();
    match need {
        LeaseNeed::Renew(_) if failure.is_yield() => lease.yielded(now),
        LeaseNeed::Renew(ttl) => {
            // Redis may have renewed it all the same. Should the lease be lost, its release must reach
            // that far.
            if may_remain(protocol, &lease.value.bytes, &failure) {
                lease.may_last_until(now.after(lease.value.options.lease.key_ttl(ttl)));
            }
            // A node that moves the slot refuses what names a queue that is not there. Nobody who waits can ask it then, so
            // the lease insists as beside a dead one.
            if lease.is_silent(now) && failure.code() == Some("TRYAGAIN") {
                lease.yielded(now);
            }
            let failures = lease.renewal_failed(failure.clone());
            report.failed(lease, failure, failures, is_live.then_some(retry));
        }
        // The next renewal shows the count as well.
        LeaseNeed::Show => return Next::Look(watched, Moment::FAR),
        // A fixed lease has no renewal that would find out.
        LeaseNeed::Ask if is_live => {
            let again = ask_again_at(lease, now).max(now.after(least)).min(lease.lost_at());
            return Next::Look(watched, again);
        }
        // Until there is a reply, or the lease is over, which ends its changes too.
        LeaseNeed::Ask | LeaseNeed::Change(_) => {}
    }
    if is_live { Next::Look(watched, retry) } else { Next::Nothing }
}

/// When to ask about a doubted lease again that was asked about in vain.
pub(super) fn ask_again_at(lease: &Lease, now: Moment) -> Moment {
    // A server that restarts is back soon, or not for long. So the pauses grow with the time that this takes: about an eighth
    // of it, as they are what is left divided by 30.
    retry_at(time_left(lease, now).min(lease.doubted_for(now) * 4), now)
}

/// How much time a renewal has: the rest of the validity, which after a hand-over is much shorter than
/// the lease (rules 7, 9). One that may come back has a whole lease, and no more than the rest of its tail.
fn time_left(lease: &Lease, now: Moment) -> Duration {
    match lease.is_silent(now) {
        true => lease.lost_at().since(now).min(lease.ttl()),
        false => lease.valid_until().since(now),
    }
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

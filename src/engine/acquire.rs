//! How a thread whose turn it is gets the lease from Redis.
//!
//! One attempt has one owner's value. A request that brought no answer is repeated under the same
//! value, which Redis recognises; what may remain of it when the thread gives up is left to the
//! worker to clean up.
//!
//! # An earlier request may still run
//!
//! A connection that broke does not prove that the request is dead, and yet it is repeated at once: to
//! wait for its deadline would cost a command time-out for each pooled connection that had died. That
//! departs from rule 2, so the first request may run after the second was answered, until its deadline,
//! which the bid notes as `settled`. It can do two things:
//!
//! - *It runs while the attempt has the lock, or stands in the queue.* Then it changes nothing (rule 3).
//! - *It runs when the attempt has the lock no longer*, and gets it once more. After a release, a leave or a
//!   loss the worker takes the attempt out again once `settled` has passed (rule 6). The hold that was
//!   lost does not come back: no reply that arrives when its validity is over changes it, whatever the
//!   reply says (rule 30). And nobody else has the hold: before `settled` a lease is neither passed on nor
//!   lingers (rule 17).
//!
//! Two cases are not covered, both within a command time-out after such an acquisition, and if another had
//! the lock and gave it back within that time. An operator took the lock away, by `DEL` or by force: a
//! renewal cannot tell. Or a lease ended that is shorter than the command time-out, with a transaction
//! under way, whose commands then apply. The holder's token is lower than the other's in both.
//!
//! What the acquirer does next depends on how it waits:
//!
//! | wait | asks | then pauses until |
//! | --- | --- | --- |
//! | spin | try | a growing random time is over |
//! | notify | try, listen, try | a release is heard, the holder's lease is over, a heartbeat |
//! | queue | join (try while it cannot be told), beat | it is granted, the lease is over, a heartbeat |
//!
//! An acquirer that waits by notification lets listeners of other processes go first where its own process
//! has just released the lock: `slot::fairness` has the rules.

mod attempt;
mod grant;
mod recovery;

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::option::{LockOptions, WaitKind};
use crate::base::sync::Arc;
use crate::base::text::Span;
use crate::base::time::Moment;
use crate::engine::backoff::Backoff;
use crate::engine::context::Context;
use crate::engine::durability::confirm;
use crate::engine::heartbeat::{DEAD_AFTER, HEARTBEAT};
use crate::engine::holding::Holding;
use crate::engine::lease::HeldLease;
use crate::engine::slot::{Admission, Attempt, Paused, Slot, WaitLimit};
use crate::protocol::reply::{AcquireReply, Busy};
use crate::protocol::request::{AcquireMode, AcquireRequest};

/// How much longer than the caller waits an answer is waited for: however short the wait, one attempt
/// gets the time that an answer usually takes. What comes after it gets no more. With the slack of a
/// socket, and of those who travel together, it stays below 50 ms.
const REPLY_GRACE: Duration = Duration::from_millis(25);
/// Waits for the lock and takes it; `None` if somebody else has it for longer than the caller
/// waits.
pub(crate) fn acquire(
    slot: &Arc<Slot>,
    options: &LockOptions,
    wait_limit: WaitLimit,
) -> Result<Option<Holding>> {
    acquire_inner(slot, options, wait_limit)
        .map_err(|error| error.of(slot.target().name()))?
        .map(|lease| confirm(Holding::new(slot, lease)))
        .transpose()
}

fn acquire_inner(
    slot: &Arc<Slot>,
    options: &LockOptions,
    wait_limit: WaitLimit,
) -> Result<Option<Arc<HeldLease>>> {
    let end = wait_limit.end().map(|end| end.after(REPLY_GRACE));
    let last_deadline = end.unwrap_or_else(|| slot.context().exchange_deadline());
    let acquire_loop = |attempt| AcquireLoop {
        slot,
        context: slot.context(),
        options,
        wait_limit,
        last_deadline,
        backoff: Backoff::new(),
        attempt: Some(attempt),
        outage: None,
        silence: None,
        busy_at: None,
        queued_at: None,
        listening: false,
    };
    match slot.enter(options, wait_limit) {
        Admission::Acquire { number, yield_until } => {
            acquire_loop(Attempt::new(slot, options, number)).start(yield_until)
        }
        Admission::TakeOver(attempt) => acquire_loop(attempt).run(false),
        Admission::Held(lease) => Ok(Some(lease)),
        Admission::Busy => Ok(None),
        Admission::NoReply(silence) => Err(Error::unreachable(format!(
            "timed out, and no reply from Redis reached this process for {}; look whether it runs",
            Span(silence)
        ))),
        Admission::Cancelled => Err(cancelled_error(slot.context())),
    }
}

fn cancelled_error(context: &Context) -> Error {
    Error::cancelled(if context.is_shut_down() {
        "the client was shut down; build a new one"
    } else {
        "the wait was cancelled by cancel_waits"
    })
}

/// What the acquirer does after an exchange.
enum NextAction {
    Held(Arc<HeldLease>),
    /// Try again, after a pause of at most this.
    Again(Duration),
    /// There is no time for another exchange.
    GiveUp(Result<()>),
    /// Another exchange would not help.
    Fail(Error),
}

/// The thread that talks to Redis for a slot.
struct AcquireLoop<'a> {
    slot: &'a Arc<Slot>,
    context: &'a Context,
    options: &'a LockOptions,
    wait_limit: WaitLimit,
    /// Until when the last exchange for the caller may take.
    last_deadline: Moment,
    backoff: Backoff,
    /// `None` once it has become a lease.
    attempt: Option<Attempt>,
    /// Since when Redis gives no useful answer.
    outage: Option<Moment>,
    /// For how long it gave none, once that is longer than anybody waits.
    silence: Option<Duration>,
    /// When Redis last told of a holder.
    busy_at: Option<Moment>,
    /// When the last request was sent whose answer found this attempt in the queue.
    queued_at: Option<Moment>,
    /// Whether releases are heard of.
    listening: bool,
}

impl AcquireLoop<'_> {
    /// Acquires it with an attempt that begins now, which leaves the lock to others until then.
    fn start(self, yield_until: Option<Moment>) -> Result<Option<Arc<HeldLease>>> {
        match yield_until {
            Some(until) if self.options.wait_kind() == WaitKind::Notify => {
                if self.yield_to_listeners(until) == Paused::Cancelled {
                    return Err(cancelled_error(self.context));
                }
                self.run(false)
            }
            yield_until => self.run(yield_until.is_none()),
        }
    }

    /// `asks` tells whether the slot knows that Redis is asked, and nothing can have been heard yet.
    fn run(mut self, mut asks: bool) -> Result<Option<Arc<HeldLease>>> {
        loop {
            let message = if asks { None } else { self.slot.take_grant(true) };
            asks = false;
            let next = match message {
                Some(message) => self.accept_message(message),
                None => self.send_request(),
            };
            let next = match next {
                NextAction::GiveUp(outcome) => self.finish(outcome),
                next => next,
            };
            match next {
                NextAction::Held(lease) => {
                    if self.context.is_shut_down() {
                        Holding::new(self.slot, lease).shut_down();
                        return Err(cancelled_error(self.context));
                    }
                    self.context.listen_for(self.options);
                    return Ok(Some(lease));
                }
                NextAction::Again(pause) => {
                    if self.slot.pause(pause) == Paused::Cancelled {
                        return Err(cancelled_error(self.context));
                    }
                }
                NextAction::GiveUp(Ok(())) => return Ok(None),
                NextAction::GiveUp(Err(error)) => {
                    if let Some(silence) = self.silence {
                        self.slot.give_up(silence);
                    }
                    return Err(self.outcome_error(error));
                }
                NextAction::Fail(error) => return Err(error),
            }
        }
    }

    /// Pauses before the first attempt where this process has just released the lock and others listen.
    fn yield_to_listeners(&self, until: Moment) -> Paused {
        let last = self.wait_limit.end().unwrap_or(self.last_deadline);
        // A process that hears how another releases it need not pause to the end.
        if let Some(channel) = self.slot.target().channel() {
            self.context.listener.wish_for(channel, self.slot, until.min(last));
        }
        self.slot.yield_to_others(until, last)
    }

    fn mode(&self) -> AcquireMode {
        match (self.options.wait_kind(), self.wait_limit, &self.attempt) {
            (WaitKind::Queue, _, Some(attempt)) if attempt.queued => AcquireMode::Heartbeat,
            // Nobody joins who could not be told (rule 12).
            (WaitKind::Queue, WaitLimit::Until(_), _) if self.context.listener.is_live() => {
                AcquireMode::Join
            }
            _ => AcquireMode::Try,
        }
    }

    fn send_request(&mut self) -> NextAction {
        if self.attempt.as_ref().is_some_and(|attempt| attempt.spent) {
            self.restart_attempt();
        }
        let mode = self.mode();
        let now = self.context.now();
        // A thread that was kept from the processor gets its attempt all the same.
        let last = self.last_deadline.max(now.after(REPLY_GRACE));
        let deadline = now.after(self.context.bounds.exchange).min(last);
        let time = deadline.since(now);
        let Some(attempt) = &mut self.attempt else {
            return NextAction::Fail(Error::not_held("the attempt is over"));
        };
        attempt.queued |= mode == AcquireMode::Join;
        let request = AcquireRequest {
            owner: &attempt.owner,
            ttl: self.options.lease.ttl(),
            mode,
            // Nobody waits for a grant after the last exchange (rule 8).
            dies_after: DEAD_AFTER.min(last.since(now)),
        };
        let acquired = self.context.protocol.acquire(self.slot.target(), &request, deadline);
        attempt.spent = acquired.is_spent;
        match acquired.outcome {
            Ok(AcquireReply::Granted(granted)) => self.accept(granted),
            Ok(AcquireReply::Busy(busy)) => {
                self.queued_at = (mode != AcquireMode::Try).then_some(now);
                self.wait_for_holder(busy, mode)
            }
            Ok(AcquireReply::Split(apart)) => self.retry_after_split(apart),
            Ok(AcquireReply::Late) => self.retry_late(time),
            Ok(AcquireReply::Gone) => {
                self.restart_attempt();
                NextAction::Again(Duration::ZERO)
            }
            Err(failure) => self.recover(failure, deadline, time),
        }
    }

    fn wait_for_holder(&mut self, busy: Busy, mode: AcquireMode) -> NextAction {
        self.note_held_elsewhere();
        if busy.ttl.is_some() {
            self.context.no_expiry_warnings.end(self.slot.target().name());
        }
        let Some(left) = self.time_left() else { return NextAction::GiveUp(Ok(())) };
        if busy.ttl.is_none() {
            self.context.no_expiry_warnings.warn(self.slot.target().name());
        }
        let kind = self.options.wait_kind();
        if kind == WaitKind::Notify {
            // Those that collide over the next release have not collided before.
            self.backoff = Backoff::new();
        }
        if kind != WaitKind::Spin
            && let Err(error) = self.start_listening(mode)
        {
            return if self.time_left().is_none() {
                // Redis has just told of a holder, and that is all there was time for.
                NextAction::GiveUp(Ok(()))
            } else if error.is_unreachable() {
                self.retry_in_outage(error)
            } else {
                NextAction::Fail(error)
            };
        } else if mode == AcquireMode::Try && kind == WaitKind::Queue {
            return NextAction::Again(Duration::ZERO);
        } else if kind == WaitKind::Notify && !std::mem::replace(&mut self.listening, true) {
            // It may have been released before anybody listened.
            return NextAction::Again(Duration::ZERO);
        }
        let polls = kind == WaitKind::Spin || (!busy.hands_over && kind == WaitKind::Queue);
        let most = if polls && busy.ahead == 0 { self.backoff.next() } else { HEARTBEAT };
        // Redis rounds what is left down to a millisecond.
        let ttl = busy.ttl.map_or(Duration::MAX, |ttl| ttl + Duration::from_millis(1));
        NextAction::Again(most.min(ttl).min(left))
    }

    /// Nobody has it, and nobody will tell of a release: those that collided try again, not all at
    /// once.
    fn retry_after_split(&mut self, apart: Duration) -> NextAction {
        self.note_held_elsewhere();
        let Some(left) = self.time_left() else { return NextAction::GiveUp(Ok(())) };
        let pause = self.backoff.next() + apart.mul_f64(fastrand::f64());
        NextAction::Again(pause.min(left))
    }

    /// Redis answered, and it is not ours.
    fn note_held_elsewhere(&mut self) {
        self.outage = None;
        self.busy_at = Some(self.context.now());
        if let Some(attempt) = &mut self.attempt {
            attempt.unknown = self.context.protocol.may_still_own(&attempt.owner);
        }
        self.slot.held_elsewhere();
    }

    fn start_listening(&mut self, mode: AcquireMode) -> Result<()> {
        if mode != AcquireMode::Try || self.listening {
            return Ok(());
        }
        let deadline = self.context.now().after(self.time_left().unwrap_or(Duration::MAX));
        let deadline = deadline.min(self.context.exchange_deadline());
        match self.slot.target().channel() {
            Some(channel) => self.context.listener.listen_to(channel, self.slot, deadline),
            None => self.context.listener.ready(deadline),
        }
    }

    /// How long the caller goes on waiting, if at all.
    fn time_left(&self) -> Option<Duration> {
        match self.wait_limit {
            WaitLimit::TryOnce => None,
            WaitLimit::Until(Moment::FAR) => Some(Duration::MAX),
            WaitLimit::Until(deadline) => {
                Some(deadline.since(self.context.now())).filter(|left| !left.is_zero())
            }
        }
    }
}

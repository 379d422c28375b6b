//! How the acquirer of a slot gets the lease from Redis.
//!
//! One attempt has one owner's value. A request without a reply is repeated under the same value, which
//! Redis recognises. If the thread gives up, the worker removes what may be left of the attempt.
//!
//! # An earlier request may still run
//!
//! A request whose connection broke may still run, and yet it is repeated at once: to wait for its
//! deadline would cost a command time-out for each pooled connection that had died. That departs from
//! rule 2. The first request may run after the second had its reply, until its deadline, which the
//! attempt records as `settled`. There are two cases:
//!
//! - *It runs while the attempt has the lock, or stands in the queue.* Then it changes nothing (rule 3).
//! - *It runs when the attempt no longer has the lock*, and acquires it once more. After a release, a
//!   leave or a loss the worker removes the attempt again once `settled` has passed (rule 6). The lost
//!   hold does not come back: no reply changes a hold whose validity is over (rule 30). And no other
//!   thread has the hold: before `settled` a lease is neither passed on nor lingers (rule 17).
//!
//! Two cases are not covered. Both need another client that acquires and releases the lock within a
//! command time-out after such an acquisition:
//!
//! - An operator takes the lock away, by `DEL` or by force. A renewal cannot tell.
//! - A lease ends that is shorter than the command time-out, while a transaction is under way. Its
//!   commands apply.
//!
//! In both the holder's token is lower than that of the other client.
//!
//! What the acquirer does next depends on how it waits:
//!
//! | wait | requests | then pauses until |
//! | --- | --- | --- |
//! | spin | try | a growing random time is over |
//! | notify | try, listen, try | a release is received, the holder's lease is over, or a heartbeat is due |
//! | queue | join (try while it does not listen), beat | it is granted, the holder's lease is over, or a heartbeat is due |
//!
//! An acquirer that waits by notification leaves the lock to listeners of other processes after a release by its own
//! process, until its turn comes again: `slot::fairness` has the rules.

mod attempt;
pub(crate) mod claim;
mod companion;
mod grant;
mod recovery;
pub(crate) mod several;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::logging::Hurry;
use crate::base::option::{LockOptions, WaitKind};
use crate::base::share::{ALL, Access, Share};
use crate::base::sync::Arc;
use crate::base::text::Span;
use crate::base::time::Moment;
use crate::engine::backoff::Backoff;
use crate::engine::blocked_call;
use crate::engine::blocker::Blocker;
use crate::engine::context::Context;
use crate::engine::durability::confirm;
use crate::engine::heartbeat::{DEAD_AFTER, HEARTBEAT, pause_until_free};
use crate::engine::hold::Hold;
use crate::engine::holding::Holding;
use crate::engine::long_wait::{LongWait, Place};
use crate::engine::slot::{
    Admission, Attempt, EndedLinger, HELD_FOR, Paused, REPLY_GRACE, Received, Slot, Standing,
    USUAL_REPLY_TIME, WaitLimit,
};
use crate::observe::How;
use crate::protocol::reply::{AcquireOutcome, AcquireReply, Busy};
use crate::protocol::request::{AcquireMode, AcquireRequest};

/// Waits for the lock and acquires it. Returns `None` if somebody else has it for longer than the caller
/// waits.
///
/// `own` makes the holding that of the caller, say of the thread. Only then observers are told: one that uses the lock
/// enters it once more, and does not wait for this call.
pub(crate) fn acquire<T>(
    slot: &Arc<Slot>,
    options: &LockOptions,
    wait_limit: WaitLimit,
    own: impl FnOnce(Holding) -> T,
) -> Result<Option<T>> {
    let mut long_wait = begin_wait(slot, options);
    match acquire_for(slot, options, wait_limit, &mut long_wait) {
        Ok(Some(holding)) => {
            let observed = long_wait.is_observed().then(|| Arc::clone(&holding.hold));
            let owned = own(holding);
            if let Some(hold) = observed {
                long_wait.acquired(&hold);
            }
            Ok(Some(owned))
        }
        Ok(None) => Ok(None),
        Err(error) => {
            long_wait.not_acquired(Some(&error));
            Err(error)
        }
    }
}

/// The same for a wait that has begun.
fn acquire_for(
    slot: &Arc<Slot>,
    options: &LockOptions,
    wait_limit: WaitLimit,
    long_wait: &mut LongWait,
) -> Result<Option<Holding>> {
    let outcome = acquire_inner(slot, options, wait_limit, long_wait);
    if !matches!(outcome, Ok(Some(_))) {
        remember_blocker(slot, long_wait);
    }
    into_holding(slot, outcome)
}

fn begin_wait(slot: &Arc<Slot>, options: &LockOptions) -> LongWait {
    blocked_call::forget(slot);
    LongWait::begin(slot.shared_context(), slot.target(), options.access())
}

/// Remembers who was in the way of a call that went without the lock.
fn remember_blocker(slot: &Arc<Slot>, long_wait: &LongWait) {
    if let Some(blocker) = &long_wait.blocker {
        blocked_call::remember(slot, blocker.clone());
    }
}

fn into_holding(slot: &Arc<Slot>, outcome: Result<Option<Arc<Hold>>>) -> Result<Option<Holding>> {
    outcome
        .map_err(|error| error.of(slot.target().name()))?
        .map(|hold| confirm(Holding::new(slot, hold)))
        .transpose()
}

fn acquire_inner(
    slot: &Arc<Slot>,
    options: &LockOptions,
    wait_limit: WaitLimit,
    long_wait: &mut LongWait,
) -> Result<Option<Arc<Hold>>> {
    // Read before the slot is entered. A single attempt may wait there for an exchange already, and its
    // own request then gets `REPLY_GRACE` only, so that the call as a whole stays near one exchange.
    let last_deadline = last_deadline(slot.context(), wait_limit);
    let admission = slot.enter(options, wait_limit, long_wait);
    // But for one that waited there for longer, as Redis replied to others: its own request gets a usual reply's time.
    let last_deadline = match wait_limit {
        WaitLimit::TryOnce => last_deadline.max(slot.context().now().after(USUAL_REPLY_TIME)),
        WaitLimit::Until(_) => last_deadline,
    };
    let acquire_loop = |attempt, long_wait| {
        AcquireLoop::new(slot, options, (wait_limit, last_deadline), long_wait, attempt)
    };
    match admission {
        Admission::Acquire { number, yield_until } => {
            acquire_loop(Attempt::new(slot, options, number), long_wait).start(yield_until)
        }
        Admission::TakeOver(attempt, pause) => acquire_loop(attempt, long_wait).go_on(pause),
        Admission::Held(hold) => {
            long_wait.got_lease(&hold);
            if options.access() == Some(Access::Read) {
                // From now on writers elsewhere should be able to report themselves.
                slot.context().listen_for_waiters(options.wait_kind());
            }
            Ok(Some(hold))
        }
        Admission::Granted(hold) => {
            slot.context().listen_for(options);
            Ok(Some(hold))
        }
        Admission::Ask(hold, number) => {
            acquire_loop(Attempt::new(slot, options, number), long_wait).ask(hold)
        }
        Admission::Busy(blocker) => {
            long_wait.blocker = blocker;
            Ok(None)
        }
        Admission::Crowded(blocker) => {
            long_wait.blocker = blocker;
            // `None` says that somebody has the lock, also to a call that did not wait.
            match wait_limit != WaitLimit::FOR_EVER && long_wait.blocker.is_some() {
                true => Ok(None),
                false => Err(crowded_error(slot, long_wait)),
            }
        }
        Admission::NoReply(silence) => Err(Error::unreachable(format!(
            "timed out, and no reply from Redis reached this process for {}; look whether it runs",
            Span(silence)
        ))),
        Admission::NoTurn => Err(Error::timeout(
            "timed out before this thread could ask Redis: other threads of the process ask first; wait longer",
        )),
        Admission::Cancelled => Err(cancelled_error(slot.context())),
    }
}

/// The error of a wait that did not begin, as others wait already.
fn crowded_error(slot: &Slot, long_wait: &LongWait) -> Error {
    let context = slot.context();
    let (kind, identity) = (slot.target().kind(), context.protocol.identity());
    let holder = long_wait.blocker.as_ref().map(|it| it.identify(kind, identity, context.now()));
    let holder = match holder {
        Some(holder) => format!("held by {}", holder.details()),
        None => "no holder is known yet".to_owned(),
    };
    Error::crowded(format!(
        "as many threads of this client wait already as max_waiters allows; {holder}; try again later, or raise \
         max_waiters"
    ))
}

/// Ends a call without the lock, because this hold of its own thread is in its way.
pub(crate) fn end_behind(slot: &Arc<Slot>, options: &LockOptions, hold: &Hold) {
    let mut long_wait = begin_wait(slot, options);
    long_wait.blocker = Some(Blocker::local(hold, hold.began()));
    remember_blocker(slot, &long_wait);
}

/// The error for a share that never fits.
pub(crate) fn refused_error(share: Share, declared: u64, limit: u64) -> Error {
    let shown = |limit| match limit {
        ALL => "a read-write lock".to_owned(),
        limit => format!("a semaphore with {limit} permits"),
    };
    match share {
        Share::Permits { count, limit: wanted } if u64::from(wanted) == declared => Error::config(
            "permits",
            format_args!("{count} are more than the limit in force, which is {limit}"),
            "fewer, or `resize` to a higher limit",
        ),
        share => Error::config(
            "limit",
            format_args!(
                "{} is asked for, and the name is in use as {}",
                shown(share.limit().unwrap_or(ALL)),
                shown(declared)
            ),
            "the same limit in all clients, or another name; `resize` changes a limit that is in use",
        ),
    }
}

/// The latest deadline of a request for a caller that comes now.
pub(super) fn last_deadline(context: &Context, wait_limit: WaitLimit) -> Moment {
    let end = wait_limit.end().map(|end| end.after(REPLY_GRACE));
    end.unwrap_or_else(|| context.exchange_deadline())
}

pub(crate) fn cancelled_error(context: &Context) -> Error {
    Error::cancelled(if context.is_closing() {
        "the client was closed; build a new one"
    } else {
        "the wait was cancelled by cancel_waits"
    })
}

/// What the acquirer does after an exchange.
enum NextAction {
    Held(Arc<Hold>),
    /// Ask again, after a pause of at most this.
    Again(Duration),
    /// The caller's time is over.
    GiveUp(Result<()>),
    /// Another request would not help.
    Fail(Error),
}

/// The thread that asks Redis for a slot.
struct AcquireLoop<'a> {
    slot: &'a Arc<Slot>,
    context: &'a Context,
    options: &'a LockOptions,
    wait_limit: WaitLimit,
    long_wait: &'a mut LongWait,
    /// The place of its process in the queue.
    place: Option<Place>,
    /// The latest deadline of a request for the caller.
    last_deadline: Moment,
    backoff: Backoff,
    attempt: Attempt,
    /// Whether the thread has the lock, so that nothing of the attempt is to be removed.
    is_held: bool,
    /// When the outage began, while Redis gives no useful reply.
    outage: Option<Moment>,
    /// How long the outage lasted, once that is longer than the client rides one out.
    silence: Option<Duration>,
    /// When Redis last replied that the lock is held.
    busy_at: Option<Moment>,
    /// When the last request was sent whose reply found this attempt in the queue.
    queued_at: Option<Moment>,
    /// Whether this acquirer has subscribed to releases.
    listening: bool,
    /// Other threads of the process wait until it is done.
    _hurry: Hurry,
}

/// A request for the lock, and the time that it gets.
#[derive(Clone, Copy)]
struct Sending {
    mode: AcquireMode,
    at: Moment,
    deadline: Moment,
    dies_after: Duration,
}

impl Sending {
    /// How much time the request has.
    fn time(&self) -> Duration {
        self.deadline.since(self.at)
    }
}

impl<'a> AcquireLoop<'a> {
    fn new(
        slot: &'a Arc<Slot>,
        options: &'a LockOptions,
        (wait_limit, last_deadline): (WaitLimit, Moment),
        long_wait: &'a mut LongWait,
        attempt: Attempt,
    ) -> AcquireLoop<'a> {
        long_wait.ask_redis();
        AcquireLoop {
            slot,
            context: slot.context(),
            options,
            wait_limit,
            long_wait,
            place: None,
            last_deadline,
            backoff: Backoff::new(),
            attempt,
            is_held: false,
            outage: None,
            silence: None,
            busy_at: None,
            queued_at: None,
            listening: false,
            _hurry: Hurry::begin(),
        }
    }

    /// Acquires the lock with an attempt that begins now. It does not ask before `yield_until`, if it
    /// waits by notification.
    fn start(self, yield_until: Option<Moment>) -> Result<Option<Arc<Hold>>> {
        match yield_until {
            Some(until) if self.options.wait_kind() == WaitKind::Notify => {
                if self.yield_to_listeners(until) == Paused::Cancelled {
                    return Err(cancelled_error(self.context));
                }
                self.run(false)
            }
            // Only a wait by notification yields. The slot has not noted that this thread asks, since it
            // expected a pause.
            yield_until => self.run(yield_until.is_none()),
        }
    }

    /// Asks whether somebody waits for the lock that this thread reads. If so, it lines up like others.
    fn ask(mut self, hold: Arc<Hold>) -> Result<Option<Arc<Hold>>> {
        let holding = Holding::new(self.slot, hold);
        // The deadline is that of a request for the lock: the caller may have little time.
        let deadline = self.prepare(AcquireMode::Try).deadline;
        if let Some(sent) = holding.renew_unless_wanted(deadline) {
            self.long_wait.how = How::Shared;
            // The slot has no acquirer any more, and nothing was sent for the attempt.
            self.is_held = true;
            if self.slot.asked(&holding.hold.lease, sent) {
                return Ok(Some(holding.hold));
            }
            let _ = holding.release();
            return Err(cancelled_error(self.context));
        }
        // The last one of its process gives the entry back: by the worker, as that does not concern the attempt, and
        // the caller's time is for this one.
        holding.release_in_background();
        self.run(false)
    }

    /// Goes on with the attempt of another thread.
    fn go_on(self, pause: Duration) -> Result<Option<Arc<Hold>>> {
        let left = self.time_left().unwrap_or(Duration::ZERO);
        if self.slot.pause(pause.min(left)) == Paused::Cancelled {
            return Err(cancelled_error(self.context));
        }
        self.run(false)
    }

    /// Asks until there is an outcome. `asks` is true if the slot has noted the first request already,
    /// which also means that no message can have come for the attempt.
    fn run(mut self, mut asks: bool) -> Result<Option<Arc<Hold>>> {
        loop {
            // If the slot has noted the first request, no grant can have come. Without a look for
            // one, an uncontended acquisition takes the slot's mutex once less.
            let received = if asks { None } else { self.slot.take_received(true) };
            asks = false;
            let next = match received {
                Some(Received::Grant(message)) => self.accept_message(message),
                Some(Received::Hold(hold)) => self.inherit(hold),
                None => self.send_request(),
            };

            if let Some(outcome) = self.follow(next) {
                return outcome;
            }
        }
    }

    /// Goes on after an exchange. Returns the outcome of the call, or nothing if it must ask again.
    fn follow(&mut self, next: NextAction) -> Option<Result<Option<Arc<Hold>>>> {
        // A grant may have come during the last request, or a lease was passed on after its reply. They are
        // looked for only here, where there will be no other request.
        let next = match next {
            NextAction::GiveUp(outcome) => self.finish(outcome),
            NextAction::Fail(error) => self.fail(error),
            next => next,
        };
        match next {
            NextAction::Held(hold) => {
                self.context.listen_for(self.options);
                Some(Ok(Some(hold)))
            }
            NextAction::Again(pause) => {
                let (context, target) = (self.context, self.slot.target());
                self.long_wait.log_if_slow(context, target, self.place);
                let mut paused = self.slot.pause(pause);
                // A release has ended the pause, and others come before this process.
                if paused == Paused::Over
                    && self.options.wait_kind() == WaitKind::Notify
                    && let Some(until) = self.slot.yield_until()
                {
                    paused = self.yield_to_listeners(until);
                }
                (paused == Paused::Cancelled).then(|| Err(cancelled_error(self.context)))
            }
            // Its wait was counted, whatever else has come of its last request.
            NextAction::GiveUp(_) | NextAction::Fail(_) if self.slot.is_cancelled() => {
                Some(Err(cancelled_error(self.context)))
            }
            NextAction::GiveUp(Ok(())) => Some(Ok(None)),
            NextAction::GiveUp(Err(error)) => {
                // The threads behind this one learn of the outage now, and do not ride it out once
                // more each.
                if let Some(silence) = self.silence {
                    self.slot.give_up(silence);
                }
                Some(Err(self.outcome_error(error)))
            }
            NextAction::Fail(error) => Some(Err(error)),
        }
    }

    /// Pauses before a request, because this process has released the lock and others that listen come before it. A
    /// single attempt goes on after one pause.
    fn yield_to_listeners(&self, until: Moment) -> Paused {
        let last = self.wait_limit.end().unwrap_or(self.last_deadline.min(until));
        // With a subscription the pause ends at the release of another. It is only wished for: to wait
        // for the confirmation could take longer than the pause.
        if let Some(channel) = self.slot.target().channel() {
            self.context.listener.wish_for(channel, self.slot, until.min(last));
        }
        self.slot.yield_to_others(last)
    }

    fn mode(&self) -> AcquireMode {
        match (self.options.wait_kind(), self.wait_limit) {
            (WaitKind::Queue, _) if self.attempt.queued => AcquireMode::Heartbeat,
            // Only with a live listener: a grant could not reach this client otherwise (rule 12). A
            // single attempt never joins (rule 4).
            (WaitKind::Queue, WaitLimit::Until(_)) if self.context.listener.is_live() => {
                AcquireMode::Join
            }
            _ => AcquireMode::Try,
        }
    }

    fn send_request(&mut self) -> NextAction {
        if self.attempt.spent {
            self.restart_attempt();
        }
        let sending = self.prepare(self.mode());
        let acquired = self.ask_for_all(&sending);
        self.judge(acquired, &sending)
    }

    /// Begins a request.
    fn prepare(&mut self, mode: AcquireMode) -> Sending {
        let at = self.context.now();
        // A thread that did not get the processor in time sends its request all the same: `None` would
        // say that somebody has the lock, which nobody has asked.
        let last = self.last_deadline.max(at.after(REPLY_GRACE));
        let deadline = at.after(self.context.bounds.exchange).min(last);
        // Before the request is sent: without a reply the attempt may stand in the queue all the same,
        // and must be removed from it (rule 6).
        self.attempt.queued |= mode == AcquireMode::Join;
        // Nobody waits for a grant after the last request, so a hand-over after it must skip this
        // waiter (rule 8).
        Sending { mode, at, deadline, dies_after: DEAD_AFTER.min(last.since(at)) }
    }

    /// The request to send.
    fn request(&self, sending: &Sending) -> AcquireRequest<'_> {
        let owner = &self.attempt.value.bytes;
        let (mode, dies_after) = (sending.mode, sending.dies_after);
        let LockOptions { lease, share, .. } = *self.options;
        AcquireRequest { owner, ttl: lease.ttl(), tail: lease.tail(), share, mode, dies_after }
    }

    /// Decides what follows from the outcome of a request.
    fn judge(&mut self, acquired: AcquireOutcome, sending: &Sending) -> NextAction {
        let Sending { mode, at, deadline, .. } = *sending;
        let time = sending.time();
        self.attempt.spent = acquired.is_spent;
        match acquired.outcome {
            Ok(AcquireReply::Granted(granted)) => self.accept(granted),
            Ok(AcquireReply::Busy(busy)) => {
                // `at` is before the sending: a grant is surely later. A try says nothing about the queue.
                self.queued_at = (mode != AcquireMode::Try).then_some(at);
                self.wait_for_holder(busy, mode)
            }
            Ok(AcquireReply::Split(apart)) => self.retry_after_split(apart),
            Ok(AcquireReply::Late) => self.retry_late(time),
            Ok(AcquireReply::Gone) => {
                // Redis has dropped this attempt from its queue. Only a new one may join (rule 1), and
                // does so at once: its place is lost as it is.
                self.restart_attempt();
                NextAction::Again(Duration::ZERO)
            }
            Ok(AcquireReply::Refused { declared, limit }) => self.refuse(declared, limit),
            Err(failure) => self.recover(failure, deadline, time),
        }
    }

    /// Another limit was declared for this name, or what the caller asks for is above the limit in force.
    fn refuse(&mut self, declared: u64, limit: u64) -> NextAction {
        // Nothing holds or waits under this value, and no earlier request of it can have been granted: it
        // has asked for the same each time.
        self.attempt.queued = false;
        NextAction::Fail(refused_error(self.options.share, declared, limit))
    }

    fn wait_for_holder(&mut self, busy: Busy, mode: AcquireMode) -> NextAction {
        self.place =
            (mode != AcquireMode::Try).then(|| Place::InQueue(busy.ahead.saturating_add(1)));
        let standing = Standing { options: self.options, ahead: busy.ahead };
        let queued = (mode != AcquireMode::Try).then_some(standing);
        let blocker = Blocker::remote(busy.holder, self.context.now());
        let lingered = self.note_held_elsewhere(Some(blocker), queued);
        // Ended by every reply, also by the last; begun below only by a thread that goes on waiting.
        if busy.ttl.is_some() {
            self.context.no_expiry_warnings.end(self.slot.target().name());
        }
        if !lingered.is_empty() {
            // The place that they free may be the one that this thread lacks. A single attempt asks again, too: it was
            // refused for what no thread has.
            let deadline = self.context.exchange_deadline().min(self.last_deadline);
            lingered.into_iter().for_each(|ended| ended.release_now(deadline));
            return NextAction::Again(Duration::ZERO);
        }

        let Some(left) = self.time_left() else { return NextAction::GiveUp(Ok(())) };
        if busy.ttl.is_none() {
            self.context.no_expiry_warnings.warn(self.slot.target().name());
        }

        let kind = self.options.wait_kind();
        if kind == WaitKind::Notify {
            // The next release is a new contest: nobody has collided over it yet, so the pauses start
            // small again.
            self.backoff = Backoff::new();
        }
        if kind != WaitKind::Spin
            && let Err(error) = self.start_listening(mode)
        {
            return if self.time_left().is_none() {
                // Redis has replied lately that the lock is held, and the caller's time was over before the
                // listener was ready. That is no error of Redis.
                let is_recent = |at| self.context.now().since(at) <= HELD_FOR;
                NextAction::GiveUp(if self.busy_at.is_some_and(is_recent) {
                    Ok(())
                } else {
                    Err(error)
                })
            } else if error.is_unreachable() {
                self.retry_in_outage(error)
            } else {
                NextAction::Fail(error)
            };
        } else if mode == AcquireMode::Try && kind == WaitKind::Queue {
            // The listener is live now. That was a try, so the next request joins.
            return NextAction::Again(Duration::ZERO);
        } else if kind == WaitKind::Notify && !std::mem::replace(&mut self.listening, true) {
            // The lock may have been released between that reply and the subscription, and no message of
            // it comes.
            return NextAction::Again(Duration::ZERO);
        }

        // A holder that does not hand over belongs to another library, or spins: nobody publishes its
        // release. Then the first waiter of the queue polls, and those behind it wait for that one to
        // hand over.
        let polls = kind == WaitKind::Spin || (!busy.hands_over && kind == WaitKind::Queue);
        let most = if polls && busy.ahead == 0 { self.backoff.next() } else { HEARTBEAT };
        NextAction::Again(most.min(pause_until_free(busy.ttl)).min(left))
    }

    /// Several clients have a part of the votes of a quorum each. Nobody will publish a release, so they
    /// ask again, at random moments.
    fn retry_after_split(&mut self, apart: Duration) -> NextAction {
        drop(self.note_held_elsewhere(None, None));
        let Some(left) = self.time_left() else { return NextAction::GiveUp(Ok(())) };
        let pause = self.backoff.next() + apart.mul_f64(fastrand::f64());
        NextAction::Again(pause.min(left))
    }

    /// Redis has replied, and this attempt does not have the lock. Returns the leases that lingered here: what the
    /// caller does not release is released in the background.
    fn note_held_elsewhere(
        &mut self,
        blocker: Option<Blocker>,
        queued: Option<Standing<'_>>,
    ) -> Vec<EndedLinger> {
        self.long_wait.how = How::Queued;
        self.long_wait.blocker.clone_from(&blocker);
        self.outage = None;
        self.busy_at = Some(self.context.now());
        // The reply is final about every earlier request of this attempt, for one server. Of several
        // servers some may not have replied, and may have accepted it.
        self.attempt.unknown = self.context.protocol.may_still_own(&self.attempt.value.bytes);
        self.slot.held_elsewhere(blocker, queued)
    }

    fn start_listening(&mut self, mode: AcquireMode) -> Result<()> {
        // Only a try needs a subscription now. A join is sent only while the listener is live. An
        // attempt in the queue keeps its place while the listener is down, and a heartbeat's reply
        // shows its grant.
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

    /// How long the caller still waits; `None` if its time is over or it makes one attempt.
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

//! Upgrades: an upgradable reader waits until it is alone, before all others that wait.
//!
//! Its wait is like that of an acquirer in the queue: it sends heartbeats, and a message makes it ask. It holds the
//! lock meanwhile, so that its lease is renewed, and may be lost. Until Redis has confirmed the upgrade it is an
//! upgradable reader here. An upgrade that is given up is a change of its own, with the next number: whichever of the
//! two arrives last, the later number counts (rule 35).

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::option::WaitKind;
use crate::base::share::Access;
use crate::base::time::Moment;
use crate::engine::acquire::{cancelled_error, last_deadline};
use crate::engine::backoff::Backoff;
use crate::engine::blocked_call;
use crate::engine::blocker::Blocker;
use crate::engine::heartbeat::{DEAD_AFTER, HEARTBEAT, pause_until_free};
use crate::engine::holding::Holding;
use crate::engine::long_wait::LongWait;
use crate::engine::ownership::taken_by_wrong_type;
use crate::engine::slot::{Paused, REPLY_GRACE, WaitLimit};
use crate::observe::How;
use crate::protocol::reply::{Busy, ChangeReply, Ownership};
use crate::protocol::request::ChangeTo;
use crate::wire::failure::Failure;

impl Holding {
    /// Waits until it is the writer. Returns false if the wait is over: then it is an upgradable reader as before.
    pub(crate) fn upgrade(&self, wait_limit: WaitLimit) -> Result<bool> {
        blocked_call::forget(&self.slot);
        let (context, target) = (self.slot.shared_context(), self.slot.target());
        let last_deadline = last_deadline(context, wait_limit);
        let mut long_wait = LongWait::begin(context, target, Some(Access::Write));
        long_wait.how = How::Upgrade;
        let mut upgrade = Upgrade {
            holding: self,
            wait_limit,
            last_deadline,
            long_wait,
            outage: None,
            backoff: Backoff::new(),
        };
        let outcome = upgrade.run();
        if !matches!(outcome, Ok(true))
            && let Some(blocker) = &upgrade.long_wait.blocker
        {
            blocked_call::remember(&self.slot, blocker.clone());
        }
        let outcome = outcome.map_err(|error| error.of(self.name()));
        match &outcome {
            Ok(true) => upgrade.long_wait.acquired(&self.hold),
            outcome => upgrade.long_wait.not_acquired(outcome.as_ref().err()),
        }
        outcome
    }
}

/// The wait of one upgrade.
struct Upgrade<'a> {
    holding: &'a Holding,
    wait_limit: WaitLimit,
    /// The latest deadline of a request for the caller.
    last_deadline: Moment,
    long_wait: LongWait,
    /// When the outage began, while Redis gives no useful reply.
    outage: Option<Moment>,
    backoff: Backoff,
}

impl Upgrade<'_> {
    fn run(&mut self) -> Result<bool> {
        let Holding { slot, hold } = self.holding;
        let Some(wait) = slot.begin_upgrade() else {
            return Err(cancelled_error(self.holding.context()));
        };
        // It stays the upgradable reader until Redis has replied.
        let mut number = hold.lease.begin_change(Access::UpgradableRead);
        let mut to = ChangeTo::Access(Access::Write);
        loop {
            self.holding.check_valid()?;
            let reply = self.ask(number, to);
            let pause = match reply {
                Ok(ChangeReply::Changed { token: Some(token), waiters, .. }) => {
                    // The caller gives the whole hold back.
                    if wait.end() {
                        return Err(cancelled_error(self.holding.context()));
                    }
                    hold.lease.upgraded(number, token);
                    hold.lease.counted(Moment::PAST, Some(waiters));
                    // The lease may have ended while the reply was on its way.
                    return self.holding.check_valid().map(|()| true);
                }
                Ok(ChangeReply::Waits(busy)) => {
                    self.outage = None;
                    to = ChangeTo::Heartbeat;
                    self.pause_for(busy)?
                }
                // Redis has dropped it as dead, or does not know of it yet.
                Ok(ChangeReply::Stale | ChangeReply::Changed { token: None, .. }) => {
                    number = hold.lease.begin_change(Access::UpgradableRead);
                    to = ChangeTo::Access(Access::Write);
                    self.backoff.next()
                }
                Ok(ChangeReply::Gone) => {
                    self.holding.check_ownership(Ownership::Gone)?;
                    Duration::ZERO
                }
                Err(failure) => {
                    let failure = match taken_by_wrong_type(failure) {
                        Ok(ownership) => {
                            return self.holding.check_ownership(ownership).map(|()| false);
                        }
                        Err(failure) => failure,
                    };
                    self.recover(failure)?
                }
            };
            let Some(left) = self.time_left() else { break };
            let (context, target) = (self.holding.context(), slot.target());
            self.long_wait.log_if_slow(context, target, None);
            let until_loss = hold.valid_until().since(context.now());
            if slot.pause_upgrade(pause.min(left).min(until_loss)) == Paused::Cancelled {
                return Err(cancelled_error(context));
            }
        }
        if wait.end() {
            return Err(cancelled_error(self.holding.context()));
        }
        // The next number, so that no request of this upgrade counts any more. In an outage the caller's time is over
        // by now, and the worker sends it.
        let number = hold.lease.begin_change(Access::UpgradableRead);
        let deadline = self.holding.context().exchange_deadline().min(self.last_deadline);
        self.holding.settle_change(number, Access::UpgradableRead, deadline).map(|()| false)
    }

    fn ask(&self, number: u64, to: ChangeTo) -> std::result::Result<ChangeReply, Failure> {
        let now = self.holding.now();
        // One request is sent, however late its thread comes to it, as in a wait for the lock.
        let last = self.last_deadline.max(now.after(REPLY_GRACE));
        let deadline = self.holding.context().exchange_deadline().min(last);
        self.holding.send_change(number, to, DEAD_AFTER.min(last.since(now)), deadline)
    }

    /// How long to pause until the next heartbeat.
    fn pause_for(&mut self, busy: Busy) -> Result<Duration> {
        let context = self.holding.context();
        self.long_wait.blocker = Some(Blocker::remote(busy.holder, context.now()));
        if self.holding.hold.lease.value.options.wait == WaitKind::Spin {
            return Ok(self.backoff.next());
        }
        if !context.listener.is_live() && self.time_left().is_some() {
            let end = self.wait_limit.end().unwrap_or(Moment::FAR);
            return match context.listener.ready(context.exchange_deadline().min(end)) {
                // The message may have been sent before somebody listened.
                Ok(()) => Ok(Duration::ZERO),
                // The reply to a heartbeat says the same.
                Err(error) if error.is_unreachable() => Ok(HEARTBEAT),
                Err(error) => Err(error),
            };
        }
        Ok(HEARTBEAT.min(pause_until_free(busy.ttl)))
    }

    /// Asks again in spite of an error, while the client rides the outage out. At the end of the caller's time the
    /// hold goes on as it was: unlike a lock that was asked for, it is there.
    fn recover(&mut self, failure: Failure) -> Result<Duration> {
        let now = self.holding.now();
        let since = *self.outage.get_or_insert(now);
        let is_over = since.after(self.holding.context().bounds.give_up_after) <= now;
        if !failure.is_transient() || is_over {
            return Err(Error::from(failure)
                .with_consequence("the lock is given back, as the upgrade may have been granted"));
        }
        Ok(self.backoff.next())
    }

    fn time_left(&self) -> Option<Duration> {
        let end = self.wait_limit.end()?;
        Some(end.since(self.holding.now())).filter(|left| !left.is_zero())
    }
}

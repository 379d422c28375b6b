//! How an acquirer turns a grant, in a reply or a message, into a lease.

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::option::LockOptions;
use crate::base::sync::Arc;
use crate::base::text::Span;
use crate::base::time::Moment;
use crate::engine::acquire::{AcquireLoop, NextAction, cancelled_error};
use crate::engine::hold::Hold;
use crate::engine::lease::{Grant, validity};
use crate::engine::slot::{Received, ReceivedGrant};
use crate::observe::How;
use crate::protocol::reply::Granted;
use crate::protocol::wake_message::GrantMessage;

impl AcquireLoop<'_> {
    /// Turns a grant into a lease of the slot.
    pub(super) fn accept(&mut self, granted: Granted) -> NextAction {
        self.context.no_expiry_warnings.end(self.slot.target().name());
        let Granted { token, ttl, sent, micros, received, waiters, permits } = granted;
        let now = self.context.now();
        if let Some((what, span)) = exceeded_limit(self.options, sent, ttl, now) {
            // A lease that is over when it begins would be reported as a loss of a lock that the caller
            // never had. `unknown` makes `drop` remove from Redis what is left of it.
            self.attempt.unknown = true;
            return NextAction::Fail(Error::timeout(format!(
                "the reply came after {}, when its {what} of {} was over; use a longer {what}",
                Span(now.since(sent)),
                Span(span)
            )));
        }
        let grant = Grant { token, ttl, sent, server_time: (micros, received), permits };
        let (value, clock) = (Arc::clone(&self.attempt.value), Arc::clone(&self.context.clock));
        let hold = Hold::first(value, clock, grant, self.options);
        // Until this `drop` would remove from Redis what is a lease now.
        self.is_held = self.slot.granted(&hold, waiters);
        if self.is_held {
            return NextAction::Held(hold);
        }
        // No caller has had the lease, so nobody is told of a loss, and `drop` removes it from Redis.
        self.attempt.unknown = true;
        NextAction::Fail(cancelled_error(self.context))
    }

    /// Takes the grant of a message if it is certainly valid; otherwise asks Redis.
    pub(super) fn accept_message(&mut self, message: ReceivedGrant) -> NextAction {
        match self.read_grant(message) {
            Some(granted) => self.accept(granted),
            None => self.send_request(),
        }
    }

    /// Gives up, unless a message granted the lock during the last request. If that grant is not
    /// certainly valid, the outcome is unknown, because there is no time to ask.
    pub(super) fn finish(&mut self, outcome: Result<()>) -> NextAction {
        let message = match self.slot.take_received(false) {
            Some(Received::Grant(message)) => message,
            Some(Received::Hold(hold)) => return self.inherit(hold),
            None => return NextAction::GiveUp(outcome),
        };
        match self.read_grant(message) {
            Some(granted) => self.accept(granted),
            None => NextAction::GiveUp(outcome.and(Err(Error::unknown_outcome(
                "granted when the wait was over, with no time left to confirm it; it may be held until its \
                 lease ends",
            )))),
        }
    }

    /// Fails, unless another thread passed its lease on to this one.
    pub(super) fn fail(&mut self, error: Error) -> NextAction {
        // A grant is left to `drop`, which removes the attempt. A lease has no other owner.
        match self.slot.take_passed() {
            Some(hold) => self.inherit(hold),
            None => NextAction::Fail(error),
        }
    }

    /// Takes the lease that another thread passed on to this one.
    pub(super) fn inherit(&mut self, hold: Arc<Hold>) -> NextAction {
        self.long_wait.how = How::LocalHandOff;
        NextAction::Held(hold)
    }

    /// Reads the grant of a message. Returns `None` unless it is certainly valid (rule 10).
    pub(super) fn read_grant(&mut self, message: ReceivedGrant) -> Option<Granted> {
        self.long_wait.how = How::Queued;
        // The last reply may have found another holder. This grant may be later than that reply, so
        // the wait must not end as *busy* because of it. Until another reply comes, the attempt may
        // own the lock.
        self.busy_at = None;
        self.attempt.unknown = true;

        let now = self.context.now();
        let received = message.received;
        let GrantMessage { token, micros, window, waiters, .. } = message.grant;
        let permits = message.grant.permits.clone();

        let lease = self.options.lease;
        // The key lives for so long. Of that the tail is no part of the lease (rule 49).
        let window = window.saturating_sub(lease.tail());
        // No renewal will make a fixed lease whole, so a claim is not enough (rule 9). The request that
        // follows asks for the whole lease, under the same value.
        let whole = self.options.is_renewed() || window >= lease.ttl();

        let protocol = &self.context.protocol;
        let target = self.slot.target();
        let after = protocol.granted_after(target, &message.grant, received, self.queued_at);
        // `sent` is a moment that is surely before the grant; a message has no request that was
        // sent. The window counts from it, so the lease ends here before it ends in Redis, however
        // late the message came.
        let fits = |&sent: &Moment| exceeded_limit(self.options, sent, window, now).is_none();
        let sent = after.filter(|sent| whole && fits(sent))?;
        Some(Granted { token, ttl: window, sent, micros, received, waiters, permits })
    }
}

/// Returns the limit that a hold has already reached at `now`, by its name, and its length; `None` if the hold can begin.
/// Redis made the grant at `sent` or later.
pub(super) fn exceeded_limit(
    options: &LockOptions,
    sent: Moment,
    ttl: Duration,
    now: Moment,
) -> Option<(&'static str, Duration)> {
    if validity(sent, ttl, &options.of_request()) <= now {
        return Some(("lease", ttl));
    }
    let most = options.longest_hold().filter(|&most| sent.after(most) <= now)?;
    Some(("max_hold", most))
}

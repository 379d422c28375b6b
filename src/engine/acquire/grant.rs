//! What an acquirer makes of a grant, in a reply or a message.

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::sync::Arc;
use crate::base::text::Span;
use crate::base::time::Moment;
use crate::engine::acquire::{AcquireLoop, NextAction};
use crate::engine::lease::{Grant, HeldLease, validity};
use crate::engine::slot::ReceivedGrant;
use crate::protocol::reply::Granted;
use crate::protocol::wake_message::GrantMessage;

impl AcquireLoop<'_> {
    pub(super) fn accept(&mut self, granted: Granted) -> NextAction {
        self.context.no_expiry_warnings.end(self.slot.target().name());
        let Granted { token, ttl, sent, micros, received, waiters } = granted;
        let now = self.context.now();
        if let Some((what, span)) = self.exceeded_limit(sent, ttl, now) {
            // It took longer to be told than it may last. What may be left of it is cleaned up.
            if let Some(attempt) = &mut self.attempt {
                attempt.unknown = true;
            }
            return NextAction::Fail(Error::timeout(format!(
                "the reply came after {}, when its {what} of {} was over; use a longer {what}",
                Span(now.since(sent)),
                Span(span)
            )));
        }
        let Some(attempt) = self.attempt.take() else {
            return NextAction::Fail(Error::not_held("the attempt is over"));
        };
        let (owner, settled) = (attempt.owner, attempt.settled);
        let server_time = (micros, received);
        let grant = Grant { owner, token, ttl, sent, server_time, settled };
        let (target, clock) = (Arc::clone(self.slot.target()), Arc::clone(&self.context.clock));
        let lease = HeldLease::new(target, clock, grant, *self.options);
        self.slot.granted(&lease, waiters);
        NextAction::Held(lease)
    }

    /// What a hold would have outlasted before it began.
    pub(super) fn exceeded_limit(
        &self,
        sent: Moment,
        ttl: Duration,
        now: Moment,
    ) -> Option<(&'static str, Duration)> {
        if validity(sent, ttl) <= now {
            return Some(("lease", ttl));
        }
        let most = self.options.longest_hold().filter(|&most| sent.after(most) <= now)?;
        Some(("max_hold", most))
    }

    /// Takes what a message granted, if that can be told to be valid; else asks.
    pub(super) fn accept_message(&mut self, message: ReceivedGrant) -> NextAction {
        match self.read_grant(message) {
            Some(granted) => self.accept(granted),
            None => self.send_request(),
        }
    }

    /// Gives up, unless a message granted it during the last request: to make sure of that there is no
    /// time.
    pub(super) fn finish(&mut self, outcome: Result<()>) -> NextAction {
        let Some(message) = self.slot.take_grant(false) else { return NextAction::GiveUp(outcome) };
        match self.read_grant(message) {
            Some(granted) => self.accept(granted),
            None => NextAction::GiveUp(outcome.and(Err(Error::unknown_outcome(
                "granted when the wait was over, with no time left to confirm it; it may be held until its \
                 lease ends",
            )))),
        }
    }

    /// What a message granted, if that can be told to be valid (rule 10).
    pub(super) fn read_grant(&mut self, message: ReceivedGrant) -> Option<Granted> {
        // Nobody else had it since, and Redis has it down as ours until it says otherwise.
        self.busy_at = None;
        if let Some(attempt) = &mut self.attempt {
            attempt.unknown = true;
        }
        let now = self.context.now();
        let received = message.received;
        let GrantMessage { token, micros, window, waiters, .. } = message.grant;
        let lease = self.options.lease;
        // A lease that is not renewed must be whole from the start (rule 9).
        let whole = self.options.is_renewed() || window >= lease.ttl();
        let protocol = &self.context.protocol;
        let after = protocol.granted_after(&message.grant, received, self.queued_at);
        let sent =
            after.filter(|&sent| whole && self.exceeded_limit(sent, window, now).is_none())?;
        Some(Granted { token, ttl: window, sent, micros, received, waiters })
    }
}

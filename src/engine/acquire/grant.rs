//! What a delegate makes of a grant, in a reply or a message.

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::sync::Arc;
use crate::base::text::Span;
use crate::base::time::Moment;
use crate::engine::acquire::{Delegate, Next};
use crate::engine::lease::{Grant, LiveLease, validity};
use crate::engine::slot::Heard;
use crate::protocol::reply::Granted;
use crate::protocol::wake::GrantMessage;

impl Delegate<'_> {
    pub(super) fn take(&mut self, granted: Granted) -> Next {
        self.context.endless.end(self.slot.target().name());
        let Granted { token, ttl, sent, micros, received, waiters } = granted;
        let now = self.context.now();
        if let Some((what, span)) = self.outlasted(sent, ttl, now) {
            // It took longer to be told than it may last. What may be left of it is cleaned up.
            if let Some(bid) = &mut self.bid {
                bid.unknown = true;
            }
            return Next::Fail(Error::timeout(format!(
                "the reply came after {}, when its {what} of {} was over; use a longer {what}",
                Span(now.since(sent)),
                Span(span)
            )));
        }
        let Some(bid) = self.bid.take() else {
            return Next::Fail(Error::not_held("the attempt is over"));
        };
        let (owner, settled) = (bid.owner, bid.settled);
        let server_time = (micros, received);
        let grant = Grant { owner, token, ttl, sent, server_time, settled };
        let (target, clock) = (Arc::clone(self.slot.target()), Arc::clone(&self.context.clock));
        let lease = LiveLease::new(target, clock, grant, *self.options);
        self.slot.granted(&lease, waiters);
        Next::Held(lease)
    }

    /// What a hold would have outlasted before it began.
    pub(super) fn outlasted(
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
    pub(super) fn believe(&mut self, heard: Heard) -> Next {
        match self.hear(heard) {
            Some(granted) => self.take(granted),
            None => self.attempt(),
        }
    }

    /// Gives up, unless a message granted it during the last request: to make sure of that there is no
    /// time.
    pub(super) fn end(&mut self, outcome: Result<()>) -> Next {
        let Some(heard) = self.slot.take_grant(false) else { return Next::GiveUp(outcome) };
        match self.hear(heard) {
            Some(granted) => self.take(granted),
            None => Next::GiveUp(outcome.and(Err(Error::unknown_outcome(
                "granted when the wait was over, with no time left to confirm it; it may be held until its \
                 lease ends",
            )))),
        }
    }

    /// What a message granted, if that can be told to be valid (rule 10).
    pub(super) fn hear(&mut self, heard: Heard) -> Option<Granted> {
        // Nobody else had it since, and Redis has it down as ours until it says otherwise.
        self.busy_at = None;
        if let Some(bid) = &mut self.bid {
            bid.unknown = true;
        }
        let now = self.context.now();
        let received = heard.received;
        let GrantMessage { token, micros, window, waiters, .. } = heard.grant;
        let lease = self.options.lease;
        // A lease that is not renewed must be whole from the start (rule 9).
        let whole = self.options.is_renewed() || window >= lease.ttl();
        let protocol = &self.context.protocol;
        let after = protocol.granted_after(&heard.grant, received, self.queued_at);
        let sent = after.filter(|&sent| whole && self.outlasted(sent, window, now).is_none())?;
        Some(Granted { token, ttl: window, sent, micros, received, waiters })
    }
}

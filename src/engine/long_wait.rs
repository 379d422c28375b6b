//! A wait that takes long, of which the log tells one line.

use std::time::Duration;

use crate::base::text::Span;
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::context::Context;
use crate::protocol::target::Target;

/// The line in which a waiter stands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The one of its process, in Redis.
    InQueue(u32),
    /// Its own among the threads of its process.
    AmongThreads(usize),
}

/// One call's wait for a lock.
#[derive(Debug)]
pub(crate) struct LongWait {
    since: Moment,
    /// When it is to be logged; [`Moment::FAR`] once it was, or never is.
    pub(crate) due: Moment,
    /// Who was last known to be in the way.
    pub(crate) blocker: Option<Blocker>,
}

impl LongWait {
    /// A wait that begins now, and is logged if it takes longer than this.
    pub(crate) fn begin(now: Moment, slow: Option<Duration>) -> LongWait {
        let due = slow.map_or(Moment::FAR, |slow| now.after(slow));
        LongWait { since: now, due, blocker: None }
    }

    /// Logs one line if the wait is slow by now and was not logged before. Nothing may be locked.
    pub(crate) fn log_if_slow(&mut self, context: &Context, target: &Target, place: Option<Place>) {
        let now = context.now();
        if now < self.due {
            return;
        }
        self.due = Moment::FAR;
        let (name, waited) = (target.name(), Span(now.since(self.since)));
        let place = match place {
            Some(Place::InQueue(place)) => format!(" at place {place} of the queue"),
            Some(Place::AmongThreads(place)) => {
                format!(" at place {place} among the threads of this process")
            }
            None => String::new(),
        };
        let identity = context.protocol.identity();
        let blocker = self.blocker.as_ref();
        match blocker.map(|it| it.identify(target.kind(), identity, now)) {
            Some(holder) => {
                log!(
                    warn,
                    "lock {name:?}: waiting for {waited}{place}; held by {}",
                    holder.details()
                );
            }
            None => {
                log!(warn, "lock {name:?}: waiting for {waited}{place}; no holder is known");
            }
        }
    }
}

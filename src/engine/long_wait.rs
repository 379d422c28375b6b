//! A wait for a lock: what observers are told of it, and its line in the log if it takes long.

use crate::base::error::Error;
use crate::base::inspection::Holder;
use crate::base::share::Access;
use crate::base::sync::Arc;
use crate::base::text::Span;
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::context::Context;
use crate::engine::hold::Hold;
use crate::observe::observers::{CallUnderWay, ObserverList};
use crate::observe::{Acquired, How, Lost, NotAcquired, Waiting};
use crate::protocol::target::Target;

/// The place of a waiter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The place of its process in the queue of Redis.
    InQueue(u32),
    /// Its place among the threads of its process.
    AmongThreads(usize),
}

/// One call's wait for a lock.
pub(crate) struct LongWait {
    since: Moment,
    /// When it is to be logged; [`Moment::FAR`] once it was, or never is.
    pub(crate) due: Moment,
    /// The holder that was last known to be in the way.
    pub(crate) blocker: Option<Blocker>,
    /// How the lock comes, as far as is known.
    pub(crate) how: How,
    observed: Option<ObservedWait>,
}

/// The end of a wait, of which observers are yet to be told.
struct ObservedWait {
    number: u64,
    context: Arc<Context>,
    target: Arc<Target>,
    access: Option<Access>,
    /// The holder that was in the way when it began.
    first_blocker: Option<Blocker>,
    _call: CallUnderWay,
}

impl LongWait {
    /// A wait that begins now. It is for this access, if it is for a read-write lock.
    pub(crate) fn begin(
        context: &Arc<Context>,
        target: &Arc<Target>,
        access: Option<Access>,
    ) -> LongWait {
        let since = context.now();
        let due = context.bounds.slow_wait.map_or(Moment::FAR, |slow| since.after(slow));
        let observed = context.observers.active().map(|observers| {
            let (number, name) = (observers.next_number(), target.name().as_bytes());
            let event = Waiting { call: number, name, kind: target.kind().name(), access };
            observers.tell(|observer| observer.waiting(&event));
            let (context, target) = (Arc::clone(context), Arc::clone(target));
            let _call = CallUnderWay::begin();
            ObservedWait { number, context, target, access, first_blocker: None, _call }
        });
        LongWait { since, due, blocker: None, how: How::Free, observed }
    }

    /// The thread waits in its slot, for threads of its process.
    pub(crate) fn wait_here(&mut self, blocker: impl FnOnce() -> Option<Blocker>) {
        self.how = How::Queued;
        if let Some(observed) = &mut self.observed {
            observed.first_blocker = blocker();
        }
    }

    /// The thread asks Redis. It may have had a lease of its process before, and given that back.
    pub(crate) fn ask_redis(&mut self) {
        if self.how != How::Queued {
            self.how = How::Free;
        }
    }

    /// The thread gets a lease that its process has already.
    pub(crate) fn got_lease(&mut self, hold: &Hold) {
        self.how = match (hold.lease.access(), self.how) {
            (Some(Access::Read), _) => How::Shared,
            (_, How::Free) => How::Linger,
            _ => How::LocalHandOff,
        };
    }

    /// Whether observers are told of it.
    pub(crate) fn is_observed(&self) -> bool {
        self.observed.is_some()
    }

    /// Tells that the thread has the lock, by this hold. Its next call for the lock must not wait for this one.
    pub(crate) fn acquired(&mut self, hold: &Hold) {
        let (since, how) = (self.since, self.how);
        let began = if how.begins_hold() { Some(hold.began()) } else { None };
        self.end(|observed, observers, blocker| {
            let call = observed.number;
            let waited = began.unwrap_or_else(|| observed.context.now()).since(since);
            let event = Acquired {
                call,
                hold: hold.number().unwrap_or(call),
                name: observed.target.name().as_bytes(),
                kind: observed.target.kind().name(),
                access: observed.access,
                waited,
                how,
                token: hold.token(),
                blocker,
            };
            observers.tell(|observer| observer.acquired(&event));
            // The number comes after the event: the end of the hold must not be reported first.
            if how.begins_hold()
                && let Some(loss) = &hold.observe(call)
            {
                let (kind, held) = (event.kind, observed.context.now().since(hold.began()));
                observers.tell(|observer| observer.lost(&Lost { hold: call, kind, held, loss }));
            }
        });
    }

    /// Tells that the call ends without the lock.
    pub(crate) fn not_acquired(&mut self, error: Option<&Error>) {
        let since = self.since;
        self.end(|observed, observers, blocker| {
            let event = NotAcquired {
                call: observed.number,
                name: observed.target.name().as_bytes(),
                kind: observed.target.kind().name(),
                access: observed.access,
                waited: observed.context.now().since(since),
                error,
                blocker,
            };
            observers.tell(|observer| observer.not_acquired(&event));
        });
    }

    fn end(&mut self, tell: impl FnOnce(&ObservedWait, &ObserverList, Option<&Holder>)) {
        let Some(mut observed) = self.observed.take() else { return };
        let Some(observers) = observed.context.observers.active() else { return };
        let first = observed.first_blocker.take();
        let blocker = self.blocker.as_ref().or(first.as_ref()).map(|blocker| {
            let identity = observed.context.protocol.identity();
            blocker.identify(observed.target.kind(), identity, observed.context.now())
        });
        tell(&observed, observers, blocker.as_ref());
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

impl Drop for LongWait {
    fn drop(&mut self) {
        // Busy, or the call ends by a panic: whatever happens, a wait that has begun ends once.
        self.not_acquired(None);
    }
}

//! The acquirer of a slot: the one thread of the process that asks Redis for the lock. And the one that holds it
//! already, and asks to become the writer.

use crate::base::option::LockOptions;
use crate::base::share::Share;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::hold::Hold;
use crate::engine::slot::entry::Demand;
use crate::engine::slot::wait_limit::WaitLimit;
use crate::engine::slot::waiter::EnterRequest;
use crate::protocol::wake_message::GrantMessage;

/// What ends the wait of an acquirer without a request.
#[derive(Debug)]
pub(crate) enum Received {
    Grant(ReceivedGrant),
    /// A thread of this process passed its lease on.
    Hold(Arc<Hold>),
}

/// A grant that a message reported.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedGrant {
    pub(crate) grant: GrantMessage,
    pub(crate) received: Moment,
}

/// The thread that asks Redis for the lock, or waits for a message.
#[derive(Debug)]
pub(super) struct Acquirer {
    /// Of its attempt.
    pub(super) number: u64,
    pub(super) share: Share,
    /// Whether it makes more than one attempt.
    pub(super) waits: bool,
    /// Whether Redis has replied that the lock is held.
    pub(super) held_elsewhere: bool,
    /// The holder that the last of these replies names.
    pub(super) blocker: Option<Blocker>,
    /// When it asked Redis, if no reply has come since.
    pub(super) asked_at: Option<Moment>,
    /// A grant for its attempt that it has not looked at yet.
    pub(super) grant: Option<ReceivedGrant>,
    /// What it asks for, while it stands in the queue of Redis for a lock that several may hold. Apart, so
    /// that a slot without a waiter is small.
    pub(super) queued: Option<Box<LockOptions>>,
    /// Whether Redis has replied since it last asked, and it goes on waiting: a lease may be passed on to it.
    pub(super) rests: bool,
    /// The lease of another thread that was passed on to this one while it waited.
    pub(super) passed: Option<Arc<Hold>>,
    /// Whether it should ask again at once.
    pub(super) retry_now: bool,
    pub(super) cancelled: bool,
    /// Whether a message reported the eviction of the attempt before its grant was known.
    pub(super) evicted: bool,
    pub(super) demand: Demand,
}

impl Acquirer {
    pub(super) fn new(request: &EnterRequest, asked_at: Option<Moment>) -> Acquirer {
        Acquirer {
            number: request.number,
            share: request.options.share,
            waits: request.wait_limit != WaitLimit::TryOnce,
            held_elsewhere: false,
            blocker: None,
            asked_at,
            grant: None,
            queued: None,
            rests: false,
            passed: None,
            retry_now: false,
            cancelled: false,
            evicted: false,
            demand: Demand::default(),
        }
    }

    /// Another thread goes on with the same attempt, and its place in the queue.
    pub(super) fn taken_over(self, is_fresh: bool) -> Acquirer {
        // What came in messages is about the attempt and stays: its number, a grant, the demand. What is
        // about the thread begins anew: `cancel_waits` ended the wait of the thread before it, not this one.
        // A reply that is not older than a heartbeat is as good as one to this thread.
        let held_elsewhere = is_fresh && self.held_elsewhere;
        let rests = is_fresh && self.passed.is_none();
        Acquirer { waits: true, held_elsewhere, rests, asked_at: None, cancelled: false, ..self }
    }

    /// Another attempt of the same thread.
    pub(super) fn restart(&mut self, number: u64) {
        // A grant that was received is for the value before, which is being removed from Redis.
        self.number = number;
        self.grant = None;
        self.evicted = false;
        self.queued = None;
        self.rests = false;
        self.demand = Demand::default();
    }

    /// Whether it waits for the reply to its first request. Until then it has no place that others must not
    /// overtake.
    pub(super) fn is_asking(&self) -> bool {
        !self.held_elsewhere && self.asked_at.is_some()
    }

    /// What a lease that is passed on to it must have been asked for. `None` unless it waits in the queue, and
    /// no reply or message is about to bring it another.
    pub(super) fn inherits(&self) -> Option<&LockOptions> {
        let is_free = self.rests && self.grant.is_none() && !self.cancelled;
        self.queued.as_deref().filter(|_| is_free)
    }

    /// Another thread passes its lease on to it.
    pub(super) fn inherit(&mut self, hold: Arc<Hold>) {
        self.passed = Some(hold);
        self.rests = false;
    }

    /// Takes the lease that was passed on to it. From now on it gets none until Redis has replied again: it is
    /// about to ask, or has another, or gives up, and nobody would have that lease.
    pub(super) fn take_passed(&mut self) -> Option<Arc<Hold>> {
        self.rests = false;
        self.passed.take()
    }

    /// Whether its thread waits: one that a lease was passed on to has what it waited for.
    pub(super) fn is_waiting(&self) -> bool {
        self.waits && self.passed.is_none()
    }

    /// Whether a reply that there is not enough left for it holds for this request too.
    pub(super) fn answers_for(&self, request: &EnterRequest) -> bool {
        // A single attempt for less may fit where this one does not. Not behind a waiter, which is not
        // overtaken.
        self.waits || self.share.weight() <= request.options.share.weight()
    }

    /// Whether there is no reason to end its pause.
    pub(super) fn is_quiet(&self) -> bool {
        !self.cancelled && !self.retry_now && self.grant.is_none() && self.passed.is_none()
    }
}

/// What ends the pause of a thread that holds the lock and waits to become the writer.
#[derive(Debug)]
pub(super) struct Upgrader {
    /// Tells it from an earlier one, whose hold was lost and whose thread has not noticed yet.
    pub(super) number: u64,
    pub(super) retry_now: bool,
    pub(super) cancelled: bool,
}

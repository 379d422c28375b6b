//! The acquirer of a slot: the one thread of the process that asks Redis for the lock.

use crate::base::time::Moment;
use crate::engine::blocker::Blocker;
use crate::engine::slot::holder::Demand;
use crate::engine::slot::wait_limit::WaitLimit;
use crate::engine::slot::waiter::EnterRequest;
use crate::protocol::wake_message::GrantMessage;

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
            waits: request.wait_limit != WaitLimit::TryOnce,
            held_elsewhere: false,
            blocker: None,
            asked_at,
            grant: None,
            retry_now: false,
            cancelled: false,
            evicted: false,
            demand: Demand::default(),
        }
    }

    /// Another thread goes on with the same attempt, and its place in the queue.
    pub(super) fn taken_over(self) -> Acquirer {
        // What came in messages is about the attempt and stays: its number, a grant, the demand. What is
        // about the thread begins anew. The reply that found a holder was not this thread's, and
        // `cancel_waits` ended the wait of the thread before it, not this one.
        Acquirer { waits: true, held_elsewhere: false, asked_at: None, cancelled: false, ..self }
    }

    /// Another attempt of the same thread.
    pub(super) fn restart(&mut self, number: u64) {
        // A grant that was received is for the value before, which is being removed from Redis.
        self.number = number;
        self.grant = None;
        self.evicted = false;
        self.demand = Demand::default();
    }

    /// Whether there is no reason to end its pause.
    pub(super) fn is_quiet(&self) -> bool {
        !self.cancelled && !self.retry_now && self.grant.is_none()
    }
}

//! What the slots of a client share.

use std::fmt;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::option::{LockOptions, RequestOptions, WaitKind};
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Ordering};
use crate::base::tag::hash_slot;
use crate::base::time::{Clock, Moment};
use crate::engine::callback::Callbacks;
use crate::engine::closing::{Closing, ClosingPhase};
use crate::engine::heartbeat::HEARTBEAT;
use crate::engine::listener::WakeListener;
use crate::engine::no_expiry_warnings::NoExpiryWarnings;
use crate::engine::signal::Signals;
use crate::engine::worker::Worker;
use crate::observe::Exchange;
use crate::observe::observers::Observers;
use crate::protocol::Protocol;
use crate::protocol::reply::AcquireOutcome;
use crate::protocol::target::Target;
use crate::protocol::wake_message::WakeMessage;
use crate::wire::failure::Failure;

/// The bounds that hold for all locks of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How long the reply to a request may take.
    pub(crate) reply: Duration,
    /// How long one exchange may take: the wait for a connection, and the reply.
    pub(crate) exchange: Duration,
    /// How long a wait rides out an outage.
    pub(crate) give_up_after: Duration,
    /// From when on a wait is logged, if ever.
    pub(crate) slow_wait: Option<Duration>,
}

/// What a slot needs of its client, which lives for as long as any slot does.
pub(crate) struct Context {
    pub(crate) protocol: Arc<dyn Protocol>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) bounds: Bounds,
    pub(crate) worker: Worker,
    pub(crate) listener: WakeListener,
    pub(crate) no_expiry_warnings: NoExpiryWarnings,
    /// Whether the user has a callback for release requests.
    wants_release_requests: bool,
    pub(crate) observers: Observers,
    pub(crate) closing: Closing,
    /// Where those wait who observe a lock.
    pub(crate) signals: Signals,
    /// Until when the server counts as silent, because a release waited in vain; in nanoseconds.
    silent_until: AtomicU64,
    /// Whether no client and no lock is left by which a thread could take a lease again.
    pub(super) is_left: AtomicBool,
}

impl Context {
    /// `on_wake` receives the messages for the slots.
    pub(super) fn new(
        protocol: Arc<dyn Protocol>,
        clock: Arc<dyn Clock>,
        bounds: Bounds,
        callbacks: Callbacks,
        on_wake: impl Fn(WakeMessage) + Send + Sync + 'static,
    ) -> Context {
        let wants_release_requests = callbacks.on_release_request.is_some();
        let observers = callbacks.observers.clone();
        // The worker is given the time-out of a reply and not that of an exchange: it has a connection of
        // its own, so it never waits for a free one.
        let worker =
            Worker::new(Arc::clone(&protocol), Arc::clone(&clock), bounds.reply, callbacks);
        let listener = WakeListener::new(Arc::clone(&protocol), Arc::clone(&clock), on_wake);
        Context {
            protocol,
            clock,
            bounds,
            worker,
            listener,
            no_expiry_warnings: NoExpiryWarnings::default(),
            wants_release_requests,
            observers,
            closing: Closing::new(),
            signals: Signals::default(),
            silent_until: AtomicU64::new(0),
            is_left: AtomicBool::new(false),
        }
    }

    /// Asks Redis within one exchange that begins now.
    pub(crate) fn ask<T: Outcome>(&self, ask: impl FnOnce(&dyn Protocol, Moment) -> T) -> T {
        let deadline = self.exchange_deadline();
        self.exchange(|it| ask(it, deadline))
    }

    /// Asks Redis by a request with a deadline of its own, and tells observers how long that took and whether it failed.
    pub(crate) fn exchange<T: Outcome>(&self, ask: impl FnOnce(&dyn Protocol) -> T) -> T {
        let Some(observers) = self.observers.active() else {
            return self.note_reply(ask(&*self.protocol));
        };
        let begin = self.now();
        let outcome = self.note_reply(ask(&*self.protocol));
        observers.tell_exchange(outcome.event(self.now().since(begin)));
        outcome
    }

    /// Notes that the server is not silent, if this outcome says so.
    fn note_reply<T: Outcome>(&self, outcome: T) -> T {
        // Each exchange runs this, so the usual path is one plain load.
        if self.silent_until.load(Ordering::Relaxed) > 0
            && outcome.failure().is_none_or(|failure| matches!(failure, Failure::Refused(_)))
        {
            self.silent_until.store(0, Ordering::Relaxed);
        }
        outcome
    }

    /// Notes that a release has waited in vain. For about as long again, a release whose outcome nobody reads does not
    /// wait.
    pub(super) fn note_silence(&self) {
        self.silent_until.store(self.exchange_deadline().as_nanos(), Ordering::Relaxed);
    }

    /// Whether a release has lately waited in vain, and no reply has come since.
    pub(super) fn is_silent(&self) -> bool {
        let until = self.silent_until.load(Ordering::Relaxed);
        until > 0 && self.now() < Moment::from_nanos(until)
    }

    /// Whether nobody gets a lock any more.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.phase() != ClosingPhase::Open
    }

    /// Starts to listen if a holder with these options must learn of waiters elsewhere from the start.
    pub(crate) fn listen_for(&self, options: &LockOptions) {
        // A request to let go comes as a message, and a waiter elsewhere ends a linger by one (rule 18).
        // Other holders do not need the connection, and a client without waiters has none.
        if self.wants_release_requests || !options.linger.is_zero() {
            self.listen_for_waiters(options.wait_kind());
        }
    }

    /// Starts to listen, if waiters that wait like this send messages.
    pub(crate) fn listen_for_waiters(&self, wait: WaitKind) {
        // The flag is looked at first: this runs after each grant, and `start` takes the lock of the
        // listener.
        if wait == WaitKind::Queue && !self.listener.is_live() {
            self.listener.start();
        }
    }

    /// The same for a hold of this lock, whose client may wait for none.
    pub(crate) fn listen_for_waiters_of(&self, target: &Target, wait: WaitKind) {
        if wait == WaitKind::Queue && !self.listener.is_live() {
            self.listener.start_at(hash_slot(target.key()));
        }
    }

    /// The lease that a hand-over writes for a waiter of ours, which has yet to learn of it (rules 7, 8).
    pub(crate) fn claim_window(&self, options: &RequestOptions) -> Duration {
        // A grant whose message is lost reaches the waiter as the reply to a heartbeat. The window
        // outlasts a heartbeat that fails and the whole time-out of the next one; a shorter one could end
        // before the waiter knows that it is the owner. The validity is shorter by the most that the servers' clocks
        // may differ, so the window is longer by as much.
        HEARTBEAT * 2 + self.bounds.reply + options.clock_skew(options.lease.ttl())
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Calls `wait` with the time to wait, at most until a moment. It may return earlier.
    pub(crate) fn wait_until(&self, until: Moment, wait: &mut dyn FnMut(Duration)) {
        self.clock.wait_until(until, wait);
    }

    /// The deadline of an exchange that begins now.
    pub(crate) fn exchange_deadline(&self) -> Moment {
        self.now().after(self.bounds.exchange)
    }
}

/// The outcome of an exchange with Redis.
pub(crate) trait Outcome {
    /// Why it failed, if it did; of several requests why the first one did.
    fn failure(&self) -> Option<&Failure>;

    /// The event for observers.
    fn event(&self, took: Duration) -> Exchange {
        let kind = |failure: &Failure| Error::from(failure.clone()).kind();
        Exchange { took, outcome: self.failure().map_or(Ok(()), |failure| Err(kind(failure))) }
    }
}

impl<T> Outcome for Result<T, Failure> {
    fn failure(&self) -> Option<&Failure> {
        self.as_ref().err()
    }
}

impl Outcome for AcquireOutcome {
    fn failure(&self) -> Option<&Failure> {
        self.outcome.failure()
    }
}

impl<T: Outcome> Outcome for Vec<T> {
    fn failure(&self) -> Option<&Failure> {
        self.iter().find_map(Outcome::failure)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

//! How a thread whose turn it is gets the lease from Redis.
//!
//! One attempt has one owner's value. A request that brought no answer is repeated under the same
//! value, which Redis recognises; what may remain of it when the thread gives up is left to the
//! worker to clean up.

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::option::{LockOptions, WaitKind};
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::Engine;
use crate::engine::backoff::Backoff;
use crate::engine::lease::{Grant, LiveLease, validity};
use crate::engine::slot::{Patience, Slot, Turn};
use crate::engine::worker::GiveBack;
use crate::protocol::Answer;
use crate::wire::failure::Failure;

/// Waits for the lock and takes it; `None` if somebody else has it for longer than the caller
/// waits.
pub(crate) fn acquire(
    slot: &Arc<Slot>,
    options: &LockOptions,
    patience: Patience,
) -> Result<Option<Arc<LiveLease>>> {
    acquire_inner(slot, options, patience).map_err(|error| error.of(slot.target().name()))
}

fn acquire_inner(
    slot: &Arc<Slot>,
    options: &LockOptions,
    patience: Patience,
) -> Result<Option<Arc<LiveLease>>> {
    match slot.enter(patience) {
        Turn::Delegate => Delegate::new(slot, options, patience).run(),
        Turn::Busy => Ok(None),
        Turn::Cancelled => Err(called_off()),
    }
}

fn called_off() -> Error {
    Error::cancelled("the wait was called off")
}

/// What the delegate does after an exchange.
enum Next {
    Held(Arc<LiveLease>),
    /// Try again, after a pause of at most this.
    Again(Duration),
    GiveUp(Result<()>),
}

/// The thread that talks to Redis for a slot.
struct Delegate<'a> {
    slot: &'a Arc<Slot>,
    engine: &'a Engine,
    options: &'a LockOptions,
    patience: Patience,
    backoff: Backoff,
    owner: Vec<u8>,
    /// When the last request without an answer is surely dead.
    settled: Moment,
    /// Since when Redis gives no useful answer.
    outage: Option<Moment>,
    cancellations: u64,
    granted: bool,
}

impl<'a> Delegate<'a> {
    fn new(slot: &'a Arc<Slot>, options: &'a LockOptions, patience: Patience) -> Delegate<'a> {
        let identity = slot.engine().protocol().identity();
        Delegate {
            slot,
            engine: slot.engine(),
            options,
            patience,
            backoff: Backoff::new(),
            owner: slot.target().kind().owner(identity, identity.next_attempt()),
            settled: Moment::PAST,
            outage: None,
            cancellations: slot.cancellations(),
            granted: false,
        }
    }

    fn run(mut self) -> Result<Option<Arc<LiveLease>>> {
        loop {
            match self.attempt() {
                Next::Held(lease) => {
                    self.granted = true;
                    self.slot.granted();
                    self.engine.worker().watch(&lease);
                    return Ok(Some(lease));
                }
                Next::Again(pause) => {
                    if self.slot.pause(pause, &mut self.cancellations) {
                        return Err(called_off());
                    }
                }
                Next::GiveUp(outcome) => return outcome.map(|()| None),
            }
        }
    }

    fn attempt(&mut self) -> Next {
        let now = self.engine.now();
        let deadline = now.after(self.engine.bounds().exchange).min(match self.patience {
            // Whoever waits gets one attempt, however late its turn came.
            Patience::Until(deadline) if deadline > now => deadline,
            _ => Moment::FAR,
        });
        let ttl = self.options.lease_option().ttl();
        let protocol = self.engine.protocol();
        match protocol.acquire(self.slot.target(), &self.owner, ttl, deadline) {
            Ok(Answer::Granted { token, ttl, sent }) => self.take(token, ttl, sent),
            Ok(Answer::Busy { ttl }) => self.wait_for_holder(ttl),
            Ok(Answer::Late) => self.ride_out(Error::unreachable(
                "the request reached Redis after its deadline and was not carried out",
            )),
            Err(failure) => self.recover(failure, deadline),
        }
    }

    fn take(&mut self, token: u64, ttl: Duration, sent: Moment) -> Next {
        let owner = std::mem::take(&mut self.owner);
        let now = self.engine.now();
        if validity(sent, ttl) <= now {
            // It took longer to be told than the lease lasts.
            self.give_back(owner, self.settled.max(now));
            return Next::GiveUp(Err(Error::timeout(format!(
                "the grant came {:?} after it was asked for, when its lease of {ttl:?} was over; \
                 a longer lease is needed",
                now.since(sent)
            ))));
        }
        let grant = Grant { owner, token, ttl, sent, settled: self.settled };
        Next::Held(LiveLease::new(Arc::clone(self.slot), grant, *self.options))
    }

    fn wait_for_holder(&mut self, ttl: Option<Duration>) -> Next {
        self.outage = None;
        self.slot.told_busy();
        match self.left() {
            None => Next::GiveUp(Ok(())),
            Some(left) => {
                let ttl = ttl.map_or(Duration::MAX, |ttl| ttl.max(Duration::from_millis(1)));
                let pause = match self.options.wait_option().kind() {
                    WaitKind::Spin => self.backoff.next(),
                };
                Next::Again(pause.min(ttl).min(left))
            }
        }
    }

    fn recover(&mut self, failure: Failure, deadline: Moment) -> Next {
        if failure.is_unknown() {
            self.settled = self.settled.max(deadline);
        }
        if !failure.is_passing() {
            return Next::GiveUp(Err(failure.into()));
        }
        // A pooled connection may have died unnoticed: that is no outage yet.
        if failure.is_disconnect() && self.outage.is_none() {
            self.outage = Some(self.engine.now());
            return Next::Again(Duration::ZERO);
        }
        self.ride_out(failure.into())
    }

    /// Goes on in spite of an error, for as long as the caller waits and an outage is ridden out.
    fn ride_out(&mut self, error: Error) -> Next {
        let now = self.engine.now();
        let since = *self.outage.get_or_insert(now);
        let give_up = since.after(self.engine.bounds().give_up_after);
        match self.left() {
            Some(left) if now < give_up => {
                Next::Again(self.backoff.next().min(left).min(give_up.since(now)))
            }
            _ => Next::GiveUp(Err(error)),
        }
    }

    fn give_back(&self, owner: Vec<u8>, settled: Moment) {
        self.engine.worker().give_back(GiveBack {
            target: Arc::clone(self.slot.target()),
            owner,
            settled,
            ttl: self.options.lease_option().ttl(),
        });
    }

    /// How long the caller goes on waiting, if at all.
    fn left(&self) -> Option<Duration> {
        match self.patience {
            Patience::Once => None,
            Patience::Until(Moment::FAR) => Some(Duration::MAX),
            Patience::Until(deadline) => {
                Some(deadline.since(self.engine.now())).filter(|left| !left.is_zero())
            }
        }
    }
}

impl Drop for Delegate<'_> {
    fn drop(&mut self) {
        if self.granted {
            return;
        }
        let now = self.engine.now();
        if self.settled > now && !self.owner.is_empty() {
            let owner = std::mem::take(&mut self.owner);
            self.give_back(owner, self.settled);
        }
        self.slot.vacate();
    }
}

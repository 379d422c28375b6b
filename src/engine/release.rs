//! How a lease is given back, and what is owed when one is lost.

use crate::base::error::{Error, Result};
use crate::base::loss::{Loss, LossCause};
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::callback::{LossHook, LossHooks, Notification};
use crate::engine::holding::Holding;
use crate::engine::ownership::loss_cause;
use crate::engine::slot::{ListenerCount, Unlocked};
use crate::engine::worker::RenewableSlot;
use crate::protocol::reply::Ownership;
use crate::wire::failure::Failure;

impl Holding {
    /// Gives a lease back in one bounded attempt. What could not be done is left to the worker.
    pub(crate) fn release(&self) -> Result<()> {
        let outcome = self.release_inner().map_err(|error| error.of(self.name()));
        self.lease.forget_hooks();
        outcome
    }

    fn release_inner(&self) -> Result<()> {
        self.check_expiry();
        // Validity is over before the request is sent (rule 15).
        let Some(valid_until) = self.lease.begin_release() else {
            self.slot.release_remainder(&self.lease);
            return Err(self.not_live_error());
        };
        match self.slot.unlock(&self.lease) {
            Unlocked::ToThread | Unlocked::Lingering => {
                self.lease.end();
                Ok(())
            }
            Unlocked::Releasing => {
                let mut listener_count = None;
                let outcome = self.ask(valid_until, &mut listener_count);
                self.slot.released(&self.lease, listener_count);
                outcome
            }
        }
    }

    /// Notes in `listener_count` how many heard the release, if Redis has said so.
    fn ask(&self, valid_until: Moment, listener_count: &mut Option<ListenerCount>) -> Result<()> {
        let context = self.context();
        let deadline = context.exchange_deadline();
        // Asked before the release is heard: who waits here meanwhile may begin to listen.
        let channel = self.slot.target().channel();
        let listens = channel.is_some_and(|channel| context.listener.is_subscribed(channel));
        let (mut sent, mut unanswered) = (context.now(), false);
        // A connection that was silent may have been idle for as long as the lock was held. To give a lock
        // back twice does no harm, so where that leaves time it is done on another.
        let is_worth_it = |failure: &Failure| {
            failure.is_disconnect() || failure.is_unknown() && context.now() < deadline
        };
        let reply = Failure::retry_while(is_worth_it, || {
            sent = context.now();
            let reply = self.slot.send_release(&self.lease, deadline);
            unanswered |= reply.as_ref().is_err_and(Failure::is_unknown);
            reply
        });
        // A request for this attempt may have run after the release did, however late that was
        // answered, or be on its way still, and must find no lock (rule 6).
        let behind = self.lease.terms.settled > sent;
        if reply.is_ok() && (behind || context.protocol.may_still_own(&self.lease.terms.owner)) {
            self.slot.release_in_background(&self.lease);
        }
        let round_trip = context.now().since(sent);
        let ownership = reply.map(|released| {
            if released.ownership == Ownership::Owned {
                *listener_count =
                    Some(ListenerCount { listeners: released.listeners, listens, round_trip });
            }
            released.ownership
        });
        if let Ok(ownership @ (Ownership::Gone | Ownership::Taken)) = ownership
            && !unanswered
        {
            let loss = self.lease.lose_in_release(loss_cause(ownership));
            let error = Error::lost(&loss);
            self.slot.report_loss(&self.lease, loss);
            return Err(error);
        }
        self.lease.end();
        match ownership {
            Ok(Ownership::Owned) => Ok(()),
            // The first request may have been the one that did it (rule 15).
            Ok(_) if context.now() < valid_until => Ok(()),
            Ok(_) => Err(Error::unknown_outcome(
                "the first release request had no reply, and by now another holder may have the lock",
            )),
            Err(failure) => {
                self.slot.release_in_background(&self.lease);
                Err(Error::from(failure).with_consequence("the release goes on in the background"))
            }
        }
    }

    /// Leaves a lease that is no longer in use to the worker to give back.
    pub(crate) fn release_in_background(&self) {
        if let Some(loss) = self.lease.expire(self.now()) {
            // Not logged: the thread may be at its end, where many a logger panics.
            Arc::clone(&self.slot).lost(&self.lease, loss);
        }
        if self.lease.begin_release().is_none() {
            self.slot.release_remainder(&self.lease);
            return;
        }
        self.lease.end();
        self.slot.release_in_background(&self.lease);
        self.slot.remove(&self.lease);
        self.lease.forget_hooks();
    }

    /// Takes a lock from its holder, as the client is shut down: renewals stop first, then it is given back.
    pub(super) fn shut_down(&self) {
        if let Some(loss) = self.lease.lose(LossCause::ShutDown, self.now()) {
            self.slot.release_in_background(&self.lease);
            self.lost(loss);
        }
    }

    /// Calls this when a lease is lost. If it is lost already, it is called all the same, and on a thread
    /// of its own too.
    pub(crate) fn on_loss(&self, hook: LossHook) {
        self.check_expiry();
        if let Some((loss, hook)) = self.lease.on_loss(hook) {
            let news = Notification::LostBefore(loss, Arc::new(LossHooks::of(hook)));
            self.context().worker.notify(news);
        }
    }

    /// Why it was lost, if it was.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.check_expiry();
        self.lease.loss()
    }

    /// Does what is owed when a lease was found lost.
    pub(super) fn lost(&self, loss: Loss) {
        let shown = loss.to_string();
        Arc::clone(&self.slot).lost(&self.lease, loss);
        // Last of all: a logger that panics must not keep the lock from anybody.
        log!(warn, "{shown}");
    }

    /// Ends a lease as lost if its validity is over and nobody has noticed yet.
    fn check_expiry(&self) {
        if let Some(loss) = self.lease.expire(self.now()) {
            self.lost(loss);
        }
    }

    /// Whether a lease may still be relied on. One whose validity is over ends as lost.
    pub(crate) fn check_valid(&self) -> Result<()> {
        if self.lease.is_valid_at(self.now()) {
            return Ok(());
        }
        self.check_expiry();
        // A renewal may have been confirmed meanwhile.
        if self.lease.is_live() { Ok(()) } else { Err(self.not_live_error()) }
    }

    /// The error for a lease that is not live any longer.
    pub(crate) fn not_live_error(&self) -> Error {
        match self.lease.loss() {
            Some(loss) => Error::lost(&loss),
            None => Error::not_held("released already"),
        }
    }
}

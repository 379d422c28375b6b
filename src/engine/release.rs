//! The release of a holding, and what follows when its lease is lost.

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::loss::{Loss, LossCause};
use crate::base::sync::Arc;
use crate::base::text::Span;
use crate::base::time::Moment;
use crate::engine::callback::{LossHook, LossHooks, Notification};
use crate::engine::holding::Holding;
use crate::engine::ownership::{loss_cause, released_or_taken};
use crate::engine::slot::{ListenerCount, Unlocked};
use crate::observe::Released as ReleasedEvent;
use crate::observe::observers::CallUnderWay;
use crate::protocol::reply::{Ownership, Released};
use crate::wire::failure::Failure;

/// The most requests of one pipeline, all of which have one time-out.
pub(crate) const MOST_AT_ONCE: usize = 1_000;

/// A release that has begun here and is to be sent. Its slot is releasing until this is dropped.
struct BegunRelease<'a> {
    holding: &'a Holding,
    /// Whether this client listens for releases of the lock.
    listens: bool,
    sent: Moment,
    is_finished: bool,
}

impl Drop for BegunRelease<'_> {
    fn drop(&mut self) {
        // A panic in between, say of a logger, must not leave the slot releasing for ever.
        if !self.is_finished {
            self.holding.hand_to_worker();
        }
    }
}

impl BegunRelease<'_> {
    /// Sends it, unless there is a `first` reply to it.
    fn finish(mut self, first: Option<Result<Released, Failure>>) -> Result<()> {
        let Holding { slot, hold } = self.holding;
        let mut listener_count = None;
        let outcome = self.holding.ask(&self, first, &mut listener_count);
        self.is_finished = true;
        slot.released(&hold.lease, listener_count);
        outcome
    }
}

/// Releases these leases of one client, all at once. Returns the outcome of each.
pub(crate) fn release_all(holdings: &[Holding]) -> Vec<Result<()>> {
    let under_way = holdings.first().and_then(Holding::begin_call);
    let begun: Vec<_> = holdings.iter().map(Holding::begin_release).collect();
    let is_sent = |begun: &Result<Option<BegunRelease<'_>>>| matches!(begun, Ok(Some(_)));
    let mut replies: Vec<Result<Released, Failure>> = Vec::new();
    // One goes alone, among the commands of other threads.
    if begun.iter().filter(|begun| is_sent(begun)).count() > 1 {
        let leases = holdings.iter().zip(&begun).filter(|(_, begun)| is_sent(begun));
        let requests: Vec<_> = leases
            .map(|(it, _)| (&**it.slot.target(), it.slot.release_request(&it.hold.lease)))
            .collect();
        let context = holdings[0].context();
        for chunk in requests.chunks(MOST_AT_ONCE) {
            let sent = context.ask(|it, deadline| it.release_all(chunk, deadline));
            replies.extend(sent.into_iter().map(released_or_taken));
        }
    }
    let mut replies = replies.into_iter();
    let finish = |(holding, begun): (&Holding, Result<Option<BegunRelease<'_>>>)| {
        let outcome = match begun {
            Ok(Some(begun)) => begun.finish(replies.next()),
            outcome => outcome.map(drop),
        };
        outcome.map_err(|error| error.of(holding.name()))
    };
    let outcomes: Vec<_> = holdings.iter().zip(begun).map(finish).collect();
    // When all slots are free: callbacks and observers may ask for any of these locks.
    drop(under_way);
    holdings.iter().zip(&outcomes).for_each(|(holding, outcome)| holding.ended(outcome));
    outcomes
}

impl Holding {
    /// Releases the lease within one bounded exchange. The worker goes on with what is not done then.
    pub(crate) fn release(&self) -> Result<()> {
        let under_way = self.begin_call();
        let outcome = self.release_inner().map_err(|error| error.of(self.name()));
        drop(under_way);
        self.ended(&outcome);
        outcome
    }

    /// The same for a guard that is dropped. After one that has waited in vain, the next ones go to the worker at once
    /// while the server is silent: a thread that drops twenty guards would wait for twenty time-outs.
    pub(crate) fn release_dropped(&self) -> Result<()> {
        if self.context().is_silent() {
            self.release_in_background();
            return Ok(());
        }
        let begin = self.now();
        let outcome = self.release();
        let has_no_reply = |error: &Error| error.is_unknown_outcome() || error.is_unreachable();
        // A connection that is refused costs no time, and the server may be back at any moment.
        if outcome.as_ref().is_err_and(has_no_reply)
            && self.now().since(begin) >= self.context().bounds.reply / 2
        {
            self.context().note_silence();
        }
        outcome
    }

    /// Keeps observers from being told of the exchanges of a call in its midst.
    pub(crate) fn begin_call(&self) -> Option<CallUnderWay> {
        self.context().observers.active().map(|_| CallUnderWay::begin())
    }

    /// Tells observers of the end of a hold that was released, and drops its callbacks. Nothing is locked, and the slot
    /// is free.
    fn ended(&self, outcome: &Result<()>) {
        if !self.hold.forget_hooks() {
            return;
        }
        if let (Some(observers), Some(hold)) =
            (self.context().observers.of_an_end(), self.hold.take_number())
        {
            let event = ReleasedEvent {
                hold,
                name: self.name().as_bytes(),
                kind: self.slot.target().kind().name(),
                token: self.hold.token(),
                held: self.now().since(self.hold.began()),
                error: outcome.as_ref().err(),
            };
            observers.tell(|observer| observer.released(&event));
        }
    }

    fn release_inner(&self) -> Result<()> {
        self.begin_release()?.map_or(Ok(()), |begun| begun.finish(None))
    }

    /// Ends the hold here. Returns nothing if nothing is to be sent.
    fn begin_release(&self) -> Result<Option<BegunRelease<'_>>> {
        // A lease that ran out is reported as lost, also if Redis would still accept the release.
        self.check_expiry();
        // The validity is over before the request is sent, or another could have the lock while this
        // guard is valid (rule 15).
        if !self.hold.begin_release() {
            // Lost while it was held. Its thread is done with it now, so what Redis still has of it may
            // go.
            self.slot.release_remainder(&self.hold);
            return Err(self.not_live_error());
        }
        if self.slot.leave_entry(&self.hold) {
            self.hold.end();
            return Ok(None);
        }
        // The user wants Redis to keep the lock for longer. So no thread gets the lease, and the release is
        // later and in the background.
        if self.hold.lease.is_kept(self.now()) {
            self.hand_to_worker();
            return Ok(None);
        }
        if self.slot.unlock(&self.hold) != Unlocked::Releasing {
            // Nothing is sent: Redis has the same owner as before.
            self.hold.end();
            return Ok(None);
        }
        // The slot stays releasing during the exchange, and its threads wait: asked meanwhile, Redis would
        // reply that this process has the lock.
        let (context, channel) = (self.context(), self.slot.target().channel());
        // Before the release is sent: a waiter of this process may subscribe meanwhile, and the count of
        // `PUBLISH` does not include that.
        let listens = channel.is_some_and(|channel| context.listener.is_subscribed(channel));
        let sent = context.now();
        Ok(Some(BegunRelease { holding: self, listens, sent, is_finished: false }))
    }

    /// Sends the release, and notes in `listener_count` how many clients received it, if Redis has
    /// replied.
    fn ask(
        &self,
        begun: &BegunRelease<'_>,
        mut first: Option<Result<Released, Failure>>,
        listener_count: &mut Option<ListenerCount>,
    ) -> Result<()> {
        let context = self.context();
        let BegunRelease { listens, mut sent, .. } = *begun;
        let deadline = sent.after(context.bounds.exchange);
        let mut unanswered = false;
        // A connection that was idle while the lock was held may have died without a sign. A second
        // release does no harm, so it is sent on another connection if there is time.
        let is_worth_it = |failure: &Failure| {
            failure.is_disconnect() || failure.is_unknown() && context.now() < deadline
        };

        let reply = Failure::retry_while(is_worth_it, || {
            let reply = first.take().unwrap_or_else(|| {
                sent = context.now();
                self.slot.send_release(&self.hold.lease, deadline)
            });
            // Kept over both requests: the first may have released the lock before the second finds it
            // gone.
            unanswered |= reply.as_ref().is_err_and(Failure::is_unknown);
            reply
        });
        // An unanswered request of this attempt may still run after the release, and acquire the lock
        // again. The worker releases once more when none can run any more (rule 6).
        let behind = self.hold.lease.value.settled() > sent;
        if reply.is_ok() && (behind || context.protocol.may_still_own(&self.hold.lease.value.bytes))
        {
            self.slot.release_in_background(&self.hold.lease);
        }

        let round_trip = context.now().since(sent);
        let ownership = reply.map(|released| {
            // Any other reply carries no count: nothing was published.
            if released.ownership == Ownership::Owned {
                let target = self.slot.target();
                *listener_count = Some(ListenerCount {
                    listeners: released.listeners,
                    listens,
                    hears_own: target.kind().hears_own_releases(),
                    hears_all: target.hears_every_release(),
                    round_trip,
                });
            }
            self.hold.lease.ownership(released.ownership, released.fence)
        });

        if let Ok(ownership @ (Ownership::Gone | Ownership::Taken)) = ownership {
            if unanswered {
                self.hold.end();
                return Err(self.hold.perhaps_lost_error(loss_cause(ownership)));
            }
            // The only request had a reply, so nobody but another can have ended the lease. Not by
            // `lost`, which would free the slot: the caller does that.
            let cause = self.hold.lease.cause_of(loss_cause(ownership), sent);
            let loss = self.hold.lose_in_release(cause);
            let error = Error::lost(&loss);
            self.slot.report_loss(&self.hold, loss);
            return Err(error);
        }

        self.hold.end();
        match ownership {
            Ok(_) => Ok(()),
            Err(failure) => {
                self.slot.release_in_background(&self.hold.lease);
                Err(Error::from(failure).with_consequence("the release goes on in the background"))
            }
        }
    }

    /// Makes the worker release a lease that is not in use any more.
    pub(crate) fn release_in_background(&self) {
        // No loss is logged here: the thread may be at its end, where many loggers panic.
        drop(self.end_if_over());
        if !self.hold.begin_release() {
            self.slot.release_remainder(&self.hold);
            return;
        }
        self.hand_to_worker();
        // Last, when nothing is locked.
        self.ended(&Ok(()));
    }

    /// Ends a release that has begun, and leaves it to the worker, which waits until the lock need not be kept.
    ///
    /// The owner's value is recorded with the worker before the slot is free, so that `close`, which looks in
    /// between, finds the one or the other.
    fn hand_to_worker(&self) {
        self.hold.end();
        if !self.slot.leave_entry(&self.hold) {
            self.slot.release_in_background(&self.hold.lease);
            self.slot.remove(&self.hold.lease);
        }
    }

    /// Takes a lock from its holder because the client is shut down. Renewals stop before the release, or
    /// a renewal could follow it.
    /// Returns the loss, which the caller logs when it need not hurry any more.
    pub(super) fn shut_down(&self) -> Option<Loss> {
        let loss = self.hold.lose(LossCause::ShutDown, self.now())?;
        if !self.slot.leave_entry(&self.hold) {
            // Before `lost` frees the slot, for the same reason as above.
            self.slot.release_in_background(&self.hold.lease);
        }
        let others =
            self.slot.end_holds(&self.hold.lease, Some((Arc::clone(&self.hold), loss.clone())));
        debug_assert!(others.is_empty(), "a hold is lost by the end of another");
        Some(loss)
    }

    /// Adds a callback for a loss. If the lease is lost already, the callback is called too, also on a
    /// thread of its own.
    pub(crate) fn on_loss(&self, hook: LossHook) {
        self.check_expiry();
        if let Some((loss, hook)) = self.hold.on_loss(hook) {
            let news = Notification::LostBefore(loss, Arc::new(LossHooks::of(hook)));
            self.context().worker.notify(news);
        }
    }

    /// Why it was lost, if it was.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.check_expiry();
        self.hold.loss()
    }

    /// Ends the hold as lost if its validity is over and nobody has noticed that yet, with the others for which that is
    /// so. Returns their losses.
    fn end_if_over(&self) -> Vec<Loss> {
        // Looked at without a lock: this is on the path of each release.
        let now = self.now();
        if self.hold.is_valid_at(now) {
            return Vec::new();
        }
        let Some(loss) = self.hold.expire(now) else { return Vec::new() };
        let found = (Arc::clone(&self.hold), loss.clone());
        let others = self.slot.end_holds(&self.hold.lease, Some(found));
        std::iter::once(loss).chain(others).collect()
    }

    fn check_expiry(&self) {
        log_losses(&self.end_if_over());
    }

    /// Redis has replied that the owner does not have the lock: all holds of its lease are lost.
    pub(super) fn lose_all(&self, cause: LossCause) {
        if self.hold.lease.lose(cause, self.now()) {
            log_losses(&self.slot.end_holds(&self.hold.lease, None));
        }
        // The slot need not know the hold any more.
        self.check_expiry();
    }

    /// Checks that the holder may still rely on the lease. A lease whose validity is over ends as lost.
    pub(crate) fn check_valid(&self) -> Result<()> {
        // Each reentry and each inner release comes here: one reading of the clock, and no lock.
        if self.hold.is_valid_at(self.now()) {
            return Ok(());
        }
        self.check_expiry();
        if !self.hold.is_live() {
            return Err(self.not_live_error());
        }
        // Looked at again, because a renewal may have been confirmed after the first look.
        match self.silence() {
            None => Ok(()),
            Some(span) => Err(Error::unreachable(format!(
                "its lease ended {} ago, and Redis has not confirmed it since; nobody else is known to have it, and \
                 it may come back",
                Span(span)
            ))),
        }
    }

    /// For how long its validity has been over, if a reply may make it valid once more.
    fn silence(&self) -> Option<Duration> {
        let now = self.now();
        // One that `max_hold` has ended meanwhile does not come back.
        let is_silent = now < self.hold.lost_at() && self.hold.lease.is_silent(now);
        is_silent.then(|| now.since(self.hold.lease.valid_until()))
    }

    /// Checks that the lease is valid, or that a reply may make it so.
    pub(super) fn check_live(&self) -> Result<()> {
        self.check_expiry();
        if self.hold.is_live() { Ok(()) } else { Err(self.not_live_error()) }
    }

    /// The same as [`check_valid`](Self::check_valid), but asks Redis about a lease that is over and may come back.
    pub(crate) fn make_valid(&self) -> Result<()> {
        // Asked even if a renewal was confirmed after that look.
        self.check_valid().or_else(|_| self.come_back())
    }

    /// The error for a lease that is not live any longer.
    pub(crate) fn not_live_error(&self) -> Error {
        match self.hold.loss() {
            Some(loss) => Error::lost(&loss),
            None => Error::not_held("released already"),
        }
    }
}

/// Logs losses that a thread has found. Last of all: a logger that is slow or panics must not keep the slot from the next
/// thread.
fn log_losses(losses: &[Loss]) {
    losses.iter().for_each(|loss| log!(warn, "{loss}"));
}

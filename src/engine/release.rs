//! How a lease is given back, and what is owed when one is lost.

use crate::base::error::{Error, Result};
use crate::base::loss::{Loss, LossCause};
use crate::base::sync::Arc;
use crate::base::time::{Moment, drift_allowance};
use crate::engine::callback::{Hooks, LossHook, News};
use crate::engine::lease::LiveLease;
use crate::engine::slot::PassedOn;
use crate::engine::worker::GiveBack;
use crate::protocol::answer::{Released, Verdict};
use crate::protocol::request::Return;
use crate::wire::failure::Failure;

/// Gives a lease back in one bounded attempt. What could not be done is left to the worker.
pub(crate) fn release(lease: &Arc<LiveLease>) -> Result<()> {
    let outcome = release_inner(lease).map_err(|error| error.of(lease.slot().target().name()));
    lease.forget_hooks();
    outcome
}

fn release_inner(lease: &Arc<LiveLease>) -> Result<()> {
    check_expiry(lease);
    // Validity is over before the request is sent (rule 15).
    let Some(valid_until) = lease.begin_release() else {
        give_back_rest(lease);
        return Err(gone(lease));
    };
    match lease.slot().pass_on(lease) {
        PassedOn::ToThread | PassedOn::Lingering => {
            lease.end();
            Ok(())
        }
        PassedOn::No => {
            let outcome = ask(lease, valid_until);
            lease.slot().vacate(None);
            outcome
        }
    }
}

fn ask(lease: &Arc<LiveLease>, valid_until: Moment) -> Result<()> {
    let engine = lease.slot().engine();
    let deadline = engine.exchange_deadline();
    // Asked before the release is heard: who waits here meanwhile may begin to listen.
    let channel = lease.slot().target().channel();
    let listens = channel.is_some_and(|channel| engine.hub().hears(channel));
    let (mut sent, mut unanswered) = (engine.now(), false);
    // A connection that was silent may have been idle for as long as the lock was held. To give a lock back
    // twice does no harm, so where that leaves time it is done on another.
    let is_worth_it = |failure: &Failure| {
        let silent = failure.is_unknown() && !mutated!("silent-request-not-repeated");
        failure.is_disconnect() || silent && engine.now() < deadline
    };
    let answer = Failure::repeating_while(is_worth_it, || {
        sent = engine.now();
        let answer = exchange(lease, deadline);
        unanswered |= answer.as_ref().is_err_and(Failure::is_unknown);
        answer
    });
    // A request for this attempt may have run after the release did, however late that was
    // answered, or be on its way still, and must find no lock (rule 6).
    let behind = lease.settled() > sent && !mutated!("no-reconciliation-after-release");
    if answer.is_ok() && (behind || engine.protocol().remains(lease.owner())) {
        give_back(lease);
    }
    if let Ok(released) = answer {
        lease.slot().released(released, listens, engine.now().since(sent));
    }
    match answer.map(|released| released.verdict) {
        Ok(Verdict::Done) => {
            lease.end();
            Ok(())
        }
        Ok(verdict) if !unanswered => {
            let loss = lease.lose_in_release(cause(verdict));
            let error = Error::lost(&loss);
            tell(lease, loss);
            Err(error)
        }
        // The first request may have been the one that did it (rule 15).
        Ok(_) if engine.now() < valid_until || mutated!("late-release-as-done") => {
            lease.end();
            Ok(())
        }
        Ok(_) => {
            lease.end();
            Err(Error::unknown_outcome(
                "the first release request had no reply, and by now another holder may have the lock",
            ))
        }
        Err(failure) => {
            lease.end();
            if !mutated!("failed-release-forgotten") {
                give_back(lease);
            }
            if mutated!("unknown-release-as-released") {
                Ok(())
            } else {
                Err(Error::from(failure).so("the release goes on in the background"))
            }
        }
    }
}

fn exchange(lease: &LiveLease, deadline: Moment) -> Result<Released, Failure> {
    let engine = lease.slot().engine();
    let returned = Return {
        owner: lease.owner(),
        ttl: lease.ttl(),
        last_token: lease.last_token(),
        how: lease.options().release_option().kind(),
    };
    let answer = engine.protocol().release(lease.slot().target(), &returned, deadline);
    answer.or_else(|failure| taken(failure).map(Released::from))
}

/// Leaves a lease that is no longer in use to the worker to give back.
pub(crate) fn leave_to_worker(lease: &Arc<LiveLease>) {
    if let Some(loss) = lease.expire(lease.slot().engine().now()) {
        // Not logged: the thread may be at its end, where many a logger panics.
        lost_in_silence(lease, loss);
    }
    if lease.begin_release().is_none() {
        give_back_rest(lease);
        return;
    }
    lease.end();
    give_back(lease);
    lease.slot().vacate(None);
    lease.forget_hooks();
}

/// Gives back what Redis may have of a lost lease, now that its thread is done:
///
/// - beyond the end that its holder knew, by a renewal or an extension that was never answered, or was
///   confirmed too late, or may yet be: the worker gives it back after it has read that reply;
/// - until its end, where `max_hold` ended the hold;
/// - of several servers, on the few that have not forgotten it.
fn give_back_rest(lease: &LiveLease) {
    let Some(loss) = lease.loss() else { return };
    let engine = lease.slot().engine();
    let mut end = lease.perhaps_until();
    if loss.cause() == LossCause::MaxHold {
        end = end.max(lease.leased_until());
    }
    let asked = lease.is_under_way() && !mutated!("renewal-under-way-forgotten");
    let votes = engine.protocol().remains(lease.owner()) && !mutated!("votes-of-a-lost-hold-kept");
    if end > engine.now() || asked || votes {
        give_back(lease);
    }
}

/// Makes the worker give a lease back.
pub(crate) fn give_back(lease: &LiveLease) {
    lease.slot().engine().worker().give_back(giving_back(lease));
}

/// Makes the worker take the attempt of a lost lease out of Redis, where a request for it that was never
/// answered may still run and make it the owner once more: nobody here would know of it (rules 6, 30).
///
/// That is done once no such request can run any longer. What `max_hold` ended is left alone until its
/// lease ends too, as its thread may still be at work. What a shutdown ended is given back already.
fn give_back_later(lease: &LiveLease, cause: LossCause) {
    let engine = lease.slot().engine();
    if lease.settled() <= engine.now() || mutated!("lost-hold-leaves-a-ghost") {
        return;
    }
    let due = match cause {
        LossCause::ShutDown => return,
        LossCause::MaxHold => lease.settled().max(lease.leased_until()),
        _ => lease.settled(),
    };
    engine.worker().give_back_later(due, giving_back(lease));
}

/// Gives a lease back that lingers no longer; what cannot be done until `deadline` is left to the worker.
pub(crate) fn give_back_now(lease: &LiveLease, deadline: Moment) {
    let answer = exchange(lease, deadline);
    if !answer.is_ok_and(|released| released.verdict == Verdict::Done) {
        give_back(lease);
    }
}

/// What the worker needs to give a lease back.
fn giving_back(lease: &LiveLease) -> GiveBack {
    let now = lease.slot().engine().now();
    let end = lease.leased_until().max(lease.perhaps_until());
    GiveBack {
        target: Arc::clone(lease.slot().target()),
        owner: Arc::clone(lease.owner()),
        settled: lease.settled().max(now),
        // It may have been extended beyond its usual length.
        ttl: lease.ttl().max(end.since(now) + drift_allowance(lease.ttl()) * 2),
        last_token: lease.last_token(),
    }
}

/// What is owed when a lease was found lost: the slot is free for the next, and the user is told.
/// What is left of it in Redis ends by itself, and not before, as its thread may still be at work. Only
/// its attempt must not come back.
pub(crate) fn lost(lease: &Arc<LiveLease>, loss: Loss) {
    let shown = loss.to_string();
    lost_in_silence(lease, loss);
    // Last of all: a logger that panics must not keep the lock from anybody.
    log::warn!("{shown}");
}

/// The same, where somebody else writes to the log.
pub(crate) fn lost_in_silence(lease: &LiveLease, loss: Loss) {
    give_back_later(lease, loss.cause());
    lease.slot().vacate(None);
    tell(lease, loss);
}

fn tell(lease: &LiveLease, loss: Loss) {
    let engine = lease.slot().engine();
    engine.feeds().send(&loss);
    engine.worker().announce(News::Lost(loss, Arc::new(lease.take_hooks())));
}

/// Calls this when a lease is lost. If it is lost already, it is called all the same, and on a thread
/// of its own too.
pub(crate) fn on_loss(lease: &Arc<LiveLease>, hook: LossHook) {
    check_expiry(lease);
    if let Some((loss, hook)) = lease.on_loss(hook) {
        let news = News::LostBefore(loss, Arc::new(Hooks::of(hook)));
        lease.slot().engine().worker().announce(news);
    }
}

/// Ends a lease as lost if its validity is over and nobody has noticed yet.
pub(crate) fn check_expiry(lease: &Arc<LiveLease>) {
    if let Some(loss) = lease.expire(lease.slot().engine().now()) {
        lost(lease, loss);
    }
}

/// Whether a lease may still be relied on. One whose validity is over ends as lost.
pub(crate) fn check_valid(lease: &Arc<LiveLease>) -> Result<()> {
    if lease.is_valid_at(lease.slot().engine().now()) {
        return Ok(());
    }
    check_expiry(lease);
    // A renewal may have been confirmed meanwhile.
    if lease.is_live() { Ok(()) } else { Err(gone(lease)) }
}

/// The error for a lease that is not live any longer.
pub(crate) fn gone(lease: &LiveLease) -> Error {
    match lease.loss() {
        Some(loss) => Error::lost(&loss),
        None => Error::not_held("released already"),
    }
}

/// What a refusal says about the owner that was asked about: a key that holds something else is
/// another's, as one of the same type with another owner is.
pub(crate) fn taken(failure: Failure) -> Result<Verdict, Failure> {
    if failure.is_wrong_type() && !mutated!("wrong-type-as-no-loss") {
        Ok(Verdict::Taken)
    } else {
        Err(failure)
    }
}

/// What Redis says about an owner that is not, as the cause of a loss.
pub(crate) fn cause(verdict: Verdict) -> LossCause {
    match verdict {
        Verdict::Taken => LossCause::Taken,
        Verdict::Done | Verdict::Gone => LossCause::Deleted,
    }
}

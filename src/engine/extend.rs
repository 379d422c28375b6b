//! What a holder asks Redis about its lease while it has it.

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::option::{TTL_OF_EXTEND, check_span};
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::lease::{LiveLease, UnderWay};
use crate::engine::release::{cause, check_valid, gone, lost, taken};
use crate::protocol::answer::{Told, Verdict};
use crate::protocol::transaction::{Applied, out_of_place};
use crate::wire::failure::{Failure, Hindrance};
use crate::wire::{Pipeline, Value};

/// Makes a lease last at least `ttl` from now.
pub(crate) fn extend(lease: &Arc<LiveLease>, ttl: Duration) -> Result<()> {
    extend_inner(lease, ttl).map_err(|error| error.of(lease.slot().target().name()))
}

fn extend_inner(lease: &Arc<LiveLease>, ttl: Duration) -> Result<()> {
    check_span(TTL_OF_EXTEND, ttl)?;
    check_valid(lease)?;
    let (engine, target) = (lease.slot().engine(), lease.slot().target());
    let under_way = lease.command();
    let deadline = engine.exchange_deadline();
    let count = lease.show_hold_count();
    let mut unanswered = false;
    let told = Failure::repeating(|| {
        let told = engine.protocol().extend(target, lease.owner(), ttl, count, deadline);
        // Each request counts: the first may be carried out after the second was answered (rule 31).
        unanswered |= told.as_ref().is_err_and(Failure::is_unknown);
        let remains = told.as_ref().is_err_and(|failure| may_remain(lease, failure));
        if remains && !mutated!("unanswered-extension-forgotten") {
            lease.may_last_until(engine.now().after(ttl));
        }
        told
    });
    if unanswered && !mutated!("repeated-extension-forgotten") {
        under_way.remains();
    }
    let Told { verdict, sent } = match told {
        Ok(told) => told,
        Err(failure) => {
            let is_unknown = failure.is_unknown();
            let verdict = taken(failure).map_err(|failure| {
                let error = Error::from(failure);
                if is_unknown { error.so("extending it again is safe") } else { error }
            })?;
            Told { verdict, sent: Moment::PAST }
        }
    };
    conclude(lease, verdict)?;
    lease.lengthen(sent, ttl);
    // Where the answer came when validity was over, it changed nothing.
    check_valid(lease)
}

/// Whether a request to lengthen a lease that failed may have been carried out: of several servers by
/// some, even where the rest is known not to have.
pub(crate) fn may_remain(lease: &LiveLease, failure: &Failure) -> bool {
    let asked =
        !matches!(failure, Failure::NotSent(Hindrance::Impossible { .. } | Hindrance::Forked));
    failure.is_unknown() || asked && lease.slot().engine().protocol().remains(lease.owner())
}

/// Asks Redis whether a lease is still its owner's.
pub(crate) fn check(lease: &Arc<LiveLease>) -> Result<()> {
    check_inner(lease).map_err(|error| error.of(lease.slot().target().name()))
}

fn check_inner(lease: &Arc<LiveLease>) -> Result<()> {
    check_valid(lease)?;
    let (engine, target) = (lease.slot().engine(), lease.slot().target());
    let verdict = match engine.protocol().holder(target, engine.exchange_deadline()) {
        Ok(None) => Verdict::Gone,
        Ok(Some(holder)) if *holder.owner == **lease.owner() => Verdict::Done,
        Ok(Some(_)) => Verdict::Taken,
        Err(failure) => taken(failure)?,
    };
    conclude(lease, verdict)?;
    check_valid(lease)
}

/// Runs commands that apply only if a lease is still its owner's.
pub(crate) fn apply(lease: &Arc<LiveLease>, pipeline: &Pipeline) -> Result<Vec<Value>> {
    apply_inner(lease, pipeline).map_err(|error| error.of(lease.slot().target().name()))
}

fn apply_inner(lease: &Arc<LiveLease>, pipeline: &Pipeline) -> Result<Vec<Value>> {
    // The next to use the connection would find it in another database, or be somebody else there.
    if let Some(name) = out_of_place(pipeline) {
        return Err(Error::config(
            "transaction",
            format_args!("the command \"{}\"", name.escape_ascii()),
            "commands on data, and none about connections, subscriptions or transactions",
        ));
    }
    check_valid(lease)?;
    let (engine, target) = (lease.slot().engine(), lease.slot().target());
    let under_way = lease.command();
    let deadline = engine.exchange_deadline();
    let applied = engine.protocol().apply(target, lease.owner(), pipeline, deadline);
    let verdict = match answered(applied, under_way) {
        Ok(Applied::Done(answers)) => return Ok(answers),
        Ok(Applied::Gone) => Verdict::Gone,
        Ok(Applied::Taken) => Verdict::Taken,
        Err(failure) if failure.is_unknown() => {
            return Err(Error::from(failure).so("look whether the transaction was applied"));
        }
        // What a command of the user's says of its own key is a value among the answers.
        Err(failure) => taken(failure)?,
    };
    conclude(lease, verdict)?;
    Ok(Vec::new())
}

/// A command that was never answered keeps its lease from being passed on (rule 17).
fn answered<T>(outcome: Result<T, Failure>, under_way: UnderWay) -> Result<T, Failure> {
    if outcome.as_ref().is_err_and(Failure::is_unknown) {
        under_way.remains();
    }
    outcome
}

/// Ends a lease as lost where Redis says that it is not its owner's.
pub(crate) fn conclude(lease: &Arc<LiveLease>, verdict: Verdict) -> Result<()> {
    if verdict == Verdict::Done {
        return Ok(());
    }
    if let Some(loss) = lease.lose(cause(verdict), lease.slot().engine().now()) {
        lost(lease, loss);
    }
    Err(gone(lease))
}

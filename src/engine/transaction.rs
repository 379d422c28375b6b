//! Commands that apply only while the locks of a holder are its own.

use crate::base::error::{Error, Result};
use crate::engine::holding::Holding;
use crate::protocol::transaction::{Applied, forbidden_command};
use crate::wire::failure::Failure;
use crate::wire::{Pipeline, Value};

/// Runs commands that apply only if the owners still have all these locks of one client.
pub(crate) fn apply(holdings: &[&Holding], pipeline: &Pipeline) -> Result<Vec<Value>> {
    let Some(first) = holdings.first() else { return Ok(Vec::new()) };
    apply_inner(holdings, first, pipeline).map_err(|error| error.of(first.name()))
}

fn apply_inner(holdings: &[&Holding], first: &Holding, pipeline: &Pipeline) -> Result<Vec<Value>> {
    // Such a command would change the pooled connection for its next user: another database, or
    // another user of Redis.
    if let Some(name) = forbidden_command(pipeline) {
        return Err(Error::config(
            "transaction",
            format_args!("the command \"{}\"", name.escape_ascii()),
            "commands on data, and none about connections, subscriptions or transactions",
        ));
    }
    let is_weighted = |holding: &&&Holding| holding.slot.target().weighted().is_some();
    if let Some(weighted) = holdings.iter().find(is_weighted)
        && holdings.len() > 1
    {
        // The key of a weighted lock cannot be watched (rule 42), and its script looks at no other lock.
        return Err(Error::config(
            "transaction",
            "several may hold this lock at a time",
            "a transaction of its own guard, or other locks only",
        )
        .of(weighted.name()));
    }
    let protocol = &first.context().protocol;
    for other in &holdings[1..] {
        // No connection to a cluster could look at both.
        if protocol.check_keys(first.name(), &[other.name().as_bytes().to_vec()]).is_err() {
            return Err(Error::config(
                "transaction",
                format_args!("{:?} and {:?} may be on two nodes", first.name(), other.name()),
                "locks whose names have the same hash tag, {tag}",
            ));
        }
    }

    for holding in holdings {
        holding.make_valid().map_err(|error| error.of(holding.name()))?;
    }
    let under_way: Vec<_> = holdings.iter().map(|holding| holding.hold.lease.command()).collect();
    let owners: Vec<_> = holdings
        .iter()
        .map(|holding| (&**holding.slot.target(), &*holding.hold.lease.value.bytes))
        .collect();
    let applied = first.context().ask(|it, deadline| it.apply(&owners, pipeline, deadline));
    // A command without a reply stays counted, so that no lease is passed on (rule 17).
    if applied.as_ref().is_err_and(Failure::is_unknown) {
        under_way.into_iter().for_each(|command| command.keep_pending());
    }

    let (lock, ownership) = match applied {
        Ok(Applied::Done(replies)) => return Ok(replies),
        Ok(Applied::NotOwned(lock, ownership)) => (lock, ownership),
        Err(failure) if failure.is_unknown() => {
            // Never repeated: the commands of the user may have been applied.
            return Err(
                Error::from(failure).with_consequence("look whether the transaction was applied")
            );
        }
        Err(failure) => return Err(failure.into()),
    };
    let holding = holdings[lock];
    holding.check_ownership(ownership).map_err(|error| error.of(holding.name()))?;
    Ok(Vec::new())
}

//! How the parts of one call are acquired: all or none.

use crate::base::error::{Error, Result};
use crate::base::time::Moment;
use crate::engine::acquire::several::{Wanted, acquire_first, begin_waits};
use crate::engine::context::Context;
use crate::engine::slot::WaitLimit;
use crate::kind::multi::guard::MultiGuard;
use crate::kind::multi::part::{Part, PartGuard, give_back};
use crate::kind::reentry::Reentry;

/// The most locks of one call.
const MOST_PARTS: usize = 10_000;
/// An error lists this many of the locks that were given back.
const MOST_LISTED: usize = 10;

/// Acquires all parts, which are locks of the client with this context. Waits until `deadline`; with none it makes
/// one attempt.
pub(crate) fn acquire_all(
    parts: Vec<Part>,
    context: &Context,
    deadline: Option<Moment>,
) -> Result<Option<MultiGuard>> {
    let parts = in_order(parts, context)?;
    // Before any I/O: a thread would wait for itself, and a hold that is lost is an error.
    let wait_limit =
        || deadline.map_or(WaitLimit::TryOnce, |end| WaitLimit::until(end, context.now()));
    let mut guards = Vec::with_capacity(parts.len());
    for part in &parts {
        match part.reenter(wait_limit())? {
            Reentry::Entered(guard) => guards.push(Some(guard)),
            Reentry::Outside => guards.push(None),
            Reentry::Busy => return Ok(None),
        }
    }
    let missing: Vec<&Part> = parts
        .iter()
        .zip(&guards)
        .filter(|(_, guard)| guard.is_none())
        .map(|(part, _)| part)
        .collect();
    let wanted: Vec<Wanted<'_>> = missing.iter().map(|part| part.wanted()).collect();
    let mut waits = begin_waits(&wanted);

    let mut acquired: Vec<PartGuard> = Vec::with_capacity(missing.len());
    while acquired.len() < missing.len() {
        let before = acquired.len();
        let (wanted, waits) = (&wanted[before..], &mut waits[before..]);
        let outcome = acquire_first(wanted, waits, wait_limit(), &mut |holding| {
            acquired.push(missing[acquired.len()].hold(holding));
        });
        for (wait, part) in waits.iter_mut().zip(&acquired[before..]) {
            wait.acquired(&part.holding().hold);
        }
        match outcome {
            Ok(true) => {}
            Ok(false) => {
                // Nothing was done under them, so it is no matter if one was lost.
                for error in give_back(acquired).into_iter().filter_map(|(_, it)| it.err()) {
                    log!(warn, "{error}; it was given back because another lock is not free");
                }
                return Ok(None);
            }
            Err(error) => {
                waits[acquired.len() - before].not_acquired(Some(&error));
                return Err(rolled_back(error, give_back(acquired)));
            }
        }
    }
    // A part may have been lost while the thread waited for a later one.
    let held = acquired.iter().chain(guards.iter().flatten());
    let lost = held
        .map(PartGuard::holding)
        .find_map(|holding| holding.make_valid().err().map(|error| error.of(holding.name())));
    if let Some(error) = lost {
        return Err(rolled_back(error, give_back(acquired)));
    }

    let mut acquired = acquired.into_iter();
    guards.iter_mut().filter(|guard| guard.is_none()).for_each(|guard| *guard = acquired.next());
    Ok(Some(MultiGuard::new(guards.into_iter().flatten().collect())))
}

/// The parts in the order in which every thread acquires them.
fn in_order(mut parts: Vec<Part>, context: &Context) -> Result<Vec<Part>> {
    if parts.is_empty() {
        let expected = "at least one lock, or nothing is protected";
        return Err(Error::config("parts", "there are none", expected));
    }
    if parts.len() > MOST_PARTS {
        let expected = "at most 10,000 locks; one lock for all of them may do";
        return Err(Error::config("parts", format_args!("there are {}", parts.len()), expected));
    }
    check(&mut parts, context)?;
    // By all bytes of the name, as all clients see them.
    parts.sort_by(|one, other| order(one).cmp(&order(other)));
    let twice = parts.windows(2).find(|pair| order(&pair[0]) == order(&pair[1]));
    if let Some([twice, ..]) = twice {
        let name = twice.wanted().slot.target().name();
        return Err(Error::config("parts", "a lock that is named twice", "each lock once").of(name));
    }
    Ok(parts)
}

/// Checks that these can be locks of the client with this context.
pub(super) fn check(parts: &mut [Part], context: &Context) -> Result<()> {
    if let Some(other) = parts.iter().find(|part| !part.belongs_to(context)) {
        let expected = "locks of the client that is asked";
        let name = other.wanted().slot.target().name();
        return Err(Error::config("parts", "a lock of another client", expected).of(name));
    }
    parts.iter_mut().find_map(Part::take_error).map_or(Ok(()), Err)
}

/// What the order of parts goes by. Two kinds with one name stay apart: Redis says which of them the key is.
fn order(part: &Part) -> (&[u8], &'static str) {
    let target = part.wanted().slot.target();
    (target.key(), target.kind().name())
}

/// The error of a call that had acquired some of its locks, and what became of them: by name, the outcome of each release.
pub(super) fn rolled_back(error: Error, released: Vec<(Vec<u8>, Result<()>)>) -> Error {
    let (mut given, mut failed) = (Vec::new(), Vec::new());
    for (name, outcome) in released {
        match outcome {
            Ok(()) => given.push(format!("\"{}\"", name.escape_ascii())),
            // The error itself names the lock, and says that the release goes on.
            Err(error) if !error.is_lost() => failed.push(error.to_string()),
            Err(_) => {}
        }
    }
    let error = match given.is_empty() {
        true => error,
        false => error.with_consequence(&format!("given back: {}", listed(&given, ", "))),
    };
    match failed.is_empty() {
        true => error,
        false => error.with_consequence(&format!("not given back yet: {}", listed(&failed, "; "))),
    }
}

/// The first of these, and how many more there are.
fn listed(all: &[String], between: &str) -> String {
    let first = all[..all.len().min(MOST_LISTED)].join(between);
    match all.len() - all.len().min(MOST_LISTED) {
        0 => first,
        more => format!("{first}{between}and {more} more"),
    }
}

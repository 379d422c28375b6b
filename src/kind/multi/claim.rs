//! How those of many locks are taken that are free.

use crate::base::error::Result;
use crate::engine::acquire::claim::acquire_free;
use crate::engine::acquire::several::Wanted;
use crate::engine::context::Context;
use crate::engine::holding::Holding;
use crate::engine::release::{MOST_AT_ONCE, release_all};
use crate::kind::hold::OwnedHold;
use crate::kind::multi::acquire::{check, rolled_back};
use crate::kind::multi::part::combined;
use crate::kind::{OwnedLease, Part};

/// The most tries of one pipeline where fewer locks are missing. What is granted beyond those that are missing is given
/// back, and meanwhile others find it taken.
const MOST_IN_ADVANCE: usize = 128;

/// Takes at most `most` of these locks, which are of the client with this context: the first that are free.
pub(crate) fn claim(
    parts: impl IntoIterator<Item = Part>,
    context: &Context,
    most: usize,
) -> Result<Vec<OwnedLease>> {
    let mut parts = parts.into_iter().fuse();
    let mut claimed: Vec<OwnedHold> = Vec::new();
    let (mut tried, mut free) = (0, 0);
    while claimed.len() < most {
        let missing = most - claimed.len();
        tried = next_chunk(tried, free, missing);
        let mut chunk: Vec<Part> = parts.by_ref().take(tried).collect();
        if chunk.is_empty() {
            break;
        }
        let outcome = check(&mut chunk, context).and_then(|()| {
            let wanted: Vec<Wanted<'_>> = chunk.iter().map(Part::wanted).collect();
            acquire_free(&wanted, missing, &mut |holding| claimed.push(OwnedHold::new(holding)))
        });
        if let Err(error) = outcome {
            return Err(rolled_back(error, give_back(claimed)));
        }
        free = missing - most.saturating_sub(claimed.len());
    }
    Ok(claimed.into_iter().map(OwnedLease::new).collect())
}

/// How many locks are tried next, after a pipeline of `tried` of which too few were `free`.
fn next_chunk(tried: usize, free: usize, missing: usize) -> usize {
    // As many as are missing, where nobody else works. Otherwise as many as are likely to have so many free ones, but no
    // more than twice as many as before: what is granted beyond costs two commands.
    let grown = tried.saturating_mul(2).min(MOST_IN_ADVANCE);
    // Saturating: a caller that wants all that are free asks for `usize::MAX` of them.
    let likely = if free == 0 { grown } else { missing.saturating_mul(tried).div_ceil(free) };
    missing.max(likely.min(grown)).min(MOST_AT_ONCE)
}

/// Releases leases of any clients, those of one client in one exchange.
pub(crate) fn release_leases(leases: impl IntoIterator<Item = OwnedLease>) -> Result<()> {
    let released = give_back(leases.into_iter().map(OwnedLease::into_hold).collect());
    combined(released.into_iter().map(|(_, outcome)| outcome))
}

/// Returns the name and the outcome of each.
fn give_back(holds: Vec<OwnedHold>) -> Vec<(Vec<u8>, Result<()>)> {
    let mut rest: Vec<Holding> = holds.into_iter().filter_map(OwnedHold::leave).collect();
    let mut outcomes = Vec::with_capacity(rest.len());
    while let Some(first) = rest.first().cloned() {
        let is_same = |it: &Holding| std::ptr::eq(it.slot.context(), first.slot.context());
        let (same, others) = rest.into_iter().partition::<Vec<_>, _>(is_same);
        let names = same.iter().map(|holding| holding.name().as_bytes().to_vec());
        outcomes.extend(names.zip(release_all(&same)));
        rest = others;
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_grow_up_to_a_bound_unless_more_are_missing() {
        let chunks = |missing| {
            let mut tried = 0;
            std::iter::from_fn(move || {
                tried = next_chunk(tried, 0, missing);
                Some(tried)
            })
        };
        assert_eq!(chunks(10).take(6).collect::<Vec<_>>(), [10, 20, 40, 80, 128, 128]);
        assert_eq!(chunks(300).take(2).collect::<Vec<_>>(), [300, 300]);
        assert_eq!(chunks(5_000).take(2).collect::<Vec<_>>(), [MOST_AT_ONCE, MOST_AT_ONCE]);
    }

    #[test]
    fn chunk_has_as_many_as_are_likely_to_be_enough() {
        assert_eq!(next_chunk(10, 5, 5), 10);
        assert_eq!(next_chunk(10, 9, 1), 2);
        assert_eq!(next_chunk(40, 1, 3), 80, "no more than twice as many");
        assert_eq!(next_chunk(10, 1, 50), 50);
        assert_eq!(next_chunk(1_000, 3, usize::MAX - 3), MOST_AT_ONCE, "all that are free");
    }
}

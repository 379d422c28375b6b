//! How one call takes those of many locks that are free.
//!
//! The tries are those of `several`, in one pipeline. The difference is what a refusal means: the call goes on without
//! that lock. It waits for no holder, in Redis or in a slot, so no threads can wait in a circle.

use crate::base::error::{Error, Result};
use crate::engine::acquire::remember_blocker;
use crate::engine::acquire::several::{
    Entrance, Spare, Wanted, ask_chunk, begin_waits, enter_one, release_unused,
};
use crate::engine::durability::confirm;
use crate::engine::holding::Holding;
use crate::engine::long_wait::LongWait;
use crate::engine::slot::WaitLimit;

/// The place of a lock in the call, and what became of it.
type At<T> = (usize, T);

/// Tries these locks in one pipeline, and passes those that are free to `take`, in their order and at most `most` of
/// them; what was granted beyond is released again before this returns. After an error the caller releases what it took,
/// which then is all that was granted.
pub(crate) fn acquire_free(
    wanted: &[Wanted<'_>],
    most: usize,
    take: &mut dyn FnMut(Holding),
) -> Result<()> {
    let mut waits = begin_waits(wanted);
    let (mut granted, mut failed) = try_all(wanted, &mut waits);
    if failed.is_none() {
        // First: others may want them, and what follows may wait for replicas.
        give_back(granted.split_off(most.min(granted.len())));
    }
    let mut taken = Vec::with_capacity(granted.len());
    for (index, spare) in granted {
        let Some(holding) = spare.take() else { continue };
        if failed.is_some() {
            take(holding);
            continue;
        }
        match confirm(holding) {
            Ok(holding) => {
                taken.push((index, holding.hold.clone()));
                take(holding);
            }
            Err(error) => failed = Some((index, error)),
        }
    }

    // Observers are told when nothing is under way any more: one of them may ask for any of these locks.
    for (index, hold) in &taken {
        waits[*index].acquired(hold);
    }
    if let Some((index, error)) = &failed {
        waits[*index].not_acquired(Some(error));
    }
    for (index, (wanted, wait)) in wanted.iter().zip(&waits).enumerate() {
        if taken.binary_search_by_key(&index, |(index, _)| *index).is_err() {
            remember_blocker(wanted.slot, wait);
        }
    }
    failed.map_or(Ok(()), |(_, error)| Err(error))
}

/// Tries all of them. Returns those that were granted, in their order, and the first error.
fn try_all(wanted: &[Wanted<'_>], waits: &mut [LongWait]) -> (Vec<At<Spare>>, Option<At<Error>>) {
    let (mut places, mut entered) = (Vec::new(), Vec::new());
    for (index, (&wanted, wait)) in wanted.iter().zip(waits).enumerate() {
        match enter_one(wanted, WaitLimit::TryOnce, wait) {
            Ok(Entrance::Open(open)) => {
                places.push(index);
                entered.push(open);
            }
            // A thread of this process has it, or is about to.
            Ok(Entrance::Busy | Entrance::Shut) => {}
            // Nothing was sent yet.
            Err(error) => return (Vec::new(), Some((index, error))),
        }
    }
    // One goes alone, among the commands of other threads.
    if entered.len() > 1 {
        ask_chunk(&mut entered);
    }
    let (mut granted, mut failed) = (Vec::new(), None);
    for (index, entered) in places.into_iter().zip(entered) {
        match entered.outcome() {
            Ok(Some(spare)) => granted.push((index, spare)),
            Ok(None) => {}
            Err(error) => failed = failed.or(Some((index, error))),
        }
    }
    (granted, failed)
}

fn give_back(spares: Vec<At<Spare>>) {
    let spares = spares.into_iter().map(|(_, spare)| spare).collect();
    release_unused(spares, "a claim had enough without it");
}

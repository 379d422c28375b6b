//! What must hold in every state.

use std::any::Any;
use std::fmt;

use crate::client::{Part, Phase};
use crate::scenario::{Scenario, Time};
use crate::server::{Server, micros};
use crate::wire::{Id, Since};
use crate::world::World;

/// A promise, named after the guarantee or checker it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Invariant {
    /// Rule 45: windows of validity weigh more than the limit.
    Capacity,
    /// Two valid windows have a slot, or a slot is beyond the limit.
    Slot,
    /// Rule 32: a token is not above one that was returned before the call.
    Token,
    /// Rule 27.
    Fifo,
    /// Rule 6: what was given back for good is in Redis again, or with a greater weight.
    Ghost,
    /// Rule 33: an error about the limit, which nobody has caused.
    Config,
    /// Rules 13, 40: a live waiter waited too long while nobody living held.
    Starved,
    /// C5: not everybody was served, or something is left, long after all went well again.
    Served,
    /// A script failed, or wrote what makes no sense.
    Nonsense,
}

#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) invariant: Invariant,
    pub(crate) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.text)
    }
}

impl Violation {
    /// What a panic says about a script, or about what it wrote.
    pub(crate) fn nonsense(panic: &(dyn Any + Send)) -> Violation {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Violation { invariant: Invariant::Nonsense, text: text.unwrap_or("a panic").to_owned() }
    }
}

pub(crate) fn broken<T>(invariant: Invariant, text: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { invariant, text: text.into() })
}

/// What was seen so far, as far as a promise depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    /// The greatest token that was returned.
    pub(crate) highest: u64,
    /// Since when each holder has its weight.
    grants: Vec<(Id, Since)>,
    /// The longest that a live waiter waits while nobody living holds, once all goes well again.
    pub(crate) starved: Time,
}

impl Record {
    /// Notes who was granted a weight, or a greater one.
    pub(crate) fn note_grants(&mut self, before: &Server, after: &Server, now: Time) {
        self.grants.retain(|(id, _)| after.holders.iter().any(|it| Server::id(it.attempt) == *id));
        for holder in &after.holders {
            // A lease that has ended may be there until somebody asks, and then its attempt is granted anew.
            let was = before.holder(holder.attempt).filter(|was| was.ends > micros(now));
            let was = was.map_or(0, |was| was.weight);
            if was < holder.weight {
                let id = Server::id(holder.attempt);
                let since = Since { token: after.token, limit: after.limit };
                self.grants.retain(|(other, _)| *other != id);
                self.grants.push((id, since));
            }
        }
        self.grants.sort_unstable();
    }

    pub(crate) fn since(&self, id: Id) -> Since {
        let found = self.grants.iter().find(|(other, _)| *other == id);
        found.map(|(_, since)| *since).unwrap_or_default()
    }
}

pub(crate) fn check(world: &World, scenario: &Scenario) -> Result<(), Violation> {
    let (mut sum, mut slots, mut count) = (0, 0, 0);
    let mut latest = Since::default();
    for client in &world.clients {
        let Some(hold) = client.hold().filter(|hold| world.now < hold.until) else { continue };
        (sum, count) = (sum + hold.weight, count + 1);
        latest = latest.max(hold.since);
        if slots & hold.slots != 0 {
            return broken(Invariant::Slot, format!("client {} has one of others", client.id));
        }
        slots |= hold.slots;
    }
    if count > 1 && sum > latest.limit {
        let text =
            format!("windows weigh {sum}, with a limit of {} at the latest grant", latest.limit);
        return broken(Invariant::Capacity, text);
    }
    for holder in world.server.holders.iter().filter(|holder| holder.ends > micros(world.now)) {
        let id = Server::id(holder.attempt);
        let client = &world.clients[usize::from(id.client)];
        let is_ghost = match client.part {
            Part::Crashed => false,
            Part::Idle => true,
            _ if client.id() != id => true,
            Part::Holding(hold) => {
                client.phase == Phase::Rests
                    && world.now < hold.until
                    && holder.weight > hold.weight
            }
            _ => false,
        };
        if is_ghost {
            return broken(Invariant::Ghost, format!("{:?} holds {}", id, holder.weight));
        }
    }
    for waiter in &world.server.line {
        let id = Server::id(waiter.attempt);
        let client = &world.clients[usize::from(id.client)];
        let counts = waiter.dies + micros(scenario.dead) - micros(0) > micros(world.now);
        let is_there =
            client.part == Part::Crashed || client.part != Part::Idle && client.id() == id;
        if counts && !is_there {
            return broken(Invariant::Ghost, format!("{id:?} waits"));
        }
    }
    if world.record.starved > scenario.patience {
        let text = format!("nobody living held for {} ticks", world.record.starved);
        return broken(Invariant::Starved, text);
    }
    Ok(())
}

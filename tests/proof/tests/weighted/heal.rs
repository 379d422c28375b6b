//! What follows when nothing goes wrong any more: everybody is served, and the server empties.

use crate::client::{Client, Part, Phase};
use crate::invariant::{Invariant, Violation, broken, check};
use crate::scenario::{Scenario, Time};
use crate::world::World;

/// By then all must be over.
const LONGEST: Time = 50;
const MOST_STEPS: usize = 200;

/// Plays on from a world: whatever is under way arrives at once and in order, clients do what they want to do, and
/// time passes.
pub(crate) fn heal(world: &World, scenario: &Scenario) -> Result<(), Violation> {
    let mut world = world.clone();
    if world.is_full {
        world.is_full = false;
        world.server.fill(false, world.now);
    }
    let mut starved = 0;
    for _ in 0..LONGEST {
        calm(&mut world, scenario)?;
        let is_done = |client: &Client| {
            client.part == Part::Crashed || client.part == Part::Idle && client.rounds == 0
        };
        if world.clients.iter().all(is_done) {
            return empties(world, scenario);
        }
        let waits = |client: &Client| matches!(client.part, Part::Waiting { .. });
        let holds = |client: &Client| client.hold().is_some_and(|hold| world.now < hold.until);
        let starves = world.clients.iter().any(waits) && !world.clients.iter().any(holds);
        starved = if starves { starved + 1 } else { 0 };
        world.record.starved = world.record.starved.max(starved);
        check(&world, scenario)?;
        world.tick();
        world.settle();
        check(&world, scenario)?;
    }
    broken(Invariant::Served, "somebody is not served")
}

/// Lets everything happen that can happen at this moment.
fn calm(world: &mut World, scenario: &Scenario) -> Result<(), Violation> {
    for _ in 0..MOST_STEPS {
        let mut parked = Vec::new();
        let mut acted = false;
        while !world.net.is_empty() {
            let load = world.net.remove(0);
            acted = true;
            if !world.deliver(load.clone(), scenario)? {
                parked.push(load);
            }
            world.settle_clients();
            check(world, scenario)?;
        }
        for index in 0..world.clients.len() {
            acted |= act(world, index, scenario);
        }
        let is_calm = world.net.is_empty();
        world.net.extend(parked);
        world.settle();
        if is_calm || !acted {
            return Ok(());
        }
    }
    broken(Invariant::Served, "it never comes to rest")
}

/// What a client does by itself; whether it does anything.
fn act(world: &mut World, index: usize, scenario: &Scenario) -> bool {
    let (now, client) = (world.now, &world.clients[index]);
    match client.part {
        Part::Idle if client.rounds > 0 => world.client(index, scenario, Client::ask),
        Part::Holding(hold) => {
            let is_valid = now < hold.until;
            let is_due = client.is_due(now, scenario);
            if is_valid && client.next_change(scenario).is_some() {
                world.client(index, scenario, Client::begin_change);
            } else if is_valid && client.phase != Phase::Rests {
                let renews =
                    hold.until - now <= 2 && !client.is_renewing && client.part != Part::Idle;
                if is_due {
                    world.client(index, scenario, Client::wake);
                }
                if renews {
                    world.client(index, scenario, Client::renew);
                }
                return is_due || renews;
            } else {
                world.client(index, scenario, Client::release);
            }
        }
        _ if client.is_due(now, scenario) => world.client(index, scenario, Client::wake),
        _ => return false,
    }
    true
}

/// All is over: what is left in Redis ends by itself, one lease or one line later.
fn empties(mut world: World, scenario: &Scenario) -> Result<(), Violation> {
    let lease = scenario.clients.iter().map(|plan| scenario.line(plan.ttl)).max().unwrap_or(0);
    for _ in 0..=lease {
        world.tick();
    }
    match world.server.keys(world.now) {
        0 => Ok(()),
        left => broken(Invariant::Served, format!("{left} keys are left")),
    }
}

impl World {
    /// As [`settle`](World::settle), but what is under way keeps its order.
    fn settle_clients(&mut self) {
        let now = self.now;
        self.clients.iter_mut().for_each(|client| client.forget(now));
    }
}

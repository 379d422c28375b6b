//! A way through the states, told for people.

use crate::scenario::Scenario;
use crate::world::{Action, World};

/// Plays a way again and tells each step.
pub(crate) fn play(scenario: &Scenario, way: &[u16]) -> Vec<String> {
    let mut world = scenario.start();
    let mut lines = Vec::new();
    for &number in way {
        let action = world.actions(scenario)[usize::from(number)];
        lines.push(format!("t={:<2} {}", world.now, tell(&world, action)));
        match world.step(action, scenario) {
            Ok(after) => world = after,
            Err(violation) => lines.push(format!("     => {violation}")),
        }
    }
    lines
}

fn tell(world: &World, action: Action) -> String {
    match action {
        Action::Deliver(index, false) => format!("arrives: {:?}", world.net[index]),
        Action::Deliver(index, true) => format!("arrives, and comes again: {:?}", world.net[index]),
        Action::Lose(index) => format!("LOST: {:?}", world.net[index]),
        other => format!("{other:?}"),
    }
}

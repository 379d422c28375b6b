//! A path through the states, shown for people.

use crate::action::{Action, Fate};
use crate::invariant::name;
use crate::network::Load;
use crate::protocol::Request;
use crate::scenario::Scenario;
use crate::world::{START, World};

/// Replays a path and shows each step.
pub(crate) fn play(scenario: &Scenario, way: &[u16]) -> Vec<String> {
    let mut world = scenario.start();
    let mut lines = Vec::new();
    if !scenario.lined_up.is_empty() {
        lines.push(format!("t=0  clients {:?} have queued up in order", scenario.lined_up));
    }
    for &number in way {
        let action = world.actions(scenario)[usize::from(number)];
        lines.push(format!("t={:<2} {}", world.now - START, tell(&world, action)));
        match world.step(action, scenario) {
            Ok(after) => world = after,
            Err(violation) => lines.push(format!("     => {violation}")),
        }
    }
    lines
}

fn tell(world: &World, action: Action) -> String {
    let load = |index: usize| message(world, index);
    match action {
        Action::Deliver(index, fate) => {
            let then = match fate {
                Fate::Arrives => "",
                Fate::Lost => ", its reply is lost",
                Fate::Delayed => ", its reply is delayed",
                Fate::Cut => ", and the connection breaks",
            };
            format!("arrives: {}{then}", load(index))
        }
        Action::Lose(index) => format!("LOST: {}", load(index)),
        Action::Delay(index) => format!("DELAYED: {}", load(index)),
        Action::Duplicate(index) => format!("DOUBLED: {}", load(index)),
        Action::Arrive(index) => format!("client {index} wants the lock"),
        Action::Wake(index) => format!("client {index} does what is due"),
        Action::Release(index) => format!("client {index} releases"),
        Action::GiveUp(index) => format!("client {index} gives up waiting"),
        Action::PassOn(index) => format!("client {index} passes its lease on to its next thread"),
        Action::Extend(index) => format!("client {index} extends its lease"),
        Action::Cut(index) => format!("CUT: the connection of client {index} breaks"),
        Action::Pause(index) => format!("PAUSED: client {index}"),
        Action::Resume(index) => format!("client {index} goes on"),
        Action::Crash(index, false) => format!("CRASHED: client {index}"),
        Action::Crash(index, true) => format!("CRASHED: client {index}, its connections half-open"),
        Action::Deafen(index) => format!("DEAF: the subscription of client {index} breaks"),
        Action::Demote(index) => format!("DEMOTED: client {index} listens at a replica"),
        Action::Move(index) => format!("client {index} leaves the replica"),
        Action::Listen(index) => format!("client {index} listens again"),
        Action::StopServer => "STOPPED: the server".to_owned(),
        Action::StartServer => "the server goes on".to_owned(),
        Action::Tick => "a tick passes".to_owned(),
        Action::TickSlow(index) => format!("a tick passes, but not for client {index}"),
        Action::TickFast(index) => format!("a tick passes, two for client {index}"),
        Action::TickFlush => "a tick passes, and FLUSHALL".to_owned(),
    }
}

fn message(world: &World, index: usize) -> String {
    let message = world.network.all()[index];
    let client = message.client;
    match message.load {
        Load::Request(_, Request::Acquire(request)) => {
            format!("{:?} of {}", request.mode, name(request.owner))
        }
        Load::Request(_, Request::Release { owner, .. }) => format!("release of {}", name(owner)),
        Load::Request(_, Request::Renew { owner, ttl, .. }) => {
            format!("renewal of {} to {ttl}", name(owner))
        }
        Load::Reply(_, reply) => format!("reply to client {client}: {reply:?}"),
        Load::Push(wake) => format!("message to client {client}: {wake:?}"),
    }
}

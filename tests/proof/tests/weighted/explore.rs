//! The scripts, explored exhaustively: every order in which clients, a server and what is under way between them
//! can act, with messages lost, doubled and reordered, processes killed, waits given up, memory full and the limit
//! changed, each a bounded number of times. From every state nothing goes wrong any more, and from then all must
//! be served in bounded time, and nothing may be left.
//!
//! The clients are a model of what the engine does: one attempt at a time, joins repeated after their deadline,
//! beats, leaves that are repeated until they are final, numbered changes of weight.

use crate::scenario::{Scenario, all};
use crate::search::{Outcome, explore};

fn explore_all(large: bool) {
    println!("{:38} {:>8} {:>9} {:>6} {:>8}", "scenario", "states", "steps", "depth", "took, s");
    let (mut states, mut took) = (0, 0.0);
    let wanted = std::env::var("LEASEHOLD_SCENARIO").unwrap_or_default();
    for scenario in all(large).into_iter().filter(|it| it.name.contains(&wanted)) {
        let Outcome { states: few, steps, depth, took: span, found, .. } = explore(&scenario);
        let seconds = span.as_secs_f64();
        println!("{:38} {few:>8} {steps:>9} {depth:>6} {seconds:>8.2}", scenario.name);
        (states, took) = (states + few, took + seconds);
        if let Some((violation, way)) = found {
            panic!("{}: {violation}\n{}", scenario.name, way.join("\n"));
        }
    }
    println!("{:38} {states:>8} {:>9} {:>6} {took:>8.2}", "all", "", "");
}

pub(crate) fn scenario(name: &str) -> Scenario {
    let found = all(false).into_iter().find(|scenario| scenario.name == name);
    found.unwrap_or_else(|| panic!("no scenario {name}"))
}

#[test]
fn no_promise_is_broken_within_the_small_bound() {
    explore_all(false);
}

#[test]
#[ignore = "takes many minutes"]
fn no_promise_is_broken_within_the_large_bound() {
    explore_all(true);
}

//! The queue protocol, explored exhaustively: every order in which clients, a server and what is
//! under way between them can act, with messages lost, delayed, reordered and doubled, connections
//! broken, a listener that finds itself at a replica, processes paused and killed, leases run out,
//! FLUSHALL, a stopped server, and clocks that drift, each a bounded number of times.
//!
//! ```text
//! cargo test -p leasehold-proof --test explorer                                      small, and the planted bugs
//! cargo test --release -p leasehold-proof --test explorer -- --nocapture             the same, with tables and traces
//! cargo test --release -p leasehold-proof --test explorer -- --ignored --nocapture large     under a minute
//! cargo test --release -p leasehold-proof --test explorer -- --ignored --nocapture deep      about ten minutes
//! ```
//!
//! | module | what it has |
//! | --- | --- |
//! | `server` | a server: its states, and what each event makes of them |
//! | `redis` | the store, the commands and the Lua of the server in memory, included as they are |
//! | `script`, `patch` | the scripts as they are shipped, and the bugs that can be planted in them |
//! | `parity`, `reply` | the same scripts on the store and on a real server, in random order |
//! | `unit`, `encoding`, `content` | ticks as milliseconds; requests, replies and keys as text |
//! | `protocol` | what clients ask, and what they hear |
//! | `network` | what is under way |
//! | `client`, `clock` | a process: its acquirer, and what it knows of the server's time |
//! | `leave`, `holder` | the same: how it goes without the lock; its lease, release and worker |
//! | `world`, `action` | all of it at one moment, and what can happen next |
//! | `scenario`, `catalogue` | who takes part, and what may go wrong |
//! | `invariant` | what must hold |
//! | `mutation` | bugs planted on purpose, each of which must be found |
//! | `search`, `fold`, `trace` | breadth first through all states, their hashes, and the way to a violation |
//!
//! The server runs the Lua that is shipped: no script has a second implementation here. That the store and its
//! commands are like those of a real server is tested beside them, by `tests::parity`, and that the scripts are, by
//! `parity`. A script runs once for each state of the server, moment and request, and its outcome is noted for
//! all other ways that lead there.
//!
//! Time goes by in ticks. In a tick everything happens that is due, in any order; only what a fault
//! holds up is left for later. From a moment on nothing goes wrong any more, and from then all must
//! be served in bounded time. Server time is true time; a client's clock may be off by as much as
//! the drift allowance says. All spans are whole ticks, and a script that writes any other has an error.
//!
//! The clients are modelled. The model is what the library does, not the letter of the rules. After a
//! broken connection it asks again at once (rule 2), notes until when the first request may still run,
//! and cleans up after that; it reserves one token and lets the server's clock pay for more (rule 19).
//! Windows are compared between FLUSHALLs only: across one, nothing but the tokens is promised. A request
//! is never doubled by the network, as a connection delivers it once; messages, releases and renewals are.
#![allow(clippy::print_stdout, reason = "it tells what was explored")]

mod action;
mod catalogue;
mod client;
mod clock;
mod content;
mod encoding;
mod fold;
mod holder;
mod invariant;
mod leave;
mod mutation;
mod network;
mod parity;
#[path = "../mutation/script.rs"]
mod patch;
mod protocol;
#[path = "../../../../src/topology/memory/redis/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the library and its tests need more of it")]
mod redis;
mod reply;
mod scenario;
mod script;
mod search;
mod server;
mod trace;
mod unit;
mod world;

use catalogue::Size;
use search::{Outcome, explore};

#[test]
fn no_promise_is_broken_within_the_small_bound() {
    explore_all(Size::Small);
}

#[test]
#[ignore = "takes most of a minute, optimised"]
fn no_promise_is_broken_within_the_large_bound() {
    explore_all(Size::Large);
}

#[test]
#[ignore = "takes many minutes and gigabytes, optimised"]
fn no_promise_is_broken_within_the_deep_bound() {
    explore_all(Size::Deep);
}

fn explore_all(size: Size) {
    println!(
        "{:20} {:>9} {:>10} {:>6} {:>8} {:>8}",
        "scenario", "states", "steps", "depth", "unheld", "took, s"
    );
    let (mut states, mut steps, mut took) = (0, 0, 0.0);
    for scenario in catalogue::all(size) {
        let outcome = explore(&scenario);
        let unheld = format!("{}/{}", outcome.starved, scenario.longest_unheld);
        let seconds = outcome.took.as_secs_f64();
        println!(
            "{:20} {:>9} {:>10} {:>6} {unheld:>8} {seconds:>8.2}",
            scenario.name, outcome.states, outcome.steps, outcome.depth
        );
        states += outcome.states;
        steps += outcome.steps;
        took += seconds;
        if let Some((violation, way)) = outcome.found {
            panic!("{}: {violation}\n{}", scenario.name, way.join("\n"));
        }
    }
    println!("{:20} {states:>9} {steps:>10} {:>6} {:>8} {took:>8.2}", "all", "", "");
}

/// A checker that has never failed proves nothing.
#[test]
fn every_planted_bug_is_found() {
    let scenarios = catalogue::all(Size::Small);
    let mut missed = Vec::new();
    let mut ways = Vec::new();
    println!(
        "{:45} {:>4} {:20} {:>7} {:>6} broken",
        "planted bug", "rule", "scenario", "states", "steps"
    );
    for planted in mutation::TABLE {
        let scenario = scenarios.iter().find(|scenario| scenario.name == planted.scenario);
        let scenario = scenario.expect("a scenario of this name").with(planted);
        let Outcome { states, found, .. } = explore(&scenario);
        let Some((violation, way)) =
            found.filter(|(found, _)| planted.breaks.contains(&found.invariant))
        else {
            missed.push(planted.name);
            continue;
        };
        let invariant = format!("{:?}", violation.invariant);
        println!(
            "{:45} {:>4} {:20} {states:>7} {:>6} {invariant}",
            planted.name,
            planted.rule,
            planted.scenario,
            way.len() - 1 - usize::from(!scenario.lined_up.is_empty())
        );
        ways.push((planted, way));
    }
    for (planted, way) in ways {
        println!("\n{}, in {:?}", planted.name, planted.scenario);
        if !planted.note.is_empty() {
            println!("({})", planted.note);
        }
        println!("{}", way.join("\n"));
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

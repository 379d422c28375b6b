//! The engine's threads under a scheduler that chooses who runs next, thousands of times over.
//!
//! The engine is the production one; only the primitives below it (`base::sync`) and the server (the
//! one in memory) are stood in for. The package `tests/schedule` builds it so. All scenarios, with a
//! table of them at the end:
//!
//! ```text
//! cargo test --release --package leasehold-schedule --test schedule tests::schedule -- --nocapture
//! ```
//!
//! | variable | meaning |
//! | --- | --- |
//! | `LEASEHOLD_SCHEDULES` | schedules of each scenario; 2,000 unless told, 100,000 for a full round |
//! | `LEASEHOLD_SCENARIO` | only the scenarios whose name contains this |
//! | `LEASEHOLD_SEED` | what the choices follow from; 1 unless told |
//!
//! | module | what it has |
//! | --- | --- |
//! | `scheduler` | who runs next, and when time moves |
//! | `scenario` | what a scenario is |
//! | `runner` | a scenario's schedules, half of them at random, half with few changes of priority |
//! | `world` | a server, processes, and the witness of their holds |
//! | `faults` | faults before the server |
//! | `local` | scenarios within one process |
//! | `remote` | scenarios of two processes |
//! | `permit` | permits of semaphores, passed on and granted |
//! | `election` | observers, and candidates |
//! | `share` | scenarios of a read-write lock |
//! | `wait` | waits that are called off, run out, or hear of a grant early |
//! | `loss` | renewals and losses against releases |
//! | `silence` | holds that fall silent in the tail of their lease |
//! | `end` | ends before their time: shutdown, panics |
//! | `several` | several locks at once |
//! | `batch` | callers that share batches |
//! | `claim` | those of several locks that are free, owned leases, a bound on waiters |
//!
//! Every scenario asserts by its [`world::Witness`] that nobody enters while a valid hold is inside,
//! and that tokens grow; by its end that every thread has its verdict, that the worker and the
//! listener end with the client, and that no slot and no key is left. A thread that waits although
//! nothing will come is a deadlock, which the checker reports; one that is helped only by its next
//! heartbeat is found by the time that has passed.

mod batch;
mod claim;
mod election;
mod end;
mod faults;
mod local;
mod loss;
mod permit;
mod remote;
mod runner;
mod scenario;
mod scheduler;
mod several;
mod share;
mod silence;
mod wait;
mod world;

use scenario::Scenario;

fn scenarios() -> Vec<Scenario> {
    let groups = [
        local::SCENARIOS,
        remote::SCENARIOS,
        permit::SCENARIOS,
        election::SCENARIOS,
        share::SCENARIOS,
        wait::SCENARIOS,
        loss::SCENARIOS,
        silence::SCENARIOS,
        end::SCENARIOS,
        several::SCENARIOS,
        claim::SCENARIOS,
        batch::SCENARIOS,
    ];
    groups
        .into_iter()
        .flat_map(|group| group.iter().map(|&(name, hurry, body)| Scenario { name, hurry, body }))
        .collect()
}

#[test]
fn every_schedule_keeps_every_guarantee() {
    runner::run(&scenarios());
}

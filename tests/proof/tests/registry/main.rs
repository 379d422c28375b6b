//! The registry of faults: each kind has an injector, an oracle, and a proof that it fired.
//!
//! | module | what it has |
//! | --- | --- |
//! | `kind` | the kinds of fault, and the verdict on their trials |
//! | `trial` | the tools and the measurements of a trial |
//! | `acquire`, `release`, `queue` | faults of the network: at acquire; at release and renewal; of waiters |
//! | `server`, `refusal`, `key` | faults of the server, its refusals, changes of its keys |
//! | `semaphore` | faults of the network at the requests of a semaphore |
//! | `election` | faults of the network at the requests of an election, and at the messages to its observers |
//! | `several` | faults in a pipeline that acquires or releases several locks |
//! | `holder` | faults during a holder's requests: a transaction, an extension, a check |
//! | `tail` | faults of holds whose lease is over and has a tail |
//! | `quorum` | faults of a few and of most of several servers |
//! | `cluster` | faults of a cluster |
//! | `group` | faults of a master's replicas and of its sentinels |
//! | `clock` | wall clocks that jump, of servers and of processes |
//! | `client`, `role` | faults of the processes and threads that use locks; the roles of the processes |
//! | `census` | the list of all kinds, and the checks of all of them |
//!
//! A kind is a fault at a named operation. Every kind is a test by its own name; each runs once.
//! `cargo test -p leasehold-proof --test registry census -- --nocapture` prints the list.
//!
//! The guarantees, by letter:
//!
//! | | |
//! | --- | --- |
//! | S | no two holders are valid at a time, and tokens only grow |
//! | E | a typed error within the call's time |
//! | A | an unknown outcome is reported as unknown, and is cleaned up |
//! | L | the next grant comes within its bound |

mod acquire;
mod census;
mod client;
mod clock;
mod cluster;
#[path = "../../../it/common/mod.rs"]
mod common;
mod election;
mod group;
mod holder;
mod key;
mod kind;
mod queue;
mod quorum;
mod refusal;
mod release;
mod role;
mod semaphore;
mod server;
mod several;
mod tail;
mod trial;

/// The entry point of child processes; it does nothing in the process that people started.
#[test]
fn roles() {
    role::play();
}

//! The registry of faults: each kind has an injector, an oracle, and a proof that it fired.
//!
//! | module | what it has |
//! | --- | --- |
//! | `kind` | what a kind of fault is, and how its trial is judged |
//! | `trial` | what a trial works with, and what it measures |
//! | `acquire`, `release`, `queue` | faults of the network: at acquire; at release and renewal; of those who wait |
//! | `server`, `refusal`, `key` | faults of the server, what it refuses, what happens to its keys |
//! | `holder` | faults at what a holder asks for: a transaction, a longer lease, a look |
//! | `quorum` | faults of a few and of most of several servers |
//! | `cluster` | faults of a cluster |
//! | `group` | faults of a master's replicas and of its sentinels |
//! | `input` | bad input, each row of which is a kind |
//! | `clock` | wall clocks that jump, of servers and of processes |
//! | `client`, `role` | faults of the processes and threads that use locks; what the processes do |
//! | `census` | the list of all kinds, and what must hold for all of them |
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
//! | A | an outcome that is not known is told as not known, and is made good |
//! | L | the next grant comes within its bound |

mod acquire;
mod census;
mod client;
mod clock;
mod cluster;
#[path = "../../../it/common/mod.rs"]
mod common;
mod group;
mod holder;
mod input;
mod key;
mod kind;
mod queue;
mod quorum;
mod refusal;
mod release;
mod role;
mod server;
mod trial;

/// What the children of this program run; nothing in the process that people started.
#[test]
fn roles() {
    role::play();
}

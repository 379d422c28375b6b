//! The scripts of the weighted lock, the mechanism behind semaphore and read-write lock.
//!
//! | module | what it has |
//! | --- | --- |
//! | `script` | the scripts as they are shipped, and the bugs that can be planted in them |
//! | `request`, `content` | what is asked, returned, published and kept, as commands and replies of Redis |
//! | `lab` | a server in memory, or a real one |
//! | `hold`, `line`, `slot`, `change`, `limit`, `memory`, `kind`, `refusal` | what each script does, rule by rule, on both |
//! | `inspection` | what an inspection tells of holders and waiters |
//! | `moment` | what happens at an exact microsecond |
//! | `random` | random operations against a simple reference, on both |
//! | `recount` | sums that are too high because somebody has taken a holder out by hand |
//! | `explore`, `scenario` | all that can happen among a few clients, exhaustively |
//! | `client`, `wire`, `server`, `world`, `heal`, `invariant`, `trace` | who takes part in that, and what must hold |
//! | `search`, `fold`, `redis`, `patch`, `table` | those of the explorer of the mutex, the server in memory, and the mutation gate |
//! | `bug` | bugs planted on purpose, each of which must be found |
//! | `cost` | how many commands the scripts run |
//!
//! ```text
//! cargo test -p leasehold-proof --test weighted                                            small, and the planted bugs
//! LEASEHOLD_OPERATIONS=20000 cargo test -p leasehold-proof --test weighted random          more on a real server
//! cargo test --release -p leasehold-proof --test weighted -- --ignored --nocapture large   many minutes
//! ```
//!
//! The library runs these scripts for its semaphore.
#![allow(clippy::print_stdout, reason = "it tells what was tried")]

mod bug;
mod change;
mod client;
mod content;
mod cost;
mod explore;
#[path = "../explorer/fold.rs"]
mod fold;
mod heal;
mod hold;
mod inspection;
mod invariant;
mod kind;
mod lab;
mod limit;
mod line;
mod memory;
mod moment;
#[path = "../mutation/script.rs"]
mod patch;
mod random;
mod recount;
#[path = "../../../../src/topology/memory/redis/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the library and its tests need more of it")]
mod redis;
mod refusal;
mod request;
mod scenario;
mod script;
#[path = "../explorer/search.rs"]
#[allow(dead_code, reason = "the explorer of the mutex needs more of it")]
mod search;
mod server;
mod slot;
#[path = "../mutation/table.rs"]
#[allow(dead_code, reason = "the gate needs more of it")]
mod table;
mod trace;
mod wire;
mod world;

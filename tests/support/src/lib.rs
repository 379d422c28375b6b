//! What leasehold's own tests, examples and benches share: private Redis or Valkey servers and
//! clusters of them, child processes that play a role, a TCP proxy with scripted faults and a
//! journal, injectors for faults of all kinds, and a little statistics.
//!
//! Nothing here is published, and Unix only.

mod binary;
pub mod child;
mod clock;
mod cluster;
mod command;
mod descriptor;
mod directory;
mod disk;
mod event;
pub mod fault;
pub mod fork;
mod frame;
pub mod fuzz;
mod group;
pub mod history;
mod journal;
pub mod lag;
mod link;
mod monitor;
mod network;
mod preload;
mod process;
pub mod processor;
mod proxy;
mod server;
mod signal;
mod skip;
pub mod stat;
mod watchdog;
mod wheel;

pub use child::{Child, ChildBuilder};
pub use clock::WallClock;
pub use cluster::Cluster;
pub use command::CommandStats;
pub use descriptor::NoDescriptors;
pub use disk::Disk;
pub use event::{heavy, until, within};
pub use fault::{Action, Direction, Fault, Injection, Trigger};
pub use group::Group;
pub use journal::Tally;
pub use monitor::{Line, Monitor};
pub use network::{Host, Network};
pub use proxy::{Proxy, Seen};
pub use server::{Server, ServerBuilder};
pub use skip::{or_skip, skip};

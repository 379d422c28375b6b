//! Where locks live: on one server, in a cluster, or on several servers that vote.
//!
//! | folder | what it has |
//! | --- | --- |
//! | `single` | the backend that is one server, wherever its master is |
//! | `sentinel` | the master's address, as sentinels report it, and the thread that follows it |
//! | `cluster` | the backend that is a cluster, and the routing of calls to the node of a slot |
//! | `quorum` | the protocol over several servers, a majority of which decides |
//! | `memory` | the backend that is a server in memory, for tests |
//! | `multi_node` | requests to several servers at once, for `cluster` and `quorum` |
//!
//! No folder imports from another one, except that all may use `multi_node`.

pub(crate) mod cluster;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod memory;
mod multi_node;
pub(crate) mod quorum;
pub(crate) mod sentinel;
pub(crate) mod single;

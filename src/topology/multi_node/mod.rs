//! Several servers at once.
//!
//! | module | what it has |
//! | --- | --- |
//! | `node` | one server: a pool for callers, one for the worker, and whether it is silent |
//! | `quarantine` | the time in which a restarted server has no vote |
//! | `scatter` | one request to many servers, sent and received by one thread |
//! | `recent_messages` | drops the repetitions of a message that every server publishes |

pub(crate) mod node;
mod quarantine;
pub(crate) mod recent_messages;
pub(crate) mod scatter;

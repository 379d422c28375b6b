//! Several servers at once.
//!
//! | module | what it has |
//! | --- | --- |
//! | `node` | one of them: a pool for callers, one for the worker, whether it is silent |
//! | `quarantine` | from when on a server counts that may have forgotten |
//! | `scatter` | the same question to all of them, on one thread |
//! | `recent_messages` | what all of them say, once |

pub(crate) mod node;
mod quarantine;
pub(crate) mod recent_messages;
pub(crate) mod scatter;

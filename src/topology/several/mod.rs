//! Several servers at once.
//!
//! | module | what it has |
//! | --- | --- |
//! | `node` | one of them: a pool for callers, one for the worker, whether it is silent |
//! | `scatter` | the same question to all of them, on one thread |
//! | `relay` | listening to all of them |

pub(crate) mod node;
pub(crate) mod relay;
pub(crate) mod scatter;

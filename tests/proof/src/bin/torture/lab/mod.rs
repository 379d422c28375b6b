//! The torture: processes contend for locks while faults happen, and checkers judge what they
//! recorded.
//!
//! | module | contents |
//! | --- | --- |
//! | `kind` | the kinds of fault, and which of them go together |
//! | `plan` | the events of a trial, drawn from the seed |
//! | `holder` | the part of a child process: threads that lock, work and release |
//! | `crew` | the server, the child processes, and a proxy for each |
//! | `trial` | one trial: faults on time, healing, the history, the verdict |
//! | `quorum` | the same over several servers |
//! | `look` | the state of the server during a trial, and the keys that are left at its end |
//! | `health` | threads, descriptors and memory of the processes |
//! | `tally` | the sums over all trials |

pub(crate) mod crew;
pub(crate) mod health;
pub(crate) mod holder;
mod kind;
mod look;
pub(crate) mod plan;
pub(crate) mod quorum;
pub(crate) mod tally;
pub(crate) mod trial;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

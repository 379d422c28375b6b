//! The lowest layer: errors, names, options, time, tokens, synchronisation.

#[macro_use]
pub(crate) mod logging;
pub(crate) mod panic;

#[cfg(feature = "tls")]
pub(crate) mod certificates;
pub(crate) mod close_report;
pub(crate) mod credentials;
pub(crate) mod error;
pub(crate) mod glob;
pub(crate) mod id;
pub(crate) mod inspection;
pub(crate) mod kind;
pub(crate) mod loss;
pub(crate) mod name;
pub(crate) mod option;
pub(crate) mod reserved;
#[cfg(feature = "serde")]
pub(crate) mod serial;
pub(crate) mod share;
#[cfg(not(all(test, leasehold_shuttle)))]
pub(crate) mod sync;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod testing;
// The same names over a model checker. No other file knows which of the two it uses.
#[cfg(all(test, leasehold_shuttle))]
#[path = "model/mod.rs"]
pub(crate) mod sync;
pub(crate) mod tag;
pub(crate) mod text;
pub(crate) mod thread;
pub(crate) mod time;
pub(crate) mod token;

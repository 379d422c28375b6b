//! What the server in memory, and tests, need of the lowest layer.

pub(crate) mod manual_clock;

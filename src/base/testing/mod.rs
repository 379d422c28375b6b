//! The part of the lowest layer for the server in memory and for tests.

pub(crate) mod manual_clock;

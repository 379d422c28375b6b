//! Tests of `leasehold run` with the real program and real servers.

mod common;
mod fault;
mod flock;
mod job;
mod status;
mod terminal;
mod weight;

//! Tests of `leasehold run` with the real program and real servers.

mod common;
mod container;
mod death;
mod fault;
mod flock;
mod group;
mod host;
mod job;
mod sandbox;
mod speak;
mod status;
mod terminal;
mod weight;

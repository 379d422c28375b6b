//! What the benches share: their arguments, raw locks to compare with, interleaved batches, and
//! figures for people or as lines of JSON.

#![allow(dead_code, reason = "each bench uses a part of it")]

pub(crate) mod arguments;
pub(crate) mod batch;
pub(crate) mod clock;
pub(crate) mod cost;
pub(crate) mod crowd;
pub(crate) mod member;
pub(crate) mod monitor;
pub(crate) mod raw;
pub(crate) mod report;
pub(crate) mod way;
pub(crate) mod witness;

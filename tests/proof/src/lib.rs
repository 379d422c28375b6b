//! What several proofs share.

pub mod trial;

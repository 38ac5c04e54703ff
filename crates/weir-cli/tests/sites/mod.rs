//! Rounds of failures between sites: what one does, what is there, and whether all came out right.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

pub(crate) mod plan;
pub(crate) mod round;
pub(crate) mod world;

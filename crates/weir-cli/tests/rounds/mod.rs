//! Rounds of kills: what one does, its processes, and whether all came out right.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

pub(crate) mod driver;
pub(crate) mod plan;
pub(crate) mod processes;
pub(crate) mod receiver;
pub(crate) mod round;

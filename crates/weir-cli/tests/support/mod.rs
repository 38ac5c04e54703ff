//! Real processes on loopback for tests that kill them.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

pub(crate) mod chance;
pub(crate) mod plan;
pub(crate) mod processes;
pub(crate) mod receiver;
pub(crate) mod round;

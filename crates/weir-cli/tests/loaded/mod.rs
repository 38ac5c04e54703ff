//! Rounds of misfortunes on a cluster under load.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

pub(crate) mod bed;
pub(crate) mod clocks;
pub(crate) mod member;
pub(crate) mod plan;
pub(crate) mod receiver;
pub(crate) mod round;
pub(crate) mod strangers;

//! What several tests need.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

pub(crate) mod controller;
#[expect(dead_code, reason = "tests of the command line take links down, too")]
pub(crate) mod proxy;
pub(crate) mod sites;

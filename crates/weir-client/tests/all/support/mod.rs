//! What several tests need.

pub(crate) mod controller;
#[expect(dead_code, reason = "tests of the command line take links down, too")]
pub(crate) mod proxy;
pub(crate) mod sites;

//! What several tests of relays need.

#![expect(dead_code, reason = "each test uses a part")]

pub(crate) mod controller;
pub(crate) mod proxy;
pub(crate) mod sites;

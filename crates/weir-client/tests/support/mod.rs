//! What several tests of relays need.

pub(crate) mod controller;
pub(crate) mod sites;

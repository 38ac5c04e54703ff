//! One module per group of commands.

pub(crate) mod daemons;
pub(crate) mod status;

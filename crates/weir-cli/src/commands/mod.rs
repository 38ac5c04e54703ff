//! One module per group of commands.

pub(crate) mod blocks;
pub(crate) mod config;
pub(crate) mod controller;
pub(crate) mod coordinator;
pub(crate) mod daemons;
pub(crate) mod experiment;
pub(crate) mod hosts;
pub(crate) mod live;
pub(crate) mod metrics;
pub(crate) mod outputs;
pub(crate) mod packet;
pub(crate) mod policies;
pub(crate) mod process;
pub(crate) mod relay;
pub(crate) mod scenario;
pub(crate) mod sim;
pub(crate) mod simulation;
pub(crate) mod status;
pub(crate) mod tag;
pub(crate) mod thresholds;
pub(crate) mod trace;
pub(crate) mod up;
pub(crate) mod values;
pub(crate) mod workload;

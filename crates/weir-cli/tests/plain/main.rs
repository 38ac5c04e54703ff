//! The command line where it needs no daemons, and what documents say of it. One binary: each takes its time to link.

mod careless;
#[path = "../support/command.rs"]
mod command;
mod documents;
mod experiment;
mod json;
mod outputs;
mod packet;
mod plots;
mod routing;
mod sim;
mod thresholds;
mod tidy;
mod told_apart;

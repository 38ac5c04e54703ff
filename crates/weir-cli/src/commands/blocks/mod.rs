//! Blocks from the command line: each command does one thing that a driver, a sender or a receiver does with the client library.

mod coflows;
mod cp;
mod get;
mod listing;
mod peers;
mod put;

pub(crate) use coflows::{CoflowArgs, RegisterArgs, register, seal, unregister};
pub(crate) use cp::{CpArgs, cp};
pub(crate) use get::{GetArgs, get};
pub(crate) use listing::{ListArgs, list, why};
pub(crate) use peers::{Peers, reach, run, said, silent};
pub(crate) use put::{PutArgs, put};

use serde::Serialize;
use weir_console::Failure;

/// Prints one JSON document on standard output.
pub(crate) fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    println!("{}", serde_json::to_string(document)?);
    Ok(())
}

/// Coflow ids are text in JSON: many readers of JSON keep numbers above 2^53 not exactly.
pub(crate) fn id_as_text<S: serde::Serializer>(id: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

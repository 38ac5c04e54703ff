//! Moves a workload's real bytes over a bed: separate processes for the coordinator, each host's agent and
//! each host's task, over real sockets. The driver of the workload (this module) talks to the tasks as an
//! application would, and to Weir through the client library alone.
//!
//! All coflows are registered, with their parents, and all blocks are put before the clock starts. What waits is the
//! gets: those of a stage's coflow come when the coflows it waits for are complete and it has "computed". A coflow is
//! unregistered once it has ended and all that follow on it have begun.

mod data;
mod error;
mod leftovers;
mod network;
mod options;
mod processes;
mod protocol;
mod relays;
mod run;
mod stages;
mod task;

pub use data::{check_room, free_room};
pub use error::LiveError;
pub use leftovers::{OwnChild, RunFolder, UnfinishedFile, at_end, end_on_signals, ending_signal};
pub use network::{Network, relay_address};
pub use options::{LiveOptions, RateChange, RelaySetup};
pub use relays::RelayCommands;
pub use run::{FlowOutcome, LiveOutcome, run};
pub use stages::from_start;
pub use task::run_task;

//! A host's agent: the blocks it holds, the flows it serves, and when each may send.

mod batches;
mod coflow;
mod control;
mod facts;
mod flow;
mod held;
mod hello;
mod journal_lines;
mod latencies;
mod ledger;
mod meter;
mod observing;
mod offer;
mod pacer;
#[cfg(test)]
mod picked;
mod sender;
mod settling;
mod state;
mod stores;
mod turns;

pub use batches::{Answers, Batch, Batches, DROPPED_BEYOND, GATHER, MAX_WAITING, WaitingPut};
pub use facts::{
    AgentConfig, BlockEntry, Crowd, FileStamp, Gathered, JournalEntry, OpenedFlow, OpenedGather, Output,
    Place, PutError, StoreEntry, StoreError, Transmit,
};
pub use journal_lines::{JOURNAL_HEADER, JOURNAL_HEADER_1, JournalLines, journal_lines};
pub use latencies::Latencies;
pub use ledger::FactCursor;
pub use meter::InterfaceBytes;
pub use observing::Observed;
pub use pacer::{Pacer, Pacing};
pub use state::Agent;

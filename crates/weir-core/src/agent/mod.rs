//! A host's agent: the blocks it holds, the flows it serves, and when each may send.

mod pacer;
mod state;

pub use pacer::{Pacer, Pacing};
pub use state::{Agent, AgentConfig, BlockEntry, JournalEntry, Latencies, OpenedFlow, PutError, Transmit};

//! What driver and tasks say to each other: JSON lines over the task's standard input and output.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Messages from the driver to a task.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToTask {
    /// Put these blocks; answered once by [`FromTask::PutDone`].
    Put(Vec<PutBlock>),
    /// Get these blocks now, all at once; each answered by [`FromTask::Got`].
    Get(Vec<GetBlock>),
}

/// A block: a range of the data file that all tasks can read.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PutBlock {
    pub(super) coflow: u64,
    pub(super) block: String,
    pub(super) offset: u64,
    pub(super) size: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct GetBlock {
    /// Index of the flow in the driver's list.
    pub(super) flow: usize,
    pub(super) coflow: u64,
    pub(super) block: String,
    pub(super) holder: SocketAddr,
    pub(super) group: u32,
    /// Where in the data file the expected bytes are.
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// Task to driver. Times are nanoseconds of the machine's monotonic clock.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromTask {
    PutDone,
    Got(Got),
    /// The flow's coflow was refused.
    Refused {
        flow: usize,
        reason: String,
    },
    /// A get failed, or wrong bytes arrived.
    Failed {
        flow: usize,
        reason: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Got {
    pub(super) flow: usize,
    pub(super) called_ns: u64,
    pub(super) first_byte_ns: u64,
    pub(super) done_ns: u64,
}

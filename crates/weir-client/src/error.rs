//! What can go wrong.

use tonic::{Code, Status};

/// Why a control call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The client was set up without a coordinator.
    #[error("this client has no coordinator; set ClientConfig::coordinator")]
    NoCoordinator,
    /// The client was set up without an agent.
    #[error("this client has no agent; set ClientConfig::agent to the agent's socket")]
    NoAgent,
    /// The agent names a coordinator whose address cannot be read.
    #[error("this host's agent says that its coordinator is {said:?}: {source}")]
    Coordinator {
        /// As the agent says it.
        said: String,
        /// Why that is no address.
        source: weir_net::AddressError,
    },
    /// The peer refused, for the reason it gives.
    #[error("refused: {0}")]
    Refused(String),
    /// The peer could not be reached within the time limit.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The time limit passed.
    #[error("no answer within the time limit")]
    TimeLimit,
    /// A path is not UTF-8.
    #[error("a block's path must be UTF-8")]
    Path,
    /// A file could not be read.
    #[error("cannot read the block's file: {0}")]
    File(std::io::Error),
    /// Memory for a block could not be had.
    #[error("cannot make a memory block: {0}")]
    Memory(#[from] std::io::Error),
}

impl Error {
    /// What a peer answered, or why it could not.
    pub(crate) fn of(peer: &str, status: &Status) -> Error {
        // Aborted: the peer's own peer is not there, and whether to wait for it is the caller's to say.
        if is_transient(status) || status.code() == Code::Aborted {
            Error::Unreachable(format!("{peer}: {}", said(status)))
        } else {
            Error::Refused(status.message().to_owned())
        }
    }
}

/// Why a call failed: of a connection that could not be made or broke, what the system says of it.
pub(crate) fn said(status: &Status) -> String {
    let first = std::error::Error::source(status);
    let last = std::iter::successors(first, |error| error.source()).last();
    last.map_or_else(|| status.message().to_owned(), ToString::to_string)
}

/// Whether the same call may succeed later.
pub(crate) fn is_transient(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal)
}

/// Why a block could not be got.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// The block was not put, or no agent that holds it could be reached, within the time limit. Holds the
    /// last thing that went wrong.
    #[error("block `{block}` of coflow {coflow} did not arrive within the time limit: {last}")]
    TimeLimit {
        /// Coflow that the block belongs to.
        coflow: u64,
        /// Name of the block within the coflow.
        block: String,
        /// The last thing that went wrong.
        last: String,
    },
    /// The coflow was unregistered.
    #[error("coflow {0} has ended")]
    CoflowEnded(u64),
    /// The coflow's deadline cannot be met, and it was registered to stop then.
    #[error("coflow {coflow} was refused: {reason}")]
    CoflowRefused {
        /// Coflow that the coordinator refused.
        coflow: u64,
        /// Which link lacks how much.
        reason: String,
    },
    /// The holder refused the request for good.
    #[error("the holder refused: {0}")]
    Refused(&'static str),
    /// The coordinator refused to say where the block is.
    #[error("the coordinator refused to locate the block: {0}")]
    NotLocated(String),
    /// The block's holders have other bytes under its name than those that were read already. A caller that can begin anew may
    /// get it again.
    #[error("block `{block}` of coflow {coflow} changed after {read} bytes of it were read; get it anew")]
    Changed {
        /// Coflow that the block belongs to.
        coflow: u64,
        /// Name of the block within the coflow.
        block: String,
        /// Bytes that were handed out.
        read: u64,
    },
    /// The block's file was changed or removed after it was put, at every holder that there is. It comes back if it is
    /// put again.
    #[error("the file of block `{block}` of coflow {coflow} was changed or removed after it was put")]
    Gone {
        /// Coflow that the block belongs to.
        coflow: u64,
        /// Name of the block within the coflow.
        block: String,
    },
    /// Every frame had its checksum, and the whole has another hash than its producer said. The last frame was not
    /// handed out.
    #[error("block `{block}` of coflow {coflow} does not have the hash that it was put with")]
    WrongHash {
        /// Coflow that the block belongs to.
        coflow: u64,
        /// Name of the block within the coflow.
        block: String,
    },
    /// Bytes could not be written where the caller wants them.
    #[error("cannot write what arrived: {0}")]
    Sink(#[from] std::io::Error),
}

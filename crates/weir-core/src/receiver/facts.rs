//! What a receiver is told, and what it has its driver do.

use crate::ids::HostNumber;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use weir_model::{CoflowId, Span, Time};

/// What is to be got, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// Coflow that the block belongs to.
    pub coflow: CoflowId,
    /// Name of the block within the coflow.
    pub block: String,
    /// Host that the receiver runs on.
    pub host: HostNumber,
    /// The receiving task within the coflow.
    pub group: u32,
    /// Data-plane addresses of agents known to hold the block. Empty: the coordinator is asked.
    pub holders: Vec<SocketAddr>,
    /// Whether the hash over the whole block is compared with that of its put, if it was put with one.
    pub verify_whole: bool,
    /// When the last byte is to be here at the latest.
    pub end: Time,
    /// Holders that are asked after all others, and until when.
    pub avoided: BTreeMap<SocketAddr, Time>,
}

/// One of a receiver's connections. It has at most one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// To the holder that is asked, or serves.
    Holder,
    /// To the relay that the receiver subscribes at.
    Relay,
    /// To a holder that was silent, to see whether it answers.
    Probe,
}

/// What the coordinator says to a `Locate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Located {
    /// Data-plane addresses of the holders, best first. Empty: there is none yet.
    Holders(Vec<SocketAddr>),
    /// The coflow has ended.
    Ended,
    /// The coflow was refused, for this reason, and stops then.
    Refused(String),
    /// It refuses to say, for this reason.
    Denied(String),
    /// It could not be asked, for this reason; it may answer later.
    Unavailable(String),
    /// There is no coordinator to ask.
    NoCoordinator,
}

/// Relays that the receiver's host uses, as its agent describes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelaysOfHost {
    /// Number of the site that the host is in.
    pub site: u32,
    /// Addresses of the relays of that site.
    pub addresses: Vec<SocketAddr>,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The coordinator is to be asked who holds the block; it may wait so long for a put. Answer:
    /// [`handle_located`](super::Receiver::handle_located).
    Locate {
        /// How long the coordinator may wait for the block to be put.
        wait: Span,
    },
    /// The host's agent is to be asked which relays there are. Answer:
    /// [`handle_described`](super::Receiver::handle_described).
    Describe,
    /// The coordinator is to be asked why the coflow was refused. Answer:
    /// [`handle_explained`](super::Receiver::handle_explained).
    Explain,
    /// A connection is to be made. Answer: [`handle_connected`](super::Receiver::handle_connected) or
    /// [`handle_closed`](super::Receiver::handle_closed).
    Connect {
        /// What the connection is for.
        link: Link,
        /// Data address of the agent or relay to connect to.
        address: SocketAddr,
        /// Whether one that an earlier get left will do.
        pooled: bool,
    },
    /// Bytes are to be written, after those before. Answer: [`handle_written`](super::Receiver::handle_written) or
    /// [`handle_closed`](super::Receiver::handle_closed).
    Write {
        /// Connection that the bytes go to.
        link: Link,
        /// Bytes to be written, all of them.
        bytes: Vec<u8>,
    },
    /// A connection is fit for another get.
    GiveBack {
        /// Connection that may be kept for a later get.
        link: Link,
    },
    /// A connection, or an attempt to make one, is to be ended. What of earlier writes is not on its way yet is lost.
    Close {
        /// Connection that is to be ended.
        link: Link,
    },
    /// A frame was verified: [`frame`](super::Receiver::frame) has it until
    /// [`handle_wanted`](super::Receiver::handle_wanted).
    Verified {
        /// Number of verified bytes in the frame.
        length: usize,
    },
    /// All was handed out and acknowledged, or the get failed. After [`ReceiverError::TimeLimit`] the next
    /// [`handle_wanted`](super::Receiver::handle_wanted) goes on with what there is by then; any other end stays.
    End(Result<(), ReceiverError>),
}

/// Why a block could not be got.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiverError {
    /// The block did not arrive in time. Holds what went wrong last with each holder that was asked.
    #[error("the block did not arrive within the time limit: {0}")]
    TimeLimit(String),
    /// The coflow was unregistered.
    #[error("the coflow has ended")]
    CoflowEnded,
    /// The coflow was refused, for this reason.
    #[error("the coflow was refused: {0}")]
    CoflowRefused(String),
    /// The holder refused the request for good.
    #[error("the holder refused: {0}")]
    Refused(&'static str),
    /// The coordinator refused to say where the block is.
    #[error("the coordinator refused to locate the block: {0}")]
    NotLocated(String),
    /// Holders have other bytes than those that were handed out.
    #[error("the block changed after {read} bytes of it were read")]
    Changed {
        /// Bytes that were handed out.
        read: u64,
    },
    /// The block's file was changed or removed after it was put, at every holder.
    #[error("the block's file was changed or removed after it was put")]
    Gone,
    /// The whole block has another hash than its producer said. Its last frame was not handed out.
    #[error("the block does not have the hash that it was put with")]
    WrongHash,
}

//! What goes into and comes out of an agent, besides messages.

use crate::ids::{BlockKey, FlowNumber, HostNumber, coflow_in_journal};
use serde::{Deserialize, Serialize};
use weir_model::{CoflowId, Rate, Span};
use weir_proto::data::Identity;
use weir_proto::gather::Token;
use weir_proto::{limits, v1};

/// Fixed facts and times of one agent.
#[derive(Clone, Debug, Default)]
pub struct AgentConfig {
    /// The number of this host.
    pub host: HostNumber,
    /// And its name; empty if it is called by its number.
    pub name: String,
    /// Its rack; empty if its operator named none.
    pub rack: String,
    /// What it is like, each `key=value`.
    pub labels: Vec<String>,
    /// What its links carry, up and down, headers included, as far as that is known.
    pub links: [Option<Rate>; 2],
    /// ip:port of the data plane, as receivers reach it.
    pub data_address: String,
    /// Differs each time the process starts.
    pub incarnation: u64,
    /// Drawn once for the spool: tells this agent from another one that was given the same host. 0: there is none.
    pub spool_identity: u64,
    /// How long a new flow waits for its first plan while the lease holds; then TCP's share.
    pub first_plan_wait: Span,
    /// How often progress of moving flows is reported.
    pub report_interval: Span,
    /// Messages to the coordinator are at least this far apart: a first event goes at once, those that follow it soon go
    /// together.
    pub batch: Span,
    /// Payload that this host's uplink carries, for policies that senders decide. Without it, what the
    /// coordinator says.
    pub uplink: Option<Rate>,
    /// Whether the driver answers [`Agent::wants_interface`](super::Agent::wants_interface) with counters of a network interface.
    pub measures_interface: bool,
}

/// A block this agent can serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockEntry {
    /// Coflow that the block belongs to.
    #[serde(with = "coflow_in_journal")]
    pub coflow: CoflowId,
    /// Its name, unique within the coflow.
    pub block: String,
    /// Absolute path of the file that holds it.
    pub path: String,
    /// First byte within the file.
    pub offset: u64,
    /// Length of the block in bytes, from `offset` on.
    pub size: u64,
    /// The file is the agent's own and goes with the block.
    pub spooled: bool,
    /// Checksums of its frames, if the producer computed them.
    pub frame_checksums: Vec<u32>,
    /// Which file it was when it was put; `None` in journals of version 1.
    #[serde(default)]
    pub stamp: Option<FileStamp>,
    /// Which bytes it has.
    #[serde(default, with = "identity_in_hex")]
    pub identity: Identity,
    /// Bytes and name were on the disk before it was put: they outlive the machine.
    #[serde(default)]
    pub durable: bool,
}

impl BlockEntry {
    /// A whole file as a block: one of a task, without checksums of its frames.
    pub fn of_file(
        coflow: CoflowId,
        block: String,
        path: String,
        size: u64,
        identity: Identity,
    ) -> BlockEntry {
        BlockEntry {
            coflow,
            block,
            path,
            offset: 0,
            size,
            spooled: false,
            frame_checksums: Vec::new(),
            stamp: None,
            identity,
            durable: false,
        }
    }

    /// Coflow and name, by which the block is found.
    pub fn key(&self) -> BlockKey {
        BlockKey { coflow: self.coflow, name: self.block.clone() }
    }

    /// The file that holds it.
    pub fn place(&self) -> Place {
        Place { path: self.path.clone(), stamp: self.stamp }
    }

    /// Whether another put is of the same bytes: its producers said so, or it is of the same range of the same file.
    pub(super) fn has_bytes_of(&self, other: &BlockEntry) -> bool {
        let same = self.identity == other.identity && other.identity.is_known() && self.size == other.size;
        let BlockEntry { identity, stamp, durable, .. } = *self;
        same || *self == BlockEntry { identity, stamp, durable, ..other.clone() }
    }
}

/// A file that a block is in, as it was when it was put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Absolute path of the file.
    pub path: String,
    /// Which file it was; `None` in journals of version 1.
    pub stamp: Option<FileStamp>,
}

/// Tells the file of a block from another one of its name, and from itself after it was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    /// Inode number within the file's file system.
    pub inode: u64,
    /// When it was last written to, in nanoseconds since the Unix epoch.
    pub modified_ns: i64,
    /// Its length in bytes.
    pub length: u64,
}

/// An identity as 32 hexadecimal digits. What is no such thing is of a journal without identities, or damaged: the
/// block then counts as having unknown bytes, and no receiver resumes it.
mod identity_in_hex {
    use serde::{Deserialize, Deserializer, Serializer};
    use weir_proto::data::Identity;

    pub(super) fn serialize<S: Serializer>(identity: &Identity, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{:032x}", u128::from_be_bytes(identity.0)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Identity, D::Error> {
        let digits = String::deserialize(from)?;
        Ok(u128::from_str_radix(&digits, 16).map_or(Identity::UNKNOWN, |bits| Identity(bits.to_be_bytes())))
    }
}

/// Where an executor of a framework keeps what its map tasks wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreEntry {
    /// Id of the application, 1 to [`MAX_STORE_NAME_BYTES`](weir_proto::limits::MAX_STORE_NAME_BYTES) bytes.
    pub application: String,
    /// Id of the executor within the application, with the same bound.
    pub executor: String,
    /// A receiver that asks for its bytes must say this.
    pub token: Token,
    /// Absolute paths, in the order in which the executor numbers them.
    pub directories: Vec<String>,
    /// Number of subdirectories of each.
    pub subdirectories: u32,
}

/// The bytes that were found for a gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathered {
    /// Bytes, those of the table too.
    pub size: u64,
    /// Identity of these bytes: a get that resumes names the one that it began with.
    pub identity: Identity,
}

/// A gather that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedGather {
    /// Its flow's id at this agent.
    pub flow: FlowNumber,
    /// What the block that is made for it is called.
    pub block: String,
}

/// Why a store is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A name is empty or too long.
    #[error("the names of an application and of an executor have 1 to {max} bytes", max = limits::MAX_STORE_NAME_BYTES)]
    Name,
    /// It has no directories, or too many, or they cannot be.
    #[error(
        "a store has 1 to {max} directories, whose paths have at most {path} bytes together, and 1 to 65536 subdirectories in each",
        max = limits::MAX_STORE_DIRECTORIES,
        path = limits::MAX_PATH_BYTES
    )]
    Directories,
    /// Another store of this name is served.
    #[error("executor {executor} of {application} has a store with another token; detach that first")]
    Taken {
        /// Application of the store that is served.
        application: String,
        /// Executor of the store that is served.
        executor: String,
    },
    /// The agent has as many as it may.
    #[error("the agent serves {max} stores, which is the bound", max = limits::MAX_STORES_PER_AGENT)]
    Full,
    /// The host is to be stopped.
    #[error("the host is being drained and takes no more stores")]
    Draining,
    /// There is no such store, or the token is not its own.
    #[error("no executor {executor} of {application} has a store with that token here")]
    Unknown {
        /// Application that the call names.
        application: String,
        /// Executor that the call names.
        executor: String,
    },
}

/// A fact that must survive the process; replayed through [`Agent::restore`](super::Agent::restore) in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JournalEntry {
    /// A block was put.
    Put(BlockEntry),
    /// A coflow exists. The encoded note is a protobuf `weir.v1.CoflowNote`, with `age_ns` counted at
    /// `noted_ns` on the coordinator-independent clock the driver passes as `now`.
    Coflow {
        /// Coflow that the note describes.
        #[serde(with = "coflow_in_journal")]
        coflow: CoflowId,
        /// Protobuf encoding of the `weir.v1.CoflowNote`.
        note: Vec<u8>,
        /// When it was noted.
        noted_ns: u64,
    },
    /// A flow of this coflow was served to its end.
    Done {
        /// Coflow that the flow belonged to.
        #[serde(with = "coflow_in_journal")]
        coflow: CoflowId,
        /// Bytes of the flow.
        bytes: u64,
        /// Which receiver got which block, so that one that gets it again counts once; 0 in journals of version 1.
        #[serde(default)]
        mark: u64,
    },
    /// All that was served of a coflow so far: stands for many [`JournalEntry::Done`] in a journal that was written anew.
    Served {
        /// Coflow that the sums are of.
        #[serde(with = "coflow_in_journal")]
        coflow: CoflowId,
        /// Number of flows that were served to their end.
        flows: u64,
        /// Sum of the bytes of these flows.
        bytes: u64,
        /// Which receivers got which blocks.
        marks: Vec<u64>,
    },
    /// A block is not held any more, though its coflow goes on.
    Gone {
        /// Coflow that the block belongs to.
        #[serde(with = "coflow_in_journal")]
        coflow: CoflowId,
        /// Name of the block within the coflow.
        block: String,
    },
    /// A block is held all the same, and not in this file any more. Agents of version 0.1 before there was more than one
    /// skip it as a damaged line, and find out when they open the file.
    PlaceGone {
        /// Coflow that the block belongs to.
        #[serde(with = "coflow_in_journal")]
        coflow: CoflowId,
        /// Name of the block within the coflow.
        block: String,
        /// File from which the block is no longer served.
        place: Place,
    },
    /// The coflow ended; its blocks are gone.
    Ended(#[serde(with = "coflow_in_journal")] CoflowId),
    /// All coflows from the first id to the last ended.
    EndedRange(#[serde(with = "coflow_in_journal")] CoflowId, #[serde(with = "coflow_in_journal")] CoflowId),
    /// What follows was written down since the machine started with this name. Agents of version 0.1 before there was more
    /// than one way to be durable skip it as a damaged line.
    Boot(String),
    /// The agent takes no more blocks, or takes them again. Agents of earlier versions skip it as a damaged line.
    Draining(bool),
    /// An executor's files are served. Agents of earlier versions skip it, and the next, as damaged lines.
    Store(StoreEntry),
    /// An executor's files are served no longer.
    StoreGone {
        /// Application of the store that is gone.
        application: String,
        /// Executor of the store that is gone.
        executor: String,
    },
}

/// What an agent wants done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A fact is to be appended to the journal.
    Journal(JournalEntry),
    /// A block is not to be served from this file any more, or from none: who reads it asks again, and hears why or gets it
    /// from another file.
    Cut {
        /// Coflow and name of the block.
        key: BlockKey,
        /// File that must not be read any more; `None` stands for every file of the block.
        place: Option<Place>,
    },
    /// All coflows from the first id to the last have ended: nothing is to be kept of their blocks.
    Ended(CoflowId, CoflowId),
    /// What a flow sends from now on goes in this class of priority, counted from 0, and [`Agent::due_of`](super::Agent::due_of) says
    /// whether it is to end just before a deadline; a new flow asks [`Agent::class_of`](super::Agent::class_of).
    Class(FlowNumber, u8),
    /// The connection of a flow is to be closed: its coflow ended, or was refused.
    Abort(FlowNumber),
    /// A spooled file is to be removed: its block is gone.
    Discard(String),
    /// The agent's operator should know this.
    Notice(String),
    /// A flow takes less than it is offered, or others wait for it: answer with [`Agent::handle_waited`](super::Agent::handle_waited).
    Suspect(FlowNumber),
    /// The coordinator asks for a file of this host: answer with [`Agent::handle_offered`](super::Agent::handle_offered).
    Offer(v1::Offer),
    /// Message to send to the coordinator.
    Message(v1::AgentMessage),
}

/// A flow that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedFlow {
    /// Its id at this agent.
    pub flow: FlowNumber,
    /// The block it reads.
    pub block: BlockEntry,
    /// Where it starts within the block.
    pub offset: u64,
}

/// Permission to write bytes of a flow to its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Flow whose bytes may be written.
    pub flow: FlowNumber,
    /// At most this many payload bytes,
    pub bytes: u64,
    /// and none while more than this are unacknowledged.
    pub in_flight_limit: u64,
}

/// A flow has more under way than its [`Transmit`] allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// Bytes that are unacknowledged.
    pub in_flight: u64,
    /// A round trip while no queue stands on the path.
    pub round_trip: Span,
    /// Payload bytes of a full segment.
    pub segment_bytes: u32,
}

/// Why a block was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// The name is empty or too long, or begins as those of blocks that are made for gathers.
    #[error("block names have 1 to {max} bytes, and do not begin with //gather/", max = limits::MAX_BLOCK_NAME_BYTES)]
    Name,
    /// It is larger than a block may be.
    #[error("the block has {0} bytes; a block has at most {max}", max = limits::MAX_BLOCK_BYTES)]
    TooLarge(u64),
    /// The producer's checksums are not one for each frame.
    #[error("{given} checksums for a block of {frames} frames; give one for each frame, or none")]
    Checksums {
        /// Number of checksums that the producer gave.
        given: usize,
        /// Frames of a block of that size.
        frames: u64,
    },
    /// The coflow has a block of this name with other bytes.
    #[error("coflow {coflow} already has another block named `{block}`")]
    Taken {
        /// Coflow that has the other block.
        coflow: CoflowId,
        /// Name that both blocks have.
        block: String,
    },
    /// The coflow was unregistered.
    #[error("coflow {0} has ended")]
    Ended(CoflowId),
    /// The file belongs to another block already.
    #[error("`{0}` is the file of another block already")]
    Owned(String),
    /// What is put could not be made to survive the agent's process.
    #[error("the agent's spool has no room for more: {0}")]
    NoSpace(String),
    /// The host is to be stopped.
    #[error("this host is being drained: it takes no more blocks, and no more files are taken from it")]
    Draining,
    /// The agent holds as many blocks as it may.
    #[error("this agent already holds {max} blocks", max = limits::MAX_BLOCKS_PER_AGENT)]
    Full,
}

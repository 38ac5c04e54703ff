//! The operating system's edge: clocks, sockets and gRPC channels over them, readiness, sendfile, pipes
//! between sockets, checksums of files, counters of interfaces.
//!
//! Mechanism only. Nothing here knows what a coflow is or decides when anything is sent.
#![deny(unsafe_code)]

mod address;
mod alarm;
mod block_file;
mod channel;
mod clock;
mod descriptors;
mod incoming;
mod interface;
mod mounts;
mod pipe;
mod poller;
mod relay_socket;
mod socket;

pub use address::{Address, AddressError};
pub use alarm::Alarm;
pub use block_file::{
    BlockFile, FileStamp, FrameChecksums, FrameRead, FrameReader, Medium, OpenedFile, Piece, SendOutcome,
    open_regular,
};
pub use channel::{agent_channel, coordinator_channel};
pub use clock::{Clock, boot, monotonic_nanos};
pub use descriptors::{connections_within_limit, raise_descriptor_limit};
pub use incoming::{Guarded, Listener, Peer, incoming};
pub use interface::{Interface, InterfaceCounters, link_speed};
pub use mounts::{FileSystem, Mounts};
pub use pipe::{Filled, Payload, PipePool};
pub use poller::{Event, Poller, Waker};
pub use relay_socket::{connected, dial, limit_rate, send, send_both, tune_relay};
pub use socket::{
    CONGESTION_CONTROL, CONTROL_DSCP, TcpPath, Unsent, connect_to_send, control_listener, data_listener,
    hint, mark_control, tcp_path, tune_receiver, tune_served, tune_tagged, tune_unsent, unacknowledged,
    unmark, unsent, wake_at,
};

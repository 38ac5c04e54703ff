//! What switches are told of flows that begin.

use super::data_plane::Running;
use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use weir_model::Bytes;

/// Sets the priority that switches give the packets of a socket.
pub trait Tags: Debug + Send + Sync {
    /// What `socket` sends next is one flow, of this size.
    ///
    /// # Errors
    /// Its packets are tagged as before then.
    fn known(&self, socket: BorrowedFd<'_>, size: Bytes) -> io::Result<()>;
}

impl Running {
    /// Says how much the flow of connection `token` is to send, before its first frame.
    pub(super) fn tag(&self, token: u64, offset: u64) {
        let Some((tags, connection)) = self.tags.as_ref().zip(self.connections.get(&token)) else { return };
        let Some(block) = connection.block() else { return };
        let left = Bytes(block.file.size().saturating_sub(offset));
        if let Err(error) = tags.known(connection.frame_stream().as_fd(), left) {
            tracing::debug!(%error, "a flow has no tag");
        }
    }
}

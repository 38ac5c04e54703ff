//! Connections of the data plane get their priority in switches, where the agent tags.

use super::data_plane::Running;
use super::tags::Tags;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Once;
use weir_core::ids::FlowNumber;
use weir_model::Bytes;

/// Whether it was said that classes are for nothing here.
static UNTAGGED: Once = Once::new();

impl Running {
    /// Prepares a connection that receivers made.
    pub(super) fn tune(&self, stream: &TcpStream) -> io::Result<()> {
        if self.tags.is_some() { weir_net::tune_tagged(stream) } else { weir_net::tune_served(stream) }
    }

    /// Says how much the flow of connection `token` is to send, before its first frame.
    pub(super) fn tag(&self, token: u64, (flow, offset): (FlowNumber, u64)) {
        let Some((tags, connection)) = self.tags.as_ref().zip(self.connections.get(&token)) else { return };
        let Some(block) = connection.block() else { return };
        let (socket, left) = (connection.frame_stream().as_fd(), block.file.size().saturating_sub(offset));
        let tagged = match self.agent.class_of(flow) {
            Some(class) => self.place(&**tags, socket, flow, (class, left)),
            None => tags.known(socket, Bytes(left)),
        };
        // Data without a class is not to go as control, before all others.
        note(tagged.or_else(|error| weir_net::unmark(&socket).and(Err(error))));
    }

    /// Puts what a socket still has to send of a flow into a class, or has it end just before its deadline.
    fn place(
        &self,
        tags: &dyn Tags,
        socket: BorrowedFd<'_>,
        flow: FlowNumber,
        (class, left): (u8, u64),
    ) -> io::Result<()> {
        match self.agent.due_of(flow) {
            // What its kernel holds unsent is to arrive as well.
            Some(due) => {
                let size = left.saturating_add(weir_net::unsent(socket)?);
                tags.deadline(socket, Bytes(size), due.since(self.clock.now()))
            }
            None => tags.class(socket, class),
        }
    }

    /// The coordinator has another class for the coflow of a flow.
    pub(super) fn tag_class(&self, flow: FlowNumber, class: u8) {
        let Some(tags) = &self.tags else {
            return UNTAGGED.call_once(|| {
                tracing::warn!(
                    "the coordinator has coflows in classes of priority, and this agent tags nothing: --tag INTERFACE"
                );
            });
        };
        let connection = self.by_flow.get(&flow).and_then(|token| self.connections.get(token));
        // One that has not begun to send gets its class when it does.
        if let Some(connection) = connection.filter(|connection| connection.block().is_some()) {
            let (socket, left) = (connection.frame_stream().as_fd(), self.agent.left_of(flow));
            note(self.place(&**tags, socket, flow, (class, left.unwrap_or_default())));
        }
    }
}

fn note(tagged: io::Result<()>) {
    if let Err(error) = tagged {
        tracing::debug!(%error, "a flow has no tag");
    }
}

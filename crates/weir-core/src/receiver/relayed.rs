//! Frames that come by way of relays: messages of the relay that the receiver subscribed at.

use super::timer::Timer;
use weir_model::{Span, Time};
use weir_proto::relay::{FlowKey, HEADER_BYTES, Header, Kind};

/// A relay says of every flow that it goes on, once a second. One that is silent for this long, or has failed, is
/// done without.
const SILENCE_LIMIT: Span = Span::from_millis(5_000);

/// The messages of one flow.
#[derive(Debug)]
pub(super) struct RelayedFlow {
    key: FlowKey,
    head: [u8; HEADER_BYTES],
    head_filled: usize,
    /// Bytes of the current message that are still to come.
    left: usize,
    /// Bytes of the flow before the next message.
    offset: u64,
    /// Since the relay was heard of.
    pub(super) silence: Timer,
}

impl RelayedFlow {
    pub(super) fn new(now: Time, key: FlowKey) -> RelayedFlow {
        let silence = Timer::new(now, SILENCE_LIMIT);
        RelayedFlow { key, head: [0; HEADER_BYTES], head_filled: 0, left: 0, offset: 0, silence }
    }

    /// Room for the rest of a message's header, between two messages.
    pub(super) fn head_room(&mut self) -> Option<&mut [u8]> {
        (self.left == 0).then_some(&mut self.head[self.head_filled..])
    }

    /// Bytes of the flow that come before the next header.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Bytes of the flow arrived.
    pub(super) fn take(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count);
    }

    /// Whether the connection is fit for another flow: all of this one was read.
    pub(super) fn is_spent(&self) -> bool {
        self.left == 0 && self.head_filled == 0
    }

    /// Bytes of a header arrived.
    pub(super) fn take_head(&mut self, count: usize) -> Result<(), String> {
        self.head_filled = self.head_filled.saturating_add(count).min(HEADER_BYTES);
        if self.head_filled < HEADER_BYTES {
            return Ok(());
        }
        self.head_filled = 0;
        let header = Header::decode(&self.head).map_err(|error| error.to_string())?;
        match header.kind {
            // Of the flow that the connection was left by: what was said of it may come after its end.
            Kind::Alive | Kind::Reset if header.key != self.key => Ok(()),
            Kind::Data if header.number == self.offset => {
                self.left = header.length as usize;
                self.offset = self.offset.saturating_add(header.length.into());
                Ok(())
            }
            Kind::Alive => Ok(()),
            Kind::Reset => Err("the relays gave the flow up".to_owned()),
            _ => Err("a relay sent something else than the next bytes".to_owned()),
        }
    }
}

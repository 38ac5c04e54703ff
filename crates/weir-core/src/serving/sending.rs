//! What is to be written of a flow: answers, headers, payload, each to its connection.

use std::collections::VecDeque;
use weir_model::Time;
use weir_proto::data::{FRAME_BYTES, FRAME_HEADER_BYTES, FrameHeader, frame_count, frame_length};
use weir_proto::relay::{
    self, FlowKey, HELLO_BYTES, HOP_LIMIT, Header, Hello, Kind, OPEN_BYTES, PIECE_BYTES, Role,
};

/// Which connection bytes go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlet {
    /// The connection on which the receiver asked.
    Receiver,
    /// To the relay that carries the flow.
    Relay,
}

/// What is to be written next. Where the connection takes nothing, the same is asked for later.
#[derive(Debug, PartialEq, Eq)]
pub enum Write<'a> {
    /// These bytes; [`Conversation::handle_written`](super::Conversation::handle_written) follows.
    Bytes {
        /// Connection that the bytes go to.
        to: Outlet,
        /// Bytes to write, before any payload.
        bytes: &'a [u8],
        /// The payload that follows at once, if any does: the connection may wait for it. It may go in the same write; then how
        /// much of it went is told by [`Conversation::handle_sent`](super::Conversation::handle_sent), after all of the bytes.
        then: Option<Payload>,
    },
    /// At most `count` bytes of a range's block; [`Conversation::handle_sent`](super::Conversation::handle_sent) follows.
    Payload {
        /// Connection that the payload goes to.
        to: Outlet,
        /// Which range of the flow, from 0.
        range: usize,
        /// From this byte of the block on.
        offset: u64,
        /// Bytes, all of one frame.
        count: u64,
    },
    /// The frame that begins at a byte of a range's block is to be sent;
    /// [`Conversation::handle_frame`](super::Conversation::handle_frame) says its checksum first.
    Frame {
        /// Which range of the flow, from 0.
        range: usize,
        /// First byte of the frame within the block.
        offset: u64,
    },
    /// The relay's connection is not there yet.
    Waits,
    /// What was allowed is written, or all is.
    Nothing,
}

/// Bytes of a block that are to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Which range of the flow, from 0.
    pub range: usize,
    /// From this byte of the block on.
    pub offset: u64,
    /// Bytes, all of one frame.
    pub count: u64,
}

/// A part of a flow: a block, from a byte on to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first byte: a multiple of [`FRAME_BYTES`], or the size.
    pub offset: u64,
    /// Bytes of the whole block.
    pub size: u64,
}

impl Range {
    /// What carries it: its frames and their headers.
    fn wire_bytes(&self) -> u64 {
        let frames = frame_count(self.size).saturating_sub(self.offset / FRAME_BYTES);
        let headers = frames.saturating_mul(FRAME_HEADER_BYTES as u64);
        self.size.saturating_sub(self.offset).saturating_add(headers)
    }
}

/// Bytes that wait to be written.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    bytes: Vec<u8>,
    written: usize,
}

impl Waiting {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// What is left of them.
    pub(super) fn left(&self) -> Option<&[u8]> {
        self.bytes.get(self.written..).filter(|left| !left.is_empty())
    }

    pub(super) fn take(&mut self, count: usize) {
        self.written = self.written.saturating_add(count);
        if self.written >= self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
        }
    }
}

/// The relay that carries a flow, and what it was told.
#[derive(Debug)]
pub(super) struct Upload {
    key: FlowKey,
    pub(super) waiting: Waiting,
    /// Bytes of the flow that messages announced.
    announced: u64,
    pub(super) is_connected: bool,
    /// When the connection to the relay was begun, and whether it failed.
    pub(super) begun: Time,
    pub(super) has_failed: bool,
}

impl Upload {
    pub(super) fn new(now: Time, key: FlowKey, open: &relay::Open, ranges: &[Range]) -> Upload {
        let bytes = ranges.iter().map(Range::wire_bytes).fold(0, u64::saturating_add);
        let hello = Hello { role: Role::Host, connections: 1, session: 0 };
        let lead = |kind, length, number| Header { length, ..Header::about(key, kind, number) }.encode();
        let mut waiting = Waiting::default();
        waiting.push(&lead(Kind::Hello, HELLO_BYTES as u32, 0));
        waiting.push(&hello.encode());
        waiting.push(&lead(Kind::Open, OPEN_BYTES as u32, bytes));
        waiting.push(&open.encode());
        Upload { key, waiting, announced: 0, is_connected: false, begun: now, has_failed: false }
    }

    /// Leads the next `length` bytes of the flow.
    fn announce(&mut self, length: u64) {
        self.waiting.push(&Header::data(self.key, HOP_LIMIT, self.announced, length as u32).encode());
        self.announced = self.announced.saturating_add(length);
    }
}

/// How far a flow is.
#[derive(Debug)]
pub(super) struct Sending {
    /// What is left, the one at hand first.
    ranges: VecDeque<Range>,
    /// Number of the range at hand.
    range: usize,
    /// Where the frame at hand ends, and what is written as one: a frame, or a message to a relay.
    frame_end: u64,
    piece_end: u64,
    /// When bytes were written last.
    pub(super) wrote: Time,
}

impl Sending {
    pub(super) fn new(ranges: Vec<Range>, now: Time) -> Sending {
        let mut sending = Sending { ranges: ranges.into(), range: 0, frame_end: 0, piece_end: 0, wrote: now };
        sending.begin_range();
        sending
    }

    /// Goes on to the first range that has bytes.
    fn begin_range(&mut self) {
        while self.ranges.front().is_some_and(|range| range.offset >= range.size) {
            self.ranges.pop_front();
            self.range = self.range.saturating_add(1);
        }
        let offset = self.ranges.front().map_or(0, |range| range.offset);
        (self.frame_end, self.piece_end) = (offset, offset);
    }

    /// Whether all was written.
    pub(super) fn is_over(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The frame that is to be announced before anything else of the flow.
    pub(super) fn next_frame(&self) -> Option<(usize, u64)> {
        let range = self.ranges.front()?;
        (range.offset == self.frame_end).then_some((self.range, range.offset))
    }

    /// What may be written now: which range, from where, how much.
    pub(super) fn next_payload(&self, most: u64) -> Option<Payload> {
        let range = self.ranges.front()?;
        let count = self.piece_end.saturating_sub(range.offset).min(most);
        (count > 0).then_some(Payload { range: self.range, offset: range.offset, count })
    }

    /// The checksum of the next frame is known: puts what leads it into the output.
    pub(super) fn begin_frame(&mut self, checksum: u32, direct: &mut Waiting, upload: Option<&mut Upload>) {
        let Some(range) = self.ranges.front().filter(|range| range.offset == self.frame_end) else { return };
        let length = frame_length(range.size, range.offset);
        let header = FrameHeader { length: length as u32, checksum }.encode();
        self.frame_end = range.offset.saturating_add(length);
        match upload {
            None => {
                self.piece_end = self.frame_end;
                direct.push(&header);
            }
            Some(upload) => {
                self.piece_end = self.frame_end.min(range.offset.saturating_add(PIECE_BYTES));
                let piece = self.piece_end.saturating_sub(range.offset);
                upload.announce(piece.saturating_add(header.len() as u64));
                upload.waiting.push(&header);
            }
        }
    }

    /// Leads the next message to a relay within a frame, where a frame is more than one.
    pub(super) fn begin_piece(&mut self, upload: Option<&mut Upload>) {
        let (Some(range), Some(upload)) = (self.ranges.front(), upload) else { return };
        if range.offset == self.piece_end && range.offset < self.frame_end {
            self.piece_end = self.frame_end.min(range.offset.saturating_add(PIECE_BYTES));
            upload.announce(self.piece_end.saturating_sub(range.offset));
        }
    }

    pub(super) fn handle_sent(&mut self, now: Time, count: u64) {
        let Some(range) = self.ranges.front_mut() else { return };
        range.offset = range.offset.saturating_add(count).min(self.piece_end);
        self.wrote = now;
        if range.offset >= range.size {
            self.begin_range();
        }
    }
}

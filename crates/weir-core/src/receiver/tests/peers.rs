//! Holders and relays that are played by hand.

use std::collections::BTreeMap;
use weir_proto::data::{
    ACK, FRAME_BYTES, FrameHeader, Identity, NAK, NAK_BYTES, Request, Response, Status, checksum,
};
use weir_proto::relay::{
    FlowKey, HEADER_BYTES, HELLO_BYTES, Header, Kind, MAX_DATA_BYTES, PATH_BYTES, RelayPath,
};

pub(super) const FRAME: usize = FRAME_BYTES as usize;

/// A block of two frames and 1,000 bytes. Those of another `version` differ from the frame of that number on.
pub(super) fn content(version: usize) -> Vec<u8> {
    (0..2 * FRAME + 1000).map(|at| (at % 251) as u8 ^ u8::from(at / FRAME >= version)).collect()
}

pub(super) fn identity(number: u8) -> Identity {
    Identity::drawn([number; 16])
}

/// Frames of a block from `offset` on.
pub(super) fn frames(block: &[u8], offset: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in block.get(offset as usize..).unwrap_or_default().chunks(FRAME) {
        let header = FrameHeader { length: frame.len() as u32, checksum: checksum(frame) };
        bytes.extend_from_slice(&header.encode());
        bytes.extend_from_slice(frame);
    }
    bytes
}

/// One connection, as its peer has it.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// What the receiver wrote and the peer has not understood yet.
    pub(super) written: Vec<u8>,
    /// What the peer sent.
    pub(super) sent: Vec<u8>,
    /// Bytes of it that the receiver read before.
    pub(super) read: usize,
    /// The peer closes once that was read.
    pub(super) closes: bool,
}

/// An agent that holds a block.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) block: Vec<u8>,
    pub(super) identity: Identity,
    /// Accepts no connection; `None`: and does not say so.
    pub(super) reachable: Option<bool>,
    /// Says this before it is asked.
    pub(super) greeting: Vec<u8>,
    /// Answers with this instead of what is true.
    pub(super) status: Option<u8>,
    /// Sends so many bytes of an answer, as often as `breaks` says, and then closes, or falls silent.
    pub(super) sends: usize,
    pub(super) breaks: u32,
    pub(super) falls_silent: bool,
    /// Is gone after its last byte.
    pub(super) dies_at_the_end: bool,
    /// Inverts this byte of an answer.
    pub(super) damages: Option<usize>,
    /// Sends this after the last frame.
    pub(super) extra: Vec<u8>,
    /// Answers requests for a block without a name.
    pub(super) is_alive: bool,
    /// Sends by relays if it is offered a way.
    pub(super) relays: bool,
    /// Understands a way before a request.
    pub(super) knows_ways: bool,
    /// What it was asked for, and with which way.
    pub(super) requests: Vec<(Request, Option<RelayPath>)>,
    pub(super) acknowledged: usize,
    /// Frames of which it was told that they are damaged.
    pub(super) doubted: Vec<u8>,
}

impl Holder {
    pub(super) fn of(block: Vec<u8>, number: u8) -> Holder {
        Holder {
            block,
            identity: identity(number),
            reachable: Some(true),
            greeting: Vec::new(),
            status: None,
            sends: usize::MAX,
            breaks: 0,
            falls_silent: false,
            dies_at_the_end: false,
            damages: None,
            extra: Vec::new(),
            is_alive: true,
            relays: false,
            knows_ways: true,
            requests: Vec::new(),
            acknowledged: 0,
            doubted: Vec::new(),
        }
    }

    /// What it was asked for: offsets and identities.
    pub(super) fn asked(&self) -> Vec<(u64, Identity)> {
        self.requests.iter().map(|(request, _)| (request.offset, request.identity)).collect()
    }

    /// Understands what was written. `flows`: what relays carry.
    pub(super) fn react(&mut self, connection: &mut Connection, flows: &mut BTreeMap<FlowKey, Vec<u8>>) {
        let mut path = None;
        while let Some(&first) = connection.written.first() {
            if first == ACK {
                connection.written.remove(0);
                self.acknowledged += 1;
            } else if first == NAK {
                self.doubted.push(connection.written[1]);
                connection.written.drain(..NAK_BYTES);
            } else if let Some(Some(way)) = RelayPath::decode(&connection.written).unwrap() {
                connection.written.drain(..PATH_BYTES);
                path = Some(way);
            } else {
                let (request, length) = Request::decode(&connection.written).unwrap().unwrap();
                connection.written.drain(..length);
                self.answer(connection, request, path.take(), flows);
            }
        }
    }

    fn answer(
        &mut self,
        connection: &mut Connection,
        request: Request,
        path: Option<RelayPath>,
        flows: &mut BTreeMap<FlowKey, Vec<u8>>,
    ) {
        if request.block.is_empty() {
            let refusal = Response::refusal(Status::NoSuchBlock).encode();
            return connection.sent.extend(if self.is_alive { &refusal[..] } else { &[] });
        }
        self.requests.push((request.clone(), path));
        let mut status = Status::Accepted;
        let key = path.filter(|_| self.relays).map(|path| FlowKey::of(&request, &path));
        if request.identity.is_known() && request.identity != self.identity {
            status = Status::OtherBytes;
        } else if key.is_some() {
            status = Status::Relayed;
        } else if path.is_some() && !self.knows_ways {
            status = Status::BadRequest;
        }
        let size = self.block.len() as u64;
        let mut bytes = Response { status, size, identity: self.identity }.encode().to_vec();
        bytes[5] = self.status.unwrap_or(bytes[5]);
        let frames = frames(&self.block, request.offset);
        match key {
            Some(key) => _ = flows.insert(key, frames),
            None if bytes[5] == Status::Accepted as u8 => {
                bytes.extend(frames);
                bytes.extend(&self.extra);
            }
            None => {}
        }
        if let Some(byte) = self.damages.and_then(|at| bytes.get_mut(at)) {
            *byte = !*byte;
        }
        if self.breaks > 0 && key.is_none() {
            self.breaks -= 1;
            bytes.truncate(self.sends);
            connection.closes = !self.falls_silent;
        }
        connection.sent.extend(bytes);
    }
}

/// The relay of the receiver's site.
#[derive(Clone, Debug)]
pub(super) struct Relay {
    pub(super) reachable: Option<bool>,
    /// Sends so many messages of a flow,
    pub(super) sends: usize,
    /// and then this, if not all.
    pub(super) then: Then,
    /// Bytes of a flow in a message.
    pub(super) piece: usize,
    /// Flows that were subscribed to.
    pub(super) subscribed: Vec<FlowKey>,
    pub(super) greeted: usize,
}

/// What a relay does in the middle of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Reset,
    Close,
    /// Sends bytes of another place.
    Skip,
    FallSilent,
}

impl Relay {
    pub(super) fn new() -> Relay {
        Relay {
            reachable: Some(true),
            sends: usize::MAX,
            then: Then::Reset,
            piece: MAX_DATA_BYTES,
            subscribed: Vec::new(),
            greeted: 0,
        }
    }

    pub(super) fn react(&mut self, connection: &mut Connection, flows: &mut BTreeMap<FlowKey, Vec<u8>>) {
        while let Some(head) = connection.written.first_chunk::<HEADER_BYTES>() {
            let header = Header::decode(head).unwrap();
            connection.written.drain(..HEADER_BYTES);
            if header.kind == Kind::Hello {
                connection.written.drain(..HELLO_BYTES);
                self.greeted += 1;
                continue;
            }
            assert_eq!(header.kind, Kind::Subscribe);
            self.subscribed.push(header.key);
            // A holder may say that it sends by relays, and send nothing.
            let bytes = flows.remove(&header.key).unwrap_or_default();
            let mut offset = 0;
            for (number, piece) in bytes.chunks(self.piece).enumerate() {
                if number == self.sends {
                    return self.stop(connection, header.key, offset);
                }
                connection.sent.extend(Header::about(header.key, Kind::Alive, 0).encode());
                let data = Header::data(header.key, 1, offset, piece.len() as u32);
                connection.sent.extend(data.encode());
                connection.sent.extend(piece);
                offset += piece.len() as u64;
            }
        }
    }

    fn stop(&self, connection: &mut Connection, key: FlowKey, offset: u64) {
        match self.then {
            Then::Reset => connection.sent.extend(Header::about(key, Kind::Reset, 0).encode()),
            Then::Close => connection.closes = true,
            Then::Skip => {
                connection.sent.extend(Header::data(key, 1, offset + 1, 1).encode());
                connection.sent.push(0);
            }
            Then::FallSilent => {}
        }
    }
}

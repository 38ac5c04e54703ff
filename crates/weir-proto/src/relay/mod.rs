//! Framing between hosts and relays and between relays, version 1.
//!
//! A peer that connects to a relay says [`Hello`] first. After it both sides send messages: a [`Header`] of
//! [`HEADER_BYTES`] and, for some kinds, a body of the length that the header tells. The bytes of a flow are what
//! the data plane would have sent to its receiver ([`crate::data`]: frame headers and payloads), cut into
//! [`Kind::Data`] messages that each say where they begin. So the receiver checks the same checksums, whichever way
//! the bytes came.
//!
//! ```text
//! source host -> relay:  Hello(host)      Open  Data...                     end of connection: of the flow
//! relay -> relay:        Hello(relay)     Open  Data...  Alive  End  Reset
//!              back:                      Credit  Reset
//! receiver -> relay:     Hello(receiver)  Subscribe
//!              back:                      Data...  Alive  Reset
//! ```
//!
//! All integers are little-endian. A reader that finds another version closes the connection; it looks at nothing
//! beyond the first byte, so that a later version may change the rest.

mod body;

pub use body::{HELLO_BYTES, Hello, OPEN_BYTES, Open, PATH_BYTES, PATH_MAGIC, RelayPath, Role};

use crate::data::{DecodeError, FRAME_BYTES, FRAME_HEADER_BYTES, Request};
use crate::gather::GatherRequest;

/// Version of this framing.
pub const VERSION: u8 = 1;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 32;
/// Payload of a frame that one message carries at most: all of it.
pub const PIECE_BYTES: u64 = FRAME_BYTES;
/// Longest body of a [`Kind::Data`] message: the header of a frame, and a piece of the frame.
pub const MAX_DATA_BYTES: usize = PIECE_BYTES as usize + FRAME_HEADER_BYTES;
/// Hop limit that a flow starts with. Each relay takes one off; at 0 the flow is reset.
pub const HOP_LIMIT: u8 = 8;

/// Names one flow between sites. Keys order by their components.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    /// Id of the coflow that the flow belongs to.
    pub coflow: u64,
    /// The flow group: the receiving task within the coflow, as [`reducer`] has it.
    pub reducer: u32,
    /// Tells flows to one reducer apart.
    pub mapper: u32,
}

impl FlowKey {
    /// Of a block that a receiver asked for by way of a path.
    pub fn of(request: &Request, path: &RelayPath) -> FlowKey {
        let reducer = reducer(request.destination, request.group);
        FlowKey { coflow: request.coflow, reducer, mapper: path.mapper }
    }

    /// The key of a gather's flow, made in the same way.
    pub fn of_gather(request: &GatherRequest, path: &RelayPath) -> FlowKey {
        let reducer = reducer(request.destination, request.group);
        FlowKey { coflow: request.coflow, reducer, mapper: path.mapper }
    }
}

/// The reducer that a flow group of receivers at a host is: 65,536 times the host, and the group. The same group at
/// another host is another reducer; as long as hosts and groups are below 65,536 each reducer has its own number.
pub fn reducer(host: u32, group: u32) -> u32 {
    host.rotate_left(16) ^ group
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// First on a connection; a [`Hello`] follows.
    Hello,
    /// A flow begins; an [`Open`] follows. `number`: its bytes in all.
    Open,
    /// Bytes of a flow follow. `number`: how many bytes of the flow come before them (the sequence number).
    Data,
    /// `number`: how many bytes of the flow the sender of this takes from its peer, in all since the flow began.
    Credit,
    /// The receiver has all. `number`: how many bytes of the flow were sent to this peer in all.
    End,
    /// The flow is given up. Nothing more comes, and nothing more is taken.
    Reset,
    /// The flow goes on, though nothing may move.
    Alive,
    /// The sender of this wants the flow's bytes, in order.
    Subscribe,
}

/// What every message between relays begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What kind of message it is.
    pub kind: Kind,
    /// How many more relays it may go through.
    pub hop_limit: u8,
    /// Bytes of the body.
    pub length: u32,
    /// The flow; all zero in [`Kind::Hello`].
    pub key: FlowKey,
    /// A number whose meaning depends on the kind: see [`Kind`].
    pub number: u64,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::Hello,
        Kind::Open,
        Kind::Data,
        Kind::Credit,
        Kind::End,
        Kind::Reset,
        Kind::Alive,
        Kind::Subscribe,
    ];

    fn takes(self, length: u32) -> bool {
        let length = length as usize;
        match self {
            Kind::Hello => length == HELLO_BYTES,
            Kind::Open => length == OPEN_BYTES,
            Kind::Data => (1..=MAX_DATA_BYTES).contains(&length),
            Kind::Credit | Kind::End | Kind::Reset | Kind::Alive | Kind::Subscribe => length == 0,
        }
    }
}

impl Header {
    /// A message about a flow that has no body.
    pub fn about(key: FlowKey, kind: Kind, number: u64) -> Header {
        Header { kind, hop_limit: HOP_LIMIT, length: 0, key, number }
    }

    /// Leads bytes `offset` to `offset + length` of a flow.
    pub fn data(key: FlowKey, hop_limit: u8, offset: u64, length: u32) -> Header {
        Header { kind: Kind::Data, hop_limit, length, key, number: offset }
    }

    /// The bytes that [`Header::decode`] reads.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = VERSION;
        bytes[1] = self.kind as u8;
        bytes[2] = self.hop_limit;
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.key.coflow.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.key.reducer.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.key.mapper.to_le_bytes());
        bytes[24..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// Decodes a header and checks that its kind has bodies of that length.
    ///
    /// # Errors
    /// The version or the kind is unknown, or no message of that kind has a body of that length.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, DecodeError> {
        if bytes[0] != VERSION {
            return Err(DecodeError::Version(bytes[0]));
        }
        let kind = *Kind::ALL.get(usize::from(bytes[1])).ok_or(DecodeError::Field("kind of message"))?;
        let header = Header {
            kind,
            hop_limit: bytes[2],
            length: u32::from_le_bytes(array(bytes, 4)),
            key: FlowKey {
                coflow: u64::from_le_bytes(array(bytes, 8)),
                reducer: u32::from_le_bytes(array(bytes, 16)),
                mapper: u32::from_le_bytes(array(bytes, 20)),
            },
            number: u64::from_le_bytes(array(bytes, 24)),
        };
        if kind.takes(header.length) { Ok(header) } else { Err(DecodeError::Field("length of a message")) }
    }
}

/// `N` bytes from `at`. All callers read fixed places of arrays that are longer.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = FlowKey> {
        any::<(u64, u32, u32)>().prop_map(|(coflow, reducer, mapper)| FlowKey { coflow, reducer, mapper })
    }

    proptest! {
        #[test]
        fn headers_survive_the_wire(
            key in key(), hop_limit: u8, number: u64, kind in 0..Kind::ALL.len(), length in 1..=MAX_DATA_BYTES,
        ) {
            let kind = Kind::ALL[kind];
            let length = match kind {
                Kind::Hello => HELLO_BYTES,
                Kind::Open => OPEN_BYTES,
                Kind::Data => length,
                _ => 0,
            } as u32;
            let header = Header { kind, hop_limit, length, key, number };
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: [u8; HEADER_BYTES], kind in 0u8..10, length: u32) {
            let _ = Header::decode(&bytes);
            let mut close = bytes;
            (close[0], close[1]) = (VERSION, kind);
            if let Ok(header) = Header::decode(&close) {
                prop_assert!(header.length as usize <= MAX_DATA_BYTES);
            }
            close[4..8].copy_from_slice(&length.to_le_bytes());
            let _ = Header::decode(&close);
        }
    }

    #[test]
    fn a_body_that_its_kind_does_not_have_is_refused() {
        let key = FlowKey { coflow: 1, reducer: 2, mapper: 3 };
        for (kind, length) in [(Kind::Data, 0), (Kind::Data, MAX_DATA_BYTES as u32 + 1), (Kind::Reset, 1)] {
            let header = Header { length, ..Header::about(key, kind, 0) };
            assert_eq!(
                Header::decode(&header.encode()),
                Err(DecodeError::Field("length of a message")),
                "{kind:?} {length}"
            );
        }
        let mut other = Header::about(key, Kind::Reset, 0).encode();
        other[0] = 2;
        assert_eq!(Header::decode(&other), Err(DecodeError::Version(2)));
    }
}

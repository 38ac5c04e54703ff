//! Framing of the data plane, version 2.
//!
//! A receiver connects to the agent that holds a block and sends a [`Request`]. The agent answers with a
//! [`Response`] and, if it accepts, the block from the requested offset as frames: a [`FrameHeader`] and
//! that many payload bytes. Frames lie on a fixed grid of [`FRAME_BYTES`] within the block, so a checksum
//! belongs to a place and can be computed once and kept; a transfer resumes at a frame's start. When all
//! bytes are there and every checksum agreed, the receiver sends [`ACK`]; only then is the flow done. The
//! connection then takes the next request.
//!
//! A block's bytes have an [`Identity`]. The agent's answer says which bytes it has; a receiver that resumes says
//! which it began with, and an agent that has others under the name answers [`Status::OtherBytes`].
//!
//! All integers are little-endian. An agent serves requests of version 1, which know no identities, in that
//! version; one of an unknown version is answered [`Status::BadRequest`], and nothing of it beyond the first five
//! bytes is looked at, so later versions are free to change the rest. Agents of version 1 answer requests of
//! version 2 so.

use crate::limits::MAX_BLOCK_NAME_BYTES;

/// Payload bytes of every frame but a block's last.
pub const FRAME_BYTES: u64 = 256 << 10;
/// First bytes of a request.
pub const MAGIC: [u8; 4] = *b"WEIR";
/// Version of this framing.
pub const VERSION: u8 = 2;
/// The version before, whose requests are still served.
pub const VERSION_1: u8 = 1;
/// What a receiver sends when it has verified the whole block.
pub const ACK: u8 = 0x06;
/// What a receiver sends before it closes a connection on which a frame did not have its checksum; the frame's number, eight
/// bytes, follows. The agent reads that frame again, and holds the block no more if the file is not what it was. Agents
/// that do not know it close the connection, which is what the receiver does anyway.
pub const NAK: u8 = 0x15;
/// Bytes of a [`NAK`] with its frame.
pub const NAK_BYTES: usize = 9;
/// Bytes of a request before the block's name.
pub const REQUEST_HEAD_BYTES: usize = 50;
/// The same in version 1.
const REQUEST_HEAD_BYTES_1: usize = 34;
/// Bytes of a response.
pub const RESPONSE_BYTES: usize = 32;
/// The same in version 1.
const RESPONSE_BYTES_1: usize = 16;
/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 8;

/// CRC-32C (Castagnoli), as frames and lines of journals have it.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// A [`NAK`] for a frame, counted from 0.
pub fn encode_nak(frame: u64) -> [u8; NAK_BYTES] {
    let mut bytes = [NAK; NAK_BYTES];
    bytes[1..].copy_from_slice(&frame.to_le_bytes());
    bytes
}

/// The frame of a [`NAK`] that `input` begins with, once all of it is there. `None`: it begins with something else.
pub fn decode_nak(input: &[u8]) -> Option<Option<u64>> {
    let rest = input.strip_prefix(&[NAK])?;
    Some(rest.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)))
}

/// Which bytes a block has. Two blocks of one identity have the same bytes; those of two identities may have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(pub [u8; 16]);

/// Set in the first byte of an identity that is a hash of the bytes.
const CONTENT_BIT: u8 = 0x80;

impl Identity {
    /// Not known, as in requests that accept any bytes.
    pub const UNKNOWN: Identity = Identity([0; 16]);

    /// An identity drawn at random, from 16 random bytes.
    pub fn drawn(random: [u8; 16]) -> Identity {
        let mut bytes = random;
        bytes[0] &= !CONTENT_BIT;
        // All zeros would mean that nothing is known.
        bytes[15] |= u8::from(bytes == [0; 16]);
        Identity(bytes)
    }

    /// An identity that is the hash of the block's bytes, of which 127 bits are kept.
    pub fn of_content(hash: u128) -> Identity {
        let mut bytes = hash.to_be_bytes();
        bytes[0] |= CONTENT_BIT;
        Identity(bytes)
    }

    /// Whether it is a hash of the bytes.
    pub fn is_content(&self) -> bool {
        self.0[0] & CONTENT_BIT != 0
    }

    /// Whether the identity says anything of the bytes.
    pub fn is_known(&self) -> bool {
        *self != Identity::UNKNOWN
    }

    /// From the control plane: 16 bytes, or nothing known.
    pub fn from_wire(bytes: &[u8]) -> Identity {
        bytes.try_into().map_or(Identity::UNKNOWN, Identity)
    }

    /// The bytes of the identity as the control plane sends it.
    pub fn to_wire(self) -> Vec<u8> {
        if self.is_known() { self.0.to_vec() } else { Vec::new() }
    }
}

/// What a receiver asks of the agent that holds a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Coflow the block belongs to.
    pub coflow: u64,
    /// Where to start; a multiple of [`FRAME_BYTES`].
    pub offset: u64,
    /// Number of the receiver's host.
    pub destination: u32,
    /// The receiving task within the coflow (a flow group).
    pub group: u32,
    /// Which bytes are wanted; [`Identity::UNKNOWN`]: whichever there are.
    pub identity: Identity,
    /// Name of the block, at most [`MAX_BLOCK_NAME_BYTES`] bytes.
    pub block: String,
}

/// What the agent says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Whether frames follow, or why not.
    pub status: Status,
    /// Size of the whole block in bytes; 0 unless accepted.
    pub size: u64,
    /// Which bytes they are of; unknown unless accepted.
    pub identity: Identity,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The block is there: its frames follow.
    Accepted,
    /// This agent does not hold the block.
    NoSuchBlock,
    /// The request is not of this version, or the offset is outside the block or between frames.
    BadRequest,
    /// The coflow was unregistered.
    CoflowEnded,
    /// The agent is at its bound of connections; try again later.
    Busy,
    /// The agent cannot read the block's file any more.
    Unreadable,
    /// The coflow was refused, and its driver wants it to stop then.
    CoflowRefused,
    /// Frames come by way of relays (see [`crate::relay::RelayPath`]); the acknowledgement goes here.
    Relayed,
    /// The block's file changed or is gone since it was put: the agent does not hold it any more.
    Changed,
    /// The agent holds other bytes under this name than those that the request wants.
    OtherBytes,
    /// The receiver that asks for bytes of an executor's store does not have its token.
    Forbidden,
}

/// What every frame begins with: the length and checksum of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Payload bytes that follow, 1 to [`FRAME_BYTES`].
    pub length: u32,
    /// CRC-32C (Castagnoli, as in iSCSI) of the payload.
    pub checksum: u32,
}

/// Bytes that are not of this protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The first bytes are not [`MAGIC`].
    #[error("not a Weir data connection")]
    Magic,
    /// Another version of the framing.
    #[error("data plane version {0}; this side speaks version {VERSION}")]
    Version(u8),
    /// A field has a value outside its range.
    #[error("bad {0}")]
    Field(&'static str),
}

impl Request {
    /// Encodes the request. The block's name must be within its bound.
    pub fn encode(&self) -> Vec<u8> {
        debug_assert!(self.block.len() <= MAX_BLOCK_NAME_BYTES);
        let mut bytes = Vec::with_capacity(REQUEST_HEAD_BYTES + self.block.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.push(VERSION);
        // The bound of a name is 255 bytes, so that its length fits into one.
        bytes.push(self.block.len() as u8);
        // No version reads these four.
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.coflow.to_le_bytes());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.destination.to_le_bytes());
        bytes.extend_from_slice(&self.group.to_le_bytes());
        bytes.extend_from_slice(&self.identity.0);
        bytes.extend_from_slice(self.block.as_bytes());
        bytes
    }

    /// The version of a request of which at least five bytes are there.
    pub fn version(bytes: &[u8]) -> Option<u8> {
        bytes.get(4).copied()
    }

    /// Decodes a request from the front of `bytes`: the request and its length, or `None` if more bytes
    /// are needed.
    ///
    /// # Errors
    /// The bytes do not begin with [`MAGIC`], the version is neither this one nor the one before, or the block's name is not UTF-8.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Request, usize)>, DecodeError> {
        // Judged by the bytes that are there: a peer of another protocol may never send as many as
        // a head has, and would otherwise be waited for.
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err(DecodeError::Magic);
        }
        let head = match Request::version(bytes) {
            Some(VERSION) => REQUEST_HEAD_BYTES,
            Some(VERSION_1) => REQUEST_HEAD_BYTES_1,
            Some(version) => return Err(DecodeError::Version(version)),
            None => return Ok(None),
        };
        if bytes.len() < head {
            return Ok(None);
        }
        let length = head + usize::from(bytes[5]);
        let Some(name) = bytes.get(head..length) else { return Ok(None) };
        // Empty in version 1, whose head ends where the identity begins: such a receiver takes
        // whichever bytes there are.
        let identity = bytes[REQUEST_HEAD_BYTES_1..head].try_into().map_or(Identity::UNKNOWN, Identity);
        let block = std::str::from_utf8(name).map_err(|_| DecodeError::Field("block name"))?.to_owned();
        let request = Request {
            coflow: u64_at(bytes, 10),
            offset: u64_at(bytes, 18),
            destination: u32_at(bytes, 26),
            group: u32_at(bytes, 30),
            identity,
            block,
        };
        Ok(Some((request, length)))
    }
}

impl Response {
    /// The answer to a request that is refused, without size and identity.
    pub fn refusal(status: Status) -> Response {
        Response { status, size: 0, identity: Identity::UNKNOWN }
    }

    /// Encodes the response for a request of that version.
    pub fn encode_for(&self, version: u8) -> Vec<u8> {
        let bytes = self.encode();
        if version == VERSION_1 {
            // Status and size are at the same places in both versions; the identity behind them is
            // new.
            let mut old = bytes[..RESPONSE_BYTES_1].to_vec();
            old[4] = VERSION_1;
            return old;
        }
        bytes.to_vec()
    }

    /// The response, as agents of this version write it.
    pub fn encode(&self) -> [u8; RESPONSE_BYTES] {
        let mut bytes = [0; RESPONSE_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.status as u8;
        bytes[8..16].copy_from_slice(&self.size.to_le_bytes());
        bytes[16..].copy_from_slice(&self.identity.0);
        bytes
    }

    /// Decodes a response of this version.
    ///
    /// # Errors
    /// The bytes do not begin with [`MAGIC`], the version or the status is unknown, or no block has that size.
    pub fn decode(bytes: &[u8; RESPONSE_BYTES]) -> Result<Response, DecodeError> {
        if bytes[..4] != MAGIC {
            return Err(DecodeError::Magic);
        }
        if bytes[4] != VERSION {
            return Err(DecodeError::Version(bytes[4]));
        }
        let status = match bytes[5] {
            0 => Status::Accepted,
            1 => Status::NoSuchBlock,
            2 => Status::BadRequest,
            3 => Status::CoflowEnded,
            4 => Status::Busy,
            5 => Status::Unreadable,
            6 => Status::CoflowRefused,
            7 => Status::Relayed,
            8 => Status::Changed,
            9 => Status::OtherBytes,
            10 => Status::Forbidden,
            _ => return Err(DecodeError::Field("status")),
        };
        let identity = bytes[16..].try_into().map_or(Identity::UNKNOWN, Identity);
        let size = u64_at(bytes, 8);
        if size > crate::limits::MAX_BLOCK_BYTES {
            return Err(DecodeError::Field("size"));
        }
        Ok(Response { status, size, identity })
    }
}

impl FrameHeader {
    /// The header, as it goes before the payload of its frame.
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header and checks its length.
    ///
    /// # Errors
    /// The length is 0 or above [`FRAME_BYTES`].
    pub fn decode(bytes: &[u8; FRAME_HEADER_BYTES]) -> Result<FrameHeader, DecodeError> {
        let header = FrameHeader { length: u32_at(bytes, 0), checksum: u32_at(bytes, 4) };
        if header.length == 0 || u64::from(header.length) > FRAME_BYTES {
            return Err(DecodeError::Field("frame length"));
        }
        Ok(header)
    }
}

/// Length in bytes of the frame that starts at `offset` of a block of `size` bytes; 0 at its end.
pub fn frame_length(size: u64, offset: u64) -> u64 {
    (FRAME_BYTES - offset % FRAME_BYTES).min(size.saturating_sub(offset))
}

/// Number of frames of a block of `size` bytes.
pub fn frame_count(size: u64) -> u64 {
    size.div_ceil(FRAME_BYTES)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_said_of_a_damaged_frame_survives_the_wire_byte_by_byte() {
        let bytes = encode_nak(0x0102_0304_0506_0708);
        assert_eq!(bytes, [0x15, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(decode_nak(&bytes[..0]), None);
        for cut in 1..bytes.len() {
            assert_eq!(decode_nak(&bytes[..cut]), Some(None), "{cut} bytes");
        }
        assert_eq!(decode_nak(&bytes), Some(Some(0x0102_0304_0506_0708)));
        assert_eq!(decode_nak(&[ACK]), None);
    }

    proptest! {
        #[test]
        fn requests_survive_the_wire_byte_by_byte(
            coflow: u64, offset: u64, destination: u32, group: u32, identity: [u8; 16],
            block in "[a-zµ/_0-9]{0,60}",
        ) {
            let request = Request { coflow, offset, destination, group, identity: Identity(identity), block };
            let bytes = request.encode();
            for cut in 0..bytes.len() {
                prop_assert_eq!(Request::decode(&bytes[..cut]), Ok(None));
            }
            prop_assert_eq!(Request::decode(&bytes), Ok(Some((request, bytes.len()))));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), real: bool) {
            let mut bytes = bytes;
            if real && bytes.len() > 5 {
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[4] = VERSION;
            }
            let _ = Request::decode(&bytes);
            if let Some(head) = bytes.first_chunk() {
                let _ = Response::decode(head);
            }
            if let Some(head) = bytes.first_chunk() {
                let _ = FrameHeader::decode(head);
            }
        }
    }

    #[test]
    fn other_versions_are_told_apart_from_noise() {
        assert_eq!(Request::decode(b"GET / HTTP/1.1"), Err(DecodeError::Magic));
        assert_eq!(Request::decode(b"WEIR\x03"), Err(DecodeError::Version(3)));
    }

    #[test]
    fn a_receiver_of_version_1_is_understood_and_answered_in_its_version() {
        let mut bytes = b"WEIR\x01\x02\0\0\0\0".to_vec();
        bytes.extend_from_slice(&7u64.to_le_bytes());
        bytes.extend_from_slice(&FRAME_BYTES.to_le_bytes());
        bytes.extend_from_slice(&3u32.to_le_bytes());
        bytes.extend_from_slice(&4u32.to_le_bytes());
        bytes.extend_from_slice(b"ab");
        let (request, length) = Request::decode(&bytes).unwrap().unwrap();
        assert_eq!(length, 36);
        let identity = Identity::UNKNOWN;
        let expected = Request {
            coflow: 7,
            offset: FRAME_BYTES,
            destination: 3,
            group: 4,
            identity,
            block: "ab".into(),
        };
        assert_eq!(request, expected);
        let response = Response { status: Status::Accepted, size: 5, identity: Identity([9; 16]) };
        let old = response.encode_for(VERSION_1);
        assert_eq!(old, [&b"WEIR\x01\0\0\0"[..], &5u64.to_le_bytes()].concat());
        assert_eq!(Response::decode(&response.encode()), Ok(response));
        let most = Response { size: crate::limits::MAX_BLOCK_BYTES, ..response };
        assert_eq!(Response::decode(&most.encode()), Ok(most));
        // No block is as large: such an answer would be read until a time limit or a disk is full.
        let more = Response { size: most.size + 1, ..response };
        assert_eq!(Response::decode(&more.encode()), Err(DecodeError::Field("size")));
    }

    #[test]
    fn hashes_and_drawn_identities_are_told_apart_and_never_unknown() {
        assert!(Identity::of_content(0).is_content());
        assert!(!Identity::drawn([0xff; 16]).is_content());
        assert!(Identity::drawn([0; 16]).is_known() && Identity::of_content(0).is_known());
        assert_eq!(Identity::from_wire(b"too short"), Identity::UNKNOWN);
        let identity = Identity::drawn([7; 16]);
        assert_eq!(Identity::from_wire(&identity.to_wire()), identity);
    }

    #[test]
    fn frames_lie_on_a_grid_and_the_last_is_short() {
        let size = 2 * FRAME_BYTES + 5;
        assert_eq!(frame_count(size), 3);
        assert_eq!(frame_length(size, FRAME_BYTES), FRAME_BYTES);
        assert_eq!(frame_length(size, 2 * FRAME_BYTES), 5);
        assert_eq!(frame_length(size, size), 0);
    }
}

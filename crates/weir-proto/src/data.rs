//! Framing of the data plane, version 1.
//!
//! A receiver connects to the agent that holds a block and sends a [`Request`]. The agent answers with a
//! [`Response`] and, if it accepts, the block from the requested offset as frames: a [`FrameHeader`] and
//! that many payload bytes. Frames lie on a fixed grid of [`FRAME_BYTES`] within the block, so a checksum
//! belongs to a place and can be computed once and kept; a transfer resumes at a frame's start. When all
//! bytes are there and every checksum agreed, the receiver sends [`ACK`]; only then is the flow done. The
//! connection then takes the next request.
//!
//! All integers are little-endian. A reader of another version answers [`Status::BadRequest`]; nothing of
//! the request beyond the first five bytes is looked at, so later versions are free to change the rest.

use crate::limits::MAX_BLOCK_NAME_BYTES;

/// Payload bytes of every frame but a block's last.
pub const FRAME_BYTES: u64 = 256 << 10;
/// First bytes of a request.
pub const MAGIC: [u8; 4] = *b"WEIR";
/// Version of this framing.
pub const VERSION: u8 = 1;
/// What a receiver sends when it has verified the whole block.
pub const ACK: u8 = 0x06;
/// Bytes of a request before the block's name.
pub const REQUEST_HEAD_BYTES: usize = 34;
/// Bytes of a response.
pub const RESPONSE_BYTES: usize = 16;
/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 8;

/// What a receiver asks of the agent that holds a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Coflow the block belongs to.
    pub coflow: u64,
    /// Where to start; a multiple of [`FRAME_BYTES`].
    pub offset: u64,
    /// The receiver's host.
    pub destination: u32,
    /// The receiving task within the coflow (a flow group).
    pub group: u32,
    /// Name of the block, at most [`MAX_BLOCK_NAME_BYTES`] bytes.
    pub block: String,
}

/// What the agent says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Whether frames follow.
    pub status: Status,
    /// Size of the whole block in bytes; 0 unless accepted.
    pub size: u64,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Frames follow.
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
}

/// Leads a frame.
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
        bytes.push(self.block.len() as u8);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.coflow.to_le_bytes());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.destination.to_le_bytes());
        bytes.extend_from_slice(&self.group.to_le_bytes());
        bytes.extend_from_slice(self.block.as_bytes());
        bytes
    }

    /// Decodes a request from the front of `bytes`: the request and its length, or `None` if more bytes
    /// are needed.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Request, usize)>, DecodeError> {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err(DecodeError::Magic);
        }
        if let Some(&version) = bytes.get(4)
            && version != VERSION
        {
            return Err(DecodeError::Version(version));
        }
        if bytes.len() < REQUEST_HEAD_BYTES {
            return Ok(None);
        }
        let length = REQUEST_HEAD_BYTES + usize::from(bytes[5]);
        let Some(name) = bytes.get(REQUEST_HEAD_BYTES..length) else { return Ok(None) };
        let block = std::str::from_utf8(name).map_err(|_| DecodeError::Field("block name"))?.to_owned();
        let request = Request {
            coflow: u64_at(bytes, 10),
            offset: u64_at(bytes, 18),
            destination: u32_at(bytes, 26),
            group: u32_at(bytes, 30),
            block,
        };
        Ok(Some((request, length)))
    }
}

impl Response {
    /// Encodes the response.
    pub fn encode(&self) -> [u8; RESPONSE_BYTES] {
        let mut bytes = [0; RESPONSE_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.status as u8;
        bytes[8..].copy_from_slice(&self.size.to_le_bytes());
        bytes
    }

    /// Decodes a response.
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
            _ => return Err(DecodeError::Field("status")),
        };
        Ok(Response { status, size: u64_at(bytes, 8) })
    }
}

impl FrameHeader {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header and checks its length.
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

    proptest! {
        #[test]
        fn requests_survive_the_wire_byte_by_byte(
            coflow: u64, offset: u64, destination: u32, group: u32, block in "[a-zµ/_0-9]{0,60}",
        ) {
            let request = Request { coflow, offset, destination, group, block };
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
        assert_eq!(Request::decode(b"WEIR\x02"), Err(DecodeError::Version(2)));
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

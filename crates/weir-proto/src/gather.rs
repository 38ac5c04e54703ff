//! Asking for many ranges of stored files as one flow: the shuffle blocks of one executor that one reducer fetches.
//!
//! An executor's [store](crate::v1::AttachStoreRequest) has, for each map task of a shuffle, a file of data and an index of
//! where each reducer's bytes lie in it. A [`GatherRequest`] names ranges of reducers of map tasks; what is answered is the
//! same as for a block ([`crate::data`]): a response, frames, and an acknowledgement at the end. The bytes are those of a block
//! that is made for the request: first a table, the length of each range in eight bytes, then the ranges one after the other, in
//! the order of the request. It has an identity of its own, which stays the same as long as its files do, so a gather resumes
//! like a block.
//!
//! Agents that know no gathers answer [`Status::BadRequest`](crate::data::Status::BadRequest).

use crate::data::{DecodeError, Identity};
use crate::limits::{MAX_GATHERED_RANGES, MAX_STORE_NAME_BYTES};

/// First bytes of a gather.
pub const GATHER_MAGIC: [u8; 4] = *b"WGTH";
/// Version of its framing.
pub const GATHER_VERSION: u8 = 1;
/// Bytes before the names.
pub const GATHER_HEAD_BYTES: usize = 72;
/// Bytes of a range.
pub const RANGE_BYTES: usize = 16;
/// Bytes of a range's length in the table.
pub const LENGTH_BYTES: u64 = 8;
/// Bytes of the longest request for a gather.
pub const MAX_GATHER_BYTES: usize =
    GATHER_HEAD_BYTES + 2 * MAX_STORE_NAME_BYTES + MAX_GATHERED_RANGES * RANGE_BYTES;

/// A secret of a store: a receiver that knows it was told it by the store's owner.
pub type Token = [u8; 16];

/// The bytes of some reducers in the output of a map task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GatherRange {
    /// The map task, as its file is called.
    pub map: u64,
    /// Number of the first reducer.
    pub first: u32,
    /// Number after that of the last reducer.
    pub end: u32,
}

/// What a receiver asks of the agent at the host of an executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatherRequest {
    /// The coflow that the bytes move for.
    pub coflow: u64,
    /// Where to start in the block that is made; a multiple of [`FRAME_BYTES`](crate::data::FRAME_BYTES).
    pub offset: u64,
    /// Number of the receiver's host.
    pub destination: u32,
    /// The receiving task within the coflow (a flow group).
    pub group: u32,
    /// Which bytes are wanted; [`Identity::UNKNOWN`]: whichever there are.
    pub identity: Identity,
    /// The token that the owner of the store gave out.
    pub token: Token,
    /// Number of the shuffle within the application.
    pub shuffle: u32,
    /// The application whose executor has the store, at most [`MAX_STORE_NAME_BYTES`] bytes.
    pub application: String,
    /// The executor that has the store, with the same bound.
    pub executor: String,
    /// One at least, [`MAX_GATHERED_RANGES`] at most, each of one reducer or more.
    pub ranges: Vec<GatherRange>,
}

impl GatherRequest {
    /// Encodes the request. Names and ranges must be within their bounds.
    pub fn encode(&self) -> Vec<u8> {
        debug_assert!(self.ranges.len() <= MAX_GATHERED_RANGES);
        let mut bytes = Vec::with_capacity(GATHER_HEAD_BYTES + RANGE_BYTES * self.ranges.len());
        bytes.extend_from_slice(&GATHER_MAGIC);
        bytes.push(GATHER_VERSION);
        bytes.push(self.application.len() as u8);
        bytes.push(self.executor.len() as u8);
        bytes.push(0);
        bytes.extend_from_slice(&self.coflow.to_le_bytes());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.destination.to_le_bytes());
        bytes.extend_from_slice(&self.group.to_le_bytes());
        bytes.extend_from_slice(&self.identity.0);
        bytes.extend_from_slice(&self.token);
        bytes.extend_from_slice(&self.shuffle.to_le_bytes());
        bytes.extend_from_slice(&(self.ranges.len() as u32).to_le_bytes());
        bytes.extend_from_slice(self.application.as_bytes());
        bytes.extend_from_slice(self.executor.as_bytes());
        for range in &self.ranges {
            bytes.extend_from_slice(&range.map.to_le_bytes());
            bytes.extend_from_slice(&range.first.to_le_bytes());
            bytes.extend_from_slice(&range.end.to_le_bytes());
        }
        bytes
    }

    /// Whether what begins so may be a gather; true where too few bytes are there to tell.
    pub fn may_begin(bytes: &[u8]) -> bool {
        let known = bytes.len().min(GATHER_MAGIC.len());
        bytes[..known] == GATHER_MAGIC[..known]
    }

    /// Decodes a request from the front of `bytes`: the request and its length, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// The bytes are no gather of this version, or a field is out of its range.
    pub fn decode(bytes: &[u8]) -> Result<Option<(GatherRequest, usize)>, DecodeError> {
        if !GatherRequest::may_begin(bytes) {
            return Err(DecodeError::Magic);
        }
        match bytes.get(4) {
            None => return Ok(None),
            Some(&GATHER_VERSION) => {}
            Some(&version) => return Err(DecodeError::Version(version)),
        }
        let Some(head) = bytes.first_chunk::<GATHER_HEAD_BYTES>() else { return Ok(None) };
        let count = number(&head[68..72]) as usize;
        // Before the rest is waited for: by its own number a peer could have the agent keep up to
        // 64 GiB of a request that never ends.
        if count == 0 || count > MAX_GATHERED_RANGES {
            return Err(DecodeError::Field("number of ranges"));
        }
        let (application, executor) = (usize::from(head[5]), usize::from(head[6]));
        let names_end = GATHER_HEAD_BYTES + application + executor;
        let length = names_end + count * RANGE_BYTES;
        let Some(names) = bytes.get(GATHER_HEAD_BYTES..names_end) else { return Ok(None) };
        let Some(ranges) = bytes.get(names_end..length) else { return Ok(None) };
        let name = |bytes: &[u8]| {
            let name = std::str::from_utf8(bytes).map(str::to_owned);
            name.map_err(|_| DecodeError::Field("name of a store"))
        };
        let range = |bytes: &[u8]| GatherRange {
            map: number(&bytes[..8]),
            first: number(&bytes[8..12]) as u32,
            end: number(&bytes[12..]) as u32,
        };
        let ranges: Vec<GatherRange> = ranges.chunks_exact(RANGE_BYTES).map(range).collect();
        if ranges.iter().any(|range| range.first >= range.end) {
            return Err(DecodeError::Field("range of reducers"));
        }
        let sixteen = |at: usize| {
            let mut field = [0; 16];
            field.copy_from_slice(&head[at..at + 16]);
            field
        };
        let request = GatherRequest {
            coflow: number(&head[8..16]),
            offset: number(&head[16..24]),
            destination: number(&head[24..28]) as u32,
            group: number(&head[28..32]) as u32,
            identity: Identity(sixteen(32)),
            token: sixteen(48),
            shuffle: number(&head[64..68]) as u32,
            application: name(&names[..application])?,
            executor: name(&names[application..])?,
            ranges,
        };
        Ok(Some((request, length)))
    }
}

/// A little-endian number of at most eight bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut field = [0; 8];
    field[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn gather(ranges: usize) -> GatherRequest {
        let range = |at: usize| GatherRange { map: at as u64 + (1 << 40), first: 3, end: 4 + at as u32 };
        GatherRequest {
            coflow: 0x0102_0304_0506_0708,
            offset: 262_144,
            destination: 7,
            group: 9,
            identity: Identity([3; 16]),
            token: [5; 16],
            shuffle: 11,
            application: "app-20261126-0001".to_owned(),
            executor: "µ".to_owned(),
            ranges: (0..ranges).map(range).collect(),
        }
    }

    #[test]
    fn gathers_survive_the_wire_byte_by_byte() {
        for ranges in [1, 3, MAX_GATHERED_RANGES] {
            let request = gather(ranges);
            let mut bytes = request.encode();
            for cut in (0..bytes.len()).step_by(if ranges > 3 { 97 } else { 1 }) {
                assert_eq!(GatherRequest::decode(&bytes[..cut]), Ok(None), "{cut}");
            }
            bytes.extend_from_slice(b"more");
            assert_eq!(GatherRequest::decode(&bytes), Ok(Some((request, bytes.len() - 4))));
        }
        // By hand: where the fields are.
        let bytes = gather(1).encode();
        assert_eq!(bytes[..8], *b"WGTH\x01\x11\x02\0");
        assert_eq!((bytes[8], bytes[16..20].to_vec(), bytes[24], bytes[28]), (8, vec![0, 0, 4, 0], 7, 9));
        assert_eq!((bytes[32], bytes[48], bytes[64], bytes[68], bytes.len()), (3, 5, 11, 1, 72 + 19 + 16));
    }

    #[test]
    fn what_is_out_of_range_is_refused_before_it_is_waited_for() {
        let mut bytes = gather(1).encode();
        bytes.truncate(GATHER_HEAD_BYTES);
        for count in [0, MAX_GATHERED_RANGES as u32 + 1, u32::MAX] {
            bytes[68..72].copy_from_slice(&count.to_le_bytes());
            assert_eq!(GatherRequest::decode(&bytes), Err(DecodeError::Field("number of ranges")));
        }
        let mut empty = gather(2);
        empty.ranges[1].end = 3;
        let wrong = GatherRequest::decode(&empty.encode());
        assert_eq!(wrong, Err(DecodeError::Field("range of reducers")));
        let mut later = gather(1).encode();
        later[4] = 2;
        assert_eq!(GatherRequest::decode(&later[..5]), Err(DecodeError::Version(2)));
        assert_eq!(GatherRequest::decode(b"WEIR"), Err(DecodeError::Magic));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut bytes = bytes;
            let _ = GatherRequest::decode(&bytes);
            if bytes.len() > 8 {
                bytes[..4].copy_from_slice(&GATHER_MAGIC);
                bytes[4] = GATHER_VERSION;
                let _ = GatherRequest::decode(&bytes);
            }
        }
    }
}

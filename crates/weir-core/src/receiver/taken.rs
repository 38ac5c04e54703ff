//! Which bytes were handed out, and which of them the holder sends next.

use super::facts::ReceiverError;
use twox_hash::XxHash3_128;
use weir_proto::data::{FRAME_BYTES, Identity, frame_length};

/// What a holder that accepted a request will send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) size: u64,
    pub(super) offset: u64,
    pub(super) identity: Identity,
}

/// Whether a frame is to be handed out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taking {
    /// The frame is the next one to hand out.
    New,
    /// The frame was handed out before, and has the same checksum.
    Again,
}

/// Frames taken so far.
pub(super) struct Taken {
    /// Bytes handed out; always at a frame's start or the end.
    pub(super) verified: u64,
    /// Checksums of the frames handed out.
    checksums: Vec<u32>,
    /// Hash of the bytes handed out, if the whole is to be verified.
    hash: Option<XxHash3_128>,
    /// Where the next frame of the holder begins: before `verified` where the block was begun anew.
    at: u64,
    pub(super) size: Option<u64>,
    /// Of the bytes handed out.
    identity: Identity,
    /// Of the bytes that the holder sends: the same, unless the block was begun anew.
    offered: Identity,
}

impl Taken {
    pub(super) fn new(verify_whole: bool) -> Taken {
        Taken {
            verified: 0,
            checksums: Vec::new(),
            hash: verify_whole.then(XxHash3_128::new),
            at: 0,
            size: None,
            identity: Identity::UNKNOWN,
            offered: Identity::UNKNOWN,
        }
    }

    /// What is missing: from which byte on, and of which block. Bytes whose identity no holder told cannot be gone on with:
    /// they are asked for from the start.
    pub(super) fn missing(&self) -> (u64, Identity) {
        if self.verified > 0 && self.identity.is_known() {
            (self.verified, self.identity)
        } else {
            (0, Identity::UNKNOWN)
        }
    }

    /// Whether a block of another size is another block than the one that was begun.
    pub(super) fn contradicts(&self, size: u64) -> bool {
        self.verified > 0 && self.size.is_some_and(|before| before != size)
    }

    pub(super) fn accept(&mut self, offer: Offer) {
        self.size = Some(offer.size);
        (self.at, self.offered) = (offer.offset, offer.identity);
        // Bytes that were handed out keep their identity until all of them were compared with the
        // new holder's.
        if self.verified == 0 {
            self.identity = offer.identity;
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        // The second holds only once a block that was begun anew has been compared to its end.
        self.size == Some(self.verified) && self.at == self.verified
    }

    /// Payload bytes of the next frame.
    pub(super) fn next_payload(&self) -> usize {
        self.size.map_or(0, |size| frame_length(size, self.at) as usize)
    }

    /// Number of the next frame in the block.
    pub(super) fn next_frame(&self) -> u64 {
        self.at / FRAME_BYTES
    }

    /// Takes a frame that has its checksum.
    pub(super) fn take(&mut self, checksum: u32, bytes: &[u8]) -> Result<Taking, ReceiverError> {
        let index = self.next_frame() as usize;
        let again = self.at < self.verified;
        self.at = self.at.saturating_add(bytes.len() as u64);
        if again {
            if self.checksums.get(index) != Some(&checksum) {
                return Err(self.changed());
            }
            if self.at == self.verified {
                // All that was handed out is known to be the same, so from here on it may be resumed under the new identity.
                self.identity = self.offered;
            }
            return Ok(Taking::Again);
        }
        self.checksums.push(checksum);
        self.verified = self.verified.saturating_add(bytes.len() as u64);
        if let Some(hash) = &mut self.hash {
            hash.write(bytes);
            let whole = self.size == Some(self.verified) && self.identity.is_content();
            if whole && Identity::of_content(hash.finish_128()) != self.identity {
                return Err(ReceiverError::WrongHash);
            }
        }
        Ok(Taking::New)
    }

    /// The block has other bytes than those that were handed out.
    pub(super) fn changed(&self) -> ReceiverError {
        ReceiverError::Changed { read: self.verified }
    }
}

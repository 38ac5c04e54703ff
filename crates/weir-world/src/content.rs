//! What blocks have in them: bytes that differ from block to block and from place to place, without a copy of each.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use std::sync::OnceLock;
use weir_proto::data::{FRAME_BYTES, Identity, checksum, frame_count, frame_length};

/// Most bytes of a block; longer ones are cut to it.
pub const MAX_BLOCK_BYTES: u64 = 4 << 20;
/// Where the first byte of a block may be in the noise.
const STARTS: u64 = 1 << 20;

/// Random bytes, of which every block is a part.
fn noise() -> &'static [u8] {
    static NOISE: OnceLock<Vec<u8>> = OnceLock::new();
    NOISE.get_or_init(|| {
        let mut bytes = vec![0; (MAX_BLOCK_BYTES + STARTS) as usize];
        ChaCha8Rng::seed_from_u64(0).fill_bytes(&mut bytes);
        bytes
    })
}

/// Bytes of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    start: u64,
    size: u64,
    /// It has its length, and zeros in it.
    is_hollow: bool,
}

impl Content {
    /// Of the block with this identity.
    pub(crate) fn new(identity: Identity, size: u64) -> Content {
        let start =
            identity.0.iter().fold(0, |sum: u64, &byte| sum.wrapping_mul(257).wrapping_add(byte.into()));
        // Behind the last start the noise has so many bytes and no more.
        Content { start: start % STARTS, size: size.min(MAX_BLOCK_BYTES), is_hollow: false }
    }

    pub(crate) fn hollow(self) -> Content {
        Content { is_hollow: true, ..self }
    }

    pub(crate) fn bytes(&self, offset: u64, count: u64) -> &'static [u8] {
        static ZEROS: [u8; FRAME_BYTES as usize] = [0; FRAME_BYTES as usize];
        if self.is_hollow {
            return &ZEROS[..count as usize];
        }
        let at = (self.start + offset) as usize;
        &noise()[at..at + count as usize]
    }

    /// The checksum of the frame that begins there.
    pub(crate) fn checksum(&self, offset: u64) -> u32 {
        checksum(self.bytes(offset, frame_length(self.size, offset)))
    }

    /// Those of all frames.
    pub(crate) fn checksums(&self) -> Vec<u32> {
        (0..frame_count(self.size)).map(|frame| self.checksum(frame * FRAME_BYTES)).collect()
    }
}

/// Bytes on their way.
#[derive(Clone)]
pub(crate) enum Part {
    /// What machines say to each other, in memory.
    Bytes(Vec<u8>),
    /// Of a file. Damaged: the first of them is another one when it arrives.
    Payload { of: Content, offset: u64, count: u64, is_damaged: bool },
    /// The writer has closed; nothing comes after it.
    End,
}

impl Part {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::Payload { count, .. } => *count,
            Part::End => 0,
        }
    }
}

impl Part {
    /// Takes bytes off the front, fewer than there are.
    fn split_front(&mut self, taken: u64) -> Part {
        match self {
            Part::Bytes(bytes) => Part::Bytes(bytes.drain(..taken as usize).collect()),
            Part::Payload { of, offset, count, is_damaged } => {
                let front = Part::Payload {
                    of: *of,
                    offset: *offset,
                    count: taken,
                    // The first byte is the damaged one, and it is in the front part.
                    is_damaged: std::mem::take(is_damaged),
                };
                (*offset, *count) = (*offset + taken, *count - taken);
                front
            }
            Part::End => Part::End,
        }
    }
}

/// Takes as many bytes off the front as there are before the end, and are wanted.
pub(crate) fn take_parts(parts: &mut VecDeque<Part>, mut wanted: u64) -> Vec<Part> {
    let mut taken = Vec::new();
    while let Some(part) = parts.front_mut().filter(|part| wanted > 0 && !matches!(part, Part::End)) {
        let count = part.len().min(wanted);
        wanted -= count;
        if count < part.len() {
            taken.push(part.split_front(count));
        } else {
            taken.extend(parts.pop_front());
        }
    }
    taken
}

/// As many bytes as there are, and room is; what is left stays.
pub(crate) fn read_parts(parts: &mut VecDeque<Part>, room: &mut [u8]) -> usize {
    let mut filled = 0;
    while let Some(part) = parts.front_mut() {
        let count = part.len().min((room.len() - filled) as u64);
        if count == 0 {
            break;
        }
        let room = &mut room[filled..filled + count as usize];
        filled += count as usize;
        let is_over = count == part.len();
        match part {
            Part::Bytes(bytes) => {
                room.copy_from_slice(&bytes[..count as usize]);
                bytes.drain(..count as usize);
            }
            Part::Payload { of, offset, count: left, is_damaged } => {
                room.copy_from_slice(of.bytes(*offset, count));
                if std::mem::take(is_damaged) {
                    room[0] ^= 1;
                }
                (*offset, *left) = (*offset + count, *left - count);
            }
            Part::End => {}
        }
        if is_over {
            parts.pop_front();
        }
    }
    filled
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Part::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Part::Payload { offset, count, is_damaged, .. } => {
                let is_damaged = if *is_damaged { ", damaged" } else { "" };
                write!(f, "{count} from {offset}{is_damaged}")
            }
            Part::End => write!(f, "the end"),
        }
    }
}

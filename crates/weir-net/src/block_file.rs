//! A block's bytes in a file: checksums of its frames, and sending without copying.

use rustix::io::Errno;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use weir_proto::data::{FRAME_BYTES, frame_count, frame_length};

/// CRC-32C of a frame's payload.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// How far a send came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// This many bytes were taken (above 0).
    Sent(u64),
    /// The socket takes nothing now.
    WouldBlock,
    /// The file ends before the block does.
    Truncated,
}

/// What is known of the checksums of a block's frames. It outlives the open file: clones share it.
#[derive(Clone, Debug)]
pub struct FrameChecksums(Rc<RefCell<Vec<Option<u32>>>>);

impl FrameChecksums {
    /// For a block of `size` bytes. `known` are those the producer computed, or empty.
    pub fn new(size: u64, known: &[u32]) -> FrameChecksums {
        let frames = frame_count(size) as usize;
        let checksums = if known.len() == frames {
            known.iter().copied().map(Some).collect()
        } else {
            vec![None; frames]
        };
        FrameChecksums(Rc::new(RefCell::new(checksums)))
    }
}

/// A range of an open file that is served as a block. Checksums are computed when a frame is first
/// needed and kept, so that many receivers of one block cost one pass over it.
#[derive(Debug)]
pub struct BlockFile {
    file: File,
    start: u64,
    size: u64,
    checksums: FrameChecksums,
}

impl BlockFile {
    /// Opens a block of `size` bytes from `start`. Fails if the file is shorter than the block.
    pub fn open(path: &Path, start: u64, size: u64, checksums: FrameChecksums) -> io::Result<BlockFile> {
        let file = File::open(path)?;
        let end = start.checked_add(size);
        if end.is_none_or(|end| file.metadata().is_ok_and(|data| data.is_file() && data.len() < end)) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends before the block does"));
        }
        Ok(BlockFile { file, start, size, checksums })
    }

    /// Length of the block in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The checksum of the frame at `offset` (a multiple of the frame length). `buffer` is scratch.
    pub fn frame_checksum(&mut self, offset: u64, buffer: &mut Vec<u8>) -> io::Result<u32> {
        let index = (offset / FRAME_BYTES) as usize;
        if let Some(&Some(known)) = self.checksums.0.borrow().get(index) {
            return Ok(known);
        }
        buffer.resize(frame_length(self.size, offset) as usize, 0);
        self.file.read_exact_at(buffer, self.start + offset)?;
        let value = checksum(buffer);
        if let Some(entry) = self.checksums.0.borrow_mut().get_mut(index) {
            *entry = Some(value);
        }
        Ok(value)
    }

    /// Hands at most `count` bytes from `offset` to a socket without copying them through the process.
    pub fn send(&self, socket: impl AsFd, offset: u64, count: u64) -> io::Result<SendOutcome> {
        let mut at = self.start + offset;
        match rustix::fs::sendfile(socket, &self.file, Some(&mut at), count as usize) {
            Ok(0) => Ok(SendOutcome::Truncated),
            Ok(sent) => Ok(SendOutcome::Sent(sent as u64)),
            Err(Errno::AGAIN) => Ok(SendOutcome::WouldBlock),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn checksum_is_crc32c() {
        // The check value of CRC-32/ISCSI.
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn checksums_outlive_the_open_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"123456789").unwrap();
        let sums = FrameChecksums::new(9, &[]);
        let mut block = BlockFile::open(file.path(), 0, 9, sums.clone()).unwrap();
        let first = block.frame_checksum(0, &mut Vec::new()).unwrap();
        // Other bytes would have another sum; a block does not change, so it is not read again.
        std::fs::write(file.path(), b"987654321").unwrap();
        let mut again = BlockFile::open(file.path(), 0, 9, sums).unwrap();
        assert_eq!(again.frame_checksum(0, &mut Vec::new()).unwrap(), first);
    }

    #[test]
    fn a_file_shorter_than_its_block_is_refused_and_frames_are_of_the_range() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"..123456789").unwrap();
        let sums = |size| FrameChecksums::new(size, &[]);
        assert!(BlockFile::open(file.path(), 2, 10, sums(10)).is_err());
        assert!(BlockFile::open(file.path(), u64::MAX, 10, sums(10)).is_err());
        let mut block = BlockFile::open(file.path(), 2, 9, sums(9)).unwrap();
        assert_eq!(block.frame_checksum(0, &mut Vec::new()).unwrap(), 0xe306_9283);
    }
}

//! A block's bytes in a file: which file it is, checksums of its frames, and sending without copying.
//!
//! Nothing here waits for a disk but [`open_regular`] and [`FrameReader::read`], which are for threads that may wait. Whoever
//! sends asks first whether a frame is in memory ([`BlockFile::is_in_memory`]). Files on a [`Medium`] that is not this
//! machine's own take no other call: their frames are read into memory of this process and sent from there. They should be
//! closed on threads that may wait too.

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use weir_proto::data::{checksum, frame_count, frame_length};

/// Checksums of one block that are kept once they were computed: those of 16 GiB.
const MAX_COMPUTED: usize = 65_536;

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

/// Tells a file from another one of the same name, and from itself after it was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    /// Its inode.
    pub inode: u64,
    /// When it was last written to, in nanoseconds since the Unix epoch.
    pub modified_ns: i64,
    /// Its length in bytes.
    pub length: u64,
    /// Names it has.
    pub links: u64,
}

/// What a file system keeps its files on, as far as that says which calls return at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Memory alone.
    Memory,
    /// Disks of this machine: what the kernel has in memory can be told from what it has not.
    Disk,
    /// Another machine, or another process (FUSE): any call may take as long as that likes.
    Elsewhere,
}

impl Medium {
    fn of(file: &File) -> Medium {
        let Ok(found) = rustix::fs::fstatfs(file) else { return Medium::Elsewhere };
        match found.f_type as u64 & 0xffff_ffff {
            // tmpfs, ramfs.
            0x0102_1994 | 0x8584_58f6 => Medium::Memory,
            // ext2 to ext4, xfs, btrfs, f2fs, overlayfs, zfs, bcachefs, squashfs, erofs.
            0xef53 | 0x5846_5342 | 0x9123_683e | 0xf2f5_2010 | 0x794c_7630 | 0x2fc1_2fc1 | 0xca45_1a4e
            | 0x7371_7368 | 0xe0f5_e1e2 => Medium::Disk,
            _ => Medium::Elsewhere,
        }
    }
}

/// A regular file that was opened for reading. Clones share it.
#[derive(Clone, Debug)]
pub struct OpenedFile {
    /// The file.
    pub file: Arc<File>,
    /// Which one it is.
    pub stamp: FileStamp,
    /// What it is on.
    pub medium: Medium,
}

impl OpenedFile {
    /// Whether it was not written to since it was opened, as its length and its time tell, and has as many names as then. Asks the
    /// kernel.
    pub fn is_unchanged(&self) -> bool {
        self.file.metadata().is_ok_and(|data| stamp_of(&data) == self.stamp)
    }
}

fn stamp_of(data: &std::fs::Metadata) -> FileStamp {
    FileStamp { inode: data.ino(), modified_ns: modified_of(data), length: data.len(), links: data.nlink() }
}

fn modified_of(data: &std::fs::Metadata) -> i64 {
    data.mtime().saturating_mul(1_000_000_000).saturating_add(data.mtime_nsec())
}

/// Opens a regular file for reading. No part of the path may be a symbolic link, so what was found to be below an
/// allowed directory is opened there or not at all. A FIFO or a device is an error and holds up nobody.
pub fn open_regular(path: &Path) -> io::Result<OpenedFile> {
    let opened = match rustix::fs::openat2(CWD, path, OPENED, Mode::empty(), RESOLVED) {
        // Kernels before 5.6, and some sandboxes.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::openat(CWD, path, OPENED, Mode::empty()),
        opened => opened,
    };
    stamped(File::from(opened?))
}

const OPENED: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NOCTTY);
const RESOLVED: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);

fn stamped(file: File) -> io::Result<OpenedFile> {
    let data = file.metadata()?;
    if !data.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let medium = Medium::of(&file);
    Ok(OpenedFile { file: Arc::new(file), stamp: stamp_of(&data), medium })
}

/// What is known of the checksums of a block's frames. It outlives the open file: clones share it.
#[derive(Clone, Debug)]
pub struct FrameChecksums(Rc<RefCell<Known>>);

#[derive(Debug)]
struct Known {
    /// All of them, if the producer computed them.
    given: Vec<u32>,
    /// By frame. A sparse file of any size takes no room before it is read.
    computed: BTreeMap<u64, u32>,
}

impl FrameChecksums {
    /// For a block of `size` bytes. `given` are those the producer computed, or empty.
    pub fn new(size: u64, given: &[u32]) -> FrameChecksums {
        let given = if given.len() as u64 == frame_count(size) { given.to_vec() } else { Vec::new() };
        FrameChecksums(Rc::new(RefCell::new(Known { given, computed: BTreeMap::new() })))
    }

    /// That of a frame, counted from 0.
    pub fn get(&self, frame: u64) -> Option<u32> {
        let known = self.0.borrow();
        let given = usize::try_from(frame).ok().and_then(|frame| known.given.get(frame));
        given.or_else(|| known.computed.get(&frame)).copied()
    }

    /// Takes down a computed one; false if another one was known.
    pub fn note(&self, frame: u64, checksum: u32) -> bool {
        if let Some(known) = self.get(frame) {
            return known == checksum;
        }
        let computed = &mut self.0.borrow_mut().computed;
        if computed.len() >= MAX_COMPUTED {
            computed.pop_first();
        }
        computed.insert(frame, checksum);
        true
    }
}

/// A range of an open file that is served as a block. Checksums are computed when a frame is first needed and kept, so
/// that many receivers of one block cost one pass over it.
#[derive(Debug)]
pub struct BlockFile {
    file: Arc<File>,
    start: u64,
    size: u64,
    checksums: FrameChecksums,
    medium: Medium,
}

impl BlockFile {
    /// A block of `size` bytes from `start` of an open file that is long enough.
    pub fn new(opened: &OpenedFile, start: u64, size: u64, checksums: FrameChecksums) -> BlockFile {
        BlockFile { file: Arc::clone(&opened.file), start, size, checksums, medium: opened.medium }
    }

    /// Whether its frames can be sent by [`BlockFile::send`]; else they are to be read first.
    pub fn is_sendable(&self) -> bool {
        self.medium != Medium::Elsewhere
    }

    /// Length of the block in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What is known of its frames.
    pub fn checksums(&self) -> &FrameChecksums {
        &self.checksums
    }

    /// Whether the frame at `offset` can be sent without waiting for a disk, as far as its end tells. Where the kernel
    /// does not say, it can.
    pub fn is_in_memory(&self, offset: u64) -> bool {
        match self.medium {
            Medium::Memory => return true,
            Medium::Disk => {}
            Medium::Elsewhere => return false,
        }
        let last = frame_length(self.size, offset).saturating_sub(1);
        let mut byte = [0; 1];
        let into = &mut [io::IoSliceMut::new(&mut byte)];
        let at = self.start.saturating_add(offset).saturating_add(last);
        !matches!(rustix::io::preadv2(&self.file, into, at, ReadWriteFlags::NOWAIT), Err(Errno::AGAIN))
    }

    /// The checksum of the frame at `offset`, if the kernel has all of it in memory and says so. The buffer begins with its
    /// bytes then.
    pub fn checksum_now(&self, offset: u64, buffer: &mut Vec<u8>) -> Option<u32> {
        self.frame_now(offset, buffer).map(checksum)
    }

    /// The bytes of the frame at `offset`, with which the buffer begins then, if the kernel has all of them in memory and says so.
    pub fn frame_now<'b>(&self, offset: u64, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        if !self.is_sendable() {
            return None;
        }
        let length = frame_length(self.size, offset) as usize;
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        let bytes = &mut buffer[..length];
        let at = self.start.saturating_add(offset);
        let flags =
            if self.medium == Medium::Memory { ReadWriteFlags::empty() } else { ReadWriteFlags::NOWAIT };
        let read = rustix::io::preadv2(&self.file, &mut [io::IoSliceMut::new(bytes)], at, flags);
        (read == Ok(length)).then_some(&*bytes)
    }

    /// Reads the frame at `offset`, on a thread that may wait for a disk.
    pub fn reader(&self, offset: u64) -> FrameReader {
        let (file, length) = (Arc::clone(&self.file), frame_length(self.size, offset));
        FrameReader { file, at: self.start.saturating_add(offset), length, keep: !self.is_sendable() }
    }

    /// Hands at most `count` bytes from `offset` to a socket without copying them through the process.
    pub fn send(&self, socket: impl AsFd, offset: u64, count: u64) -> io::Result<SendOutcome> {
        let mut at = self.start.saturating_add(offset);
        match rustix::fs::sendfile(socket, &self.file, Some(&mut at), count as usize) {
            Ok(0) => Ok(SendOutcome::Truncated),
            Ok(sent) => Ok(SendOutcome::Sent(sent as u64)),
            Err(Errno::AGAIN) => Ok(SendOutcome::WouldBlock),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// A frame that is to be read.
#[derive(Debug)]
pub struct FrameReader {
    file: Arc<File>,
    at: u64,
    length: u64,
    keep: bool,
}

/// A frame that was read.
#[derive(Debug)]
pub struct FrameRead {
    /// Its checksum.
    pub checksum: u32,
    /// Its bytes, if they are to be sent from here: the kernel has those of other files.
    pub bytes: Option<Vec<u8>>,
}

impl FrameReader {
    /// Reads the frame and computes its checksum; its bytes are in memory then.
    pub fn read(&self) -> io::Result<FrameRead> {
        let mut bytes = vec![0; self.length as usize];
        self.file.read_exact_at(&mut bytes, self.at)?;
        Ok(FrameRead { checksum: checksum(&bytes), bytes: self.keep.then_some(bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_crc32c() {
        // The check value of CRC-32/ISCSI.
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn checksums_are_kept_and_another_one_for_the_same_frame_is_noticed() {
        let sums = FrameChecksums::new(9, &[]);
        assert_eq!(sums.get(0), None);
        assert!(sums.note(0, 7) && sums.clone().note(0, 7) && !sums.note(0, 8));
        assert_eq!(FrameChecksums::new(9, &[5]).get(0), Some(5));
        // Two checksums for one frame are none.
        assert_eq!(FrameChecksums::new(9, &[5, 6]).get(0), None);
    }

    #[test]
    fn frames_are_of_the_range() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("file");
        std::fs::write(&path, b"..123456789").unwrap();
        let opened = open_regular(&path).unwrap();
        assert_eq!((opened.stamp.length, opened.stamp.links), (11, 1));
        let block = BlockFile::new(&opened, 2, 9, FrameChecksums::new(9, &[]));
        assert_eq!(block.is_in_memory(0), block.is_sendable());
        // Where a file system does not say what it has in memory, nothing is read at once.
        let now = block.checksum_now(0, &mut Vec::new());
        assert!(now.is_none_or(|sum| sum == 0xe306_9283), "{now:?}");
        assert_eq!(block.reader(0).read().unwrap().checksum, 0xe306_9283);
        // As if it were another machine's.
        let block = BlockFile::new(
            &OpenedFile { medium: Medium::Elsewhere, ..opened },
            2,
            9,
            FrameChecksums::new(9, &[]),
        );
        assert!(!block.is_in_memory(0) && block.checksum_now(0, &mut Vec::new()).is_none());
        assert_eq!(block.reader(0).read().unwrap().bytes.as_deref(), Some(&b"123456789"[..]));
    }

    #[test]
    fn what_the_kernel_makes_up_is_on_no_disk() {
        assert_eq!(Medium::of(&File::open("/proc/self/stat").unwrap()), Medium::Elsewhere);
    }

    #[test]
    fn links_fifos_and_directories_are_not_opened_and_hold_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir(dir.join("real")).unwrap();
        std::fs::write(dir.join("real/file"), b"x").unwrap();
        std::os::unix::fs::symlink(dir.join("real/file"), dir.join("link")).unwrap();
        std::os::unix::fs::symlink(dir.join("real"), dir.join("linked")).unwrap();
        rustix::fs::mkfifoat(CWD, dir.join("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        assert!(open_regular(&dir.join("real/file")).is_ok());
        for bad in ["link", "linked/file", "fifo", "real", "nothing"] {
            assert!(open_regular(&dir.join(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_sparse_file_of_8_tib_takes_no_room() {
        let file = tempfile::tempfile().unwrap();
        let size = weir_proto::limits::MAX_BLOCK_BYTES;
        // Not every file system has files of this length: any is long enough to show that no table is made.
        let _ = file.set_len(size);
        let block = BlockFile::new(&stamped(file).unwrap(), 0, size, FrameChecksums::new(size, &[]));
        assert_eq!(block.checksums().get(frame_count(size) - 1), None);
    }
}

//! A block's bytes in a file: which file it is, checksums of its frames, and sending without copying.
//!
//! Nothing here waits for a disk but [`open_regular`] and [`FrameReader::read`], which are for threads that may wait. A thread that
//! sends asks first whether a frame is in memory ([`BlockFile::is_in_memory`]). Files on a [`Medium`] that is not this
//! machine's own take no other call: their frames are read into memory of this process and sent from there. They should be
//! closed on threads that may wait too.

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::SendFlags;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use weir_proto::data::{checksum, frame_count, frame_length};

/// A piece of a block that is no shorter goes to a socket from its file; shorter ones are copied and go together.
const SENT_FROM_FILE: u64 = 64 << 10;
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
    /// Inode number within the file's file system.
    pub inode: u64,
    /// When it was last written to, in nanoseconds since the Unix epoch.
    pub modified_ns: i64,
    /// Its length in bytes.
    pub length: u64,
    /// Number of names (hard links) that it has.
    pub links: u64,
}

/// What a file system keeps its files on, as far as that says which calls return at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Memory alone, as `tmpfs` has it.
    Memory,
    /// Disks of this machine: what the kernel has in memory can be told from what it has not.
    Disk,
    /// Another machine, or another process (FUSE): any call may take as long as that likes.
    Elsewhere,
}

impl Medium {
    fn of(file: &File) -> Medium {
        let Ok(found) = rustix::fs::fstatfs(file) else { return Medium::Elsewhere };
        // On 32-bit machines the number is signed, and its upper half would be filled with ones.
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
    /// The open file, which clones share.
    pub file: Arc<File>,
    /// Inode, length and time of the last write, by which the file is told from another one.
    pub stamp: FileStamp,
    /// Kind of storage that the file is on.
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
/// allowed directory is opened there or not at all. A FIFO or a device is an error and holds up no thread.
///
/// # Errors
/// There is no such file, it may not be read, a part of the path is a link, or it is no regular file.
pub fn open_regular(path: &Path) -> io::Result<OpenedFile> {
    let opened = match rustix::fs::openat2(CWD, path, OPENED, Mode::empty(), RESOLVED) {
        // Kernels before 5.6, and some sandboxes.
        Err(Errno::NOSYS | Errno::PERM) => open_step_by_step(path),
        opened => opened,
    };
    stamped(File::from(opened?))
}

/// The same with a call for each part of the path, none of which may be a link.
fn open_step_by_step(path: &Path) -> rustix::io::Result<OwnedFd> {
    let mut parts = path.components().peekable();
    let mut at: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        let below = at.as_ref().map_or(CWD, AsFd::as_fd);
        let flags = if parts.peek().is_some() { PASSED } else { OPENED };
        at = Some(rustix::fs::openat(below, part.as_os_str(), flags, Mode::empty())?);
    }
    at.ok_or(Errno::NOENT)
}

const OPENED: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NOCTTY);
/// A directory on the way, which is passed and not read.
const PASSED: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
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

/// Bytes of a block that lie together.
#[derive(Clone, Debug)]
pub enum Piece {
    /// A part of an open file.
    File {
        /// File that has the bytes.
        file: Arc<File>,
        /// Offset of the part's first byte in the file.
        start: u64,
        /// Kind of storage that the file is on.
        medium: Medium,
    },
    /// In memory of this process.
    Memory(Arc<[u8]>),
}

impl Piece {
    fn medium(&self) -> Medium {
        match self {
            Piece::File { medium, .. } => *medium,
            Piece::Memory(_) => Medium::Memory,
        }
    }

    /// Fills `into` with its bytes from `at` on, as far as there are some.
    fn read(&self, at: u64, into: &mut [u8], flags: ReadWriteFlags) -> io::Result<usize> {
        match self {
            Piece::File { file, start, .. } => {
                let at = start.saturating_add(at);
                Ok(rustix::io::preadv2(file, &mut [io::IoSliceMut::new(into)], at, flags)?)
            }
            Piece::Memory(bytes) => {
                let bytes = bytes.get(at as usize..).unwrap_or_default();
                let count = bytes.len().min(into.len());
                into[..count].copy_from_slice(&bytes[..count]);
                Ok(count)
            }
        }
    }

    fn read_exact(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        match self {
            Piece::File { file, start, .. } => file.read_exact_at(into, start.saturating_add(at)),
            Piece::Memory(_) if self.read(at, into, ReadWriteFlags::empty())? == into.len() => Ok(()),
            Piece::Memory(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Where each piece of a block begins in it, in order, from 0 on.
#[derive(Clone, Debug)]
struct Pieces(Arc<[(u64, Piece)]>);

impl Pieces {
    /// The pieces that `count` bytes from `offset` on lie in: of each, the first byte that is meant and how many are.
    fn of(&self, offset: u64, count: u64) -> impl Iterator<Item = (&Piece, u64, u64)> {
        let end = offset.saturating_add(count);
        let first = self.0.partition_point(|&(begin, _)| begin <= offset).saturating_sub(1);
        (first..self.0.len()).map_while(move |at| {
            let (begin, piece) = &self.0[at];
            let next = self.0.get(at + 1).map_or(u64::MAX, |&(next, _)| next);
            let (from, until) = (offset.max(*begin), end.min(next));
            (from < until).then(|| (piece, from - begin, until - from))
        })
    }

    /// Reads `into` full from `offset` on, on a thread that may wait.
    fn read_exact(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        for (piece, at, count) in self.of(offset, into.len() as u64) {
            piece.read_exact(at, &mut into[done..done + count as usize])?;
            done += count as usize;
        }
        Ok(())
    }
}

/// A block that is served: a range of an open file, or several one after the other. Checksums are computed when a frame is first
/// needed and kept, so that many receivers of one block cost one pass over it.
#[derive(Debug)]
pub struct BlockFile {
    pieces: Pieces,
    size: u64,
    checksums: FrameChecksums,
    is_sendable: bool,
}

impl BlockFile {
    /// A block of `size` bytes from `start` of an open file that is long enough.
    pub fn new(opened: &OpenedFile, start: u64, size: u64, checksums: FrameChecksums) -> BlockFile {
        let piece = Piece::File { file: Arc::clone(&opened.file), start, medium: opened.medium };
        BlockFile::of_pieces(vec![(size, piece)], checksums)
    }

    /// A block of pieces, each with its length. Files must be long enough.
    pub fn of_pieces(pieces: Vec<(u64, Piece)>, checksums: FrameChecksums) -> BlockFile {
        let is_sendable = pieces.iter().all(|(_, piece)| piece.medium() != Medium::Elsewhere);
        let mut size = 0u64;
        let begin = |(length, piece): (u64, Piece)| {
            let begins = size;
            size = size.saturating_add(length);
            (begins, piece)
        };
        // What has no bytes would begin where the next piece does.
        let pieces: Arc<[_]> = pieces.into_iter().filter(|(length, _)| *length > 0).map(begin).collect();
        BlockFile { pieces: Pieces(pieces), size, checksums, is_sendable }
    }

    /// Whether its frames can be sent by [`BlockFile::send`]; else they are to be read first.
    pub fn is_sendable(&self) -> bool {
        self.is_sendable
    }

    /// Length of the block in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What is known of its frames.
    pub fn checksums(&self) -> &FrameChecksums {
        &self.checksums
    }

    /// Whether the frame at `offset` can be sent without waiting for a disk, as far as the end of each of its pieces tells. Where
    /// the kernel does not say, it can.
    pub fn is_in_memory(&self, offset: u64) -> bool {
        let is_there = |(piece, at, count): (&Piece, u64, u64)| match piece.medium() {
            Medium::Memory => true,
            Medium::Elsewhere => false,
            Medium::Disk => {
                let last = at.saturating_add(count).saturating_sub(1);
                let read = piece.read(last, &mut [0; 1], ReadWriteFlags::NOWAIT);
                !read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            }
        };
        self.is_sendable && self.pieces.of(offset, frame_length(self.size, offset)).all(is_there)
    }

    /// The checksum of the frame at `offset`, if the kernel has all of it in memory and says so. The buffer begins with its
    /// bytes then.
    pub fn checksum_now(&self, offset: u64, buffer: &mut Vec<u8>) -> Option<u32> {
        self.frame_now(offset, buffer).map(checksum)
    }

    /// The bytes of the frame at `offset`, with which the buffer begins then, if the kernel has all of them in memory and says so.
    pub fn frame_now<'b>(&self, offset: u64, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        if !self.is_sendable {
            return None;
        }
        let length = frame_length(self.size, offset);
        if buffer.len() < length as usize {
            buffer.resize(length as usize, 0);
        }
        let mut done = 0;
        for (piece, at, count) in self.pieces.of(offset, length) {
            let flags = match piece.medium() {
                Medium::Memory => ReadWriteFlags::empty(),
                Medium::Disk | Medium::Elsewhere => ReadWriteFlags::NOWAIT,
            };
            let into = &mut buffer[done..done + count as usize];
            if piece.read(at, into, flags).ok()? != into.len() {
                return None;
            }
            done += count as usize;
        }
        Some(&buffer[..done])
    }

    /// Reads the frame at `offset`, on a thread that may wait for a disk.
    pub fn reader(&self, offset: u64) -> FrameReader {
        let length = frame_length(self.size, offset);
        FrameReader { pieces: self.pieces.clone(), offset, length, keep: !self.is_sendable }
    }

    /// Hands at most `count` bytes from `offset` to a socket, long pieces without copying them through the process.
    ///
    /// # Errors
    /// The file cannot be read, or the connection is broken. A socket that takes nothing now is no error.
    pub fn send(&self, socket: impl AsFd, offset: u64, count: u64) -> io::Result<SendOutcome> {
        let Some((piece, at, length)) = self.pieces.of(offset, count).next() else {
            return Ok(SendOutcome::Truncated);
        };
        match piece {
            Piece::File { file, start, .. } if length >= SENT_FROM_FILE || length == count => {
                let mut at = start.saturating_add(at);
                let sent = rustix::fs::sendfile(&socket, file, Some(&mut at), length as usize);
                if sent == Err(Errno::AGAIN) {
                    // After a send that was cut short the kernel takes more to follow at once, and keeps what is less than a segment
                    // back for 200 ms. Where little may be unsent, nothing more is taken before that is gone.
                    let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
                }
                match sent {
                    Ok(0) => Ok(SendOutcome::Truncated),
                    Ok(sent) => Ok(SendOutcome::Sent(sent as u64)),
                    Err(Errno::AGAIN) => Ok(SendOutcome::WouldBlock),
                    Err(errno) => Err(errno.into()),
                }
            }
            _ => self.send_copied(socket, offset, count.min(SENT_FROM_FILE)),
        }
    }

    /// The same by way of this process: many short pieces in one call.
    fn send_copied(&self, socket: impl AsFd, offset: u64, count: u64) -> io::Result<SendOutcome> {
        let mut bytes = vec![0; count as usize];
        if self.pieces.read_exact(offset, &mut bytes).is_err() {
            return Ok(SendOutcome::Truncated);
        }
        match rustix::net::send(socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(sent) => Ok(SendOutcome::Sent(sent as u64)),
            Err(Errno::AGAIN) => Ok(SendOutcome::WouldBlock),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// A frame that is to be read.
#[derive(Debug)]
pub struct FrameReader {
    pieces: Pieces,
    offset: u64,
    length: u64,
    keep: bool,
}

/// A frame that was read.
#[derive(Debug)]
pub struct FrameRead {
    /// CRC-32C of the frame's bytes.
    pub checksum: u32,
    /// Its bytes, if they are to be sent from here: the kernel has those of other files.
    pub bytes: Option<Vec<u8>>,
}

impl FrameReader {
    /// Reads the frame and computes its checksum; its bytes are in memory then.
    ///
    /// # Errors
    /// The file cannot be read, or ends before the frame does.
    pub fn read(&self) -> io::Result<FrameRead> {
        let mut bytes = vec![0; self.length as usize];
        self.pieces.read_exact(self.offset, &mut bytes)?;
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

    /// Frames cross from one piece into the next, and pieces without bytes are none.
    #[test]
    fn a_block_of_many_pieces_is_sent_read_and_summed_like_one() {
        let dir = tempfile::tempdir().unwrap();
        let byte = |at: usize| (at * 31 % 251) as u8;
        let lengths = [3, 0, 70_000, 1, 0, 200_000, 9, 100_000, 300_000, 5];
        let (mut pieces, mut whole) = (Vec::new(), Vec::new());
        for (number, &length) in lengths.iter().enumerate() {
            let bytes: Vec<u8> = (whole.len()..whole.len() + length).map(byte).collect();
            whole.extend_from_slice(&bytes);
            if number % 3 == 0 {
                pieces.push((length as u64, Piece::Memory(bytes.into())));
                continue;
            }
            let path = dir.path().canonicalize().unwrap().join(number.to_string());
            std::fs::write(&path, [&b"lead"[..], &bytes, b"tail"].concat()).unwrap();
            let OpenedFile { file, medium, .. } = open_regular(&path).unwrap();
            pieces.push((length as u64, Piece::File { file, start: 4, medium }));
        }
        let size = whole.len() as u64;
        let block = BlockFile::of_pieces(pieces, FrameChecksums::new(size, &[]));
        assert_eq!(block.size(), size);
        let mut offset = 0;
        while offset < size {
            let end = offset + frame_length(size, offset);
            let frame = &whole[offset as usize..end as usize];
            assert_eq!(block.reader(offset).read().unwrap().checksum, checksum(frame));
            if block.is_sendable() {
                let (mut buffer, now) = (Vec::new(), block.is_in_memory(offset));
                let read = block.frame_now(offset, &mut buffer);
                assert!(now && read.is_none_or(|read| read == frame), "frame at {offset}");
            }
            offset = end;
        }
        if !block.is_sendable() {
            return;
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let reading = std::thread::spawn(move || {
            let mut got = Vec::new();
            io::Read::read_to_end(&mut peer, &mut got).map(|_| got).unwrap()
        });
        let mut at = 0;
        while at < size {
            // In odd portions, some within a piece and some over many.
            match block.send(&socket, at, (at * 7 % 150_000 + 1).min(size - at)).unwrap() {
                SendOutcome::Sent(sent) => at += sent,
                SendOutcome::WouldBlock => std::thread::yield_now(),
                SendOutcome::Truncated => panic!("cut off at {at}"),
            }
        }
        drop(socket);
        assert_eq!(reading.join().unwrap(), whole);
        assert_eq!(block.send(std::io::stderr(), size, 1).unwrap(), SendOutcome::Truncated);
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
        // As old kernels have it, too.
        let stepped = |path: &Path| stamped(File::from(open_step_by_step(path)?));
        for open in [open_regular, stepped] {
            assert!(open(&dir.join("real/file")).is_ok());
            for bad in ["link", "linked/file", "fifo", "real", "nothing", "real/file/file"] {
                assert!(open(&dir.join(bad)).is_err(), "{bad}");
            }
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

//! Blocks that are being read: their open files, shared by all who read one, and what is known of their frames.

use super::jobs::{Gather, Held, Job, Jobs, Open};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::{Rc, Weak};
use weir_core::agent::{BlockEntry, Place};
use weir_core::ids::BlockKey;
use weir_model::{CoflowId, Time};
use weir_net::{BlockFile, FrameChecksums, FrameRead};
use weir_proto::data::{FRAME_BYTES, frame_count, frame_length};

/// Frames that are read ahead of the one that a flow is at.
const FRAMES_AHEAD: u64 = 4;
/// Frames of a block in memory of this process, of files whose frames cannot be sent from where they are, besides one for each
/// connection that waits.
const COPIES: usize = 6;
/// A frame that is no longer goes in one write with what leads it, from memory: to copy it costs less than another call.
const COPIED_BYTES: u64 = 16 << 10;

/// What it takes to read a frame.
pub(super) struct Reading<'a> {
    pub(super) now: Time,
    pub(super) jobs: &'a mut Jobs,
    /// Who waits for it.
    pub(super) connection: u64,
    /// Room for a frame.
    pub(super) buffer: &'a mut Vec<u8>,
}

/// An open block, as its readers share it.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) key: BlockKey,
    /// The file that it is in.
    pub(super) place: Place,
    pub(super) file: BlockFile,
    /// Closes what it is in, where that may take long.
    open: Opened,
    /// Frames that were read and are to be sent from memory, the last ones.
    copies: RefCell<BTreeMap<u64, Rc<Vec<u8>>>>,
    /// Frames that are being read.
    pending: RefCell<BTreeSet<u64>>,
    /// Whether some frame was not in memory.
    is_from_disk: Cell<bool>,
    /// Connections that wait for a frame.
    waiting: RefCell<BTreeSet<u64>>,
}

/// What a block that is served is in.
#[derive(Debug)]
enum Opened {
    File(Rc<Open>),
    Gathered(#[expect(dead_code, reason = "held for as long as it is read")] Held),
}

impl Served {
    fn new(key: BlockKey, place: Place, file: BlockFile, open: Opened) -> Rc<Served> {
        Rc::new(Served {
            key,
            place,
            file,
            open,
            copies: RefCell::default(),
            pending: RefCell::default(),
            is_from_disk: Cell::new(false),
            waiting: RefCell::default(),
        })
    }

    /// Whether its file is what was opened, as far as is known without waiting for a disk.
    pub(super) fn is_unchanged(&self) -> bool {
        match &self.open {
            Opened::File(open) => self.file.is_sendable() && open.opened.is_unchanged(),
            Opened::Gathered(_) => false,
        }
    }

    /// Whether it is no block that was put, and lives as long as it is read.
    pub(super) fn is_gathered(&self) -> bool {
        matches!(self.open, Opened::Gathered(_))
    }

    /// The frame at `offset`, if its bytes are in memory. If not, it is read, and those after it; the connection waits.
    pub(super) fn frame(&self, reading: &mut Reading<'_>, offset: u64) -> Option<Frame> {
        if self.file.is_sendable() {
            return self.frame_of_file(reading, offset);
        }
        let frame = offset / FRAME_BYTES;
        let copy = self.copies.borrow_mut().remove(&frame);
        let ready = copy.zip(self.file.checksums().get(frame));
        if ready.is_none() {
            self.read(reading, frame);
            self.waiting.borrow_mut().insert(reading.connection);
        }
        // The next frame is read while this one goes out.
        if frame + 1 < frame_count(self.file.size()) && !self.copies.borrow().contains_key(&(frame + 1)) {
            self.read(reading, frame + 1);
        }
        ready.map(|(copy, checksum)| Frame { checksum, copy: Some(copy), at_hand: 0 })
    }

    /// A frame that can be sent from where it is.
    fn frame_of_file(&self, reading: &mut Reading<'_>, offset: u64) -> Option<Frame> {
        let frame = offset / FRAME_BYTES;
        let length = frame_length(self.file.size(), offset);
        let is_short = length <= COPIED_BYTES;
        let known = self.file.checksums().get(frame);
        let pending = self.pending.borrow().contains(&frame);
        let ready = match known {
            // A frame that a receiver doubts is among these: it is not sent again before it was
            // read anew.
            _ if pending => None,
            Some(checksum) if is_short && self.file.frame_now(offset, reading.buffer).is_some() => {
                Some((checksum, true))
            }
            Some(checksum) => self.file.is_in_memory(offset).then_some((checksum, false)),
            None => self.file.checksum_now(offset, reading.buffer).map(|checksum| (checksum, is_short)),
        };
        if known.is_none() {
            ready.into_iter().for_each(|(checksum, _)| _ = self.file.checksums().note(frame, checksum));
        }
        let found = ready.map(|(checksum, is_copied)| {
            let at_hand = if is_copied { length as usize } else { 0 };
            Frame { checksum, copy: None, at_hand }
        });
        if found.is_some() && !self.is_from_disk.get() {
            return found;
        }
        // A block that had to be read from a disk once is read ahead from then on: its next frames are read before they are due.
        self.is_from_disk.set(true);
        if found.is_none() {
            // Though it may be in memory by now: asking whether it is has the kernel read it. A connection that waits is woken by a
            // job alone.
            self.read(reading, frame);
            self.waiting.borrow_mut().insert(reading.connection);
        }
        let last = (frame + FRAMES_AHEAD).min(frame_count(self.file.size()));
        for ahead in frame + 1..last {
            let known = self.file.checksums().get(ahead).is_some();
            if !(known && self.file.is_in_memory(ahead * FRAME_BYTES)) {
                self.read(reading, ahead);
            }
        }
        found
    }

    /// Has a frame read.
    fn read(&self, reading: &mut Reading<'_>, frame: u64) {
        if self.pending.borrow_mut().insert(frame) {
            let reader = self.file.reader(frame * FRAME_BYTES);
            reading.jobs.add(
                reading.now,
                Job::Read { block: self.key.clone(), place: self.place.clone(), frame, reader },
            );
        }
    }

    /// A receiver got a frame whose checksum is not its bytes': reads it anew from the file, whatever is known of it.
    pub(super) fn doubt(&self, reading: &mut Reading<'_>, frame: u64) {
        if frame < frame_count(self.file.size()) {
            self.read(reading, frame);
        }
    }

    /// A frame was read, or could not be. Returns the connections that waited for it.
    pub(super) fn settle(&self, frame: u64, read: Option<FrameRead>) -> BTreeSet<u64> {
        self.pending.borrow_mut().remove(&frame);
        // All are woken, whichever frame they wait for: those of another one wait again.
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        if let Some(bytes) = read.and_then(|read| read.bytes) {
            let mut copies = self.copies.borrow_mut();
            copies.insert(frame, Rc::new(bytes));
            // Dropped first: what was read ahead for a receiver that left.
            while copies.len() > COPIES + waiting.len() {
                let first = copies.keys().copied().find(|&other| other != frame);
                first.and_then(|first| copies.remove(&first));
            }
        }
        waiting
    }
}

/// A frame that can be sent.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) checksum: u32,
    /// Its bytes, if they are not sent from the file.
    pub(super) copy: Option<Rc<Vec<u8>>>,
    /// So many bytes at the start of the buffer are its own: all, or none. What of them is not written at once is sent from the
    /// file.
    pub(super) at_hand: usize,
}

/// All blocks that receivers asked for.
#[derive(Default)]
pub(super) struct Blocks(BTreeMap<BlockKey, Asked>);

struct Asked {
    /// The file that its checksums are of.
    place: Place,
    /// The open block, as long as a connection reads it.
    served: Weak<Served>,
    checksums: FrameChecksums,
}

impl Blocks {
    /// A block that a connection reads already.
    pub(super) fn open_now(&self, key: &BlockKey) -> Option<Rc<Served>> {
        self.0.get(key)?.served.upgrade()
    }

    /// What is known of the frames of a block in this file.
    pub(super) fn checksums(&self, key: &BlockKey, place: &Place) -> Option<FrameChecksums> {
        self.0.get(key).filter(|asked| asked.place == *place).map(|asked| asked.checksums.clone())
    }

    /// Takes a file that was opened for a block.
    pub(super) fn opened(&mut self, block: &BlockEntry, open: Rc<Open>) -> Rc<Served> {
        let key = block.key();
        if let Some(served) = self.open_now(&key) {
            return served;
        }
        let new = || FrameChecksums::new(block.size, &block.frame_checksums);
        let place = block.place();
        let asked = self.0.entry(key.clone()).or_insert_with(|| Asked {
            place: place.clone(),
            served: Weak::new(),
            checksums: new(),
        });
        if asked.place != place {
            // Checksums of another file of the block say nothing of this one.
            (asked.place, asked.checksums) = (place.clone(), new());
        }
        let file = BlockFile::new(&open.opened, block.offset, block.size, asked.checksums.clone());
        let served = Served::new(key, place, file, Opened::File(open));
        asked.served = Rc::downgrade(&served);
        served
    }

    /// Takes what was found for a gather. Another receiver may have asked for the same.
    pub(super) fn gathered(&mut self, key: BlockKey, found: Gather) -> Rc<Served> {
        if let Some(served) = self.open_now(&key) {
            return served;
        }
        let Gather { gathered, pieces, open } = found;
        let checksums = FrameChecksums::new(gathered.size, &[]);
        let place = Place { path: key.name.clone(), stamp: None };
        let file = BlockFile::of_pieces(pieces, checksums.clone());
        let served = Served::new(key.clone(), place.clone(), file, Opened::Gathered(open));
        self.0.insert(key, Asked { place, served: Rc::downgrade(&served), checksums });
        served
    }

    /// A connection reads this one no longer: of a gather without readers nothing is kept.
    pub(super) fn left(&mut self, served: Rc<Served>) {
        // A count of one: `served` is the last reference, and this function drops it.
        if served.is_gathered() && Rc::strong_count(&served) == 1 {
            self.0.remove(&served.key);
        }
    }

    /// What is known of a block counts no more.
    pub(super) fn forget(&mut self, key: &BlockKey) {
        self.0.remove(key);
    }

    /// The same for all blocks of coflows, from the first to the last.
    pub(super) fn forget_coflows(&mut self, first: CoflowId, last: CoflowId) {
        let from = self.0.range(BlockKey::first_of(first)..).map(|(key, _)| key);
        for key in from.take_while(|key| key.coflow <= last).cloned().collect::<Vec<_>>() {
            self.0.remove(&key);
        }
    }
}

/// Whether an error is of this file, and not of the disk or the machine, which may be well again later.
pub(super) fn is_of_the_file(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, NotADirectory, NotFound, PermissionDenied};
    let gone = matches!(error.kind(), NotFound | NotADirectory | PermissionDenied | InvalidInput);
    // A link in the path, and a socket or a FIFO that no process writes to.
    gone || matches!(Errno::from_io_error(error), Some(Errno::LOOP | Errno::NXIO))
}

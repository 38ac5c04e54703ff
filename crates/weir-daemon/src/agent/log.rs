//! A file that lines are appended to, whole or not at all, and what of it is on the disk.

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

/// Room on the disk that is kept for everything but puts.
const RESERVE_BYTES: u64 = 1 << 20;

pub(super) struct Log {
    file: Arc<File>,
    length: u64,
    /// Up to where the file system has set room aside; `None` where it does not do so.
    reserved: Option<u64>,
    /// Bytes that outlive the machine.
    synced: u64,
    /// Since another thread began to sync it, no byte from here on stayed what it was.
    stable: u64,
    /// Half a line may stand beyond the end: it could not be taken back.
    is_torn: bool,
}

impl Log {
    /// An existing file, or a new one, of which the first `length` bytes stay.
    pub(super) fn open(path: &Path, length: u64) -> io::Result<Log> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        file.set_len(length)?;
        Log::at_end(file)
    }

    /// A file that was not there.
    pub(super) fn create(path: &Path) -> io::Result<Log> {
        Log::at_end(OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?)
    }

    fn at_end(mut file: File) -> io::Result<Log> {
        let length = file.seek(SeekFrom::End(0))?;
        Ok(Log {
            file: Arc::new(file),
            length,
            reserved: Some(0),
            synced: 0,
            stable: u64::MAX,
            is_torn: false,
        })
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.take_back(self.length)?;
        }
        if let Err(error) = (&*self.file).write_all(lines) {
            // Half a line must not stand before the next one.
            self.is_torn = true;
            self.take_back(self.length)?;
            return Err(error);
        }
        self.length += lines.len() as u64;
        Ok(())
    }

    /// Takes back what stands beyond a length.
    pub(super) fn take_back(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        (&*self.file).seek(SeekFrom::Start(length))?;
        self.is_torn = false;
        self.length = length;
        // `set_len` also gave back the room that was set aside beyond the end.
        self.reserved = self.reserved.map(|_| 0);
        self.synced = self.synced.min(length);
        self.stable = self.stable.min(length);
        Ok(())
    }

    /// Sets room aside beyond the end. An error says that there is none.
    pub(super) fn reserve(&mut self) -> io::Result<()> {
        let Some(reserved) = self.reserved.filter(|&reserved| reserved < self.length + RESERVE_BYTES) else {
            return Ok(());
        };
        // Twice the reserve, so that it is renewed once for each reserve that is written and not with each put.
        let until = self.length + 2 * RESERVE_BYTES;
        let from = reserved.max(self.length);
        match rustix::fs::fallocate(&*self.file, FallocateFlags::KEEP_SIZE, from, until - from) {
            Ok(()) => self.reserved = Some(until),
            // A file system that cannot set room aside is not asked again; puts then fail only when writing does.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.reserved = None,
            Err(errno) => {
                // Some file systems (ext4) keep what they could set aside: room that the journal, written anew, may need.
                let _ = self.file.set_len(self.length);
                self.reserved = Some(0);
                return Err(errno.into());
            }
        }
        Ok(())
    }

    /// Gives back the room that was set aside beyond the end.
    pub(super) fn give_back(&mut self) {
        if self.reserved.is_some() && self.file.set_len(self.length).is_ok() {
            self.reserved = Some(0);
        }
    }

    /// Whether all of it outlives the machine.
    pub(super) fn is_synced(&self) -> bool {
        self.synced == self.length
    }

    /// Waits until all of it is on the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        self.synced = self.length;
        Ok(())
    }

    /// The file, to be synced by another thread, and what it has by now.
    pub(super) fn begin_sync(&mut self) -> (Arc<File>, u64) {
        // Bytes that are written or taken back from here on may not be what that thread syncs.
        self.stable = u64::MAX;
        (Arc::clone(&self.file), self.length)
    }

    /// Whether it is this file.
    pub(super) fn is(&self, file: &Arc<File>) -> bool {
        Arc::ptr_eq(&self.file, file)
    }

    /// Its first bytes were synced by another thread.
    pub(super) fn note_synced(&mut self, bytes: u64) {
        self.synced = self.synced.max(bytes.min(self.stable));
    }
}

/// Waits until the names in a directory are on the disk.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Whether an error says that this file system knows nothing of syncing.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    struct Mounted(std::path::PathBuf);

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(&self.0).status();
        }
    }

    fn free_bytes(path: &Path) -> u64 {
        let found = rustix::fs::statvfs(path).unwrap();
        found.f_bavail * found.f_frsize
    }

    /// ext4 keeps what it could set aside where all of it was too much: a journal that is to be written anew then had no room.
    #[test]
    fn room_that_could_not_be_set_aside_is_left_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let (image, mounted) = (dir.path().join("image"), dir.path().join("disk"));
        std::fs::create_dir(&mounted).unwrap();
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let run = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let made =
            run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0", "-O", "^has_journal"]).arg(&image));
        if !(made && run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mounted))) {
            eprintln!("SKIPPED: a file cannot be mounted here; it takes root, loop devices and mkfs.ext4");
            return;
        }
        let disk = Mounted(mounted);
        let left = RESERVE_BYTES + RESERVE_BYTES / 2;
        std::fs::write(disk.0.join("fill"), vec![0; (free_bytes(&disk.0) - left) as usize]).unwrap();
        let before = free_bytes(&disk.0);
        assert!(before < 2 * RESERVE_BYTES);
        let mut log = Log::create(&disk.0.join("log")).unwrap();
        assert!(log.reserve().is_err());
        assert_eq!(free_bytes(&disk.0), before);
    }

    #[test]
    fn room_that_went_with_what_was_taken_back_is_set_aside_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::create(&dir.path().join("log")).unwrap();
        log.append(b"a line\n").unwrap();
        log.reserve().unwrap();
        if log.reserved.is_none() {
            // Nothing is set aside on such a file system, before or after.
            return;
        }
        log.append(b"another\n").unwrap();
        log.take_back(7).unwrap();
        log.reserve().unwrap();
        // Blocks of 512 bytes, whatever those of the file system are.
        assert!(log.file.metadata().unwrap().blocks() * 512 >= RESERVE_BYTES);
        assert_eq!(log.length(), 7);
    }
}

//! Blocks in memory, in a file the agent can serve without copying.

use memmap2::MmapMut;
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weir_proto::data::FRAME_BYTES;

/// Memory that becomes a block: a mapped file in the agent's spool. It has no name there until it is put, so that nothing is left
/// of it however the process ends; on file systems that have no such files (NFS), it has one, and is removed when this is
/// dropped.
#[derive(Debug)]
pub struct MemoryBlock {
    map: MmapMut,
    size: usize,
    file: File,
    /// Where the file is, or will be,
    path: PathBuf,
    name: String,
    /// and whether it is there, and still this process's.
    is_named: bool,
}

impl MemoryBlock {
    pub(crate) fn create(spool: &Path, size: u64) -> io::Result<MemoryBlock> {
        let name = format!("{:032x}.block", rand::random::<u128>());
        let path = spool.join(&name);
        let (file, is_named) = create(spool, &path)?;
        // The agent may run as another user of the spool's group, whatever this task's umask is.
        let readable = file.set_permissions(Permissions::from_mode(0o640));
        let map = readable.and_then(|()| allocate(&file, size)).inspect_err(|_| {
            if is_named {
                let _ = std::fs::remove_file(&path);
            }
        })?;
        Ok(MemoryBlock { map, size: size as usize, file, path, name, is_named })
    }

    /// Gives the file its name, under which the agent finds it.
    pub(crate) fn give_name(&mut self) -> io::Result<()> {
        if !self.is_named {
            // By its number in this process: a link by descriptor alone would take the rights of root.
            let open = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            rustix::fs::linkat(CWD, open, CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?;
            self.is_named = true;
        }
        Ok(())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn frame_checksums(&self) -> Vec<u32> {
        self.chunks(FRAME_BYTES as usize).map(weir_proto::data::checksum).collect()
    }

    /// The agent owns the file from now on, or will remove it in time: where it is not known whether a put arrived, its
    /// file must not go.
    pub(crate) fn hand_over(mut self) {
        // So that `drop` leaves the file: it is the agent's from here on.
        self.is_named = false;
    }
}

/// A file without a name in the spool, or one with that name; and whether it has it.
fn create(spool: &Path, path: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o640);
    let nameless = rustix::fs::OFlags::TMPFILE.bits();
    match options.clone().custom_flags(nameless as i32).open(spool) {
        Ok(file) => Ok((file, false)),
        // What file systems and kernels say that have no such files.
        Err(error)
            if [Errno::OPNOTSUPP, Errno::ISDIR, Errno::NOSYS]
                .map(Errno::raw_os_error)
                .contains(&error.raw_os_error().unwrap_or(0)) =>
        {
            Ok((options.create_new(true).open(path)?, true))
        }
        Err(error) => Err(error),
    }
}

/// Reserves the space first: writing to a mapped hole on a full disk would kill the process.
fn allocate(file: &File, size: u64) -> io::Result<MmapMut> {
    if size == 0 {
        // Nothing can be mapped of an empty file, and no reader sees this byte.
        return MmapMut::map_anon(1);
    }
    // Room is taken now: where a full disk had none, a write into the map would end the process
    // (SIGBUS).
    rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, size)?;
    // SAFETY: the file has a fresh random name in the agent's spool; no other process writes or shortens it.
    #[expect(unsafe_code, reason = "mapping a file is the point: no copy between task and agent")]
    unsafe {
        MmapMut::map_mut(file)
    }
}

impl Deref for MemoryBlock {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.map[..self.size]
    }
}
impl DerefMut for MemoryBlock {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[..self.size]
    }
}
impl Drop for MemoryBlock {
    fn drop(&mut self) {
        if self.is_named {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

//! Blocks in memory, in a file the agent can serve without copying.

use memmap2::MmapMut;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weir_proto::data::FRAME_BYTES;

/// Memory that becomes a block: a mapped file in the agent's spool. Dropped before it is put, it is
/// removed.
#[derive(Debug)]
pub struct MemoryBlock {
    map: MmapMut,
    size: usize,
    path: Option<PathBuf>,
    name: String,
}

impl MemoryBlock {
    pub(crate) fn create(spool: &Path, size: u64) -> io::Result<MemoryBlock> {
        let name = format!("{:032x}.block", rand::random::<u128>());
        let path = spool.join(&name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o640).open(&path)?;
        // The agent may run as another user of the spool's group, whatever this task's umask is.
        let readable = file.set_permissions(Permissions::from_mode(0o640));
        let map = readable.and_then(|()| allocate(&file, size)).inspect_err(|_| {
            let _ = std::fs::remove_file(&path);
        })?;
        Ok(MemoryBlock { map, size: size as usize, path: Some(path), name })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn frame_checksums(&self) -> Vec<u32> {
        self.chunks(FRAME_BYTES as usize).map(weir_proto::data::checksum).collect()
    }

    /// The agent owns the file from now on, or will remove it in time: where nobody knows whether a put arrived, its
    /// file must not go.
    pub(crate) fn hand_over(mut self) {
        self.path = None;
    }
}

/// Reserves the space first: writing to a mapped hole on a full disk would kill the process.
fn allocate(file: &File, size: u64) -> io::Result<MmapMut> {
    if size == 0 {
        // Nothing can be mapped of an empty file, and nobody sees this byte.
        return MmapMut::map_anon(1);
    }
    rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, size)?;
    // SAFETY: the file has a fresh random name in the agent's spool; nobody else writes or shortens it.
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
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

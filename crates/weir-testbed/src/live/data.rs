//! The file whose pieces are the blocks of a run: as long as the largest of them, so that none is shorter than asked.

use super::error::LiveError;
use std::io::{self, Write};
use std::path::Path;
use weir_model::{Bytes, CoflowSpec};

/// Blocks begin at different places of the data file, so that no two hold the same bytes.
pub(super) const BLOCK_STRIDE: u64 = 4096 * 37;
/// The data file is this much longer than the largest block.
pub(super) const DATA_SLACK: u64 = 16 << 20;

/// Bytes of the file for these coflows.
fn data_bytes<'a>(coflows: impl Iterator<Item = &'a CoflowSpec>) -> Bytes {
    let largest = coflows.map(|coflow| coflow.length().0).max().unwrap_or(0);
    Bytes(largest.saturating_add(DATA_SLACK))
}

/// Whether the folder for temporary files has room for the file of these coflows.
///
/// # Errors
/// [`LiveError::NoRoom`], with what is needed and what there is. Where the operating system does not say what there is,
/// writing shows it.
pub fn check_room<'a>(coflows: impl IntoIterator<Item = &'a CoflowSpec>) -> Result<(), LiveError> {
    let (folder, needed) = (std::env::temp_dir(), data_bytes(coflows.into_iter()));
    match free_room(&folder).filter(|free| needed > *free) {
        Some(free) => Err(LiveError::NoRoom { needed, free, folder }),
        None => Ok(()),
    }
}

/// What others than root may still write into a folder, where the operating system says it.
pub fn free_room(folder: &Path) -> Option<Bytes> {
    let space = rustix::fs::statvfs(folder).ok()?;
    Some(Bytes(space.f_bavail.saturating_mul(space.f_frsize)))
}

/// Writes the file for these coflows, of bytes without a pattern.
pub(super) fn write_data<'a>(path: &Path, coflows: impl Iterator<Item = &'a CoflowSpec>) -> io::Result<()> {
    use rand::{RngExt, SeedableRng};
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(1);
    let mut file = io::BufWriter::with_capacity(1 << 20, std::fs::File::create(path)?);
    let mut chunk = vec![0; 1 << 20];
    let mut left = data_bytes(coflows).0;
    while left > 0 {
        let count = left.min(chunk.len() as u64) as usize;
        random.fill(&mut chunk[..count]);
        file.write_all(&chunk[..count])?;
        left -= count as u64;
    }
    file.flush()
}

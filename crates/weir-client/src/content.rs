//! Hashes over whole blocks, which stand for their bytes.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use twox_hash::XxHash3_128;
use weir_proto::data::Identity;

/// Bytes read from a file at once.
const PIECE_BYTES: usize = 1 << 20;

/// The identity of bytes in memory.
pub(crate) fn of_bytes(bytes: &[u8]) -> Identity {
    Identity::of_content(XxHash3_128::oneshot(bytes))
}

/// The identity of a range of a file.
pub(crate) fn of_file(path: &Path, offset: u64, size: u64) -> io::Result<Identity> {
    // Neither a FIFO nor a device: the caller would wait for it without a limit.
    let opened = weir_net::open_regular(&path.canonicalize()?)?;
    let file = &opened.file;
    let end = offset.checked_add(size).ok_or(io::ErrorKind::InvalidInput)?;
    let (mut hash, mut at) = (XxHash3_128::new(), offset);
    let mut piece = vec![0; PIECE_BYTES];
    while at < end {
        let wanted = (end - at).min(PIECE_BYTES as u64) as usize;
        file.read_exact_at(&mut piece[..wanted], at)?;
        hash.write(&piece[..wanted]);
        at += wanted as u64;
    }
    Ok(Identity::of_content(hash.finish_128()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_memory_of_the_same_bytes_have_one_identity() {
        let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [&b"head"[..], &bytes].concat()).unwrap();
        assert_eq!(of_file(file.path(), 4, bytes.len() as u64).unwrap(), of_bytes(&bytes));
        assert_ne!(of_file(file.path(), 3, bytes.len() as u64).unwrap(), of_bytes(&bytes));
        assert!(of_file(file.path(), 5, bytes.len() as u64).is_err());
    }

    #[test]
    fn a_fifo_is_refused_and_waits_for_nobody_and_a_link_to_a_file_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (fifo, link) = (dir.path().join("fifo"), dir.path().join("link"));
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        assert!(of_file(&fifo, 0, 1).is_err());
        std::fs::write(dir.path().join("file"), "x").unwrap();
        std::os::unix::fs::symlink(dir.path().join("file"), &link).unwrap();
        assert_eq!(of_file(&link, 0, 1).unwrap(), of_bytes(b"x"));
    }
}

//! What executors of Spark keep for shuffles, found in their directories: which file a map task's output is in, and where a
//! reducer's bytes begin in it. Spark's own shuffle service reads them by the same rule, in all versions since 1.2.
//!
//! Nothing here trusts what is in the files: an index that cannot be is an answer, and no more.

use rustix::io::Errno;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use twox_hash::XxHash3_128;
use weir_core::agent::{Gathered, StoreEntry};
use weir_net::{OpenedFile, Piece, connections_within_limit};
use weir_proto::data::{Identity, Status};
use weir_proto::gather::{GatherRange, GatherRequest, LENGTH_BYTES};
use weir_proto::limits;

/// Bytes of an entry of an index.
const ENTRY_BYTES: u64 = 8;

/// Files that gathers hold open, counted together.
#[derive(Clone, Debug)]
pub(super) struct OpenFiles {
    count: Arc<AtomicUsize>,
    most: usize,
}

impl Default for OpenFiles {
    fn default() -> OpenFiles {
        // A third of what connections may have: three quarters of the descriptors.
        let most = connections_within_limit(3 * limits::MAX_GATHERED_FILES) / 3;
        OpenFiles { count: Arc::default(), most: most.clamp(1, limits::MAX_GATHERED_FILES) }
    }
}

impl OpenFiles {
    /// Room for so many more; none if there is not.
    fn take(&self, count: usize) -> Option<Places> {
        // In one step: of two calls at the same time the one that fits is not refused for the other.
        let more = |taken: usize| taken.checked_add(count).filter(|all| *all <= self.most);
        let taken = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Places { count, of: Arc::clone(&self.count) })
    }
}

/// Places of open files.
#[derive(Debug)]
pub(super) struct Places {
    count: usize,
    of: Arc<AtomicUsize>,
}

impl Drop for Places {
    fn drop(&mut self) {
        self.of.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// What a gather is made of.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) gathered: Gathered,
    /// The table, and the ranges.
    pub(super) pieces: Vec<(u64, Piece)>,
    /// The files, with their paths.
    pub(super) files: Vec<(OpenedFile, PathBuf)>,
    pub(super) places: Places,
}

/// A file that Spark calls so, in one of the store's directories.
fn path_of(store: &StoreEntry, name: &str) -> PathBuf {
    // Java's `String.hashCode` of ASCII characters, as Spark uses it; the least number has no absolute value and counts as 0.
    let hash = name.bytes().fold(0i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)));
    let hash = hash.checked_abs().unwrap_or(0) as usize;
    let directories = store.directories.len();
    let subdirectory = hash / directories % store.subdirectories as usize;
    Path::new(&store.directories[hash % directories]).join(format!("{subdirectory:02x}")).join(name)
}

/// The directory in which the first file of a gather is.
pub(super) fn first_directory<'s>(store: &'s StoreEntry, request: &GatherRequest) -> &'s Path {
    let map = request.ranges.first().map_or(0, |range| range.map);
    let path = path_of(store, &format!("shuffle_{}_{map}_0.index", request.shuffle));
    let directory = store.directories.iter().map(Path::new).find(|directory| path.starts_with(directory));
    directory.unwrap_or(Path::new("/"))
}

/// Why a gather has no files, as its receiver is told.
fn refused(path: &Path, error: &io::Error) -> Status {
    if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) {
        return Status::Busy;
    }
    if error.kind() == io::ErrorKind::NotFound {
        return Status::NoSuchBlock;
    }
    tracing::warn!(path = %path.display(), %error, "a file of an executor's store cannot be read");
    Status::Unreadable
}

/// Output of one map task.
struct Output {
    index: OpenedFile,
    /// Opened once bytes of it are wanted: Spark makes none where all reducers have none.
    data: Option<OpenedFile>,
}

/// Finds the ranges of a gather, on a thread that may wait for a disk. Where a range runs on from the one before, both are one
/// piece.
pub(super) fn find(store: &StoreEntry, request: &GatherRequest, files: &OpenFiles) -> Result<Found, Status> {
    let mut outputs: BTreeMap<u64, Output> = BTreeMap::new();
    let maps: BTreeSet<u64> = request.ranges.iter().map(|range| range.map).collect();
    // An index is open while ranges are looked for, and the data after that.
    let places = files.take(maps.len()).ok_or(Status::Busy)?;
    let _indexes = files.take(maps.len()).ok_or(Status::Busy)?;
    let mut identity = XxHash3_128::new();
    identity.write(&request.shuffle.to_le_bytes());
    let mut table = Vec::with_capacity(LENGTH_BYTES as usize * request.ranges.len());
    let mut pieces: Vec<(u64, Piece)> = Vec::new();
    let (mut size, mut last) = (LENGTH_BYTES * request.ranges.len() as u64, None);
    for range in &request.ranges {
        let name = |suffix: &str| format!("shuffle_{}_{}_0.{suffix}", request.shuffle, range.map);
        let output = match outputs.entry(range.map) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let path = path_of(store, &name("index"));
                let index = weir_net::open_regular(&path).map_err(|error| refused(&path, &error))?;
                new.insert(Output { index, data: None })
            }
        };
        let path = path_of(store, &name("data"));
        let (start, end) = bounds(&output.index, range).map_err(|error| refused(&path, &error))?;
        let length = end - start;
        identity.write(&range.map.to_le_bytes());
        identity.write(&start.to_le_bytes());
        identity.write(&length.to_le_bytes());
        table.extend_from_slice(&length.to_le_bytes());
        // Lengths are from files of tasks: their sum is checked before anything is made of it.
        size = size
            .checked_add(length)
            .filter(|size| *size <= limits::MAX_BLOCK_BYTES)
            .ok_or(Status::Unreadable)?;
        if length == 0 {
            continue;
        }
        let data = match &output.data {
            Some(data) => data,
            None => {
                let data = weir_net::open_regular(&path).map_err(|error| refused(&path, &error))?;
                output.data.insert(data)
            }
        };
        // An index that says more than there is would otherwise be noticed only in the middle of sending.
        if end > data.stamp.length {
            let short = format!("its index says {end} bytes, and it has {}", data.stamp.length);
            return Err(refused(&path, &io::Error::new(io::ErrorKind::InvalidData, short)));
        }
        // Files that were written anew give another identity, so that no get goes on with other bytes.
        identity.write(&data.stamp.inode.to_le_bytes());
        identity.write(&data.stamp.modified_ns.to_le_bytes());
        match pieces.last_mut().filter(|_| last == Some((range.map, start))) {
            Some((before, _)) => *before += length,
            None => {
                let piece = Piece::File { file: Arc::clone(&data.file), start, medium: data.medium };
                pieces.push((length, piece));
            }
        }
        last = Some((range.map, end));
    }
    let table: Arc<[u8]> = table.into();
    pieces.insert(0, (table.len() as u64, Piece::Memory(table)));
    let open = |(map, output): (u64, Output)| {
        let path = path_of(store, &format!("shuffle_{}_{map}_0.data", request.shuffle));
        Some((output.data?, path))
    };
    let files = outputs.into_iter().filter_map(open).collect();
    let identity = Identity::drawn(identity.finish_128().to_be_bytes());
    Ok(Found { gathered: Gathered { size, identity }, pieces, files, places })
}

/// Where the bytes of a range begin and end.
fn bounds(index: &OpenedFile, range: &GatherRange) -> io::Result<(u64, u64)> {
    let entry = |reducer: u32| {
        let mut bytes = [0; ENTRY_BYTES as usize];
        index.file.read_exact_at(&mut bytes, u64::from(reducer) * ENTRY_BYTES)?;
        Ok::<_, io::Error>(u64::from_be_bytes(bytes))
    };
    let (start, end) = (entry(range.first)?, entry(range.end)?);
    if start > end || end > limits::MAX_BLOCK_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("its index has {start} before {end}, for reducers {} to {}", range.first, range.end),
        ));
    }
    Ok((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(directories: &[&Path]) -> StoreEntry {
        StoreEntry {
            application: "app".to_owned(),
            executor: "1".to_owned(),
            token: [1; 16],
            directories: directories.iter().map(|path| path.display().to_string()).collect(),
            subdirectories: 64,
        }
    }

    fn gather(ranges: &[(u64, u32, u32)]) -> GatherRequest {
        GatherRequest {
            coflow: 1,
            offset: 0,
            destination: 0,
            group: 0,
            identity: Identity::UNKNOWN,
            token: [1; 16],
            shuffle: 5,
            application: "app".to_owned(),
            executor: "1".to_owned(),
            ranges: ranges.iter().map(|&(map, first, end)| GatherRange { map, first, end }).collect(),
        }
    }

    /// Writes the output of a map task as Spark does.
    fn write(store: &StoreEntry, map: u64, lengths: &[u64]) {
        let (mut index, mut at) = (0u64.to_be_bytes().to_vec(), 0);
        for length in lengths {
            at += length;
            index.extend_from_slice(&at.to_be_bytes());
        }
        for (suffix, bytes) in [("index", index), ("data", (0..at).map(|at| (at + map) as u8).collect())] {
            let path = path_of(store, &format!("shuffle_5_{map}_0.{suffix}"));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }

    fn found(store: &StoreEntry, ranges: &[(u64, u32, u32)], files: &OpenFiles) -> Result<Found, Status> {
        find(store, &gather(ranges), files)
    }

    #[test]
    fn files_are_where_spark_puts_them() {
        let one = store(&[Path::new("/d0")]);
        let two = store(&[Path::new("/d0"), Path::new("/d1")]);
        // By hand: "ab" hashes to 97 * 31 + 98 = 3105, and 3105 % 64 = 33 = 0x21; 3105 % 2 = 1, 1552 % 64 = 16 = 0x10.
        assert_eq!(path_of(&one, "ab"), Path::new("/d0/21/ab"));
        assert_eq!(path_of(&two, "ab"), Path::new("/d1/10/ab"));
    }

    #[test]
    fn ranges_are_found_and_those_that_run_on_are_one_piece() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = [dir.path().join("a"), dir.path().join("b")];
        dirs.iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        let store = store(&[&dirs[0].canonicalize().unwrap(), &dirs[1].canonicalize().unwrap()]);
        write(&store, 7, &[10, 0, 30, 5]);
        write(&store, 8, &[0, 0, 0, 0]);
        write(&store, 9, &[1, 2, 3, 4]);
        let files = OpenFiles { most: 6, ..OpenFiles::default() };
        let wanted = [(7, 0, 1), (7, 1, 2), (7, 2, 4), (8, 0, 4), (9, 3, 4), (9, 0, 1), (7, 0, 4)];
        let all = found(&store, &wanted, &files).unwrap();
        let lengths: Vec<u64> = all.pieces.iter().map(|(length, _)| *length).collect();
        assert_eq!(lengths, [56, 45, 4, 1, 45]);
        assert_eq!(all.gathered.size, 56 + 45 + 4 + 1 + 45);
        let Piece::Memory(table) = &all.pieces[0].1 else { panic!("the table comes first") };
        let said: Vec<u64> =
            table.chunks(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(said, [10, 0, 35, 0, 4, 1, 45]);
        // The same files are the same bytes; other ranges, and files written anew, are others.
        assert_eq!(
            found(&store, &wanted, &files).unwrap_err(),
            Status::Busy,
            "three open files and room for six"
        );
        let identity = all.gathered.identity;
        drop(all);
        assert_eq!(found(&store, &wanted, &files).unwrap().gathered.identity, identity);
        assert_ne!(found(&store, &wanted[1..], &files).unwrap().gathered.identity, identity);
        std::fs::remove_file(path_of(&store, "shuffle_5_9_0.data")).unwrap();
        write(&store, 9, &[1, 2, 3, 4]);
        assert_ne!(found(&store, &wanted, &files).unwrap().gathered.identity, identity);
        assert_eq!(files.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_an_index_cannot_say_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&[&dir.path().canonicalize().unwrap()]);
        let files = OpenFiles::default();
        assert_eq!(found(&store, &[(1, 0, 1)], &files).unwrap_err(), Status::NoSuchBlock);
        write(&store, 1, &[10, 20]);
        assert!(found(&store, &[(1, 0, 2)], &files).is_ok());
        for ranges in [[(1, 0, 3)], [(1, 2, 3)], [(1, u32::MAX - 1, u32::MAX)]] {
            assert_eq!(found(&store, &ranges, &files).unwrap_err(), Status::Unreadable, "{ranges:?}");
        }
        let index = path_of(&store, "shuffle_5_1_0.index");
        let entries = |of: [u64; 3]| of.iter().flat_map(|entry| entry.to_be_bytes()).collect::<Vec<u8>>();
        for wrong in [[0, 40, 30], [0, 10, 31], [0, 10, u64::MAX], [u64::MAX, 0, 30]] {
            std::fs::write(&index, entries(wrong)).unwrap();
            assert_eq!(
                found(&store, &[(1, 0, 1), (1, 1, 2)], &files).unwrap_err(),
                Status::Unreadable,
                "{wrong:?}"
            );
        }
        // A link leads nowhere, and a directory is no file.
        std::fs::remove_file(&index).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &index).unwrap();
        assert_eq!(found(&store, &[(1, 0, 1)], &files).unwrap_err(), Status::Unreadable);
        assert_eq!(files.count.load(Ordering::Relaxed), 0);
    }
}

//! Which file system a path is on, as the mount table says: nothing of the path itself is touched, so nothing hangs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Where the kernel tells it.
const TABLE: &str = "/proc/self/mountinfo";

/// A file system, for as long as it is mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileSystem(u64);

/// The file systems that are mounted, by where.
#[derive(Clone, Debug, Default)]
pub struct Mounts(BTreeMap<PathBuf, FileSystem>);

impl Mounts {
    /// What is mounted now, as this process sees it.
    ///
    /// # Errors
    /// The kernel's list of mounts cannot be read.
    pub fn read() -> io::Result<Mounts> {
        Ok(Mounts::parse(&std::fs::read(TABLE)?))
    }

    /// Lines that are none are passed over.
    fn parse(table: &[u8]) -> Mounts {
        let line = |line: &[u8]| {
            let mut fields = line.split(|byte| *byte == b' ');
            let (device, place) = (fields.nth(2)?, fields.nth(1)?);
            let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
            let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
            let device = u64::from(major) << 32 | u64::from(minor);
            Some((PathBuf::from(unescape(place)), FileSystem(device)))
        };
        // Of several at one place the last is on top.
        Mounts(table.split(|byte| *byte == b'\n').filter_map(line).collect())
    }

    /// The file system of an absolute path without links in it. Where nothing is known, all paths are on one.
    pub fn of(&self, path: &Path) -> FileSystem {
        path.ancestors().find_map(|place| self.0.get(place)).copied().unwrap_or_default()
    }
}

/// Blanks, tabs, newlines and backslashes stand in the table as a backslash and three octal digits.
fn unescape(bytes: &[u8]) -> OsString {
    let (mut plain, mut rest) = (Vec::with_capacity(bytes.len()), bytes);
    while let Some((&first, others)) = rest.split_first() {
        let digits = others.get(..3).filter(|digits| first == b'\\' && digits.iter().all(u8::is_ascii_digit));
        let value = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        plain.push(value.unwrap_or(first));
        rest = if value.is_some() { &others[3..] } else { others };
    }
    OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_on_the_file_system_that_is_mounted_nearest_above_it() {
        let table = b"22 1 259:2 / / rw - ext4 /dev/root rw\n\
            30 22 0:25 / /run rw,nosuid shared:3 - tmpfs tmpfs rw\n\
            no line\n\
            31 22 0:40 / /data/a\\040b rw - fuse.slow slow rw\n\
            32 31 0:41 / /data/a\\040b rw - fuse.over over rw\n";
        let mounts = Mounts::parse(table);
        let at = |path: &str| mounts.of(Path::new(path));
        assert_eq!(at("/data/file"), FileSystem(259 << 32 | 2));
        assert_eq!(at("/running"), at("/"));
        assert_eq!(at("/run/weir/agent.sock"), FileSystem(25));
        assert_eq!(at("/data/a b/c/d"), FileSystem(41), "the one on top");
        assert_eq!(Mounts::default().of(Path::new("/x")), FileSystem::default());
    }

    #[test]
    fn the_table_of_this_machine_has_a_root() {
        let mounts = Mounts::read().unwrap();
        assert!(mounts.0.contains_key(Path::new("/")), "{mounts:?}");
        assert_ne!(mounts.of(Path::new("/proc/self")), mounts.of(Path::new("/")));
    }
}

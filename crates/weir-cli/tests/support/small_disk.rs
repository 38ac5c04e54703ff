//! A small file system, to be full.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system in memory, unmounted in the end.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of a size as `mount` takes it at a new folder; none, and a word why, where that takes rights which this
    /// process does not have. Continuous integration has to have them.
    pub(crate) fn mount(path: &Path, size: &str) -> Option<SmallDisk> {
        std::fs::create_dir(path).unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(path).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(SmallDisk(path.to_owned()));
        }
        eprintln!("SKIPPED: a small disk cannot be mounted here; it takes root");
        assert!(std::env::var_os("CI").is_none(), "on CI nothing is skipped for want of rights");
        None
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes until the disk has no room left.
    pub(crate) fn fill(&self) {
        let mut file = File::create(self.filler()).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    /// Gives the room back.
    pub(crate) fn free(&self) {
        let _ = std::fs::remove_file(self.filler());
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

//! A disk of a machine that is lost: what was written and not synced may not be there afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;

/// An ext4 file system in a file. What its kernel has in memory and has not given to the disk is not in that file, so a copy of
/// the file is what a machine would find after its power went.
pub(crate) struct LostDisk {
    path: PathBuf,
    image: PathBuf,
    copies: u32,
}

impl LostDisk {
    /// Mounts one at a new folder; none, and a word why, where that takes rights or programs that are not there. It commits
    /// nothing by itself for ten minutes.
    pub(crate) fn mount(path: &Path) -> Option<LostDisk> {
        std::fs::create_dir(path).unwrap();
        let image = path.with_extension("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).unwrap();
        let disk = LostDisk { path: path.to_owned(), image, copies: 0 };
        if run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk.image)) && disk.attach() {
            return Some(disk);
        }
        eprintln!("SKIPPED: a file cannot be mounted here; it takes root, loop devices and mkfs.ext4");
        assert!(std::env::var_os("CI").is_none(), "on CI nothing is skipped for want of rights");
        None
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn attach(&self) -> bool {
        run(Command::new("mount").args(["-o", "loop,commit=600"]).arg(&self.image).arg(&self.path))
    }

    fn detach(&self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }

    /// What would be left if the power went now. Nothing may be written meanwhile.
    pub(crate) fn copy(&mut self) -> PathBuf {
        self.copies += 1;
        let copy = self.image.with_extension(format!("copy-{}", self.copies));
        assert!(run(Command::new("cp").arg("--sparse=always").arg(&self.image).arg(&copy)));
        copy
    }

    /// Puts a copy in the disk's place, once nobody uses the disk any more.
    pub(crate) fn come_back(&mut self, copy: PathBuf) {
        self.detach();
        let _ = std::fs::remove_file(&self.image);
        self.image = copy;
        assert!(self.attach(), "what is left can be mounted");
    }
}

impl Drop for LostDisk {
    fn drop(&mut self) {
        self.detach();
    }
}

fn run(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

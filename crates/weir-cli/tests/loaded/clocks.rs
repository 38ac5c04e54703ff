//! Wall clocks that step while processes run, each on its own.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library that processes load before the C library, and a file for each of them that says by how much its clock is off.
pub(crate) struct Clocks {
    dir: PathBuf,
}

impl Clocks {
    pub(crate) fn new(dir: &Path) -> Clocks {
        let clocks = Clocks { dir: dir.to_owned() };
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/loaded/clock.c");
        let mut build = Command::new("cc");
        build.args(["-O1", "-shared", "-fPIC", "-o"]).arg(clocks.library()).arg(source);
        assert!(build.status().unwrap().success(), "the library for stepping clocks is built");
        clocks
    }

    /// A process is to have a clock of its own.
    pub(crate) fn give(&self, command: &mut Command, name: &str) {
        if !self.file(name).exists() {
            std::fs::write(self.file(name), 0i64.to_ne_bytes()).unwrap();
        }
        command.env("LD_PRELOAD", self.library()).env("WEIR_CHAOS_CLOCK", self.file(name));
    }

    /// From now on a process's clock is so many seconds ahead.
    pub(crate) fn set(&self, name: &str, seconds: i64) {
        let file = std::fs::OpenOptions::new().write(true).open(self.file(name)).unwrap();
        file.write_all_at(&(seconds * 1_000_000_000).to_ne_bytes(), 0).unwrap();
    }

    fn library(&self) -> PathBuf {
        self.dir.join("clock.so")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("clock-{name}"))
    }
}

#[test]
fn a_clock_steps_while_its_process_runs() {
    let dir = tempfile::tempdir().unwrap();
    let clocks = Clocks::new(dir.path());
    let date = || {
        let mut command = Command::new("date");
        command.arg("+%s");
        clocks.give(&mut command, "date");
        String::from_utf8(command.output().unwrap().stdout).unwrap().trim().parse::<i64>().unwrap()
    };
    let before = date();
    clocks.set("date", -86_400);
    let moved = date() - before;
    assert!((-86_400..-86_300).contains(&moved), "{moved}");
}

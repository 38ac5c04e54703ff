//! Output files. Where they go is found out before anything runs; they are written whole or not at all.
//!
//! - What stands at the path decides (`place.rs`): a plain file, or nothing yet, is replaced by a complete file, which
//!   keeps its mode and, where that is allowed, its owner. Of a symbolic link the target is replaced. Pipes and character
//!   devices are written to. Everything else is refused.
//! - `-`, and every other name of the file behind standard output, is standard output. What a command says is then said on
//!   standard error, so that a program that reads standard output gets the one output alone.
//! - An output that is an input of the same command, or another output, is refused.

use super::place::{self, Identity, Place};
use crate::{Failure, terminal};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weir_testbed::live::UnfinishedFile;

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 1 << 18;

/// All files of a command: those it reads, and those it will write.
#[derive(Default)]
pub struct Files {
    /// What each one is, and what named it.
    named: Vec<(Identity, String)>,
}

impl Files {
    /// A file that the command reads, before its outputs. One that is not there is found out elsewhere.
    pub fn reads(&mut self, option: &str, path: &Path) {
        self.named.extend(Identity::of_input(path).map(|identity| (identity, option.to_owned())));
    }

    /// A file that the command will write when all else has succeeded; writes nothing yet.
    ///
    /// # Errors
    /// It is a folder, a file of the same command, or in a folder that cannot be written.
    pub fn writes(&mut self, option: &str, path: &Path) -> Result<OutputFile, Failure> {
        let refuse = |reason: String| Failure::Input(format!("{option} {}: {reason}", path.display()));
        let (place, identity) = place::find(path).map_err(refuse)?;
        if let Some((_, other)) = self.named.iter().find(|(named, _)| named.is_same(&identity)) {
            return Err(refuse(format!("is the file of {other} too, which would be lost; name another one")));
        }
        self.named.push((identity, option.to_owned()));
        if matches!(place, Place::StandardOutput) {
            terminal::leave_standard_output();
        }
        Ok(OutputFile { path: path.to_owned(), option: option.to_owned(), place })
    }

    /// As [`Files::writes`], of an option that may not be given.
    ///
    /// # Errors
    /// As of [`Files::writes`].
    pub fn may_write(&mut self, option: &str, path: Option<&PathBuf>) -> Result<Option<OutputFile>, Failure> {
        path.map(|path| self.writes(option, path)).transpose()
    }
}

/// A file that a command will write, of which it is known that it can.
pub struct OutputFile {
    path: PathBuf,
    option: String,
    place: Place,
}

impl OutputFile {
    /// Whether it is a pipe or a device, beside which there is nothing.
    pub fn is_stream(&self) -> bool {
        !matches!(self.place, Place::File(_))
    }

    /// Writes the file through `fill`. A plain file has what it had until all of it is written.
    ///
    /// # Errors
    /// `fill` fails, or what the output is takes no more.
    pub fn write(&self, fill: impl FnOnce(&mut dyn Write) -> Result<(), Failure>) -> Result<(), Failure> {
        match &self.place {
            Place::File(path) => {
                // Beside the old file, which stays as it was if the run fails on the way.
                let unfinished = UnfinishedFile::create_in(place::folder(path));
                let unfinished = unfinished.map_err(|error| self.failed(error))?;
                let file = unfinished.file().map_err(|error| self.failed(error))?;
                self.fill(file, fill)?;
                replace(unfinished, path).map_err(|error| self.failed(error))
            }
            Place::Stream(path) => {
                let file = OpenOptions::new().write(true).truncate(true).open(path);
                self.fill(file.map_err(|error| self.failed(error))?, fill)
            }
            Place::StandardOutput => self.fill(terminal::StandardOutput, fill),
            Place::StandardError => self.fill(io::stderr(), fill),
        }
    }

    fn fill(
        &self,
        output: impl Write,
        fill: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
        fill(&mut output).map_err(|failure| self.named(failure))?;
        output.flush().map_err(|error| self.failed(error))
    }

    /// A failed write with the option and the file that it is about.
    fn named(&self, failure: Failure) -> Failure {
        failure.about(format!("{} {}", self.option, self.path.display()))
    }

    fn failed(&self, error: io::Error) -> Failure {
        self.named(Failure::Run(error.into()))
    }
}

/// Gives a complete file its name, and what the file had that it replaces: its mode and, where this user may, its owner.
fn replace(unfinished: UnfinishedFile, path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(old) if old.is_file() => keep(unfinished.file()?, &old)?,
        Ok(_) => return Err(io::Error::other("is no plain file any more")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    unfinished.complete(path)
}

fn keep(file: &File, old: &std::fs::Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        // Only root may do so. For other users the file becomes theirs, as one that was removed and written anew would.
        let _ = std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid()));
    }
    file.set_permissions(std::fs::Permissions::from_mode(old.mode() & 0o777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.json");
        std::fs::write(&path, "old").unwrap();
        let file = Files::default().writes("--json", &path).ok().unwrap();
        let failed = file.write(|output| {
            output.write_all(b"half").unwrap();
            Err(Failure::Input("no".to_owned()))
        });
        assert!(failed.is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(file.write(|output| Ok(output.write_all(b"new")?)).is_ok());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_file_that_became_something_else_meanwhile_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.json");
        let file = Files::default().writes("--json", &path).ok().unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(file.write(|output| Ok(output.write_all(b"new")?)).is_err());
        assert!(path.is_symlink());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn impossible_places_are_refused_before_the_work() {
        let dir = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
        for name in ["", "missing/out.json", "socket", "loop", "new/", ".."] {
            let path = dir.path().join(name);
            let refused = Files::default().writes("--json", &path);
            assert!(matches!(refused, Err(Failure::Input(_))), "{name}");
        }
    }
}

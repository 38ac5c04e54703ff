//! What stands at the path of an output, and whether two paths are one file.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// On the command line, standard output.
pub(crate) const STANDARD_OUTPUT: &str = "-";
/// Symbolic links that are followed, one after the other, as Linux does.
const MAX_LINKS: usize = 40;
/// The device number of `/dev/null`: major 1, minor 3.
const NULL_DEVICE: u64 = 0x103;

/// What an output is written to.
#[derive(Debug)]
pub(crate) enum Place {
    /// A plain file, or nothing yet. A complete file takes this name, which has no links left in it.
    File(PathBuf),
    /// A pipe or a character device: written to, never replaced.
    Stream(PathBuf),
    StandardOutput,
    StandardError,
}

/// What a path leads to: the same for two paths of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Device and inode of what is there.
    Inode(u64, u64),
    /// A path without links to what is not there yet.
    Name(PathBuf),
    /// Takes every right from every user.
    Null,
}

impl Identity {
    /// Whether writing to both would destroy something.
    pub(crate) fn is_same(&self, other: &Identity) -> bool {
        self == other && *self != Identity::Null
    }

    /// Of a file that is read; none if there is no such file.
    pub(crate) fn of_input(path: &Path) -> Option<Identity> {
        std::fs::metadata(path).ok().map(|found| of_metadata(&found))
    }
}

fn of_metadata(found: &std::fs::Metadata) -> Identity {
    if found.file_type().is_char_device() && found.rdev() == NULL_DEVICE {
        return Identity::Null;
    }
    Identity::Inode(found.dev(), found.ino())
}

/// Of what an open file of this process leads to.
fn of_open(file: impl std::os::fd::AsFd) -> Option<Identity> {
    let copy = file.as_fd().try_clone_to_owned().ok()?;
    std::fs::File::from(copy).metadata().ok().map(|found| of_metadata(&found))
}

/// Where an output of that path goes.
///
/// # Errors
/// In words: why nothing can be written there.
pub(crate) fn find(path: &Path) -> Result<(Place, Identity), String> {
    let standard_output = of_open(io::stdout());
    if path == Path::new(STANDARD_OUTPUT) {
        return Ok((Place::StandardOutput, standard_output.unwrap_or(Identity::Null)));
    }
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return new_file(path),
        Err(error) => return Err(error.to_string()),
    };
    let (kind, identity) = (found.file_type(), of_metadata(&found));
    // Whatever name it was given by: replacing the file behind standard output would lose what else is written there.
    for (open, place) in
        [(standard_output, Place::StandardOutput), (of_open(io::stderr()), Place::StandardError)]
    {
        if open.is_some_and(|open| open.is_same(&identity)) {
            return Ok((place, identity));
        }
    }
    if kind.is_dir() {
        return Err("is a directory".to_owned());
    }
    if !(kind.is_file() || kind.is_fifo() || kind.is_char_device()) {
        let what = if kind.is_socket() { "a socket" } else { "a block device" };
        return Err(format!("is {what}: an output goes to a plain file, a pipe or a character device"));
    }
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).map_err(|error| error.to_string())?;
    if !kind.is_file() {
        return Ok((Place::Stream(path.to_owned()), identity));
    }
    match std::fs::canonicalize(path) {
        Ok(file) if Identity::of_input(&file).as_ref() == Some(&identity) => {
            check_folder(&file)?;
            Ok((Place::File(file), identity))
        }
        // An open file that has lost its name (/proc/self/fd/3).
        _ => Ok((Place::Stream(path.to_owned()), identity)),
    }
}

/// A path at which nothing stands, or links that lead to such a one.
fn new_file(path: &Path) -> Result<(Place, Identity), String> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        // `Path` drops a slash at the end, which says that a directory is meant.
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err("is a directory's name".to_owned());
        }
        let Some(name) = path.file_name() else { return Err("names no file".to_owned()) };
        let folder = folder(&path);
        let place =
            std::fs::canonicalize(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let file = place.join(name);
        match std::fs::read_link(&file) {
            Ok(target) => path = place.join(target),
            Err(_) => {
                check_folder(&file)?;
                return Ok((Place::File(file.clone()), Identity::Name(file)));
            }
        }
    }
    Err("too many symbolic links".to_owned())
}

/// Whether another file can be made beside that one.
fn check_folder(file: &Path) -> Result<(), String> {
    let folder = folder(file);
    // The error's own text names the temporary file that was tried, which means nothing to the user.
    let refused = |error: io::Error| format!("{}: {}", folder.display(), io::Error::from(error.kind()));
    weir_testbed::live::UnfinishedFile::create_in(folder).map(drop).map_err(refused)
}

/// The directory a file is in.
pub(crate) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

//! Output files, checked before long work and written whole or not at all.

use crate::Failure;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file that a command will write when all else has succeeded.
pub(crate) struct OutputFile {
    path: PathBuf,
    option: &'static str,
}

impl OutputFile {
    /// Checks that the file can be written, so that no long work is done in vain; writes nothing.
    pub(crate) fn check(path: &Path, option: &'static str) -> Result<OutputFile, Failure> {
        let refuse = |reason: String| Failure::Input(format!("{option} {}: {reason}", path.display()));
        if path.is_dir() {
            return Err(refuse("is a directory".to_owned()));
        }
        let folder = folder(path);
        match std::fs::metadata(folder) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(refuse(format!("{} is not a directory", folder.display()))),
            Err(error) => return Err(refuse(format!("{}: {error}", folder.display()))),
        }
        if !special(path) {
            tempfile::Builder::new()
                .prefix(".weir-")
                .tempfile_in(folder)
                .map_err(|error| refuse(format!("{}: {error}", folder.display())))?;
        }
        Ok(OutputFile { path: path.to_owned(), option })
    }

    /// Whether it is a pipe or a device, which is written to and never replaced.
    pub(crate) fn is_special(&self) -> bool {
        special(&self.path)
    }

    /// Writes the file through `fill`, into another file first that takes its name when complete.
    pub(crate) fn write(
        &self,
        fill: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let failed = |error: std::io::Error| {
            let place = format!("{} {}", self.option, self.path.display());
            Failure::Run(anyhow::Error::new(error).context(place))
        };
        if special(&self.path) {
            // A device or pipe is written to, never replaced.
            let file = std::fs::OpenOptions::new().write(true).open(&self.path).map_err(failed)?;
            let mut output = std::io::BufWriter::new(file);
            fill(&mut output).map_err(|failure| self.named(failure))?;
            return output.flush().map_err(failed);
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(".weir-");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let file = builder.tempfile_in(folder(&self.path)).map_err(failed)?;
        let mut output = std::io::BufWriter::with_capacity(1 << 18, file);
        fill(&mut output).map_err(|failure| self.named(failure))?;
        let file = output.into_inner().map_err(|error| failed(error.into_error()))?;
        file.persist(&self.path).map_err(|error| failed(error.error))?;
        Ok(())
    }
}

impl OutputFile {
    /// A failed write with the option and the file that it is about.
    fn named(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Run(error) => {
                Failure::Run(error.context(format!("{} {}", self.option, self.path.display())))
            }
            input @ Failure::Input(_) => input,
        }
    }
}

/// The directory a file is in.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Whether the path exists and is no plain file.
fn special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.json");
        std::fs::write(&path, "old").unwrap();
        let file = OutputFile::check(&path, "--json").ok().unwrap();
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
    fn impossible_places_are_refused_before_the_work() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().to_owned(), dir.path().join("missing/out.json")] {
            assert!(matches!(OutputFile::check(&path, "--json"), Err(Failure::Input(_))));
        }
    }
}

//! Runs of an experiment that are done, kept in a file until all are: an experiment of hours that is killed goes on where it
//! was.
//!
//! The first line of the file is the probe of the code that made it, then there is a line per run. Runs of other code do not
//! count, nor does a line that was cut short.

use crate::{Measures, Probe};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What a file of results has while they are made: `packets.runs`.
pub const RUNS: &str = "runs";

/// Runs that are done.
#[derive(Debug, Default)]
pub struct Runs {
    done: HashMap<String, Measures>,
    file: Option<(PathBuf, Mutex<File>)>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    run: String,
    measures: Measures,
}

impl Runs {
    /// Those that are kept nowhere.
    pub fn unkept() -> Runs {
        Runs::default()
    }

    /// Those in a file that the same code has made, and those that are still to come.
    ///
    /// # Errors
    /// The file can be neither read nor made.
    pub fn open(path: &Path, code: &Probe) -> io::Result<Runs> {
        let head = serde_json::to_string(code)?;
        let done = match File::open(path) {
            Ok(file) => read(BufReader::new(file), &head),
            Err(error) if error.kind() == io::ErrorKind::NotFound => HashMap::new(),
            Err(error) => return Err(error),
        };
        // Written anew, so that a line that was cut short is not followed by others; beside the old one, so that a disk that is full
        // takes no run away.
        let beside = path.with_extension(format!("{RUNS}.new"));
        let mut file = File::create(&beside)?;
        let written = writeln!(file, "{head}").and_then(|()| {
            done.iter().try_for_each(|(run, measures)| write_line(&mut file, run, measures))?;
            std::fs::rename(&beside, path)
        });
        if let Err(error) = written {
            let _ = std::fs::remove_file(&beside);
            return Err(error);
        }
        Ok(Runs { done, file: Some((path.to_owned(), Mutex::new(file))) })
    }

    /// How many are done.
    pub fn len(&self) -> usize {
        self.done.len()
    }
    /// Whether the file had no run when it was opened.
    pub fn is_empty(&self) -> bool {
        self.done.is_empty()
    }

    /// A run's measures, from the file or made now.
    pub(crate) fn get<E>(
        &self,
        run: &str,
        make: impl FnOnce() -> Result<Measures, E>,
    ) -> Result<Measures, E> {
        if let Some(measures) = self.done.get(run) {
            return Ok(measures.clone());
        }
        let measures = make()?;
        if let Some((_, file)) = &self.file {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            // An error costs nothing but time: a run that could not be kept is computed again when it is needed.
            let _ = write_line(&mut file, run, &measures);
        }
        Ok(measures)
    }

    /// All are done, and their results are kept: the file goes.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(self) -> io::Result<()> {
        self.file.map_or(Ok(()), |(path, _)| std::fs::remove_file(path))
    }
}

fn write_line(file: &mut File, run: &str, measures: &Measures) -> io::Result<()> {
    let line = Line { run: run.to_owned(), measures: measures.clone() };
    // One write, so that a line is there or is cut short at the end of the file.
    file.write_all((serde_json::to_string(&line)? + "\n").as_bytes())
}

fn read(file: impl BufRead, head: &str) -> HashMap<String, Measures> {
    let mut lines = file.lines().map_while(Result::ok);
    if lines.next().as_deref() != Some(head) {
        return HashMap::new();
    }
    let lines = lines.map_while(|line| serde_json::from_str::<Line>(&line).ok());
    lines.map(|line| (line.run, line.measures)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measures(value: f64) -> Measures {
        Measures::from([("avg".to_owned(), value)])
    }
    fn probe(value: f64) -> Probe {
        Probe::from([("a, fair".to_owned(), measures(value))])
    }

    #[test]
    fn what_was_done_is_not_done_again_by_the_same_code() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("packets.runs");
        let make = |value| move || Ok::<_, ()>(measures(value));
        let runs = Runs::open(&path, &probe(1.0)).unwrap();
        assert_eq!(runs.get("one", make(0.1 + 0.2)), Ok(measures(0.1 + 0.2)));
        assert_eq!(runs.get("two", || Err(())), Err(()));
        drop(runs);
        // The same numbers to the last bit, and what is cut short is made again.
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + "{\"run\":\"three\",\"mea").unwrap();
        let runs = Runs::open(&path, &probe(1.0)).unwrap();
        assert_eq!((runs.len(), runs.get("one", || Err(()))), (1, Ok(measures(0.1 + 0.2))));
        assert_eq!(runs.get("three", make(3.0)), Ok(measures(3.0)));
        drop(runs);
        assert_eq!(Runs::open(&path, &probe(1.0)).unwrap().len(), 2);
        // Other code.
        assert!(Runs::open(&path, &probe(1.5)).unwrap().is_empty());
        Runs::open(&path, &probe(1.5)).unwrap().remove().unwrap();
        assert!(!path.exists());
    }
}

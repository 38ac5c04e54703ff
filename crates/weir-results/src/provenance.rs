//! What results were made with.

use serde::Serialize;

/// What `--version` says: of several builds of one version the commit tells which.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("WEIR_COMMIT"), ")");

/// What has to be run, with which program, to get the same results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Provenance {
    /// The command line after the program's name: seed, cut and all other options that were given.
    pub command: Vec<String>,
    /// Version of the program.
    pub version: &'static str,
    /// Commit that it was built from; `unknown` outside of a repository.
    pub commit: &'static str,
    /// Seed of what was drawn; null where nothing is.
    pub seed: Option<u64>,
}

impl Provenance {
    /// What this process was started with; `seed` is that of what it drew.
    pub fn of_this_run(seed: Option<u64>) -> Provenance {
        let command = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        Provenance { command, version: env!("CARGO_PKG_VERSION"), commit: env!("WEIR_COMMIT"), seed }
    }

    /// The same of an experiment's results, with a command that says no more than what has to be run. They are stored with
    /// the seeds beside it, and are the same on every machine: of a file only its name is kept.
    pub fn of_experiment(words: &[&str]) -> weir_experiment::MadeBy {
        let name = |word: &&str| {
            let file = std::path::Path::new(word).file_name();
            file.map_or((*word).to_owned(), |name| name.to_string_lossy().into_owned())
        };
        weir_experiment::MadeBy {
            command: words.iter().map(name).collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("WEIR_COMMIT").to_owned(),
        }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let seed = self.seed.map_or_else(String::new, |seed| format!(", seed {seed}"));
        let words: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        format!("Made by: weir {}{seed} (version {}, commit {})", words.join(" "), self.version, self.commit)
    }
}

/// A word as a shell takes it back.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_experiment_names_its_trace_without_the_folder() {
        let made =
            Provenance::of_experiment(&["experiment", "run", "small", "--trace", "/data/hour one.txt"]);
        assert_eq!(made.command, ["experiment", "run", "small", "--trace", "hour one.txt"]);
        assert_eq!(made.version, env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn the_line_can_be_given_to_a_shell_again() {
        let command = ["sim", "--trace", "my trace's.txt"].map(str::to_owned).to_vec();
        let made = Provenance { command, version: "0.1.0", commit: "unknown", seed: Some(3) };
        assert_eq!(
            made.line(),
            r"Made by: weir sim --trace 'my trace'\''s.txt', seed 3 (version 0.1.0, commit unknown)"
        );
    }
}

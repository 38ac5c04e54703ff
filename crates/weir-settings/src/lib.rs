//! What a process of Weir is told: its command line, with settings of daemons from the environment, a file and calls; and the log in which
//! it answers.
//!
//! # Approach
//! The options of a daemon are the one table of its settings: names, units, defaults, bounds and help. What a file or a variable says
//! becomes an option behind those of the command line, unless it is given there; so it is read, and refused, by the same code.
//!
//! ```text
//! command line > WEIR_<DAEMON>_<SETTING> > section [daemon] of --config FILE > default
//! ```
//!
//! A daemon that runs reads them again on SIGHUP, and some may be changed by a call (`again`).
//!
//! A file may have sections for all daemons. A daemon reads its own, and refuses a section that no daemon has.
#![forbid(unsafe_code)]

// In every module it stands for that of std, which panics when a pipe is closed or a disk is full.
#[macro_use(eprintln)]
extern crate weir_console;

mod again;
pub mod arguments;
mod entry;
mod file;
pub mod logging;
mod table;

pub use again::{Again, Changed, Running};
pub use entry::{Entry, Origin, Value};
pub use file::SettingsFile;
pub use table::{Daemon, key};

use clap::Command;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use table::is_switch;

/// Words of a command line with what a file and variables add.
#[derive(Debug, Default)]
pub struct Composed {
    /// The command line that says it all.
    pub words: Vec<OsString>,
    /// Where settings that were added are from, by name.
    pub origins: BTreeMap<String, Origin>,
    /// Warnings that the daemon logs when it starts.
    pub warnings: Vec<String>,
}

/// Adds what a file and variables say to the words of a command line, if they start a daemon.
///
/// # Errors
/// In one line: file, line, setting, and what would be right.
pub fn compose(
    root: &Command,
    words: Vec<OsString>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Composed, String> {
    let as_is = |words| Composed { words, ..Composed::default() };
    let Some(daemon) = Daemon::of_words(root, &words) else { return Ok(as_is(words)) };
    if daemon.asks_for_help(&words) {
        return Ok(as_is(words));
    }
    let mut warnings = Vec::new();
    let said = gather(&daemon, &words, variables, &mut warnings)?;
    Ok(Composed { warnings, ..arrange(&daemon, words, &said, &[])? })
}

/// What variables and the file say.
fn gather(
    daemon: &Daemon,
    words: &[OsString],
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<String, Entry>, String> {
    let mut said = daemon.variables(variables, warnings)?;
    if let Some(path) = daemon.file(words) {
        let file = SettingsFile::read(&PathBuf::from(&path))?;
        file.check_sections()?;
        for entry in file.section(daemon.name) {
            daemon.check(&entry)?;
            // Variables come before the file.
            said.entry(entry.key.clone()).or_insert(entry);
        }
    }
    Ok(said)
}

/// A command line that says it too, where it says nothing itself; and what holds over all, first.
fn arrange(
    daemon: &Daemon,
    mut words: Vec<OsString>,
    said: &BTreeMap<String, Entry>,
    first: &[Entry],
) -> Result<Composed, String> {
    let mut said = said.clone();
    for entry in first {
        daemon.check(entry)?;
        // What a call says takes the place of what the command line says.
        words = daemon.without(words, &entry.key);
        said.insert(entry.key.clone(), entry.clone());
    }
    let given = daemon.given(&words);
    let mut composed = Composed { words, ..Composed::default() };
    for (key, entry) in said {
        if !given.contains(&key) && daemon.takes(&key) {
            composed.words.extend(daemon.words_of(&entry));
            composed.origins.insert(key, entry.origin);
        }
    }
    Ok(composed)
}

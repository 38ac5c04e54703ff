//! Settings of a daemon that runs: read again, and changed by calls.
//!
//! What a call says holds over all else, until the settings are read again (SIGHUP): then it is forgotten. A setting that cannot
//! change while the daemon runs, and has another value than at its start, refuses the whole.

use crate::{Daemon, Entry, Origin, Value, arrange, gather};
use clap::{Arg, Command};
use std::collections::BTreeMap;
use std::ffi::OsString;

/// A setting with another value than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Name of the setting, as in a file.
    pub name: String,
    /// What it was; empty: not set.
    pub before: String,
    /// What it is; empty: not set.
    pub now: String,
}

impl std::fmt::Display for Changed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |value: &str| if value.is_empty() { "not set".to_owned() } else { value.to_owned() };
        write!(f, "{} = {} (was {})", self.name, shown(&self.now), shown(&self.before))
    }
}

/// The settings of this process, as they are in force.
#[derive(Clone, Debug)]
pub struct Running {
    root: Command,
    words: Vec<OsString>,
    may_change: Vec<&'static str>,
    /// What variables and the file said when they were read last.
    said: BTreeMap<String, Entry>,
    values: BTreeMap<String, String>,
    called: BTreeMap<String, String>,
}

/// What they would be.
#[derive(Debug)]
pub struct Again {
    /// A command line that says all of it.
    pub words: Vec<OsString>,
    /// What would be another than it is.
    pub changed: Vec<Changed>,
    /// What the log is to say besides.
    pub warnings: Vec<String>,
    said: BTreeMap<String, Entry>,
    values: BTreeMap<String, String>,
    called: BTreeMap<String, String>,
}

impl Again {
    /// What a setting would be; empty: not set.
    pub fn value(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }
}

impl Running {
    /// Of a daemon that these words started; of its settings only these may change while it runs.
    ///
    /// # Errors
    /// In one line, as [`compose`](crate::compose).
    pub fn start(
        mut root: Command,
        words: Vec<OsString>,
        may_change: Vec<&'static str>,
    ) -> Result<Running, String> {
        root.build();
        let mut running = Running {
            root,
            words,
            may_change,
            said: BTreeMap::new(),
            values: BTreeMap::new(),
            called: BTreeMap::new(),
        };
        let now = running.read()?;
        running.adopt(now);
        Ok(running)
    }

    /// Reads all again: what calls said counts no more.
    ///
    /// # Errors
    /// In one line, as at the start; or which setting cannot change.
    pub fn again(&self) -> Result<Again, String> {
        self.fit(self.read()?)
    }

    /// The settings as they are, with what a call says, after those before it. Nothing is read again for it.
    ///
    /// # Errors
    /// In one line: which setting there is not, cannot change, is said twice, or cannot be that.
    pub fn with(&self, call: &[(String, String)]) -> Result<Again, String> {
        let mut called = self.called.clone();
        let mut named = Vec::new();
        for (name, value) in call {
            if named.contains(&name) {
                return Err(format!("{name} is said twice"));
            }
            named.push(name);
            called.insert(name.clone(), value.clone());
        }
        let daemon = self.daemon()?;
        for name in named {
            // A name that is no setting is refused later, where settings are read.
            if daemon.takes(name) && !self.may_change.contains(&name.as_str()) {
                return Err(self.fixed(name));
            }
        }
        self.fit(self.state(self.said.clone(), called)?)
    }

    /// They are in force.
    pub fn adopt(&mut self, again: Again) {
        (self.said, self.values, self.called) = (again.said, again.values, again.called);
    }

    fn daemon(&self) -> Result<Daemon, String> {
        Daemon::of_words(&self.root, &self.words).ok_or_else(|| "this is no daemon with settings".to_owned())
    }

    fn fixed(&self, name: &str) -> String {
        let others = self.may_change.join(", ");
        format!("{name} cannot change while it runs, only with a restart; what can: {others}")
    }

    fn fit(&self, mut again: Again) -> Result<Again, String> {
        for (name, now) in &again.values {
            let before = self.values.get(name).cloned().unwrap_or_default();
            if before == *now {
                continue;
            }
            if !self.may_change.contains(&name.as_str()) {
                return Err(format!("{} ({name} would be {now:?}, and is {before:?})", self.fixed(name)));
            }
            again.changed.push(Changed { name: name.clone(), before, now: now.clone() });
        }
        Ok(again)
    }

    fn read(&self) -> Result<Again, String> {
        let mut warnings = Vec::new();
        let said = gather(&self.daemon()?, &self.words, std::env::vars_os(), &mut warnings)?;
        Ok(Again { warnings, ..self.state(said, BTreeMap::new())? })
    }

    fn state(
        &self,
        said: BTreeMap<String, Entry>,
        called: BTreeMap<String, String>,
    ) -> Result<Again, String> {
        let daemon = self.daemon()?;
        let entry = |(key, value): (&String, &String)| Entry {
            key: key.clone(),
            value: daemon.value(key, value),
            origin: Origin::Call,
        };
        let first: Vec<Entry> = called.iter().map(entry).collect();
        let composed = arrange(&daemon, self.words.clone(), &said, &first)?;
        let refused = |error: clap::Error| crate::arguments::one_line(&error);
        let matches = self.root.clone().try_get_matches_from(&composed.words).map_err(refused)?;
        let mut leaf = &matches;
        // Values are with the innermost command, such as `serve` of `weir controller serve`.
        while let Some((_, deeper)) = leaf.subcommand() {
            leaf = deeper;
        }
        let values = daemon.settings().into_iter().filter(|arg| daemon.takes(crate::key(arg)));
        let values = values.map(|arg| (crate::key(arg).to_owned(), raw(arg, leaf))).collect();
        Ok(Again { words: composed.words, changed: Vec::new(), warnings: Vec::new(), said, values, called })
    }
}

/// A value as it was said; several with commas.
fn raw(arg: &Arg, matches: &clap::ArgMatches) -> String {
    let id = arg.get_id().as_str();
    if crate::is_switch(arg) {
        return matches.get_flag(id).to_string();
    }
    let values = matches.get_raw(id).into_iter().flatten();
    values.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(",")
}

impl Daemon {
    /// What a text is as the value of a setting.
    pub(crate) fn value(&self, key: &str, text: &str) -> Value {
        match (text, self.is_switch(key)) {
            ("true" | "1", true) => Value::Switch(true),
            ("false" | "0", true) => Value::Switch(false),
            _ => Value::Word(text.to_owned()),
        }
    }
}

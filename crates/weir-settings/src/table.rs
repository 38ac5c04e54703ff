//! The table of settings: what the parser of the command line knows of a daemon's options.

use crate::arguments::paragraph;
use crate::{Entry, Origin, Value};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

/// Commands that have settings, and sections in files.
pub(crate) const DAEMONS: [&str; 4] = ["coordinator", "agent", "relay", "controller"];
/// Options that are no settings.
const NONE: [&str; 3] = ["config", "help", "version"];

/// A daemon and what it can be set to.
#[derive(Debug)]
pub struct Daemon {
    /// Its command, and the name of its section in files.
    pub name: &'static str,
    /// Its command, or the part of it that is to run.
    command: Command,
    /// Of all parts, by name: one file may have the settings of all.
    all: BTreeMap<String, Arg>,
    /// Words of the command line before its options.
    head: usize,
}

impl Daemon {
    /// The daemon that these words start, if they start one.
    pub(crate) fn of_words(root: &Command, words: &[OsString]) -> Option<Daemon> {
        let named = words.get(1)?.to_str()?;
        let name = DAEMONS.into_iter().find(|name| *name == named)?;
        let part = words.get(2).and_then(|word| word.to_str());
        Daemon::of_name(root, name, part)
    }

    /// The daemon of that name, or the part of it that is to run (a decision maker of the controller).
    pub fn of_name(root: &Command, name: &'static str, part: Option<&str>) -> Option<Daemon> {
        let whole = root.find_subcommand(name)?;
        let chosen = part.and_then(|part| whole.find_subcommand(part));
        let (command, head) = chosen.map_or((whole, 2), |part| (part, 3));
        let parts = [whole].into_iter().chain(whole.get_subcommands());
        let all = parts.flat_map(settings).map(|arg| (key(arg).to_owned(), arg.clone())).collect();
        Some(Daemon { name, command: command.clone(), all, head })
    }

    /// All that have settings.
    pub fn all(root: &Command) -> Vec<Daemon> {
        DAEMONS.into_iter().filter_map(|name| Daemon::of_name(root, name, None)).collect()
    }

    /// Its settings, in the order of its help, then those of its parts alone.
    pub fn settings(&self) -> Vec<&Arg> {
        let own: Vec<&Arg> = settings(&self.command).collect();
        let others = self.all.values().filter(|arg| !own.iter().any(|own| key(own) == key(arg)));
        own.iter().copied().chain(others).collect()
    }

    pub(crate) fn asks_for_help(&self, words: &[OsString]) -> bool {
        let mut rest = words.iter().skip(2);
        while let Some(word) = rest.next() {
            if ["--help", "-h", "--version", "-V", "help"].iter().any(|help| word == help) {
                return true;
            }
            // The value of a setting may be any word, `help` too.
            let name = word.to_str().and_then(|word| word.strip_prefix("--"));
            if name.is_some_and(|name| self.takes_value(name)) {
                rest.next();
            }
        }
        false
    }

    /// Whether a setting of this name is followed by its value.
    fn takes_value(&self, name: &str) -> bool {
        let is_it = |arg: &Arg| key(arg) == name || arg.get_all_aliases().unwrap_or_default().contains(&name);
        settings(&self.command).any(|arg| is_it(arg) && !is_switch(arg))
    }

    /// The file of settings that the command line names.
    pub(crate) fn file(&self, words: &[OsString]) -> Option<OsString> {
        let mut words = words.iter().skip(self.head);
        while let Some(word) = words.next() {
            if word == "--config" {
                return words.next().cloned();
            }
            if let Some(path) = word.to_str().and_then(|word| word.strip_prefix("--config=")) {
                return Some(path.into());
            }
        }
        None
    }

    /// Settings that the command line gives.
    pub(crate) fn given(&self, words: &[OsString]) -> BTreeSet<String> {
        let names = words.iter().skip(self.head).filter_map(|word| word.to_str()?.strip_prefix("--"));
        let names: BTreeSet<&str> = names.map(|word| word.split('=').next().unwrap_or(word)).collect();
        let is_given = |arg: &&Arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            names.contains(key(arg)) || aliases.iter().any(|alias| names.contains(alias))
        };
        settings(&self.command).filter(is_given).map(|arg| key(arg).to_owned()).collect()
    }

    /// The words of a command line without those that give a setting.
    pub(crate) fn without(&self, words: Vec<OsString>, named: &str) -> Vec<OsString> {
        let is_meant = |arg: &Arg, name: &str| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            key(arg) == named && (name == named || aliases.contains(&name))
        };
        let mut left: Vec<OsString> = words.iter().take(self.head).cloned().collect();
        let mut rest = words.into_iter().skip(self.head);
        while let Some(word) = rest.next() {
            let name = word.to_str().and_then(|word| word.strip_prefix("--"));
            let name = name.map(|name| name.split('=').next().unwrap_or(name).to_owned());
            let arg = name.and_then(|name| settings(&self.command).find(|arg| is_meant(arg, &name)));
            match arg {
                None => left.push(word),
                Some(arg) => {
                    let has_value = word.to_str().is_some_and(|word| word.contains('='));
                    if !has_value && !is_switch(arg) {
                        rest.next();
                    }
                }
            }
        }
        left
    }

    pub(crate) fn is_switch(&self, named: &str) -> bool {
        self.all.get(named).is_some_and(is_switch)
    }

    /// Whether the part that is to run has this setting.
    pub fn takes(&self, key_: &str) -> bool {
        settings(&self.command).any(|arg| key(arg) == key_)
    }

    /// What variables say, by setting.
    pub(crate) fn variables(
        &self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        warnings: &mut Vec<String>,
    ) -> Result<BTreeMap<String, Entry>, String> {
        let mut said = BTreeMap::new();
        let prefix = self.variable("");
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with(&prefix)) else { continue };
            let Some(arg) = self.all.values().find(|arg| self.variable(key(arg)) == name) else {
                warnings.push(format!("{name} is no setting of `weir {}`, and is not looked at", self.name));
                continue;
            };
            let Some(value) = value.to_str() else { return Err(format!("{name}: its value is no UTF-8")) };
            if value.is_empty() {
                continue;
            }
            let value = self.value(key(arg), value);
            let origin = Origin::Variable(name.to_owned());
            let entry = Entry { key: key(arg).to_owned(), value, origin };
            self.check(&entry)?;
            said.insert(entry.key.clone(), entry);
        }
        Ok(said)
    }

    /// The variable of a setting.
    pub fn variable(&self, key: &str) -> String {
        format!("WEIR_{}_{}", self.name, key.replace('-', "_")).to_uppercase()
    }

    /// Whether there is such a setting, and this is a value of it.
    ///
    /// # Errors
    /// In one line, with the place.
    pub fn check(&self, entry: &Entry) -> Result<(), String> {
        let (place, named) = (&entry.origin, &entry.key);
        let Some(arg) = self.all.get(named) else {
            let meant = close(named, self.all.keys().map(String::as_str));
            return Err(format!("{place}: [{}] has no setting {named}{meant}", self.name));
        };
        let takes =
            || arg.get_value_names().and_then(|names| names.first()).map_or("a value", |name| name.as_str());
        match &entry.value {
            Value::Switch(_) if !is_switch(arg) => {
                return Err(format!("{place}: {named} takes {}, and not true or false", takes()));
            }
            Value::Word(_) | Value::Words(_) if is_switch(arg) => {
                return Err(format!("{place}: {named} is true or false"));
            }
            Value::Words(_) if !is_list(arg) => {
                return Err(format!("{place}: {named} takes one {}, and not a list", takes()));
            }
            _ => {}
        }
        let holder = self.command_with(named);
        let words = [OsString::from("weir")].into_iter().chain(self.words_of(entry));
        // Each setting alone: whether it needs others, or excludes them, is checked for all of them together.
        let alone = holder.mut_args(|arg| arg.required(false)).try_get_matches_from(words);
        match alone {
            Err(error) if is_of_value(error.kind()) => {
                Err(format!("{place}: {}{}", paragraph(&error), help_of(arg)))
            }
            _ => Ok(()),
        }
    }

    /// The part that has a setting, by itself.
    fn command_with(&self, named: &str) -> Command {
        let has = |command: &&Command| settings(command).any(|arg| key(arg) == named);
        let holder = [&self.command].into_iter().chain(self.command.get_subcommands()).find(has);
        match holder {
            Some(command) => command.clone(),
            // A setting of another part of Weir than the one that is to run.
            None => Command::new("weir").args(self.all.get(named).cloned()),
        }
    }

    /// The options of the command line that say the same.
    pub(crate) fn words_of(&self, entry: &Entry) -> Vec<OsString> {
        // With `=`: the parser would take a value that begins with a dash for another option.
        let option = |value: &String| OsString::from(format!("--{}={value}", entry.key));
        match &entry.value {
            Value::Switch(true) => vec![OsString::from(format!("--{}", entry.key))],
            Value::Switch(false) => Vec::new(),
            Value::Word(word) => vec![option(word)],
            Value::Words(words) => words.iter().map(option).collect(),
        }
    }
}

/// Name of a setting: that of its option.
pub fn key(arg: &Arg) -> &str {
    arg.get_long().unwrap_or_default()
}

fn settings(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_setting =
        |arg: &&Arg| arg.get_long().is_some_and(|long| !NONE.contains(&long)) && !arg.is_hide_set();
    command.get_arguments().filter(is_setting)
}

pub(crate) fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

fn is_of_value(kind: ErrorKind) -> bool {
    use ErrorKind::{
        InvalidValue, NoEquals, TooFewValues, TooManyValues, ValueValidation, WrongNumberOfValues,
    };
    [InvalidValue, NoEquals, TooFewValues, TooManyValues, ValueValidation, WrongNumberOfValues]
        .contains(&kind)
}

/// What a setting is for, behind an error.
fn help_of(arg: &Arg) -> String {
    arg.get_help().map(|help| format!(". {}: {help}", key(arg))).unwrap_or_default()
}

/// The word that was most likely meant.
pub(crate) fn close<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let word = word.replace('_', "-").to_lowercase();
    let known: Vec<&str> = known.collect();
    let exact = known.iter().find(|known| **known == word).map(|known| format!("did you mean `{known}`?"));
    let meant = exact.unwrap_or_else(|| weir_model::meant(&word, known));
    if meant.is_empty() { meant } else { format!("; {}", meant.trim_end()) }
}

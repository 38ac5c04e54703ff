//! What files, variables and calls say of settings.

/// Where the value of a setting is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of a file.
    File {
        /// As it was named.
        path: String,
        /// Number of its line in the file, from 1.
        line: usize,
    },
    /// Name of an environment variable.
    Variable(String),
    /// A call to the daemon that runs.
    Call,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::File { path, line } => write!(f, "{path}:{line}"),
            Origin::Variable(name) => write!(f, "{name}"),
            Origin::Call => write!(f, "as asked"),
        }
    }
}

/// What a file or a variable says of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the setting.
    pub key: String,
    /// What it is said to be.
    pub value: Value,
    /// Where that is said.
    pub origin: Origin,
}

/// What a setting is said to be, not yet checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Text or a number, as on the command line.
    Word(String),
    /// A list of strings.
    Words(Vec<String>),
    /// A boolean, for switches.
    Switch(bool),
}

//! What files, variables and calls say of settings.

/// Where the value of a setting is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A line of a file.
    File { path: String, line: usize },
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
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Text or a number, as on the command line.
    Word(String),
    Words(Vec<String>),
    Switch(bool),
}

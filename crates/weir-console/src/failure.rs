//! What went wrong with a command.

/// What went wrong, and whether it was the user's input.
pub enum Failure {
    /// A bad file, name or value: one line, exit 2, nothing written.
    Input(String),
    /// A peer did not answer, or no task put the block, within the time limit; it may later: exit 3.
    Unanswered(anyhow::Error),
    /// A peer refused, or what was asked for has ended; it will not come: exit 4.
    Refused(anyhow::Error),
    /// Anything else: exit 1.
    Run(anyhow::Error),
    /// A command that was run for the user ended with this code, and has said why: the same exit.
    Ended(u8),
}

impl Failure {
    /// The same with what it is about, unless it says so itself.
    pub fn about(self, what: String) -> Failure {
        match self {
            Failure::Run(error) => Failure::Run(error.context(what)),
            failure => failure,
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Run(error.into())
    }
}

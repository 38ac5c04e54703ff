//! What can go wrong with a bed, said so that the reader knows what to do next.

use std::io;

use crate::place::Place;

/// Why a [`crate::Bed`] could not be created or changed.
#[derive(Debug, thiserror::Error)]
pub enum BedError {
    /// A field of the configuration is out of range.
    #[error("bed configuration: {0}")]
    Config(String),
    /// The bed has no such host.
    #[error("the bed has hosts 0 to {last}, not {host}", last = hosts - 1)]
    NoSuchHost {
        /// The host asked for.
        host: usize,
        /// How many hosts there are.
        hosts: usize,
    },
    /// A command line tool that configures the kernel is not installed.
    #[error("`{tool}` is not installed (Debian and Ubuntu: apt-get install {package})")]
    MissingTool {
        /// Name of the program.
        tool: &'static str,
        /// Debian package that brings it.
        package: &'static str,
    },
    /// The process may not make network namespaces.
    #[error("no right to make network namespaces: run as root, or {hint}")]
    NoRights {
        /// What else would help on this machine.
        hint: String,
    },
    /// `ip`, `bridge` or `tc` refused a line; often the kernel lacks the feature that the line names.
    #[error("`{tool}` for {subject} failed: {message}")]
    Tool {
        /// Name of the program.
        tool: &'static str,
        /// Which namespace was being configured.
        subject: String,
        /// What the program printed, and the line at fault.
        message: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Os {
        /// The step that failed, and where.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
}

impl BedError {
    /// For `map_err`: a system error with what was attempted.
    pub(crate) fn os<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| Self::Os { what, source: source.into() }
    }

    /// For `map_err` on work done inside a host.
    pub(crate) fn at<E: Into<io::Error>>(place: Place, what: &str) -> impl FnOnce(E) -> Self {
        Self::os(format!("{place}: {what}"))
    }
}

/// Why a process gets no user namespace of its own (see [`crate::enter_user_namespace`]).
#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    /// Only a process with a single thread may enter a user namespace.
    #[error("a user namespace must be entered before the program starts its first thread")]
    Threads,
    /// The machine does not let this user make user namespaces.
    #[error("this machine allows its users no user namespaces ({reason}): run as root")]
    NotAllowed {
        /// The setting that forbids it, as far as it can be told.
        reason: String,
    },
    /// The namespace was entered, but its ids could not be mapped; the process should end, as it now
    /// runs as nobody.
    #[error("user namespace entered but {what} failed: {source}")]
    Mapping {
        /// The file that could not be written.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

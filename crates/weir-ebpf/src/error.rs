//! Why a tagger does not run.

use std::io;
use thiserror::Error;
use weir_endhost::tagging::CLASSES;

/// Why a [`Config`](crate::Config) cannot be taken.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// More levels than there are classes for them.
    #[error(
        "{levels} levels from class {best} on are more than {CLASSES} classes; give at most {} thresholds",
        (CLASSES - 1).saturating_sub(usize::from(*best))
    )]
    Levels {
        /// Levels of flows without a deadline: thresholds and one.
        levels: usize,
        /// Their first class.
        best: u8,
    },
    /// A DSCP has six bits.
    #[error("class {class}: DSCP {dscp} is above 63; give a number from 0 to 63")]
    Dscp {
        /// The class.
        class: usize,
        /// What it was to be tagged with.
        dscp: u8,
    },
}

/// Why packets are not tagged.
#[derive(Debug, Error)]
pub enum TagError {
    /// The numbers make no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kernel lets this process load no programs.
    #[error(
        "no right to load programs into the kernel; run as root, or with CAP_BPF and CAP_NET_ADMIN in the machine's own user \
         namespace (nothing was changed)"
    )]
    NoRights,
    /// There is no such interface in this network namespace.
    #[error("no interface {name} in this network namespace; `ip link` lists those that are there")]
    NoInterface {
        /// Its name.
        name: String,
    },
    /// Another tagger is attached to the interface, of this process or of another.
    #[error("{name} has a tagger already; end the process that holds it first")]
    Taken {
        /// The interface.
        name: String,
    },
    /// The kernel cannot attach programs to what leaves an interface in this way.
    #[error(
        "this kernel cannot attach the program to {name} ({source}); it takes Linux 6.6 with CONFIG_NET_XGRESS"
    )]
    TooOld {
        /// The interface.
        name: String,
        /// What it said.
        source: io::Error,
    },
    /// The kernel refused a step that it takes from others.
    #[error("cannot {step}: {source}")]
    Os {
        /// What was to be done.
        step: String,
        /// What it said.
        source: io::Error,
    },
}

impl TagError {
    pub(crate) fn os(step: impl Into<String>) -> impl FnOnce(io::Error) -> TagError {
        let step = step.into();
        move |source| TagError::Os { step, source }
    }

    /// From libbpf, whose errors have the kernel's below them.
    pub(crate) fn bpf(step: &str) -> impl FnOnce(libbpf_rs::Error) -> TagError {
        let step = step.to_owned();
        move |error| match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => TagError::NoRights,
            _ => TagError::Os { step, source: io::Error::other(error.to_string()) },
        }
    }
}

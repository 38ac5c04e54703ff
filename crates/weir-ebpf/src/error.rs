//! Why a program does not run.

use std::io;
use thiserror::Error;
use weir_endhost::mcp::ParamsError;
use weir_endhost::tagging::CLASSES;
use weir_model::Bytes;

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
        /// First class of these flows, counted from 0.
        best: u8,
    },
    /// A DSCP has six bits.
    #[error("class {class}: DSCP {dscp} is above 63; give a number from 0 to 63")]
    Dscp {
        /// Class that was to have it, counted from 0.
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
        /// Name of the interface, as it was given.
        name: String,
    },
    /// No congestion control of the kernel has this name.
    #[error(
        "the kernel has no congestion control {name}, but {available}; weir_dctcp and weir_karuna are there while \
         `weir tag --controls` runs"
    )]
    NoControl {
        /// Name that was asked for.
        name: String,
        /// Those that there are.
        available: String,
    },
    /// Another program of the same kind is attached to the interface, of this process or of another.
    #[error("{name} has a {kind} already; end the process that holds it first")]
    Taken {
        /// Name of the interface, as it was given.
        name: String,
        /// What kind of program.
        kind: &'static str,
    },
    /// The kernel cannot attach programs to what leaves an interface in this way.
    #[error(
        "this kernel cannot attach the program to {name} ({source}); it takes Linux 6.6 with CONFIG_NET_XGRESS"
    )]
    TooOld {
        /// Name of the interface, as it was given.
        name: String,
        /// What the kernel said to the attempt.
        source: io::Error,
    },
    /// The kernel refused a step that it takes from others.
    #[error("cannot {step}: {source}")]
    Os {
        /// What was to be done.
        step: String,
        /// What the kernel said to this step.
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

/// Why packets are not marked.
#[derive(Debug, Error)]
pub enum MarkError {
    /// More bytes than the kernel counts in a queue.
    #[error("a threshold of {bytes}: 4294967295 bytes are the most")]
    Threshold {
        /// The threshold that was asked for.
        bytes: Bytes,
    },
    /// Two classes have it, or it is the network's own.
    #[error("class {class}: DSCP {dscp} is not below 48, or that of another class")]
    Dscp {
        /// Class that was to have it, counted from 0.
        class: usize,
        /// The DSCP that was asked for.
        dscp: u8,
    },
    /// The interface's HTB has no such leaf, or the interface has no HTB.
    #[error(
        "{name} has no HTB with a leaf {:x}:{:x} for class {class}; `tc class show dev {name}` lists what it has",
        leaf >> 16,
        leaf & 0xffff
    )]
    NoQueue {
        /// Name of the interface, as it was given.
        name: String,
        /// Class without a leaf, counted from 0.
        class: usize,
        /// Its leaf: major number in the upper 16 bits, minor in the lower.
        leaf: u32,
    },
    /// What can stand in the way of any program.
    #[error(transparent)]
    Program(#[from] TagError),
}

/// Why a congestion control is not there.
#[derive(Debug, Error)]
pub enum ControlError {
    /// One of this name is there, of this process or of another.
    #[error("the kernel has a congestion control {name} already; end the process that holds it first")]
    Taken {
        /// Name of the congestion control.
        name: &'static str,
    },
    /// The law cannot go by these numbers.
    #[error(transparent)]
    Params(#[from] ParamsError),
    /// What can stand in the way of any program.
    #[error(transparent)]
    Program(#[from] TagError),
}

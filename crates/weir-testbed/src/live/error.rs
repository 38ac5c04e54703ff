//! Why a run fails.

use crate::BedError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use weir_model::Bytes;

/// Without any news for this long a run has failed.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A step on the test bed failed.
    #[error(transparent)]
    Bed(#[from] BedError),
    /// The data would not fit.
    #[error(
        "the run writes a file as large as its largest flow, {needed}, into {}, which has {free} free: make flows smaller \
         (--bytes-divisor, --isolation-cap), or name another folder in TMPDIR",
        .folder.display()
    )]
    NoRoom {
        /// Bytes of the file.
        needed: Bytes,
        /// What may still be written there.
        free: Bytes,
        /// The folder for temporary files.
        folder: PathBuf,
    },
    /// A file or process could not be made.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A call of the driver's client failed.
    #[error("client: {0}")]
    Client(#[from] weir_client::Error),
    /// A task failed, ended early, or sent a line that is no message.
    #[error("the task of host {host}: {reason}")]
    Task {
        /// Number of the task's host, from 0.
        host: usize,
        /// Why it failed, in words.
        reason: String,
    },
    /// A process did not begin to serve.
    #[error("the agent at {} does not serve; see its messages above", .0.display())]
    NotServing(PathBuf),
    /// A relay or the controller did not begin to listen.
    #[error("nothing listens at {0}; see its messages above")]
    NotListening(SocketAddr),
    /// Relays need sites to be between.
    #[error("relays run on a bed of sites")]
    NoSites,
    /// Nothing happened for too long.
    #[error("no flow ended for {} s with {left} left: {which}", SILENCE_LIMIT.as_secs())]
    Silence {
        /// Number of flows that had neither ended nor been refused.
        left: usize,
        /// The first of them, and what the coordinator says of its coflow.
        which: String,
    },
}

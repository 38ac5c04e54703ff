//! How many files and connections the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// With fewer a busy process closes connections that its peers still need; most machines allow more.
const WANTED: u64 = 4_096;

/// How many connections the process may keep, of `most` that it would: what else it opens, files above all, must find room.
pub fn connections_within_limit(most: usize) -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let kept_free = (limit / 4).max(32);
    most.min(usize::try_from(limit.saturating_sub(kept_free)).unwrap_or(most)).max(1)
}

/// Raises the limit of open descriptors as far as the process may, and says so in the log where that is not far enough.
/// Returns the limit; `u64::MAX` where there is none.
pub fn raise_descriptor_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let limit = if raised { maximum } else { current }.unwrap_or(u64::MAX);
    if limit < WANTED {
        tracing::warn!(
            limit,
            "few descriptors: no more connections and files than this at a time; raise the hard limit (ulimit -Hn, \
             LimitNOFILE) to {WANTED}"
        );
    }
    limit
}

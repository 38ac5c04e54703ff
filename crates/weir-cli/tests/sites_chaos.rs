//! Everything between sites that can fail fails while bytes move: relays, their links, Redis, servers and decision makers of
//! the controller.
//!
//! Every round draws coflows with flows both ways between three sites, and one to three kinds of failure, from its seed, and
//! plays them on real processes over loopback: processes are killed with SIGKILL and started again after a pause,
//! Redis comes back empty, links are cut and mended. It demands that every get returns exactly the bytes that were put,
//! that all end in time, that decision makers find a place for a new coflow afterwards, that of coflows that are over
//! nothing is left in the controller, and that no process ended by itself or badly.
//!
//! A few rounds run with every `cargo test`. A hundred, with their summary:
//!
//! ```text
//! WEIR_CHAOS_ROUNDS=100 cargo test -p weir-cli --test sites_chaos rounds -- --nocapture
//! ```
//!
//! `WEIR_CHAOS_SEED=N` starts at seed N instead of 0. A seed that fails becomes a test of its own below.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod sites;
mod support;

use support::verdict::{Failure, Tally, play_all};

/// Rounds of a plain `cargo test`.
const USUAL_ROUNDS: u64 = 6;

#[test]
fn rounds_of_every_kind_of_failure_lose_nothing() {
    play_all(USUAL_ROUNDS, round);
}

fn round(seed: u64) -> Result<Tally, Failure> {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(sites::round::play(seed, dir.path()))
}

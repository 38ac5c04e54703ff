//! Coordinator, agents and receivers are killed with SIGKILL while bytes move, and started again; they and a driver are
//! stopped with SIGSTOP, one or all, often for longer than the leases of the coflows.
//!
//! Every round draws hosts, coflows, blocks, gets and misfortunes from its seed and plays them on real
//! processes over loopback. It demands that every get returns exactly the bytes that were put (compared
//! one by one), that a receiver killed and started again gets its blocks again, that a dead receiver's
//! flows end, that the coordinator knows all coflows and blocks again and no others, that everything ends
//! in time, and that no process, block or file is left. No coflow of a driver that lives may end; one whose
//! driver alone was stopped for longer than its lease may.
//!
//! A few rounds run with every `cargo test`. All 200, with their summary:
//!
//! ```text
//! WEIR_CHAOS_ROUNDS=200 cargo test -p weir-cli --test chaos rounds -- --nocapture
//! ```
//!
//! `WEIR_CHAOS_SEED=N` starts at seed N instead of 0. A seed that fails becomes a test of its own below.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod rounds;
mod support;

use rounds::round::play;
use rounds::{driver, receiver};
use support::chance::fill;
use support::verdict::{Failure, Tally, play_all};

/// Rounds of a plain `cargo test`.
const USUAL_ROUNDS: u64 = 12;

#[test]
#[ignore = "a receiver of the rounds below, which start it"]
fn receiver_process() {
    if let Ok(orders) = std::env::var(receiver::ORDERS) {
        receiver::run(&orders);
    }
}

#[test]
#[ignore = "a driver of the rounds below, which start it"]
fn driver_process() {
    if let Ok(orders) = std::env::var(driver::ORDERS) {
        driver::run(&orders);
    }
}

#[test]
fn rounds_of_kills_and_stops_lose_nothing() {
    play_all(USUAL_ROUNDS, round);
}

fn round(seed: u64) -> Result<Tally, Failure> {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(play(seed, dir.path()))
}

#[test]
fn content_depends_on_its_place_alone() {
    let mut whole = [0; 100];
    fill(7, 0, &mut whole);
    let mut part = [0; 31];
    fill(7, 45, &mut part);
    assert_eq!(part, whole[45..76]);
    fill(8, 45, &mut part);
    assert_ne!(part, whole[45..76]);
}

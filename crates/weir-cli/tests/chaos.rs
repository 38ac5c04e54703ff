//! Coordinator, agents and receivers are killed with SIGKILL while bytes move, and started again.
//!
//! Every round draws hosts, coflows, blocks, gets and misfortunes from its seed and plays them on real
//! processes over loopback. It demands that every get returns exactly the bytes that were put (compared
//! one by one), that a receiver killed and started again gets its blocks again, that a dead receiver's
//! flows end, that the coordinator knows all coflows and blocks again and no others, that everything ends
//! in time, and that no process, block or file is left.
//!
//! A few rounds run with every `cargo test`. All 200, with their summary:
//!
//! ```text
//! WEIR_CHAOS_ROUNDS=200 cargo test -p weir-cli --test chaos rounds -- --nocapture
//! ```
//!
//! `WEIR_CHAOS_SEED=N` starts at seed N instead of 0. A seed that fails becomes a test of its own below.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::time::Instant;
use support::receiver;
use support::round::{Failure, Tally, play};

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
fn rounds_of_kills_lose_nothing() {
    let (rounds, first) = (number("WEIR_CHAOS_ROUNDS", USUAL_ROUNDS), number("WEIR_CHAOS_SEED", 0));
    let (mut sum, mut slowest, mut failures) = (Tally::default(), (0.0, 0), Vec::new());
    let (mut wrong, mut lost, mut hangs, mut left) = (0, 0, 0, 0);
    let started = Instant::now();
    for seed in first..first + rounds {
        let began = Instant::now();
        match round(seed) {
            Ok(tally) => add(&mut sum, tally),
            Err(failure) => {
                match &failure {
                    Failure::Wrong(_) => wrong += 1,
                    Failure::Lost(_) => lost += 1,
                    Failure::Hang(_) => hangs += 1,
                    Failure::Left(_) => left += 1,
                }
                eprintln!("seed {seed}: {failure}");
                failures.push(seed);
            }
        }
        let took = began.elapsed().as_secs_f64();
        if took > slowest.0 {
            slowest = (took, seed);
        }
    }
    println!(
        "chaos: {rounds} rounds from seed {first} in {:.1} s (slowest {:.2} s, seed {}); kills {:?}; {} coflows \
         ended while they moved; {} gets returned, {} bytes verified; wrong {wrong}, lost {lost}, hangs {hangs}, \
         left behind {left}",
        started.elapsed().as_secs_f64(),
        slowest.0,
        slowest.1,
        sum.kills,
        sum.unregistered,
        sum.gets,
        sum.bytes
    );
    assert!(failures.is_empty(), "seeds {failures:?} failed");
}

fn round(seed: u64) -> Result<Tally, Failure> {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(play(seed, dir.path()))
}

fn add(sum: &mut Tally, tally: Tally) {
    for (kind, count) in tally.kills {
        *sum.kills.entry(kind).or_default() += count;
    }
    sum.unregistered += tally.unregistered;
    sum.gets += tally.gets;
    sum.bytes += tally.bytes;
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

//! The rounds of kills at the bounds: a cluster with more than 5,000 live coflows, on which every round draws some of
//! SIGKILL and SIGSTOP of coordinator and agents, few descriptors, full disks, clocks that step, replaced files, second
//! agents of a spool or a host, slow readers and such that stop or go away, peers that lie, noise, and members of the
//! agents' group that plant files and take away those of their own blocks (where this process is root).
//!
//! Every round demands that every get returns exactly the bytes that were put (compared one by one) or, where the file was
//! replaced, is told so; that no daemon ends or panics; that the coordinator knows all coflows and blocks again, those of
//! the load included, and no others; and that samples of the load still come.
//!
//! A few rounds run with every `cargo test`. All 500, with their summary:
//!
//! ```text
//! WEIR_CHAOS_ROUNDS=500 cargo test --release -p weir-cli --test chaos_loaded rounds -- --nocapture
//! ```
//!
//! `WEIR_CHAOS_SEED=N` starts at seed N instead of 0. Rounds of one cluster follow on each other, 20 at a time.

mod loaded;
mod support;

use loaded::bed::Bed;
use loaded::member;
use loaded::round::play;
use support::verdict::play_all;

/// Rounds of a plain `cargo test`.
const USUAL_ROUNDS: u64 = 8;
/// Rounds that one cluster lives for.
const ROUNDS_OF_A_BED: u64 = 20;

#[test]
#[ignore = "a member of the agents' group in the rounds below, which start it"]
fn member_process() {
    if let Ok(orders) = std::env::var(member::ORDERS) {
        member::run(&orders);
    }
}

#[test]
fn rounds_at_the_bounds_lose_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut bed: Option<Bed> = None;
    play_all(USUAL_ROUNDS, |seed| {
        runtime.block_on(async {
            if seed.is_multiple_of(ROUNDS_OF_A_BED)
                && let Some(mut old) = bed.take()
            {
                old.end()?;
            }
            let mut present = match bed.take() {
                Some(bed) => bed,
                None => Bed::start(seed).await?,
            };
            // One that failed is not used again.
            let tally = play(&mut present, seed).await?;
            bed = Some(present);
            Ok(tally)
        })
    });
    if let Some(mut bed) = bed {
        assert!(bed.end().is_ok(), "all ends well");
    }
}

//! What lost agents listed goes, a little at a time.

use super::super::directory::Held;
use super::super::sweeping::{AT_ONCE, PATIENCE};
use super::*;

/// 10,000 coflows, each with as many blocks of a session that is over.
fn left_behind(blocks: usize) -> Coordinator {
    let mut coordinator = coordinator(2, 1);
    let lost = Held { session: SessionId(7), host: HostNumber(0), size: 1, identity: Identity::UNKNOWN };
    for coflow in 0..10_000 {
        let names = (0..blocks).map(|name| (name.to_string().into_boxed_str(), vec![lost]));
        coordinator.directory.insert(CoflowId(coflow), names.collect());
    }
    coordinator.sweep_later(Time::ZERO);
    coordinator
}

#[test]
fn a_step_looks_at_a_bounded_number_of_coflows_and_blocks_and_the_steps_together_at_all() {
    for blocks in [0, 1, 3] {
        let mut coordinator = left_behind(blocks);
        let mut steps = 0;
        while !coordinator.directory.is_empty() {
            let before = coordinator.directory.len();
            coordinator.sweep(Time::ZERO + PATIENCE);
            let gone = before - coordinator.directory.len();
            assert!(gone <= AT_ONCE / (blocks + 1) + 1, "{gone} coflows with {blocks} blocks each in a step");
            steps += 1;
            assert!(steps <= 10 * (blocks + 1), "no end");
        }
    }
}

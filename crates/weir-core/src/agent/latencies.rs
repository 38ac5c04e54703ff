//! How long control takes, as one agent sees it.

use std::collections::VecDeque;
use weir_model::Span;

/// Samples of each latency that are kept.
const MAX_SAMPLES: usize = 65_536;

/// How long control took, in microseconds, oldest first; the latest 65,536 of each.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// From the last get of a coflow at this host to the first byte that it sends under a plan that counts
    /// that get.
    pub first_byte_us: VecDeque<u32>,
    /// From a flow's last byte to the plan that follows from it, in force at this agent.
    pub replan_us: VecDeque<u32>,
}

pub(super) fn sample(samples: &mut VecDeque<u32>, span: Span) {
    if samples.len() >= MAX_SAMPLES {
        samples.pop_front();
    }
    samples.push_back((span.nanos() / 1000).min(u64::from(u32::MAX)) as u32);
}

//! How long control takes, as one agent sees it.

use std::collections::VecDeque;
use weir_model::{CoflowId, Span, Time};

/// Samples of each latency that are kept.
const MAX_SAMPLES: usize = 65_536;

/// How long control took, oldest first; the latest 65,536 of each.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// When the first byte of a coflow was sent here under the first plan that counts all its announced
    /// flows, where that plan let it move at all.
    pub first_bytes: VecDeque<(CoflowId, Time)>,
    /// From a flow's last byte to the plan that follows from it, in force at this agent, in microseconds.
    pub replan_us: VecDeque<u32>,
}

impl Latencies {
    pub(super) fn note_first_byte(&mut self, coflow: CoflowId, at: Time) {
        push(&mut self.first_bytes, (coflow, at));
    }

    pub(super) fn note_replan(&mut self, span: Span) {
        push(&mut self.replan_us, (span.nanos() / 1000).min(u64::from(u32::MAX)) as u32);
    }
}

fn push<T>(samples: &mut VecDeque<T>, sample: T) {
    if samples.len() >= MAX_SAMPLES {
        samples.pop_front();
    }
    samples.push_back(sample);
}

//! How long plans took: the latest ones, and all.

use std::collections::VecDeque;
use weir_metrics::Distribution;
use weir_model::Span;
use weir_proto::v1;

/// Most plans whose times are kept, the latest ones.
const LATEST: usize = 4_096;

/// Microseconds of the latest plans, oldest first.
#[derive(Debug, Default)]
pub(super) struct PlanningTimes(VecDeque<f64>);

impl PlanningTimes {
    pub(super) fn note(&mut self, taken: Span) {
        if self.0.len() == LATEST {
            self.0.pop_front();
        }
        self.0.push_back(taken.as_secs() * 1e6);
    }

    /// All 0 without a plan.
    pub(super) fn summary(&self) -> v1::PlanningTime {
        let mut micros: Vec<f64> = self.0.iter().copied().collect();
        micros.sort_by(f64::total_cmp);
        let at = |share: f64| {
            // The nearest rank: the smallest value that this share of all is not above.
            let index = ((micros.len() as f64 * share).ceil() as usize).saturating_sub(1);
            micros.get(index).copied().unwrap_or(0.0)
        };
        v1::PlanningTime { plans: micros.len() as u64, median_us: at(0.5), p95_us: at(0.95) }
    }
}

/// Upper bounds of the buckets of [`PlanSeconds`], in seconds.
const PLAN_BOUNDS: &[f64] = &[0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0];

/// How long all plans took, since the process began.
#[derive(Clone, Debug)]
pub(super) struct PlanSeconds(pub(super) Distribution);

impl Default for PlanSeconds {
    fn default() -> PlanSeconds {
        PlanSeconds(Distribution::new(PLAN_BOUNDS))
    }
}

impl PlanSeconds {
    pub(super) fn note(&mut self, seconds: f64) {
        self.0.note(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_plans_count() {
        let mut times = PlanningTimes::default();
        assert_eq!(times.summary(), v1::PlanningTime::default());
        (0..LATEST).for_each(|_| times.note(Span::from_millis(9)));
        (1..=LATEST as u64).for_each(|at| times.note(Span::from_nanos(at * 1000)));
        let summary = times.summary();
        assert_eq!(
            (summary.plans, summary.median_us.round(), summary.p95_us.round()),
            (4096, 2048.0, 3892.0)
        );
    }
}

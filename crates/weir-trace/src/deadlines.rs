//! Deadlines for workloads that state none, as the Varys paper draws them (SIGCOMM 2014, section 7.1).

use crate::synthetic::Draw;
use weir_model::{CoflowSpec, Span};

/// The shortest deadline that is drawn.
pub const SHORTEST_DEADLINE: Span = Span::from_millis(200);

/// Gives every coflow the deadline `isolation * (1 + U(0, spread))`, at least [`SHORTEST_DEADLINE`], in place of
/// what it had. `isolation` is its completion time in an empty network, `U(0, spread)` uniform. The draws follow
/// (arrival, id) and depend on the seed alone. `spread` is finite and not negative.
pub fn draw_deadlines(
    coflows: &mut [CoflowSpec],
    spread: f64,
    seed: u64,
    isolation: impl Fn(&CoflowSpec) -> Span,
) {
    let mut draw = Draw::new(seed);
    let mut order: Vec<&mut CoflowSpec> = coflows.iter_mut().collect();
    order.sort_by_key(|coflow| (coflow.arrival, coflow.id));
    for coflow in order {
        let factor = 1.0 + draw.between(0.0, spread);
        let deadline = Span::from_secs_ceil(isolation(coflow).as_secs() * factor);
        // The product of floating-point numbers may have been rounded to below the isolation time.
        coflow.deadline = Some(deadline.max(SHORTEST_DEADLINE).max(isolation(coflow)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{CoflowId, Time};

    fn coflows() -> Vec<CoflowSpec> {
        (0..200).map(|id| CoflowSpec::new(CoflowId(id), Time::from_millis(id % 7), Vec::new())).collect()
    }

    fn drawn(mut coflows: Vec<CoflowSpec>, seed: u64) -> Vec<CoflowSpec> {
        draw_deadlines(&mut coflows, 0.5, seed, |coflow| Span::from_millis(10 * coflow.id.0));
        coflows.sort_by_key(|coflow| coflow.id);
        coflows
    }

    #[test]
    fn deadlines_lie_between_isolation_and_what_the_spread_allows() {
        for coflow in drawn(coflows(), 1) {
            let (isolation, deadline) = (10 * coflow.id.0, coflow.deadline.unwrap().nanos() as f64 / 1e6);
            let longest = (15 * coflow.id.0).max(200) as f64;
            assert!(deadline >= isolation.max(200) as f64 && deadline <= longest, "{isolation}: {deadline}");
        }
    }

    #[test]
    fn a_seed_draws_the_same_whatever_the_order_of_input() {
        let mut backward = coflows();
        backward.reverse();
        assert_eq!(drawn(coflows(), 7), drawn(backward, 7));
        assert_ne!(drawn(coflows(), 7), drawn(coflows(), 8));
    }
}

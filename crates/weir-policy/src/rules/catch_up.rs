//! A flow that lost time goes faster for a while.
//!
//! All flows of a coflow are needed, so one that lost time to its host or its transport holds up the others. The plan does not count
//! on what it takes more, so that is bounded, and it ends when the flow is where it would be.

use weir_model::{Bytes, Rate, Span};

/// A flow that fell behind what it was given may go faster by this share of it: under a plan, to end in time with its coflow
/// ([`catch_up`]); by a sender's own rule, until it is where it would be ([`super::Offer::take_rate`]).
pub const CATCH_UP: f64 = 0.25;
/// Falling behind by less than this share is left alone.
const BEHIND: f64 = 0.03;

/// The rate at which a flow still ends with its coflow, after `due`, if it has fallen behind its rate.
pub fn catch_up(left: Bytes, due: Span, rate: Rate) -> Option<Rate> {
    if left.0 == 0 {
        return None;
    }
    let (needed, rate) = (left.0 as f64 / due.as_secs(), rate.bytes_per_sec());
    (needed > rate * (1.0 + BEHIND)).then(|| Rate::from_bytes_per_sec(needed.min(rate * (1.0 + CATCH_UP))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(left: u64, due_ms: u64) -> Option<f64> {
        let rate = Rate::from_bytes_per_sec(1000.0);
        catch_up(Bytes(left), Span::from_millis(due_ms), rate).map(Rate::bytes_per_sec)
    }

    #[test]
    fn a_flow_in_time_keeps_its_rate_and_one_behind_has_what_it_needs_up_to_a_quarter_more() {
        assert_eq!(rate(1000, 1000), None);
        // Three hundredths late, and a little more.
        assert_eq!(rate(1030, 1000), None);
        assert_eq!(rate(1100, 1000), Some(1100.0));
        assert_eq!(rate(2000, 1000), Some(1250.0));
    }

    #[test]
    fn a_flow_that_should_have_ended_goes_a_quarter_faster_and_one_with_nothing_left_needs_nothing() {
        assert_eq!(rate(1000, 0), Some(1250.0));
        assert_eq!(rate(0, 0), None);
    }
}

//! The window laws of MCP.
//!
//! # Terminology
//! `W` is the window, `g` the required window, both in segments per round trip; `F` the marked share of the last
//! window; `K` the marking threshold of the links in segments; `tau` the round trip; `Z` the virtual queue: how far
//! the flow is behind what its deadline demands. `[x]+` is the larger of `x` and 0.
//!
//! # Departures
//! Each variant says where it is from. The derivation is in `docs/mcp.md`.

use super::{Params, Variant, Window};

/// A flow with this many empty round trips left, or more, has laxness 1: it halves when all of its packets are marked
/// for the first time and the queue is short. Others follow by the square of the time they have left.
pub const YIELD_HORIZON_RTTS: f64 = 500.0;
/// Bound of the price: with it even a flow with a single round trip left (laxness one in 250,000) halves.
const MAX_PRICE: f64 = 2.5e5;
/// The least window of a flow that yields, in segments, if it requires that much: it still hears of the path once in
/// four round trips. Without it a flow that yields nearly all hears nothing for long, and has to catch up.
const ASKING_SEGMENTS: f64 = 0.25;
/// The least window of the laws that know no pacing, in segments.
const WHOLE_SEGMENT: f64 = 1.0;

/// What a law remembers from window to window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum State {
    /// The price of the path as this flow sees it, without unit, and the share of its window that it keeps.
    Yielding { price: f64, kept: f64 },
    /// The virtual queue, in segments per round trip ([`Variant::Normalised`]) or per second.
    Behind(f64),
    #[default]
    Prototype,
}

impl State {
    /// The state of a flow that starts with its required window.
    pub(super) fn start(params: &Params, first: &Window) -> State {
        match params.variant {
            Variant::Yielding => State::Yielding { price: 0.0, kept: 1.0 },
            // The fixed point without marks: Z * g / W = W at W = g.
            Variant::Normalised => State::Behind(first.required),
            Variant::Published => State::Behind(0.0),
            Variant::Prototype => State::Prototype,
        }
    }

    /// The share of the required window that the flow keeps.
    pub(super) fn kept(&self) -> f64 {
        if let State::Yielding { kept, .. } = self { *kept } else { 1.0 }
    }

    /// The window after `current`, before any bound of the link.
    pub(super) fn next(&mut self, params: &Params, facts: &Window, current: f64) -> f64 {
        match (self, params.variant) {
            (State::Yielding { price, kept }, _) => {
                *price = next_price(params, *price, facts.marked);
                *kept = 1.0 / (1.0 + laxness(params, facts) * *price * fullness(params, facts));
                // Not more than the flow requires: asking must not make it faster than its deadline does.
                (*kept * facts.required).max(ASKING_SEGMENTS.min(facts.required))
            }
            (State::Behind(behind), Variant::Published) => published(params, facts, behind, current),
            (State::Behind(behind), _) => normalised(params, facts, behind, current),
            (State::Prototype, _) => {
                // With less than a round trip left all of it is due in one window; the division must not go beyond that.
                let target = facts.remaining * facts.rtt / facts.left.max(facts.rtt);
                (current + (target - current).clamp(-1.0, 1.0)).max(WHOLE_SEGMENT)
            }
        }
    }
}

/// The price after a window of which the share `marked` was marked.
fn next_price(params: &Params, price: f64, marked: f64) -> f64 {
    if marked > 0.0 {
        (price * (1.0 + params.price_rise * marked)).max(marked).min(MAX_PRICE)
    } else {
        price * (1.0 - params.price_fall)
    }
}

/// Inverse weight of a flow that yields: the square of the time it has left, at most 1. Beyond the horizon all flows
/// have time enough, and one that yielded more for it would have to hurry later.
fn laxness(params: &Params, facts: &Window) -> f64 {
    let rtts = facts.left / params.base_rtt.as_secs();
    (rtts / YIELD_HORIZON_RTTS).min(1.0).powi(2)
}

/// How much more than empty the path is: 1 if it is empty. It damps the price, which alone would follow the queue
/// a round trip too late and overshoot.
fn fullness(params: &Params, facts: &Window) -> f64 {
    (facts.rtt / params.base_rtt.as_secs()).max(1.0).powi(3)
}

fn normalised(params: &Params, facts: &Window, behind: &mut f64, window: f64) -> f64 {
    *behind = (*behind + facts.required - window).max(0.0);
    let marks = 1.0 + facts.marked * window / params.mark_threshold_segments;
    let price = if facts.marked > 0.0 { 1.0 + marks } else { 1.0 };
    (window + params.eta * (*behind * facts.required / window - price * window)).max(WHOLE_SEGMENT)
}

fn published(params: &Params, facts: &Window, behind: &mut f64, window: f64) -> f64 {
    let (rate, required) = (window / facts.rtt, facts.required / facts.rtt);
    *behind = (*behind + required - rate).max(0.0);
    let price = params.mark_threshold_segments + facts.marked * window;
    (window + facts.rtt * (*behind * required / (rate * rate) - price)).max(WHOLE_SEGMENT)
}

#[cfg(test)]
mod tests {
    use super::super::{Params, Variant, Window};
    use super::{State, normalised, published};
    use weir_model::Span;

    const RTT: Span = Span::from_nanos(100_000);

    fn facts(required: f64, marked: f64) -> Window {
        Window { remaining: 1e6, left: 1.0, rtt: 1e-4, marked, required, link: f64::INFINITY }
    }

    /// The distance from the fixed point after `windows` windows that start a thousandth of it away from it.
    fn drift(eta: f64, required: f64, marked: f64, windows: usize) -> f64 {
        let params = Params { eta, ..Params::new(Variant::Normalised, RTT) };
        let marks = if marked > 0.0 { 1.0 + marked * required / 20.0 } else { 0.0 };
        let (mut behind, mut window) = ((1.0 + marks) * required, 1.001 * required);
        let mut furthest = 0.0f64;
        for step in 0..windows {
            window = normalised(&params, &facts(required, marked), &mut behind, window);
            if step >= windows - 10 {
                furthest = furthest.max((window / required - 1.0).abs());
            }
        }
        furthest
    }

    #[test]
    fn the_normalised_law_is_stable_up_to_the_gain_that_linearisation_gives() {
        // Unmarked: p = 1 and d(pW)/dW = 1, so eta < 4 / (1 + 2 * 2) = 0.8.
        assert!(drift(0.1, 8.0, 0.0, 400) < 1e-6 && drift(0.79, 8.0, 0.0, 400) < 1e-5);
        assert!(drift(0.81, 8.0, 0.0, 400) > 1e-2);
        // All marked at W = 8, K = 20: p = 2.4 and d(pW)/dW = 2.8, so eta < 4 / (1 + 2 * 5.2) = 0.351.
        assert!(drift(0.34, 8.0, 1.0, 400) < 1e-4 && drift(0.36, 8.0, 1.0, 400) > 1e-2);
        // At W = K it is p = 3 and 4: eta < 4 / 15 = 0.267, which is why 0.2 is the gain of Params::new.
        assert!(drift(0.2, 20.0, 1.0, 400) < 1e-6 && drift(0.28, 20.0, 1.0, 400) > 1e-2);
    }

    #[test]
    fn the_published_law_hardly_moves_its_window_within_a_deadline() {
        // 10 segments too few at 80 segments a round trip of 100 us: Z grows by 100000 a second in each window, and
        // tau * Z * gamma / x^2 = 1e-4 * 1e5 * 8e5 / 4.9e11 = 1.6e-5 segments after the first; the price takes
        // 1e-4 * 20 = 2e-3 of them.
        let params = Params::new(Variant::Published, RTT);
        let (mut behind, first) = (0.0, 70.0);
        let second = published(&params, &facts(80.0, 0.0), &mut behind, first);
        assert!((behind - 1e5).abs() < 1e-3);
        assert!((second - (70.0 + 1.6327e-5 - 2e-3)).abs() < 1e-8, "{second}");
        // The terms cancel after 2e-3 / 1.6e-5 = 122 windows; 200 windows, 20 ms, have moved it by a tenth.
        let window =
            (0..200).fold(first, |window, _| published(&params, &facts(80.0, 0.0), &mut behind, window));
        assert!((window - first).abs() < 0.2, "{window}");
    }

    /// How far the round trip is from twice the empty one after many windows, over the empty one, if flows that
    /// ask for `asked` of the link yield to others that have `others` of it and do not yield. The price stays 1, and
    /// what a window tells is one window old.
    fn swing(asked: f64, others: f64) -> f64 {
        // They keep 0.4 at equilibrium, so laxness * 2^3 = 1.5: a laxness of 0.1875, 216.506 round trips left.
        let params = Params { price_rise: 0.0, ..Params::new(Variant::Yielding, RTT) };
        let mut state = State::Yielding { price: 1.0, kept: 0.4 };
        let (mut fullness, mut told, mut furthest) = (2.01f64, 2.0f64, 0.0f64);
        for window in 0..400 {
            let facts = Window { left: 0.021_650_635, rtt: told * 1e-4, ..facts(8.0, 1.0) };
            let kept = state.next(&params, &facts, 8.0) / 8.0;
            told = fullness;
            fullness = (fullness + fullness * (others + asked * kept - 1.0)).max(1.0);
            if window >= 380 {
                furthest = furthest.max((fullness - 2.0).abs());
            }
        }
        furthest
    }

    #[test]
    fn the_queue_settles_where_yielding_flows_ask_for_no_more_than_the_link() {
        // The gain of a window is 3 * 0.4 * 0.6 * asked: 0.72 at the rate of the link, stable below 1 (asked 1.39).
        assert!(swing(1.0, 0.6) < 1e-6, "{}", swing(1.0, 0.6));
        assert!(swing(1.3, 0.48) < 1e-3, "{}", swing(1.3, 0.48));
        assert!(swing(1.5, 0.4) > 0.05, "{}", swing(1.5, 0.4));
    }
}

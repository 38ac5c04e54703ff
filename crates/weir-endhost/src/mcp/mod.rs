//! MCP, the congestion control of Karuna's deadline flows: finish just before the deadline, with as little of the
//! link as that takes (Chen, Chen, Bai, Alizadeh, Scheduling Mix-flows in Commodity Datacenters with Karuna,
//! slides 6 to 9 and 21 to 24).
//!
//! # Problem
//! A flow with a deadline travels in the highest priority, so whatever it takes is lost to all others at once. It
//! should take what its deadline demands and no more. At times deadline flows together demand more than a link
//! has although all could be met, if those with time to spare waited. A sender knows only its own flow, its round
//! trips and which of its packets were marked.
//!
//! # Approach
//! Once per round trip the sender computes the window `g` that would end the flow a margin before its deadline. It
//! uses that window. When packets come back marked, it uses less: the fraction `y` that a flow with this much time
//! left should keep at the price of the link which the marks and the round trip tell. As a flow yields, `g` rises
//! by itself; as its deadline comes closer, it yields less, in the end nothing.
//!
//! # Terminology
//! * window: segments per round trip, a real number. It stands for a rate: a sender spaces segments by
//!   [`Mcp::gap`].
//! * required window `g`: remaining whole segments * round trip / ((time left - margin) * (1 - [`Params::ahead`])).
//! * margin: the round trip now plus [`Params::margin_rtts`] - 1 empty ones.
//! * laxness: (time left / [`YIELD_HORIZON_RTTS`] empty round trips) squared, at most 1.
//! * price: how long and how much this flow has been marked; see [`variants`].
//!
//! # Pseudo-code
//! ```text
//! once per round trip:
//!     if time left < empty round trip, or remaining / time left > link: window = 1, the flow has given up
//!     price   = F > 0 ? max(F, price * (1 + rise * F)) : price * (1 - fall)
//!     y       = 1 / (1 + laxness * price * (round trip / empty round trip)^3)
//!     window  = max(y * g, min(g, 1/4)), not faster than the link
//! ```
//!
//! # Properties
//! * Without marks the window is `g`: the flow ends its margin before the deadline, at a rate that falls a little, for it
//!   keeps ahead of what the deadline asks.
//! * Marked alike, flows yield in proportion to the square of the time they have left, while they yield little.
//! * It is never faster than `g`, nor than the sender's link, save for the one segment of a flow that gave up. A flow that
//!   has less than ten empty round trips at its start goes at its link's rate, if that is known.
//! * It depends on nothing but its arguments.
//!
//! # Departures
//! The slides name the method (drift plus penalty, primal solution, window update) and show no formula. The law
//! that was published from it, [`Variant::Published`], is here as far as it is known, with the repair of its units
//! ([`Variant::Normalised`]) and an early simpler form ([`Variant::Prototype`]). None of them meets the deadlines of
//! slide 21, which the tests show; [`Variant::Yielding`] does. It, and every number in it, is our own derivation,
//! in `docs/mcp.md`.
//!
//! What a flow does once it has missed its deadline is the caller's to say.

#[cfg(test)]
mod fluid;
mod params;
#[cfg(test)]
mod tests;
pub mod variants;

pub use params::{Params, ParamsError, Variant};
pub use variants::YIELD_HORIZON_RTTS;

use variants::State;
use weir_model::{Bytes, Rate, Span};

/// The least window, in segments: a flow that yields all it has still asks the network now and then.
pub const MIN_WINDOW_SEGMENTS: f64 = 1e-3;
/// The window of a flow that cannot meet its deadline any more, in segments.
pub const GIVEN_UP_SEGMENTS: f64 = 1.0;
/// A flow with fewer empty round trips than this until its deadline sends at its link's rate: with the margin off there is
/// no time left in which marks and round trips could tell it anything, and it is short.
const HURRY_RTTS: f64 = 10.0;
/// A margin takes at most this share of the time a flow has at its start: a deadline of a few round trips keeps some.
const MARGIN_SHARE: f64 = 0.25;

/// What a sender knows at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowFacts {
    /// Payload that was not sent yet, with what was lost and has to be sent again.
    pub remaining: Bytes,
    /// Time until the deadline; zero after it.
    pub left: Span,
    /// The smoothed round trip. Zero, before the first sample, stands for the empty one.
    pub rtt: Span,
    /// Marked share of the packets acknowledged in the window, 0 to 1; 0 for the first window.
    pub marked_share: f64,
    /// The rate of the sender's own link, if it is known. Without it a flow never gives up for want of rate.
    pub link: Option<Rate>,
}

/// The congestion control of one flow with a deadline.
///
/// Call [`Mcp::new`] when the flow starts, use [`Mcp::window`], and call [`Mcp::on_window`] with the first
/// acknowledgement that comes a smoothed round trip or more after the last call. A flow whose segments are further
/// apart than a round trip thus calls it once per segment.
#[derive(Clone, Debug)]
pub struct Mcp {
    params: Params,
    state: State,
    /// Seconds; what [`MARGIN_SHARE`] leaves of the margin.
    longest_margin: f64,
    /// Its deadline is so near that it goes at its link's rate.
    hurries: bool,
    window: f64,
    rtt: f64,
    gave_up: bool,
}

/// The facts of a window in seconds and segments, of this module and below.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// Segments that were not sent yet.
    remaining: f64,
    /// Seconds until the deadline; 0 after it.
    left: f64,
    /// Seconds of a round trip, above zero.
    rtt: f64,
    /// From 0 to 1.
    marked: f64,
    /// Segments per round trip that end the flow its margin before the deadline.
    required: f64,
    /// Segments per round trip that the link carries.
    link: f64,
}

impl Mcp {
    /// A flow that starts now, with its required window. `params` should have passed [`Params::check`]; others give
    /// a useless window.
    pub fn new(params: &Params, facts: &WindowFacts) -> Mcp {
        let longest_margin = facts.left.as_secs() * MARGIN_SHARE;
        let mut mcp = Mcp {
            params: *params,
            state: State::default(),
            longest_margin,
            hurries: params.variant == Variant::Yielding
                && facts.left.as_secs() < HURRY_RTTS * params.base_rtt.as_secs(),
            window: 0.0,
            rtt: 0.0,
            gave_up: false,
        };
        let first = mcp.measure(facts);
        mcp.state = State::start(params, &first);
        mcp.settle(&first, first.required);
        mcp
    }

    /// The window in segments, from [`MIN_WINDOW_SEGMENTS`] up; often below one.
    pub fn window(&self) -> f64 {
        self.window
    }

    /// The time from the start of one segment to the start of the next that realises the window.
    ///
    /// Pace by it, whatever the window is; a bound of `2 * window + 2` segments in flight leaves room for a round
    /// trip that grows. When it changes, the next segment is due at the start of the last one plus the new gap: a
    /// shorter gap takes effect at once, and no flow sends two segments back to back.
    pub fn gap(&self) -> Span {
        Span::from_secs_ceil(self.rtt / self.window)
    }

    /// Whether the flow could not meet its deadline when the last window ended, nor with all of its link.
    pub fn has_given_up(&self) -> bool {
        self.gave_up
    }

    /// The share of the required window that the flow keeps as long as that is a quarter of a segment: 1 unless it
    /// yields, and 1 for all laws but [`Variant::Yielding`].
    pub fn kept_share(&self) -> f64 {
        self.state.kept()
    }

    /// Ends a window; returns the next one in segments, which [`Mcp::window`] returns from now on.
    pub fn on_window(&mut self, facts: &WindowFacts) -> f64 {
        let window = self.measure(facts);
        let next = self.state.next(&self.params, &window, self.window);
        self.settle(&window, next);
        self.window
    }

    /// Turns facts into seconds and segments.
    fn measure(&self, facts: &WindowFacts) -> Window {
        let params = &self.params;
        let empty = params.base_rtt.as_secs();
        let rtt = if facts.rtt == Span::ZERO { empty } else { facts.rtt.as_secs() };
        // The last segment takes its turn however short it is.
        let remaining = facts.remaining.0.div_ceil(params.payload.0.max(1)) as f64;
        let left = facts.left.as_secs();
        let margin = if params.margin_rtts > 0.0 {
            (rtt + (params.margin_rtts - 1.0) * empty).min(self.longest_margin)
        } else {
            0.0
        };
        // What is left when the margin begins is sent within a round trip.
        let aim = ((left - margin) * (1.0 - params.ahead)).max(rtt);
        let link = facts.link.map_or(f64::INFINITY, |link| link.bytes_per_sec() / params.wire.0 as f64 * rtt);
        // A share that is not a number counts as 0: `min` alone would let it pass.
        let marked = if facts.marked_share > 0.0 { facts.marked_share.min(1.0) } else { 0.0 };
        Window { remaining, left, rtt, marked, required: remaining * rtt / aim, link }
    }

    /// Takes a window, bounded by the link, or the least if the deadline is out of reach.
    fn settle(&mut self, facts: &Window, window: f64) {
        // `remaining / left <= link / rtt`, without a division by a time left of 0.
        let in_reach = facts.remaining * facts.rtt <= facts.link * facts.left;
        self.gave_up = facts.left < self.params.base_rtt.as_secs() || !in_reach;
        self.rtt = facts.rtt;
        // Where the link is not known there is no rate to hurry at, and the flow goes by its law.
        let window = if self.hurries && facts.link.is_finite() { facts.link } else { window };
        let bounded = window.min(facts.link).max(MIN_WINDOW_SEGMENTS);
        self.window = if self.gave_up { GIVEN_UP_SEGMENTS } else { bounded };
    }
}

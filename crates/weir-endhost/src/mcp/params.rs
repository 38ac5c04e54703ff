//! What MCP is told about its network, and the numbers of its laws.

use thiserror::Error;
use weir_model::{Bytes, Span};

/// A law of how the window of a flow with a deadline changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// `W = g / (1 + laxness * price * (tau / empty tau)^3)`, at least `min(g, 1/4)`. The law to use; our own
    /// derivation.
    Yielding,
    /// `Z = [Z + g - W]+; p = 1 + [F > 0] * (1 + F * W / K); W = max(1, W + eta * (Z * g / W - p * W))`: the
    /// published law, made dimensionless. Our own derivation.
    Normalised,
    /// `Z = [Z + gamma - x]+; W = max(1, W + tau * (Z * gamma / x^2 - (K + F * W)))` with `x = W / tau` and
    /// `gamma = g / tau`: as published, in seconds and segments.
    Published,
    /// One segment a window towards `remaining * tau / left`, no margin, at least one segment: the authors' early
    /// prototype, which set the receiver's window.
    Prototype,
}

/// Parameters that all flows of a host share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// The window law that flows go by.
    pub variant: Variant,
    /// Payload of a full segment.
    pub payload: Bytes,
    /// What a full segment occupies of a link, with headers.
    pub wire: Bytes,
    /// The round trip of a full segment and its acknowledgement through empty queues.
    pub base_rtt: Span,
    /// Round trips between the last segment and the deadline, 2 to 6: one that is measured, the others empty.
    /// 0, for ablations, is no margin at all.
    pub margin_rtts: f64,
    /// By which share a flow is faster than its deadline asks, at every moment: what it is ahead by helps when the path
    /// is marked later. It ends no earlier for that. 0 for all laws but [`Variant::Yielding`].
    pub ahead: f64,
    /// Gain of [`Variant::Normalised`], dimensionless; stable below 0.8, below 0.27 if all is marked at a window of K.
    pub eta: f64,
    /// Marking threshold K of the links, in segments; known to [`Variant::Normalised`] and [`Variant::Published`].
    pub mark_threshold_segments: f64,
    /// What a wholly marked window adds to the price of [`Variant::Yielding`], as a share of it.
    pub price_rise: f64,
    /// What an unmarked window takes off that price, as a share of it.
    pub price_fall: f64,
}

/// Why parameters make no law.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ParamsError {
    /// A length, size or gain is zero, negative or not a number.
    #[error("mcp: {name} is {value}; give a number above zero")]
    NotPositive {
        /// The field of [`Params`].
        name: &'static str,
        /// Value that the field has.
        value: f64,
    },
    /// A share or margin is outside of its range.
    #[error("mcp: {name} is {value}; give a number from {least} to {most}")]
    OutOfRange {
        /// The field of [`Params`].
        name: &'static str,
        /// Value that the field has.
        value: f64,
        /// Least value that is allowed.
        least: f64,
        /// Largest value that is allowed.
        most: f64,
    },
    /// A segment's payload is larger than the segment.
    #[error("mcp: payload of {payload} in a segment of {wire}; wire counts payload and headers")]
    PayloadAboveWire {
        /// [`Params::payload`], which is the larger.
        payload: Bytes,
        /// [`Params::wire`], which is the smaller.
        wire: Bytes,
    },
}

impl Params {
    /// The numbers found good (`docs/mcp.md`) for a network with that empty round trip, segments of 1460 bytes in
    /// 1500, and a marking threshold of 20 segments; a threshold of 5 to 15 is better still.
    pub const fn new(variant: Variant, base_rtt: Span) -> Params {
        Params {
            variant,
            payload: Bytes(1460),
            wire: Bytes(1500),
            base_rtt,
            margin_rtts: 2.5,
            ahead: if matches!(variant, Variant::Yielding) { 0.03 } else { 0.0 },
            eta: 0.2,
            mark_threshold_segments: 20.0,
            price_rise: 0.25,
            price_fall: 0.05,
        }
    }

    /// Whether a law can be made of them.
    ///
    /// # Errors
    /// The first field that is not as it must be.
    pub fn check(&self) -> Result<(), ParamsError> {
        let positive = [
            ("payload", self.payload.0 as f64),
            ("base_rtt", self.base_rtt.as_secs()),
            ("eta", self.eta),
            ("mark_threshold_segments", self.mark_threshold_segments),
        ];
        for (name, value) in positive {
            if value.is_nan() || value <= 0.0 || value.is_infinite() {
                return Err(ParamsError::NotPositive { name, value });
            }
        }
        let ranges = [
            ("margin_rtts", self.margin_rtts, 0.0, 100.0),
            ("ahead", self.ahead, 0.0, 0.9),
            ("price_rise", self.price_rise, 0.0, 10.0),
            ("price_fall", self.price_fall, 0.0, 1.0),
        ];
        for (name, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(ParamsError::OutOfRange { name, value, least, most });
            }
        }
        if self.payload > self.wire {
            return Err(ParamsError::PayloadAboveWire { payload: self.payload, wire: self.wire });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_make_no_law_are_named() {
        let good = Params::new(Variant::Yielding, Span::from_nanos(100_000));
        assert_eq!(good.check(), Ok(()));
        let cases = [
            (Params { base_rtt: Span::ZERO, ..good }, "mcp: base_rtt is 0; give a number above zero"),
            (Params { eta: f64::NAN, ..good }, "mcp: eta is NaN; give a number above zero"),
            (Params { margin_rtts: -1.0, ..good }, "mcp: margin_rtts is -1; give a number from 0 to 100"),
            (Params { price_fall: 1.5, ..good }, "mcp: price_fall is 1.5; give a number from 0 to 1"),
            (
                Params { wire: Bytes(1000), ..good },
                "mcp: payload of 1.5 kB in a segment of 1.0 kB; wire counts payload and headers",
            ),
        ];
        for (params, message) in cases {
            assert_eq!(params.check().map_err(|error| error.to_string()), Err(message.to_owned()));
        }
    }
}

//! What the law of MCP is told in the kernel, written for the program as bytes.

use weir_endhost::mcp::{Params, ParamsError, Variant};
use weir_model::{Rate, Span};

/// By what deadline flows of this host go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct McpConfig {
    /// The law, which is [`Variant::Yielding`] in the kernel, whatever they say, and its numbers.
    pub params: Params,
    /// The host's own link, by which flows know that a deadline is out of reach. Without it they try to the end.
    pub link: Option<Rate>,
}

impl McpConfig {
    /// With the numbers found good for this round trip of a full segment through empty queues.
    pub const fn new(base_rtt: Span, link: Option<Rate>) -> McpConfig {
        McpConfig { params: Params::new(Variant::Yielding, base_rtt), link }
    }

    /// Whether the law can go by it.
    ///
    /// # Errors
    /// The first number that is not as it must be.
    pub fn check(&self) -> Result<(), ParamsError> {
        self.params.check()?;
        let longest = Span::from_nanos(u64::from(u32::MAX)).as_secs();
        let bounds = [
            ("base_rtt", self.params.base_rtt.as_secs(), longest),
            ("price_rise", self.params.price_rise, 1.0),
        ];
        match bounds.into_iter().find(|&(_, value, most)| value > most) {
            Some((name, value, most)) => Err(ParamsError::OutOfRange { name, value, least: 0.0, most }),
            None => Ok(()),
        }
    }

    /// As `struct mcp_params` of the program has it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Params { payload, wire, base_rtt, margin_rtts, ahead, price_rise, price_fall, .. } = self.params;
        let in_20 = |share: f64| (share * f64::from(1 << 20)).round() as u32;
        let link = self.link.map_or(0.0, |link| link.bytes_per_sec() / wire.0 as f64 * 256.0);
        let numbers = [base_rtt.nanos(), link as u64].into_iter().flat_map(u64::to_ne_bytes);
        let small = [
            u32::try_from(payload.0).unwrap_or(u32::MAX),
            // One round trip of the margin is the measured one, which the program adds itself; only the others are empty ones.
            in_20((margin_rtts - 1.0).max(0.0)),
            in_20(ahead),
            in_20(price_rise),
            in_20(price_fall),
            0,
        ];
        numbers.chain(small.into_iter().flat_map(u32::to_ne_bytes)).collect()
    }
}

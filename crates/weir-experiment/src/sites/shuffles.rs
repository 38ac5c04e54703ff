//! Shuffles between sites whose demands are drawn, one after the other.

use serde::{Deserialize, Serialize};
use weir_model::{Bytes, CoflowId, CoflowSpec, FlowSpec, HostId, Rate, Span, Time};
use weir_trace::wan::{Skew, SkewedDemands};

/// Shuffles that never meet: each arrives when the one before it would be done twice over on direct links. What sites
/// send (and receive) is in proportion to a Zipf weight of their rank, which each shuffle draws anew.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ShuffleSetup {
    /// Number of shuffles, one after the other.
    pub count: u32,
    /// Bytes that each moves between sites.
    pub bytes: f64,
    /// Exponent of the weights of sites, 0 to 4.
    pub skew: f64,
    /// Deviation of the logarithm of the noise of a pair, 0 to 4.
    #[serde(default)]
    pub noise: f64,
    /// Sites receive alike, as in a sort whose ranges are even; else their shares are skewed too.
    #[serde(default)]
    pub even_receivers: bool,
    /// Reducers at each site, which get equal parts.
    pub reducers: u32,
}

/// Most flows that may be asked for.
const MOST_FLOWS: f64 = 1e7;

impl ShuffleSetup {
    pub(super) fn check(&self, sites: usize) -> Result<(), String> {
        let positive = self.bytes.is_finite() && self.bytes >= 1.0 && self.count > 0 && self.reducers > 0;
        let pairs = (sites * sites.saturating_sub(1)) as f64;
        if !positive || f64::from(self.count) * f64::from(self.reducers) * pairs > MOST_FLOWS {
            let flows = "not more than 10^7 flows in all (count, times reducers, times pairs of sites)";
            return Err(format!("shuffles need a count, bytes and reducers above 0, and {flows}"));
        }
        Ok(())
    }

    /// The shuffles, between sites joined by links of these rates.
    pub(super) fn draw(&self, rates: &[Vec<Rate>], seed: u64) -> Result<Vec<CoflowSpec>, String> {
        let skew = Skew { zipf: self.skew, noise: self.noise };
        let demands = SkewedDemands::new(rates.len(), skew, seed).map_err(|error| error.to_string())?;
        let mut demands = if self.even_receivers { demands.with_even_receivers() } else { demands };
        let mut arrival = Time::ZERO;
        let mut coflows = Vec::with_capacity(self.count as usize);
        for id in 1..=u64::from(self.count) {
            let demand = demands.draw();
            let total: u64 = demand.iter().flatten().map(|bytes| bytes.0).sum();
            let factor = self.bytes / total as f64;
            let mut slowest: f64 = 0.0;
            let mut flows = Vec::new();
            for (from, row) in demand.iter().enumerate() {
                for (to, bytes) in row.iter().enumerate().filter(|(to, bytes)| *to != from && bytes.0 > 0) {
                    let bytes = bytes.0 as f64 * factor;
                    slowest = slowest.max(bytes / rates[from][to].bytes_per_sec());
                    flows.extend(self.flows(from, to, bytes));
                }
            }
            coflows.push(CoflowSpec::new(CoflowId(id), arrival, flows));
            arrival = arrival + Span::from_secs_ceil(2.0 * slowest);
        }
        Ok(coflows)
    }

    /// What the reducers of a site get from another.
    fn flows(&self, from: usize, to: usize, bytes: f64) -> impl Iterator<Item = FlowSpec> + use<> {
        let reducers = self.reducers;
        (0..reducers).map(move |reducer| FlowSpec {
            source: HostId(from as u32),
            destination: HostId(to as u32),
            size: Bytes(((bytes / f64::from(reducers)).round() as u64).max(1)),
            group: reducer,
        })
    }
}

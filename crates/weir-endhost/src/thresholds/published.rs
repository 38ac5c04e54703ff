//! Thresholds that others published: PIAS's (Bai et al., NSDI 2015), as its ns-2 simulations have them.

use super::theory::Thresholds;
use weir_model::Bytes;
use weir_trace::PACKET_PAYLOAD;

/// Loads for which [`pias`] knows thresholds.
pub const PIAS_LOADS: [f64; 2] = [0.5, 0.8];

/// Workload, load, demotion thresholds of 8 levels in packets of [`PACKET_PAYLOAD`].
const PIAS: [(&str, f64, [u64; 7]); 4] = [
    ("web-search", 0.8, [909, 1329, 1648, 1960, 2143, 2337, 2484]),
    ("web-search", 0.5, [1059, 1412, 1643, 1869, 2008, 2115, 2184]),
    ("data-mining", 0.8, [745, 1083, 1391, 13_689, 14_936, 21_149, 27_245]),
    ("data-mining", 0.5, [805, 1106, 1401, 10_693, 11_970, 21_162, 22_272]),
];

/// PIAS's thresholds of 8 levels for flow sizes of this name (the variant in packets has the same) at this load, if it
/// published any.
pub fn pias(sizes: &str, load: f64) -> Option<Thresholds> {
    let workload = sizes.strip_suffix("-packets").unwrap_or(sizes);
    let found = PIAS.iter().find(|(name, at, _)| *name == workload && (at - load).abs() < 1e-9)?;
    Some(Thresholds::same(found.2.iter().map(|packets| Bytes(packets * PACKET_PAYLOAD.0)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_known_for_two_workloads_at_two_loads() {
        for sizes in ["web-search", "web-search-packets", "data-mining", "data-mining-packets"] {
            for load in PIAS_LOADS {
                assert_eq!(pias(sizes, load).unwrap().levels(), 8);
            }
            assert_eq!(pias(sizes, 0.6), None);
        }
        assert_eq!(pias("other", 0.8), None);
        // 909 packets of 1460 bytes.
        assert_eq!(pias("web-search", 0.8).unwrap().demotion()[0], Bytes(1_327_140));
    }
}

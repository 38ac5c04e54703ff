//! What crossed each link between regions, and what that cost.

use crate::Measures;
use serde::{Deserialize, Serialize};
use weir_model::{Fabric, LinkId, LinkKind, Span};
use weir_trace::wan::{EgressPrices, PriceGrid};

/// The regions of a network, in the order of its sites.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegionNet {
    names: Vec<String>,
    /// Where they are known for all pairs.
    prices: Option<PriceGrid>,
}

impl RegionNet {
    pub(super) fn of(names: &[String]) -> Result<RegionNet, String> {
        let prices = EgressPrices::included().map_err(|error| format!("prices: {error}"))?.grid(names);
        Ok(RegionNet { names: names.to_vec(), prices })
    }
}

/// The use of one link between regions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkUse {
    /// Name of the sending region.
    pub from: String,
    /// Name of the receiving region.
    pub to: String,
    /// Bytes that crossed it, 10^9 each.
    pub gb: f64,
    /// These, in percent of what it could carry until the last coflow ended.
    pub used: f64,
}

/// The use of all links by a run that lasted so long, given the bytes that crossed each.
pub(super) fn uses(fabric: &Fabric, regions: &RegionNet, bytes: &[f64], lasted: Span) -> Vec<LinkUse> {
    let name = |site: u32| regions.names.get(site as usize).cloned().unwrap_or_default();
    let all = (0u32..).zip(fabric.links()).filter_map(|(link, known)| {
        let LinkKind::Site { from, to } = known.kind else { return None };
        let crossed = bytes[LinkId(link).index()];
        let most = known.capacity.bytes_per_sec() * lasted.as_secs();
        let used = if most > 0.0 { 100.0 * crossed / most } else { 0.0 };
        Some(LinkUse { from: name(from), to: name(to), gb: crossed / 1e9, used })
    });
    all.collect()
}

/// Adds what all links say together.
pub(super) fn note(
    fabric: &Fabric,
    regions: &RegionNet,
    bytes: &[f64],
    uses: &[LinkUse],
    measures: &mut Measures,
) {
    let total: f64 = bytes.iter().sum();
    let most = bytes.iter().copied().fold(0.0, f64::max);
    measures.insert("busiest".to_owned(), if total > 0.0 { 100.0 * most / total } else { 0.0 });
    let used: f64 = uses.iter().map(|link| link.used).sum();
    measures.insert("used".to_owned(), used / uses.len().max(1) as f64);
    let Some(prices) = &regions.prices else { return };
    let cost = fabric.links().iter().zip(bytes).map(|(link, &bytes)| match link.kind {
        LinkKind::Site { from, to } => prices[from as usize][to as usize].usd(bytes),
        _ => 0.0,
    });
    measures.insert("egress".to_owned(), cost.sum());
}

/// Adds the part of one seed to a mean over so many.
pub(crate) fn add_links(means: &mut Vec<LinkUse>, links: &[LinkUse], seeds: usize) {
    if means.is_empty() {
        means.extend(links.iter().map(|link| LinkUse { gb: 0.0, used: 0.0, ..link.clone() }));
    }
    for (mean, link) in means.iter_mut().zip(links) {
        mean.gb += link.gb / seeds as f64;
        mean.used += link.used / seeds as f64;
    }
}

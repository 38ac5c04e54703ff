//! A trace of one cluster as it would be if the cluster were spread over datacenters.

use std::collections::BTreeMap;
use weir_model::{Bytes, CoflowId, CoflowSpec, FlowSpec, HostId, Rate};
use weir_trace::synthetic::Draw;

/// Spreads coflows of so many hosts over the sites, at a load.
pub(super) fn spread(
    coflows: Vec<CoflowSpec>,
    hosts: u32,
    mean: &[Vec<Rate>],
    load: f64,
    uneven: Option<f64>,
    draw: &mut Draw,
) -> Result<Vec<CoflowSpec>, String> {
    let site_of = place(hosts, mean.len(), uneven.unwrap_or(0.0), draw);
    let mut coflows: Vec<CoflowSpec> =
        coflows.into_iter().filter_map(|coflow| between_sites(coflow, &site_of)).collect();
    let last = coflows.iter().map(|coflow| coflow.arrival).max().ok_or("no coflow crosses sites")?;
    let secs = if uneven.is_some() { busiest_site(&coflows, mean) } else { busiest(&coflows, mean) };
    let factor = load * last.as_secs() / secs;
    if !(factor.is_finite() && factor > 0.0) {
        return Err("coflows all arrive at once: there is no time for a load to be a share of".to_owned());
    }
    for flow in coflows.iter_mut().flat_map(|coflow| &mut coflow.flows) {
        flow.size = Bytes(((flow.size.0 as f64 * factor).round() as u64).max(1));
    }
    Ok(coflows)
}

/// The site of each host: dealt out in a random order, in turn, or so that sites keep to their weights.
fn place(hosts: u32, sites: usize, exponent: f64, draw: &mut Draw) -> Vec<u32> {
    let mut order: Vec<usize> = (0..hosts as usize).collect();
    draw.shuffle(&mut order);
    let mut site_of = vec![0; order.len()];
    if exponent == 0.0 {
        for (turn, host) in order.into_iter().enumerate() {
            site_of[host] = (turn % sites) as u32;
        }
        return site_of;
    }
    let mut ranked: Vec<usize> = (0..sites).collect();
    draw.shuffle(&mut ranked);
    let mut weights = vec![0.0; sites];
    for (rank, site) in (1u32..).zip(ranked) {
        weights[site] = f64::from(rank).powf(-exponent);
    }
    // Each host goes where its like are fewest for the site's weight; the first site of several.
    let mut counts = vec![0.0; sites];
    for host in order {
        let share = |site: usize| (counts[site] + 1.0) / weights[site];
        let site = (0..sites).min_by(|&a, &b| share(a).total_cmp(&share(b))).unwrap_or(0);
        counts[site] += 1.0;
        site_of[host] = site as u32;
    }
    site_of
}

/// The coflow with one flow for each pair of sites that it has traffic between.
fn between_sites(coflow: CoflowSpec, site_of: &[u32]) -> Option<CoflowSpec> {
    let mut sums: BTreeMap<(u32, u32), Bytes> = BTreeMap::new();
    for flow in &coflow.flows {
        let pair = (site_of[flow.source.index()], site_of[flow.destination.index()]);
        if pair.0 != pair.1 {
            *sums.entry(pair).or_insert(Bytes(0)) += flow.size;
        }
    }
    let flows: Vec<FlowSpec> = sums
        .into_iter()
        .map(|((from, to), size)| FlowSpec { source: HostId(from), destination: HostId(to), size, group: to })
        .collect();
    (!flows.is_empty()).then_some(CoflowSpec { flows, ..coflow })
}

/// Seconds that the busiest link needs for all coflows.
fn busiest(coflows: &[CoflowSpec], rates: &[Vec<Rate>]) -> f64 {
    let mut secs = vec![vec![0.0; rates.len()]; rates.len()];
    for flow in coflows.iter().flat_map(|coflow| &coflow.flows) {
        let (from, to) = (flow.source.index(), flow.destination.index());
        secs[from][to] += flow.size.0 as f64 / rates[from][to].bytes_per_sec();
    }
    secs.into_iter().flatten().fold(0.0, f64::max)
}

/// Seconds that the busiest site needs to send or to receive all that it has to, on all its links at once: no route leads
/// around that.
fn busiest_site(coflows: &[CoflowSpec], rates: &[Vec<Rate>]) -> f64 {
    let sites = rates.len();
    let (mut sent, mut received) = (vec![0.0; sites], vec![0.0; sites]);
    for flow in coflows.iter().flat_map(|coflow| &coflow.flows) {
        sent[flow.source.index()] += flow.size.0 as f64;
        received[flow.destination.index()] += flow.size.0 as f64;
    }
    let rate = |from: usize, to: usize| if from == to { 0.0 } else { rates[from][to].bytes_per_sec() };
    let secs = |site: usize| {
        let out: f64 = (0..sites).map(|other| rate(site, other)).sum();
        let into: f64 = (0..sites).map(|other| rate(other, site)).sum();
        f64::max(sent[site] / out, received[site] / into)
    };
    (0..sites).map(secs).fold(0.0, f64::max)
}

/// The quarter of each coflow by its bytes, the smallest first.
pub(super) fn quarters(coflows: &[CoflowSpec]) -> BTreeMap<CoflowId, u8> {
    let mut by_size: Vec<(Bytes, CoflowId)> =
        coflows.iter().map(|coflow| (coflow.bytes(), coflow.id)).collect();
    by_size.sort_unstable();
    let count = by_size.len();
    (0..).zip(by_size).map(|(rank, (_, id))| (id, 1 + (4 * rank / count) as u8)).collect()
}

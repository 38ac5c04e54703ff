//! The slow simulator's orders for links between sites.

use crate::reference::{Flow, demand, flows_of, gamma};
use weir_model::{CoflowSpec, Fabric};

/// Coflows whose order is looked at, and those they are taken from.
const DEPTH: usize = 3;
const BREADTH: usize = 10;

pub(super) fn estimates(seen: &[Vec<f64>], by: fn(&[f64]) -> f64) -> Vec<f64> {
    // Before the first event nothing is seen, and nothing is live.
    seen.iter().map(|seen| if seen.is_empty() { f64::NAN } else { by(seen) }).collect()
}

pub(super) fn mean(seen: &[f64]) -> f64 {
    seen.iter().sum::<f64>() / seen.len() as f64
}

pub(super) fn median(seen: &[f64]) -> f64 {
    let mut sorted = seen.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0
}

/// Live coflows, which come by (arrival, id), by the time they would still need alone.
pub(super) fn by_gamma(flows: &[Flow], live: &[usize], bandwidth: &[f64]) -> Vec<usize> {
    let mut order = live.to_vec();
    order.sort_by(|&a, &b| gamma(flows, a, bandwidth).total_cmp(&gamma(flows, b, bandwidth)));
    order
}

/// Of all orders that begin with some of the first coflows by the median, the one with the least sum of ends when links
/// serve one coflow after the other at the mean.
pub(super) fn lookahead(flows: &[Flow], live: &[usize], means: &[f64], medians: &[f64]) -> Vec<usize> {
    let ranked = by_gamma(flows, live, medians);
    let first = BREADTH.min(ranked.len());
    let mut begins: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..DEPTH.min(first) {
        let longer = |begin: &Vec<usize>| -> Vec<Vec<usize>> {
            let next = ranked[..first].iter().filter(|at| !begin.contains(at));
            next.map(|&at| [begin.clone(), vec![at]].concat()).collect()
        };
        begins = begins.iter().flat_map(longer).collect();
    }
    let most = live.iter().copied().max().unwrap_or(0);
    let demands: Vec<Vec<f64>> = (0..=most).map(|at| demand(flows, at, means.len())).collect();
    let mut best = (f64::INFINITY, Vec::new());
    for begin in begins {
        let rest = ranked.iter().copied().filter(|at| !begin.contains(at));
        let order: Vec<usize> = begin.iter().copied().chain(rest).collect();
        let mut load = vec![0.0; means.len()];
        let mut cost = 0.0;
        for &at in &order {
            let demand = &demands[at];
            let mut end: f64 = 0.0;
            for link in (0..means.len()).filter(|&link| demand[link] > 0.0) {
                load[link] += demand[link] / means[link];
                end = end.max(load[link]);
            }
            cost += end;
        }
        if cost < best.0 * (1.0 - 1e-9) {
            best = (cost, order);
        }
    }
    best.1
}

/// Flows of coflows in this order; those of each by the size of their group, which is all of the coflow's flows to one
/// host here, largest first.
pub(super) fn groups_in_turn(
    fabric: &Fabric,
    flows: &[Flow],
    coflows: &[CoflowSpec],
    order: &[usize],
) -> Vec<usize> {
    let key = |at: &usize| {
        let flow = &flows[*at];
        let group = flows_of(fabric, coflows, flow.coflow).into_iter();
        let group = group.filter(|of| of.destination == flow.destination);
        let bytes = group.map(|of| of.size as u64).sum::<u64>();
        let place = order.iter().position(|&coflow| coflow == flow.coflow);
        (place, std::cmp::Reverse(bytes), flow.destination, flow.index)
    };
    let mut sorted: Vec<usize> = (0..flows.len()).collect();
    sorted.sort_by_cached_key(key);
    sorted
}

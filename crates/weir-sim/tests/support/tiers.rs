//! The slow simulator's policies that serve coflows tier by tier.

use crate::reference::Flow;

const EPSILON: f64 = 1e-9;
/// A threshold is reached when less than a byte is missing.
const NEARLY: f64 = 0.5;

/// Whether a policy is one of these.
pub(super) fn knows(policy: &str) -> bool {
    ["baraat", "clas", "dclas", "dclas-strict", "orchestra", "wss"].contains(&policy)
}

/// Bytes at which a coflow moves on, smallest first.
fn thresholds(policy: &str) -> Vec<f64> {
    match policy {
        "dclas" | "dclas-strict" => (0..9).map(|q| 1e7 * 10f64.powi(q)).collect(),
        "clas" => (0..159).map(|q| 1e7 * 1.1f64.powi(q)).collect(),
        "baraat" => vec![1e9],
        _ => Vec::new(),
    }
}

fn queue(policy: &str, attained: f64) -> usize {
    thresholds(policy).iter().filter(|&&threshold| attained + NEARLY >= threshold).count()
}

/// Seconds until a coflow moves to another queue.
pub(super) fn next_move(policy: &str, flows: &[Flow], rates: &[f64], attained: &[f64]) -> Option<f64> {
    let of_coflow = |coflow: usize| {
        let rate: f64 =
            flows.iter().zip(rates).filter(|(flow, _)| flow.coflow == coflow).map(|(_, rate)| rate).sum();
        let threshold = *thresholds(policy).get(queue(policy, attained[coflow]))?;
        (rate > 0.0).then(|| (threshold - attained[coflow]) / rate)
    };
    (0..attained.len()).filter_map(of_coflow).min_by(f64::total_cmp)
}

/// Whether two coflows have a link in common.
fn share(flows: &[Flow], a: usize, b: usize) -> bool {
    let links =
        |coflow: usize| flows.iter().filter(move |flow| flow.coflow == coflow).flat_map(|flow| &flow.path);
    links(a).any(|link| links(b).any(|other| other == link))
}

/// Rates of all flows where coflows are in eight classes: each in the one behind those before it that it shares a link with, or in
/// the last.
pub(super) fn by_class(flows: &[Flow], capacity: &[f64], order: &[usize]) -> Vec<f64> {
    let mut class_of: Vec<(usize, usize)> = Vec::new();
    for &coflow in order {
        let before = class_of.iter().filter(|&&(_, other)| share(flows, other, coflow));
        class_of.push((before.map(|&(class, _)| class + 1).max().unwrap_or(0).min(7), coflow));
    }
    let (mut rates, mut left) = (vec![0.0; flows.len()], capacity.to_vec());
    for class in 0..8 {
        let together: Vec<usize> =
            class_of.iter().filter(|entry| entry.0 == class).map(|entry| entry.1).collect();
        fill(flows, capacity, &together, false, &mut left, &mut rates);
    }
    rates
}

/// Rates of all flows. `live` are the coflows by (arrival, id), and by (place, id).
pub(super) fn rates(
    policy: &str,
    flows: &[Flow],
    capacity: &[f64],
    [live, by_place]: [&[usize]; 2],
    attained: &[f64],
) -> Vec<f64> {
    let mut rates = vec![0.0; flows.len()];
    let mut left = capacity.to_vec();
    let queue_of = |coflow: usize| queue(policy, attained[coflow]);
    let mut by_queue = by_place.to_vec();
    by_queue.sort_by_key(|&coflow| queue_of(coflow));
    let by_size = ["orchestra", "wss"].contains(&policy);
    let mut fill = |tier: &[usize], left: &mut [f64]| fill(flows, capacity, tier, by_size, left, &mut rates);
    match policy {
        "wss" => fill(live, &mut left),
        "orchestra" => live.iter().for_each(|&coflow| fill(&[coflow], &mut left)),
        "dclas-strict" => by_queue.iter().for_each(|&coflow| fill(&[coflow], &mut left)),
        "clas" => {
            by_queue.chunk_by(|&a, &b| queue_of(a) == queue_of(b)).for_each(|tier| fill(tier, &mut left))
        }
        "baraat" => {
            let mut tier_of: Vec<(usize, usize)> = Vec::new();
            for &coflow in live {
                let before = tier_of.iter().filter(|&&(_, other)| share(flows, other, coflow));
                let behind =
                    |&(tier, other): &(usize, usize)| if queue_of(other) == 0 { tier + 1 } else { tier };
                tier_of.push((before.map(behind).max().unwrap_or(0), coflow));
            }
            for tier in 0..live.len() {
                let together: Vec<usize> =
                    tier_of.iter().filter(|entry| entry.0 == tier).map(|entry| entry.1).collect();
                fill(&together, &mut left);
            }
        }
        "dclas" => {
            for link_queue in 0..10 {
                let queue: Vec<usize> =
                    by_queue.iter().copied().filter(|&at| queue_of(at) == link_queue).collect();
                let mut part: Vec<f64> = (0..capacity.len())
                    .map(|link| capacity[link] * weight_share(flows, live, &queue_of, link, link_queue))
                    .collect();
                let offered = part.clone();
                queue.iter().for_each(|&coflow| fill(&[coflow], &mut part));
                left.iter_mut()
                    .zip(offered.iter().zip(&part))
                    .for_each(|(left, (was, is))| *left -= was - is);
            }
            by_queue.iter().for_each(|&coflow| fill(&[coflow], &mut left));
        }
        other => panic!("no policy of tiers `{other}`"),
    }
    rates
}

/// The part of a link that a queue has among those with flows on it; the first of ten weighs 10, the last 1.
fn weight_share(
    flows: &[Flow],
    live: &[usize],
    queue_of: &impl Fn(usize) -> usize,
    link: usize,
    queue: usize,
) -> f64 {
    let crosses = |coflow: usize| flows.iter().any(|flow| flow.coflow == coflow && flow.path.contains(&link));
    let uses = |queue: usize| live.iter().any(|&coflow| queue_of(coflow) == queue && crosses(coflow));
    let sum: usize = (0..10).filter(|&other| uses(other)).map(|other| 10 - other).sum();
    if uses(queue) { (10 - queue) as f64 / sum as f64 } else { 0.0 }
}

/// Progressive filling of what is left by the flows of a tier.
fn fill(
    flows: &[Flow],
    capacity: &[f64],
    tier: &[usize],
    by_size: bool,
    left: &mut [f64],
    rates: &mut [f64],
) {
    let full = |left: &[f64], link: usize| left[link] <= EPSILON * capacity[link];
    let weight = |at: usize| if by_size { flows[at].size } else { 1.0 };
    let mut open: Vec<usize> = (0..flows.len())
        .filter(|&at| {
            tier.contains(&flows[at].coflow) && !flows[at].path.iter().any(|&link| full(left, link))
        })
        .collect();
    while !open.is_empty() {
        let level = |link: usize| {
            let weights: f64 =
                open.iter().filter(|&&at| flows[at].path.contains(&link)).map(|&at| weight(at)).sum();
            left[link] / weights
        };
        let levels =
            (0..capacity.len()).map(|link| (level(link), link)).filter(|(level, _)| level.is_finite());
        let (level, limit) = levels.min_by(|a, b| a.0.total_cmp(&b.0)).expect("open flows cross links");
        let (frozen, others): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|&&at| flows[at].path.contains(&limit));
        for at in frozen {
            let rate = level.max(0.0) * weight(at);
            rates[at] += rate;
            flows[at].path.iter().for_each(|&link| left[link] -= rate);
        }
        left[limit] = 0.0;
        open = others;
    }
}

//! A slow, obvious simulator: a list of flows, floating-point seconds, textbook allocation. It shares no
//! code with the policies it checks.

use crate::graphs;
use crate::sites;
use crate::tiers;
use weir_model::{CapacityChange, CoflowSpec, Fabric, Span, Time};

const EPSILON: f64 = 1e-9;

#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) coflow: usize,
    source: u32,
    pub(super) destination: u32,
    pub(super) path: Vec<usize>,
    pub(super) size: f64,
    left: f64,
    /// Its place in the coflow as given.
    pub(super) index: usize,
}

/// Completion time of every coflow in seconds from its arrival, in the order given.
pub(crate) fn completion_times(
    fabric: &Fabric,
    changes: &[CapacityChange],
    coflows: &[CoflowSpec],
    policy: &str,
) -> Vec<f64> {
    let mut capacity: Vec<f64> = fabric.links().iter().map(|link| link.capacity.bytes_per_sec()).collect();
    let graph = graphs::Graph::new(coflows, |at| alone(fabric, coflows, at));
    // Those that have arrived have their arrival in here.
    let mut coflows = coflows.to_vec();
    let mut arrivals = vec![None; coflows.len()];
    let mut ends = vec![None; coflows.len()];
    let mut now = 0.0;
    let mut flows: Vec<Flow> = Vec::new();
    let mut attained = vec![0.0; coflows.len()];
    // Per link, the capacities that it was seen to have.
    let mut seen: Vec<Vec<f64>> = vec![Vec::new(); capacity.len()];
    let changes_at_zero = changes.iter().any(|change| change.at == Time::ZERO);
    loop {
        // Who has nothing to move is complete at once, and others may follow.
        while let Some(at) = (0..coflows.len())
            .find(|&at| arrivals[at].is_none() && graph.arrival(at, &ends).is_some_and(|secs| secs <= now))
        {
            arrivals[at] = graph.arrival(at, &ends);
            coflows[at].arrival = Time::ZERO + Span::from_secs_ceil(now);
            let new = flows_of(fabric, &coflows, at);
            if new.is_empty() {
                ends[at] = Some(now);
            }
            flows.extend(new);
        }
        for change in changes.iter().filter(|change| change.at.as_secs() <= now) {
            capacity[change.link.index()] = change.capacity.bytes_per_sec();
        }
        // Who plans for the first time sees capacities for the first time.
        let is_event = now > 0.0 || arrivals.iter().any(Option::is_some) || changes_at_zero;
        for (seen, &capacity) in seen.iter_mut().zip(&capacity).filter(|_| is_event) {
            if seen.last() != Some(&capacity) {
                seen.push(capacity);
            }
        }
        let live = by_arrival(&flows, &coflows);
        let by_place = graph.by_place(&live, &arrivals);
        let coflows = &coflows;
        let rates = match policy {
            "fair" => progressive_filling(&flows, &capacity),
            "fair-coflows" => equal_progress(&flows, &capacity, &live),
            _ if tiers::knows(policy) => {
                tiers::rates(policy, &flows, &capacity, [&live, &by_place], &attained)
            }
            "smallest-flow" | "flow-edf" => flow_by_flow(&flows, &capacity, coflows, policy == "flow-edf"),
            "local-smallest" => by_parts(fabric, &flows, &capacity, coflows),
            "mrtf" | "lookahead" | "monte-carlo" | "siphon" | "sebf-routed" => {
                let means = sites::estimates(&seen, sites::mean);
                let in_turn = match policy {
                    "mrtf" => sites::by_gamma(&flows, &live, &means),
                    // Without sites there are no routes to decide.
                    "sebf-routed" => sites::by_gamma(&flows, &live, &capacity),
                    // With one bandwidth seen all rounds of a simulation are the same.
                    _ => sites::lookahead(&flows, &live, &means, &sites::estimates(&seen, sites::median)),
                };
                one_by_one(&flows, &capacity, sites::groups_in_turn(fabric, &flows, coflows, &in_turn))
            }
            "by-class" => {
                let order = graph.ancestors_first(order(fabric, &flows, &capacity, coflows, "varys"));
                tiers::by_class(&flows, &capacity, &order)
            }
            "open-shop" => {
                let order = open_shop(&flows, &capacity, coflows);
                coflow_by_coflow(&flows, &capacity, &order, backfill)
            }
            _ => {
                let order = match policy {
                    "varys" => graph.ancestors_first(order(fabric, &flows, &capacity, coflows, policy)),
                    "varys-critical-path" => {
                        let gamma = |at: usize| gamma(&flows, at, &capacity);
                        graph.ancestors_first(graph.by_path(&live, gamma))
                    }
                    _ => order(fabric, &flows, &capacity, coflows, policy),
                };
                let backfill = match policy {
                    "varys-madd" => no_backfill,
                    "varys-paper-backfill" => port_backfill,
                    _ => backfill,
                };
                coflow_by_coflow(&flows, &capacity, &order, backfill)
            }
        };
        let completion = flows.iter().zip(&rates).map(|(flow, rate)| now + flow.left / rate);
        let completion = completion.fold(f64::INFINITY, f64::min);
        let waiting = (0..coflows.len()).filter(|&at| arrivals[at].is_none());
        let arrival = waiting.filter_map(|at| graph.arrival(at, &ends)).fold(f64::INFINITY, f64::min);
        let moves =
            tiers::next_move(policy, &flows, &rates, &attained).map_or(f64::INFINITY, |secs| now + secs);
        let next = completion.min(arrival).min(moves);
        if next == f64::INFINITY {
            assert!(flows.is_empty(), "flows starve");
            break;
        }
        let to_come = changes.iter().map(|change| change.at.as_secs()).filter(|&at| at > now);
        let next = to_come.fold(next, f64::min);
        for (flow, rate) in flows.iter_mut().zip(&rates) {
            flow.left -= rate * (next - now);
            attained[flow.coflow] += rate * (next - now);
        }
        // A thousandth of a byte: rounding of the subtraction above.
        flows.retain(|flow| flow.left > 1e-3);
        now = next;
        for (at, end) in
            ends.iter_mut().enumerate().filter(|(at, end)| arrivals[*at].is_some() && end.is_none())
        {
            *end = flows.iter().all(|flow| flow.coflow != at).then_some(now);
        }
    }
    let taken =
        |(end, arrival): (&Option<f64>, &Option<f64>)| end.zip(*arrival).map(|(end, arrival)| end - arrival);
    ends.iter().zip(&arrivals).map(|pair| taken(pair).expect("every coflow is complete")).collect()
}

/// Seconds that a coflow needs on an empty fabric.
fn alone(fabric: &Fabric, coflows: &[CoflowSpec], at: usize) -> f64 {
    let capacity: Vec<f64> = fabric.links().iter().map(|link| link.capacity.bytes_per_sec()).collect();
    gamma(&flows_of(fabric, coflows, at), at, &capacity)
}

pub(super) fn gamma(flows: &[Flow], coflow: usize, capacity: &[f64]) -> f64 {
    let demand = demand(flows, coflow, capacity.len());
    demand.iter().zip(capacity).map(|(bytes, rate)| bytes / rate).fold(0.0, f64::max)
}

pub(super) fn flows_of(fabric: &Fabric, coflows: &[CoflowSpec], coflow: usize) -> Vec<Flow> {
    let mut flows: Vec<Flow> = coflows[coflow]
        .flows
        .iter()
        .enumerate()
        .filter_map(|(index, flow)| {
            let path = fabric.path(flow.source, flow.destination)?;
            let path = path.iter().map(|link| link.index()).collect();
            let (source, destination) = (flow.source.0, flow.destination.0);
            let size = flow.size.0 as f64;
            Some(Flow { coflow, source, destination, path, size, left: size, index })
        })
        .collect();
    flows.sort_by_key(|flow| (flow.source, flow.destination));
    flows
}

fn progressive_filling(flows: &[Flow], capacity: &[f64]) -> Vec<f64> {
    let mut rates = vec![0.0; flows.len()];
    let mut frozen = vec![false; flows.len()];
    while frozen.contains(&false) {
        let mut best = (f64::INFINITY, 0);
        for (link, capacity) in capacity.iter().enumerate() {
            let crossing = || (0..flows.len()).filter(|&at| flows[at].path.contains(&link));
            let open = crossing().filter(|&at| !frozen[at]).count();
            let used: f64 = crossing().filter(|&at| frozen[at]).map(|at| rates[at]).sum();
            let share = (capacity - used).max(0.0) / open as f64;
            if open > 0 && share < best.0 {
                best = (share, link);
            }
        }
        for at in 0..flows.len() {
            if !frozen[at] && flows[at].path.contains(&best.1) {
                (rates[at], frozen[at]) = (best.0, true);
            }
        }
    }
    rates
}

/// Flows in order of what they have left, or of their deadlines; each takes what its links have left.
fn flow_by_flow(flows: &[Flow], capacity: &[f64], coflows: &[CoflowSpec], by_deadline: bool) -> Vec<f64> {
    let key = |flow: &Flow| {
        let coflow = &coflows[flow.coflow];
        let due = coflow.deadline.filter(|_| by_deadline).map(|span| coflow.arrival + span);
        (due.map_or(f64::INFINITY, |due| due.as_secs()), flow.left)
    };
    let tie = |flow: &Flow| (coflows[flow.coflow].arrival, coflows[flow.coflow].id, flow.index);
    let mut order: Vec<usize> = (0..flows.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&flows[a], &flows[b]);
        key(a).partial_cmp(&key(b)).expect("numbers").then(tie(a).cmp(&tie(b)))
    });
    one_by_one(flows, capacity, order)
}

/// Flows in order of the bytes that their coflow's flows have in all where their paths begin.
fn by_parts(fabric: &Fabric, flows: &[Flow], capacity: &[f64], coflows: &[CoflowSpec]) -> Vec<f64> {
    let key = |flow: &Flow| {
        let part = flows_of(fabric, coflows, flow.coflow).into_iter().filter(|of| of.path[0] == flow.path[0]);
        let coflow = &coflows[flow.coflow];
        (part.map(|of| of.size as u64).sum::<u64>(), coflow.arrival, coflow.id, flow.index)
    };
    let mut order: Vec<usize> = (0..flows.len()).collect();
    order.sort_by_cached_key(|&at| key(&flows[at]));
    one_by_one(flows, capacity, order)
}

/// Each flow takes all that its links have left.
fn one_by_one(flows: &[Flow], capacity: &[f64], order: Vec<usize>) -> Vec<f64> {
    let mut left = capacity.to_vec();
    let mut rates = vec![0.0; flows.len()];
    for at in order {
        if flows[at].path.iter().all(|&link| left[link] > EPSILON * capacity[link]) {
            rates[at] = flows[at].path.iter().map(|&link| left[link]).fold(f64::INFINITY, f64::min);
            flows[at].path.iter().for_each(|&link| left[link] -= rates[at]);
        }
    }
    rates
}

/// Bytes left on every link for one coflow.
pub(super) fn demand(flows: &[Flow], coflow: usize, links: usize) -> Vec<f64> {
    let mut demand = vec![0.0; links];
    for flow in flows.iter().filter(|flow| flow.coflow == coflow) {
        for &link in &flow.path {
            demand[link] += flow.left;
        }
    }
    demand
}

/// Coflows with live flows.
fn by_arrival(flows: &[Flow], coflows: &[CoflowSpec]) -> Vec<usize> {
    let mut live: Vec<usize> =
        (0..coflows.len()).filter(|&at| flows.iter().any(|flow| flow.coflow == at)).collect();
    live.sort_by_key(|&at| (coflows[at].arrival, coflows[at].id));
    live
}

fn order(
    fabric: &Fabric,
    flows: &[Flow],
    capacity: &[f64],
    coflows: &[CoflowSpec],
    policy: &str,
) -> Vec<usize> {
    let mut order = by_arrival(flows, coflows);
    let key = |at: usize| {
        // A static key is that of the coflow as if nothing had moved yet.
        let (name, of) = match policy.strip_suffix("-static") {
            Some(name) => (name, flows_of(fabric, coflows, at)),
            None => (policy, flows.iter().filter(|flow| flow.coflow == at).cloned().collect()),
        };
        let left = of.iter().map(|flow| flow.left);
        match name {
            "fifo" => 0.0,
            "scf" => left.fold(0.0, f64::max),
            "ncf" => left.count() as f64,
            "tcf" => left.sum(),
            "sebf"
            | "varys"
            | "varys-deadline"
            | "varys-madd"
            | "varys-paper-backfill"
            | "virtual-cluster" => gamma(&of, at, capacity),
            other => panic!("the reference has no policy `{other}`"),
        }
    };
    order.sort_by(|&a, &b| key(a).total_cmp(&key(b)));
    order
}

/// From the last place to the first: on the busiest link, the one with the least weight for its time there.
fn open_shop(flows: &[Flow], capacity: &[f64], coflows: &[CoflowSpec]) -> Vec<usize> {
    let mut open: Vec<usize> =
        (0..coflows.len()).filter(|&at| flows.iter().any(|flow| flow.coflow == at)).collect();
    open.sort_by_key(|&at| (coflows[at].arrival, coflows[at].id));
    let mut weights: Vec<f64> = coflows.iter().map(|coflow| coflow.weight).collect();
    let secs = |at: usize, link: usize| demand(flows, at, capacity.len())[link] / capacity[link];
    let mut order = Vec::new();
    while !open.is_empty() {
        let loads: Vec<f64> =
            (0..capacity.len()).map(|link| open.iter().map(|&at| secs(at, link)).sum()).collect();
        let most = loads.iter().copied().fold(0.0, f64::max);
        let link = loads.iter().position(|&load| load >= most * (1.0 - EPSILON)).expect("a link");
        let price = |at: usize| weights[at] / secs(at, link);
        let least = open.iter().map(|&at| price(at)).fold(f64::INFINITY, f64::min);
        let last = open.iter().rposition(|&at| price(at) <= least * (1.0 + EPSILON)).expect("a coflow");
        let last = open.remove(last);
        let least = price(last);
        open.iter().for_each(|&at| weights[at] = (weights[at] - least * secs(at, link)).max(0.0));
        order.push(last);
    }
    order.reverse();
    order
}

/// Adds rates to those of MADD: flows, capacities, what is left of links, order of coflows, rates.
type BackfillRule = fn(&[Flow], &[f64], &mut [f64], &[usize], &mut [f64]);

fn coflow_by_coflow(flows: &[Flow], capacity: &[f64], order: &[usize], more: BackfillRule) -> Vec<f64> {
    let mut rates = vec![0.0; flows.len()];
    let mut left = capacity.to_vec();
    let full = |left: &[f64], link: usize| left[link] <= EPSILON * capacity[link];
    for &coflow in order {
        let demand = demand(flows, coflow, capacity.len());
        let used = || (0..capacity.len()).filter(|&link| demand[link] > 0.0);
        if used().any(|link| full(&left, link)) {
            continue;
        }
        let gamma = used().map(|link| demand[link] / left[link]).fold(0.0, f64::max);
        for (at, flow) in flows.iter().enumerate().filter(|(_, flow)| flow.coflow == coflow) {
            rates[at] = flow.left / gamma;
            for &link in &flow.path {
                left[link] -= rates[at];
            }
        }
    }
    more(flows, capacity, &mut left, order, &mut rates);
    rates
}

fn no_backfill(_: &[Flow], _: &[f64], _: &mut [f64], _: &[usize], _: &mut [f64]) {}

/// Per first link and coflow, what is left of the link in the ratio of the rates.
fn port_backfill(flows: &[Flow], capacity: &[f64], left: &mut [f64], order: &[usize], rates: &mut [f64]) {
    let before = rates.to_vec();
    for port in 0..capacity.len() {
        for &coflow in order {
            let here: Vec<usize> = (0..flows.len())
                .filter(|&at| flows[at].coflow == coflow && flows[at].path[0] == port)
                .collect();
            let total: f64 = here.iter().map(|&at| before[at]).sum();
            let rest = if left[port] > EPSILON * capacity[port] { left[port] } else { 0.0 };
            for at in here.into_iter().filter(|&at| before[at] > 0.0) {
                let least = flows[at].path.iter().map(|&link| left[link]).fold(f64::INFINITY, f64::min);
                let extra = (rest * before[at] / total).min(least).max(0.0);
                rates[at] += extra;
                flows[at].path.iter().for_each(|&link| left[link] -= extra);
            }
        }
    }
}

fn backfill(flows: &[Flow], capacity: &[f64], left: &mut [f64], order: &[usize], rates: &mut [f64]) {
    let full = |left: &[f64], link: usize| left[link] <= EPSILON * capacity[link];
    for &coflow in order {
        for (at, flow) in flows.iter().enumerate().filter(|(_, flow)| flow.coflow == coflow) {
            if flow.path.iter().any(|&link| full(left, link)) {
                continue;
            }
            let extra = flow.path.iter().map(|&link| left[link]).fold(f64::INFINITY, f64::min);
            rates[at] += extra;
            for &link in &flow.path {
                left[link] -= extra;
            }
        }
    }
}

/// Raises the share of its own speed that every coflow gets, all together, until links are full.
fn equal_progress(flows: &[Flow], capacity: &[f64], live: &[usize]) -> Vec<f64> {
    let demands: Vec<Vec<f64>> =
        (0..=live.iter().copied().max().unwrap_or(0)).map(|at| demand(flows, at, capacity.len())).collect();
    let gamma = |coflow: usize| {
        demands[coflow].iter().zip(capacity).map(|(bytes, rate)| bytes / rate).fold(0.0, f64::max)
    };
    let mut rates = vec![0.0; flows.len()];
    let mut left = capacity.to_vec();
    let mut open = live.to_vec();
    while !open.is_empty() {
        let claim =
            |link: usize| open.iter().map(|&coflow| demands[coflow][link] / gamma(coflow)).sum::<f64>();
        let claimed = (0..capacity.len()).filter(|&link| claim(link) > 0.0);
        let levels = claimed.map(|link| (left[link] / claim(link), link));
        let (level, full) = levels.min_by(|a, b| a.0.total_cmp(&b.0)).expect("open coflows cross links");
        let (frozen, others): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|&&coflow| demands[coflow][full] > 0.0);
        for &coflow in &frozen {
            for (at, flow) in flows.iter().enumerate().filter(|(_, flow)| flow.coflow == coflow) {
                rates[at] = flow.left / gamma(coflow) * level;
                flow.path.iter().for_each(|&link| left[link] -= rates[at]);
            }
        }
        open = others;
    }
    backfill(flows, capacity, &mut left, live, &mut rates);
    rates
}

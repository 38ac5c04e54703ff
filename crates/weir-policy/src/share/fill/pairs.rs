//! Tiers whose paths are of two links, as on a switch: who shares what with whom is a graph of links, with the
//! weights of flows between two of them summed up. Any number of coflows, any weights.

use super::{Scratch, Weigh};
use crate::{CoflowTable, FlowRef, Slot};

/// The flows between a link and another one.
#[derive(Clone, Copy, Debug)]
struct Edge {
    other: u32,
    /// Where the same flows stand among those of the other link.
    twin: u32,
    /// Sum of the weights of live flows.
    weight: f64,
}

/// The links of a tier and the flows between them.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// Per link, where its edges begin.
    begins: Vec<u32>,
    edges: Vec<Edge>,
    /// Number of live flows, and of those when this was made.
    flows: usize,
    first_flows: usize,
    /// Per link: whether it is open, and the weight of its flows to open links.
    is_open: Vec<bool>,
    open_weights: Vec<f64>,
}

impl Pairs {
    /// All live flows of some coflows, if each crosses two links; `place` says where in the tier a link of the
    /// fabric stands.
    pub(super) fn new(
        view: &CoflowTable,
        coflows: &[Slot],
        weigh: Weigh,
        place: &[u32],
        links: usize,
    ) -> Option<Pairs> {
        let mut ends: Vec<(u32, u32, f64)> = Vec::new();
        for &slot in coflows {
            let live = (0u32..).zip(view.coflow(slot).flows()).filter(|(_, flow)| flow.live());
            for at in live
                .filter(|(_, flow)| flow.class().is_some())
                .map(|(flow, _)| FlowRef { coflow: slot, flow })
            {
                let (first, last) = ends_of(view, at, place)?;
                ends.push((first, last, weigh.of(view, at)));
            }
        }
        Some(Pairs::from_ends(&ends, links))
    }

    fn from_ends(ends: &[(u32, u32, f64)], links: usize) -> Pairs {
        let by_first = group(ends.len(), links, |at| ends[at].0 as usize);
        // Flows with the same ends become one edge; `seen` holds the last edge to each link, and is of this link
        // only if that is not before the link's first.
        let mut seen = vec![u32::MAX; links];
        let mut sums: Vec<(u32, u32, f64)> = Vec::with_capacity(ends.len());
        for flows in by_first.iter() {
            let first_edge = sums.len();
            for &at in flows {
                let (first, last, weight) = ends[at as usize];
                match sums.get_mut(seen[last as usize] as usize) {
                    Some(sum) if seen[last as usize] as usize >= first_edge => sum.2 += weight,
                    _ => {
                        seen[last as usize] = sums.len() as u32;
                        sums.push((first, last, weight));
                    }
                }
            }
        }
        let mut begins = vec![0u32; links + 1];
        for &(first, last, _) in &sums {
            begins[first as usize + 1] += 1;
            begins[last as usize + 1] += 1;
        }
        for link in 0..links {
            begins[link + 1] += begins[link];
        }
        let mut next = begins.clone();
        let mut edges = vec![Edge { other: 0, twin: 0, weight: 0.0 }; 2 * sums.len()];
        for &(first, last, weight) in &sums {
            let (at, twin) = (next[first as usize], next[last as usize]);
            edges[at as usize] = Edge { other: last, twin, weight };
            edges[twin as usize] = Edge { other: first, twin: at, weight };
            next[first as usize] += 1;
            next[last as usize] += 1;
        }
        let mut pairs =
            Pairs { begins, edges, flows: ends.len(), first_flows: ends.len(), ..Pairs::default() };
        pairs.is_open = vec![true; links];
        pairs.open_weights =
            (0..links).map(|link| pairs.edges_of(link).iter().map(|edge| edge.weight).sum()).collect();
        pairs
    }

    fn edges_of(&self, link: usize) -> &[Edge] {
        &self.edges[self.begins[link] as usize..self.begins[link + 1] as usize]
    }

    /// Whether most of the flows that it was made of have ended.
    pub(super) fn is_thin(&self) -> bool {
        self.flows * 2 < self.first_flows
    }

    /// Takes out a flow that has ended.
    pub(super) fn end(&mut self, view: &CoflowTable, at: FlowRef, weigh: Weigh, place: &[u32]) {
        let Some((first, last)) = ends_of(view, at, place) else { return };
        let Some(to) = self.edges_of(first as usize).iter().position(|edge| edge.other == last) else {
            return;
        };
        let to = self.begins[first as usize] as usize + to;
        let (weight, twin) = (weigh.of(view, at), self.edges[to].twin as usize);
        self.edges[to].weight -= weight;
        self.edges[twin].weight -= weight;
        for (link, other) in [(first as usize, last as usize), (last as usize, first as usize)] {
            // The weight of a link counts only flows whose other link is open; the others were taken out when that link closed.
            if self.is_open[other] {
                self.open_weights[link] -= weight;
            }
        }
        self.flows -= 1;
    }

    /// Whether a flow on a link crosses no full one.
    pub(super) fn has_open(&self, link: usize, offered: &[f64]) -> bool {
        self.edges_of(link).iter().any(|edge| edge.weight > 0.5 && offered[edge.other as usize] > 0.0)
    }

    /// Fills: takes from what is left of every link, and sets the levels of those that limit flows.
    pub(super) fn fill(&mut self, left: &mut [f64], levels: &mut [f64], scratch: &mut Scratch) {
        self.open_links(left);
        let Scratch { weights, candidates, .. } = scratch;
        weights.clone_from(&self.open_weights);
        // Weights are whole numbers: what is left of their sum is 0 or at least 1.
        let share = |left: f64, weight: f64| (weight > 0.5).then(|| left.max(0.0) / weight);
        let open = self.is_open.iter().zip(&*left).zip(&*weights);
        candidates.start(open.map(|((open, &left), &weight)| if *open { share(left, weight) } else { None }));
        // Every open flow is on two links.
        let with_open = self.is_open.iter().zip(&*weights).filter(|(open, _)| **open);
        let mut waiting = with_open.map(|(_, weight)| weight).sum::<f64>() / 2.0;
        // Weights are whole numbers, so a rest below 1/4 is the rounding of their sum.
        while waiting > 0.25 {
            let Some((link, level)) = candidates.next(|link| share(left[link], weights[link])) else { break };
            levels[link] = level;
            waiting -= weights[link];
            // Links that were full before, or are by now, are included: what is left of them is not read again.
            for edge in self.edges_of(link) {
                left[edge.other as usize] -= level * edge.weight;
                weights[edge.other as usize] -= edge.weight;
            }
            left[link] = f64::NEG_INFINITY;
            weights[link] = 0.0;
        }
    }

    /// Notes which links have something left.
    fn open_links(&mut self, left: &[f64]) {
        for (link, left) in left.iter().enumerate() {
            let open = *left > 0.0;
            if std::mem::replace(&mut self.is_open[link], open) != open {
                let sign = if open { 1.0 } else { -1.0 };
                for edge in &self.edges[self.begins[link] as usize..self.begins[link + 1] as usize] {
                    self.open_weights[edge.other as usize] += sign * edge.weight;
                }
            }
        }
    }
}

/// Where the two links of a flow stand in the tier; none if it crosses more or fewer.
fn ends_of(view: &CoflowTable, at: FlowRef, place: &[u32]) -> Option<(u32, u32)> {
    let class = view.flow(at).class()?;
    let &[first, last] = &view.classes()[class.index()].path()[..] else { return None };
    Some((place[first.index()], place[last.index()]))
}

/// Numbers below a bound in groups.
struct Groups {
    begins: Vec<u32>,
    members: Vec<u32>,
}

impl Groups {
    fn iter(&self) -> impl Iterator<Item = &[u32]> {
        self.begins.windows(2).map(|of| &self.members[of[0] as usize..of[1] as usize])
    }
}

/// Groups the numbers below a bound, each group by rising number.
fn group(numbers: usize, groups: usize, group_of: impl Fn(usize) -> usize) -> Groups {
    let mut begins = vec![0u32; groups + 1];
    (0..numbers).for_each(|number| begins[group_of(number) + 1] += 1);
    (0..groups).for_each(|group| begins[group + 1] += begins[group]);
    let mut next = begins.clone();
    let mut members = vec![0; numbers];
    for number in 0..numbers {
        let at = &mut next[group_of(number)];
        members[*at as usize] = number as u32;
        *at += 1;
    }
    Groups { begins, members }
}

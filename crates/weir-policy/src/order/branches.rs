//! Orders of the next few coflows, and what each would cost: what lookahead and Monte Carlo simulation choose from
//! (Siphon, USENIX ATC 2018, section 3.1).
//!
//! # Problem
//! Which coflow goes next decides for all that wait. There are n! orders of n coflows.
//!
//! # Approach
//! Only who goes next counts: when something arrives or ends, the question is asked anew. So orders differ in their
//! first few coflows, and the rest follows by minimum remaining time. What orders have in common is computed once: see
//! [`Graph`].
//!
//! # Terminology
//! * rank: place by minimum remaining time (at the median of what links were seen to have).
//! * branch: an order of `depth` coflows out of the first `breadth` by rank; all others follow by rank.
//! * cost: sum of completion times from now, if links serve coflows one after the other and each link always has
//!   the same bandwidth. A coflow is complete when its slowest link is done with it and all before it.
//!
//! # Properties
//! * Branches are in lexicographic order of ranks, so that the first is minimum remaining time itself.
//! * Cost per bandwidth drawn: (nodes + sets) * links for all branches together, and an addition per branch and place.
//!   With 50 coflows, breadth 10, depth 3 and 20 links, that is a fifth of serving every branch by itself.

use super::graph::Graph;
use crate::{CoflowTable, Slot};

/// Coflows in one branch, at most.
const MOST_DEPTH: usize = 5;
/// Coflows that branches are made of, at most.
const MOST_BREADTH: usize = 16;

/// How many coflows branches order, and out of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Coflows in a branch; at most 5 count.
    pub depth: usize,
    /// Coflows that they are made of, first by rank; at most 16 count.
    pub breadth: usize,
}

/// All branches of some coflows.
#[derive(Debug, Default)]
pub struct Branches {
    coflows: usize,
    links: usize,
    /// Per coflow, by rank, and link: the bytes left.
    bytes: Vec<f64>,
    graph: Graph,
    scratch: Scratch,
}

/// Memory of one evaluation.
#[derive(Debug, Default)]
struct Scratch {
    /// Per coflow and link, seconds at the bandwidth in question.
    secs: Vec<f64>,
    /// Per link, seconds until it is free of all coflows that branches are made of, and of some that follow.
    loads: Vec<f64>,
    /// Ends by node of the graph; not a number where that is not known yet.
    ends: Vec<f64>,
}

impl Branches {
    /// Takes over coflows: `fill` gets, rank by rank, the bytes that are left for each link, 0 to begin with.
    pub fn set(
        &mut self,
        coflows: usize,
        links: usize,
        reach: Reach,
        mut fill: impl FnMut(usize, &mut [f64]),
    ) {
        (self.coflows, self.links) = (coflows, links);
        self.bytes.clear();
        self.bytes.resize(coflows * links, 0.0);
        if links > 0 {
            (0..).zip(self.bytes.chunks_exact_mut(links)).for_each(|(rank, bytes)| fill(rank, bytes));
        }
        // A set of coflows is a u16 with one bit per rank, hence at most 16 of them.
        let breadth = reach.breadth.clamp(1, MOST_BREADTH).min(coflows);
        self.graph.set(breadth, reach.depth.clamp(1, MOST_DEPTH).min(breadth));
    }

    /// As [`Branches::set`], from what is left of the coflows of a table.
    pub fn set_from(&mut self, view: &CoflowTable, by_rank: &[Slot], links: usize, reach: Reach) {
        self.set(by_rank.len(), links, reach, |rank, bytes| {
            for &link in view.coflow(by_rank[rank]).links() {
                bytes[link.index()] = view.demand(by_rank[rank], link);
            }
        });
    }

    /// Number of branches; none without coflows.
    pub fn count(&self) -> usize {
        self.graph.branches()
    }

    /// The nodes that branches have in common.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Bytes left by link, of the coflow of a rank.
    pub fn bytes(&self, rank: usize) -> &[f64] {
        &self.bytes[rank * self.links..][..self.links]
    }

    /// Ranks of all coflows in the order that a branch stands for.
    pub fn order(&self, branch: usize) -> impl Iterator<Item = usize> + '_ {
        let first = self.graph.branch(branch).iter().map(|&rank| usize::from(rank));
        first.clone().chain((0..self.coflows).filter(move |&rank| !first.clone().any(|of| of == rank)))
    }

    /// The cost of every branch at a bandwidth, given per link as one over bytes per second; those that `skip`
    /// names keep what they had.
    pub fn costs(&mut self, inverse: &[f64], skip: &[bool], costs: &mut [f64]) {
        let mut ends = std::mem::take(&mut self.scratch.ends);
        ends.clear();
        ends.resize(self.graph.nodes().len(), f64::NAN);
        self.costs_with(inverse, skip, &mut ends, costs);
        self.scratch.ends = ends;
    }

    /// As [`Branches::costs`], where `ends` has the ends by node that are known at this bandwidth, and not a number for
    /// the others; those that were needed are known then.
    pub fn costs_with(&mut self, inverse: &[f64], skip: &[bool], ends: &mut [f64], costs: &mut [f64]) {
        let Branches { links, bytes, graph, scratch: Scratch { secs, loads, .. }, .. } = self;
        secs.clear();
        // Chunks of 0 would panic; without links there are no bytes either.
        for bytes in bytes.chunks_exact((*links).max(1)) {
            secs.extend(bytes.iter().zip(inverse).map(|(bytes, inverse)| bytes * inverse));
        }
        let (first, others) = secs.split_at(graph.breadth() * *links);
        // Coflows beyond the breadth come behind all of these in every branch, so their cost is computed once and added to each.
        loads.clear();
        loads.resize(*links, 0.0);
        for secs in first.chunks_exact((*links).max(1)) {
            loads.iter_mut().zip(secs).for_each(|(load, secs)| *load += secs);
        }
        let behind: f64 = others.chunks_exact((*links).max(1)).map(|secs| serve(loads, secs)).sum();
        graph.costs(first, *links, skip, ends, costs);
        costs.iter_mut().zip(skip).filter(|(_, skip)| !**skip).for_each(|(cost, _)| *cost += behind);
    }
}

/// Lets links serve a coflow behind all before; when it is complete.
fn serve(loads: &mut [f64], secs: &[f64]) -> f64 {
    loads.iter_mut().zip(secs).for_each(|(load, secs)| *load += secs);
    let ends = loads.iter().zip(secs).filter(|(_, secs)| **secs > 0.0);
    ends.map(|(load, _)| *load).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The cost of one order, coflow after coflow.
    fn served(order: impl Iterator<Item = usize>, rows: &[Vec<f64>], inverse: &[f64]) -> f64 {
        let mut loads = vec![0.0; inverse.len()];
        let secs = |rank: usize| -> Vec<f64> { rows[rank].iter().zip(inverse).map(|(b, i)| b * i).collect() };
        order.map(|rank| serve(&mut loads, &secs(rank))).sum()
    }

    proptest! {
        /// What branches share leaves their costs what they are one by one.
        #[test]
        fn costs_are_those_of_every_order_by_itself(
            rows in prop::collection::vec(prop::collection::vec(0u32..5, 4), 1..14),
            inverse in prop::collection::vec(1u32..9, 4),
            depth in 1usize..5,
            breadth in 1usize..8,
        ) {
            let rows: Vec<Vec<f64>> =
                rows.iter().map(|row| row.iter().map(|&bytes| f64::from(bytes)).collect()).collect();
            let inverse: Vec<f64> = inverse.into_iter().map(|of| 1.0 / f64::from(of)).collect();
            let mut branches = Branches::default();
            branches.set(rows.len(), 4, Reach { depth, breadth }, |rank, bytes| bytes.copy_from_slice(&rows[rank]));
            let skip: Vec<bool> = (0..branches.count()).map(|branch| branch % 3 == 1).collect();
            let mut costs = vec![-1.0; branches.count()];
            branches.costs(&inverse, &skip, &mut costs);
            for branch in 0..branches.count() {
                let order: Vec<usize> = branches.order(branch).collect();
                let mut ranks = order.clone();
                ranks.sort_unstable();
                prop_assert_eq!(ranks, (0..rows.len()).collect::<Vec<_>>());
                let expected = if skip[branch] { -1.0 } else { served(order.into_iter(), &rows, &inverse) };
                prop_assert!((costs[branch] - expected).abs() <= 1e-9 * expected.abs().max(1.0));
            }
        }
    }

    #[test]
    fn the_first_branch_is_the_order_of_ranks() {
        let mut branches = Branches::default();
        branches.set(5, 1, Reach { depth: 2, breadth: 3 }, |rank, bytes| bytes[0] = rank as f64);
        assert_eq!(branches.count(), 6);
        assert!(branches.order(0).eq(0..5));
        assert!(branches.order(5).eq([2, 1, 0, 3, 4]));
    }

    #[test]
    fn without_coflows_or_links_there_is_nothing_to_choose() {
        let mut branches = Branches::default();
        branches.set(0, 3, Reach { depth: 3, breadth: 10 }, |_, _| ());
        assert_eq!(branches.count(), 0);
        branches.set(2, 0, Reach { depth: 3, breadth: 10 }, |_, _| ());
        let mut costs = vec![-1.0; branches.count()];
        branches.costs(&[], &[false; 2], &mut costs);
        assert_eq!(costs, [0.0, 0.0]);
    }
}

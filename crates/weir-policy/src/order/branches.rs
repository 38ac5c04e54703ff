//! Orders of the next few coflows, and what each would cost: what lookahead and Monte Carlo simulation choose from
//! (Siphon, USENIX ATC 2018, section 3.1).
//!
//! # Problem
//! Who goes next decides for all that wait. There are n! orders of n coflows.
//!
//! # Approach
//! Only who goes next counts: when something arrives or ends, the question is asked anew. So orders differ in their
//! first few coflows, and the rest follows by minimum remaining time.
//!
//! # Terminology
//! * rank: place by minimum remaining time (at the median of what links were seen to have).
//! * branch: an order of `depth` coflows out of the first `breadth` by rank; all others follow by rank.
//! * cost: sum of completion times from now, if links serve coflows one after the other and each link always has
//!   the same bandwidth. A coflow is complete when its slowest link is done with it and all before it.
//!
//! # Properties
//! * Branches are in lexicographic order of ranks, so that the first is minimum remaining time itself.
//! * What follows a branch costs the same for all branches of the same coflows: it is computed once for each set.
//! * Cost per bandwidth drawn: branches * depth * links + sets * coflows * links.

use crate::{CoflowTable, Slot};
use weir_model::LinkId;

/// Coflows in one branch, at most.
const MOST_DEPTH: usize = 5;
/// Coflows that branches are made of, at most.
const MOST_BREADTH: usize = 16;

/// How far branches go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Coflows in a branch; at most 5 count.
    pub depth: usize,
    /// Coflows that they are made of, first by rank; at most 16 count.
    pub breadth: usize,
}

/// All branches of the coflows that are live.
#[derive(Debug, Default)]
pub struct Branches {
    /// By rank.
    coflows: Vec<Slot>,
    links: usize,
    /// Per coflow and link, the bytes left.
    bytes: Vec<f64>,
    /// Ranks of the coflows of each branch, branch after branch.
    ranks: Vec<u8>,
    depth: usize,
    scratch: Scratch,
}

/// Memory of one evaluation.
#[derive(Debug, Default)]
struct Scratch {
    /// Per coflow and link, seconds at the bandwidth in question.
    secs: Vec<f64>,
    /// Per link, seconds until it is free.
    loads: Vec<f64>,
    /// By set of ranks, what all others cost; not a number where that is not known yet.
    rest: Vec<f64>,
}

impl Branches {
    /// Takes over what is left of coflows, which come by rank.
    pub fn set(&mut self, view: &CoflowTable, by_rank: &[Slot], links: usize, reach: Reach) {
        self.coflows.clear();
        self.coflows.extend(by_rank);
        self.links = links;
        self.bytes.clear();
        self.bytes.resize(by_rank.len() * links, 0.0);
        for (&slot, bytes) in by_rank.iter().zip(self.bytes.chunks_exact_mut(links)) {
            for &link in view.coflow(slot).links() {
                bytes[link.index()] = view.demand(slot, link);
            }
        }
        let breadth = reach.breadth.clamp(1, MOST_BREADTH).min(by_rank.len());
        self.depth = reach.depth.clamp(1, MOST_DEPTH).min(breadth);
        self.ranks.clear();
        if self.depth > 0 {
            permute(breadth as u8, self.depth, &mut Vec::new(), &mut self.ranks);
        }
        self.scratch.rest.resize(1 << breadth, f64::NAN);
    }

    /// Number of branches; none without coflows.
    pub fn count(&self) -> usize {
        self.ranks.len().checked_div(self.depth).unwrap_or(0)
    }

    /// The order of all coflows that a branch stands for.
    pub fn order(&self, branch: usize, sorted: &mut Vec<Slot>) {
        let first = &self.ranks[branch * self.depth..][..self.depth];
        sorted.clear();
        sorted.extend(first.iter().map(|&rank| self.coflows[usize::from(rank)]));
        let others = (0..self.coflows.len()).filter(|&rank| !first.iter().any(|&of| usize::from(of) == rank));
        sorted.extend(others.map(|rank| self.coflows[rank]));
    }

    /// The cost of every branch at a bandwidth, given per link as one over bytes per second; those that `skip`
    /// names keep what they had.
    pub fn costs(&mut self, inverse: &[f64], skip: &[bool], costs: &mut [f64]) {
        let Branches { links, bytes, ranks, depth, scratch, .. } = self;
        let Scratch { secs, loads, rest } = scratch;
        secs.clear();
        let per_coflow = bytes.chunks_exact(*links);
        secs.extend(
            per_coflow.flat_map(|bytes| bytes.iter().zip(inverse).map(|(bytes, inverse)| bytes * inverse)),
        );
        rest.fill(f64::NAN);
        let of = |rank: usize| &secs[rank * *links..][..*links];
        let branches = ranks.chunks_exact(*depth).zip(skip).zip(costs);
        for ((branch, _), cost) in branches.filter(|((_, skip), _)| !**skip) {
            loads.clear();
            loads.resize(*links, 0.0);
            *cost = branch.iter().map(|&rank| serve(loads, of(usize::from(rank)))).sum();
            let set = branch.iter().fold(0usize, |set, rank| set | 1 << rank);
            if rest[set].is_nan() {
                let others = (0..secs.len() / *links).filter(|&rank| rank >= 16 || set & (1 << rank) == 0);
                rest[set] = others.map(|rank| serve(loads, of(rank))).sum();
            }
            *cost += rest[set];
        }
    }
}

/// Lets links serve a coflow behind all before; when it is complete.
fn serve(loads: &mut [f64], secs: &[f64]) -> f64 {
    let mut last: f64 = 0.0;
    for (load, secs) in loads.iter_mut().zip(secs) {
        *load += secs;
        let end = if *secs > 0.0 { *load } else { 0.0 };
        last = if end > last { end } else { last };
    }
    last
}

/// Adds all orders of `depth` ranks below a bound that begin like this.
fn permute(bound: u8, depth: usize, begin: &mut Vec<u8>, all: &mut Vec<u8>) {
    if begin.len() == depth {
        all.extend_from_slice(begin);
        return;
    }
    for rank in 0..bound {
        if !begin.contains(&rank) {
            begin.push(rank);
            permute(bound, depth, begin, all);
            begin.pop();
        }
    }
}

/// Links of a fabric in order.
pub(super) fn links(number: usize) -> impl Iterator<Item = LinkId> {
    (0..number as u32).map(LinkId)
}

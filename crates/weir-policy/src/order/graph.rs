//! What orders of coflows have in common (the execution graph of Siphon, USENIX ATC 2018, section 3.1).
//!
//! # Problem
//! Every draw of bandwidths asks for the cost of hundreds of orders, most of which differ in little.
//!
//! # Approach
//! When a coflow ends depends on which coflows are served before it, and not on the order of these. So the graph has a
//! node for each set and each coflow that some branch serves right behind that set: branches that come together there
//! have that part of their cost in common.
//!
//! # Terminology
//! * node: a coflow (`next`) behind a set of coflows (`before`), a bit for each rank.
//! * end of a node: when that coflow is complete, from now.
//! * head of a branch: its first `depth` nodes. Tail: the nodes of those that follow by rank, out of the same `breadth`.
//!
//! # Properties
//! * The graph depends on depth and breadth alone; so it is built once for many draws and many decisions.
//! * The end of a node depends on the bytes of its coflows and on the draw, and on no other coflow. The sum of a set is
//!   taken by rank. So an end that is known stays the same, to the last bit, while these do, whichever other coflows arrive or end.
//! * With depth 3 out of breadth 10: 720 branches of 10 coflows are 789 nodes.

use std::collections::BTreeMap;

/// A coflow behind a set of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    /// The set: a bit for each rank.
    pub before: u16,
    /// Rank of the coflow.
    pub next: u8,
}

/// A set of coflows, as another one and one more.
#[derive(Clone, Copy, Debug)]
struct Set {
    /// Which set, by number, this one is without its last rank; itself, if it is empty.
    smaller: u32,
    last: u8,
}

/// All nodes of all branches of some depth and breadth.
#[derive(Debug, Default)]
pub struct Graph {
    breadth: usize,
    depth: usize,
    /// Ranks of the first coflows of each branch, branch after branch.
    ranks: Vec<u8>,
    nodes: Vec<Node>,
    numbers: BTreeMap<Node, u32>,
    /// Per node, the number of the set before it.
    befores: Vec<u32>,
    sets: Vec<Set>,
    /// Per branch, the numbers of its head's nodes, and the number of its tail.
    heads: Vec<u32>,
    tail_of: Vec<u32>,
    /// Per tail, the numbers of its nodes.
    tails: Vec<Vec<u32>>,
    scratch: Scratch,
}

/// Memory of one evaluation.
#[derive(Debug, Default)]
struct Scratch {
    /// Per set and link, seconds until it is free; by set, whether that is known.
    loads: Vec<f64>,
    known: Vec<bool>,
    /// Per tail, what it costs; not a number where that is not known yet.
    tails: Vec<f64>,
}

impl Graph {
    /// Makes this the graph of that breadth, at most 16, and depth, at most the breadth.
    pub fn set(&mut self, breadth: usize, depth: usize) {
        if (self.breadth, self.depth) == (breadth, depth) {
            return;
        }
        *self = Graph { breadth, depth, ..Graph::default() };
        if depth == 0 {
            return;
        }
        permute(breadth as u8, depth, &mut Vec::new(), &mut self.ranks);
        let mut build = Build { sets: BTreeMap::new(), tails: BTreeMap::new() };
        for branch in std::mem::take(&mut self.ranks).chunks_exact(depth) {
            let mut before = 0u16;
            for &next in branch {
                let node = build.node(self, Node { before, next });
                self.heads.push(node);
                before |= 1 << next;
            }
            let tail = build.tail(self, before);
            self.tail_of.push(tail);
            self.ranks.extend(branch);
        }
    }

    /// Number of branches; none where the depth is 0.
    pub fn branches(&self) -> usize {
        self.tail_of.len()
    }

    /// Ranks of the first coflows of a branch.
    pub fn branch(&self, branch: usize) -> &[u8] {
        &self.ranks[branch * self.depth..][..self.depth]
    }

    /// Number of coflows that branches are made of.
    pub fn breadth(&self) -> usize {
        self.breadth
    }

    /// Nodes of all branches, each once.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The place of a node among [`Graph::nodes`].
    pub fn number(&self, node: Node) -> Option<usize> {
        self.numbers.get(&node).map(|&number| number as usize)
    }

    /// What every branch costs, but for the coflows behind the breadth, at `secs` by rank and link. Branches that `skip`
    /// names keep what they had. `ends` has the ends of nodes as far as they are known; not a number where not.
    pub(super) fn costs(
        &mut self,
        secs: &[f64],
        links: usize,
        skip: &[bool],
        ends: &mut [f64],
        costs: &mut [f64],
    ) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.known.clear();
        scratch.known.resize(self.sets.len(), false);
        // Those of the evaluation before may stay: `known` says which are of this one.
        scratch.loads.resize(self.sets.len() * links, 0.0);
        scratch.tails.clear();
        scratch.tails.resize(self.tails.len(), f64::NAN);
        for branch in (0..self.branches()).filter(|&branch| !skip[branch]) {
            let mut cost = 0.0;
            for &node in &self.heads[branch * self.depth..][..self.depth] {
                cost += self.end(node, secs, links, ends, &mut scratch);
            }
            let tail = self.tail_of[branch] as usize;
            if scratch.tails[tail].is_nan() {
                let nodes = self.tails[tail].iter();
                scratch.tails[tail] =
                    nodes.map(|&node| self.end(node, secs, links, ends, &mut scratch)).sum();
            }
            costs[branch] = cost + scratch.tails[tail];
        }
        self.scratch = scratch;
    }

    /// The end of a node.
    fn end(&self, node: u32, secs: &[f64], links: usize, ends: &mut [f64], scratch: &mut Scratch) -> f64 {
        let end = &mut ends[node as usize];
        if end.is_nan() {
            let before = self.befores[node as usize] as usize;
            self.load(before, secs, links, scratch);
            let loads = &scratch.loads[before * links..][..links];
            let next = usize::from(self.nodes[node as usize].next);
            *end = last(loads, &secs[next * links..][..links]);
        }
        *end
    }

    /// Makes the loads of a set known.
    fn load(&self, set: usize, secs: &[f64], links: usize, scratch: &mut Scratch) {
        if scratch.known[set] {
            return;
        }
        scratch.known[set] = true;
        let Set { smaller, last } = self.sets[set];
        let smaller = smaller as usize;
        if smaller == set {
            scratch.loads[set * links..][..links].fill(0.0);
            return;
        }
        self.load(smaller, secs, links, scratch);
        // A set comes after the smaller one.
        let (before, loads) = scratch.loads.split_at_mut(set * links);
        let secs = &secs[usize::from(last) * links..][..links];
        for ((load, before), secs) in loads.iter_mut().zip(&before[smaller * links..]).zip(secs) {
            *load = before + secs;
        }
    }
}

/// When the slowest link is done with a coflow behind what loads it.
fn last(loads: &[f64], secs: &[f64]) -> f64 {
    let later = |end: f64, (load, secs): (&f64, &f64)| {
        // A link on which the coflow has nothing to move does not hold it up, however loaded it is.
        let of_link = if *secs > 0.0 { load + secs } else { 0.0 };
        if of_link > end { of_link } else { end }
    };
    loads.iter().zip(secs).fold(0.0, later)
}

/// What is there so far, by what it is made of.
struct Build {
    sets: BTreeMap<u16, u32>,
    tails: BTreeMap<u16, u32>,
}

impl Build {
    fn set(&mut self, graph: &mut Graph, set: u16) -> u32 {
        if let Some(&number) = self.sets.get(&set) {
            return number;
        }
        let (smaller, last) = if set == 0 {
            (0, 0)
        } else {
            let last = set.ilog2();
            // Always without the highest rank, so that the sum of a set is taken by rank and is the same to the last bit on every way to it.
            (self.set(graph, set & !(1 << last)), last as u8)
        };
        let number = graph.sets.len() as u32;
        graph.sets.push(Set { smaller, last });
        self.sets.insert(set, number);
        number
    }

    fn node(&mut self, graph: &mut Graph, node: Node) -> u32 {
        if let Some(&number) = graph.numbers.get(&node) {
            return number;
        }
        let before = self.set(graph, node.before);
        let number = graph.nodes.len() as u32;
        graph.nodes.push(node);
        graph.befores.push(before);
        graph.numbers.insert(node, number);
        number
    }

    /// The tail behind a set.
    fn tail(&mut self, graph: &mut Graph, set: u16) -> u32 {
        if let Some(&number) = self.tails.get(&set) {
            return number;
        }
        let mut before = set;
        let mut nodes = Vec::new();
        for next in (0..graph.breadth as u8).filter(|next| set & (1 << next) == 0) {
            nodes.push(self.node(graph, Node { before, next }));
            before |= 1 << next;
        }
        let number = graph.tails.len() as u32;
        graph.tails.push(nodes);
        self.tails.insert(set, number);
        number
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_share_nodes() {
        let mut graph = Graph::default();
        graph.set(3, 2);
        // Heads: each of 3 first, each of the 2 others behind it: 3 + 6 nodes, of which none is shared. Tails: what is
        // left behind each of 3 sets of two.
        assert_eq!((graph.branches(), graph.nodes().len()), (6, 12));
        assert_eq!(graph.number(Node { before: 0b110, next: 0 }).map(|at| graph.nodes()[at].next), Some(0));
        assert_eq!(graph.number(Node { before: 0b111, next: 0 }), None);
        graph.set(10, 3);
        // 10 + 90 + 45 * 8 nodes of heads, 329 of tails, none of them the same: a tail's set has three or more.
        assert_eq!((graph.branches(), graph.nodes().len()), (720, 789));
    }
}

//! Random job graphs, and what the slow simulator knows of them: a list of coflows, asked again and again.

use crate::support::workloads;
use proptest::prelude::*;
use weir_model::{CoflowId, CoflowSpec, JobId, Span};

/// The coflows of `workloads` as stages: each may start after earlier ones, or descend from earlier ones and be live
/// beside them, and its stage may compute. Coflows that are related are one job.
pub(crate) fn job_graphs() -> impl Strategy<Value = Vec<CoflowSpec>> {
    let relation = (0u8..3, any::<prop::sample::Index>());
    let stage = (prop::collection::vec(relation, 0..3), prop_oneof![Just(0u64), 1u64..3000]);
    (workloads(), prop::collection::vec(stage, 5)).prop_map(|(mut coflows, stages)| {
        for (at, (relations, compute_ms)) in stages.iter().enumerate().take(coflows.len()).skip(1) {
            coflows[at].dependencies.compute = Span::from_millis(*compute_ms);
            for (kind, other) in relations.iter().filter(|(kind, _)| *kind > 0) {
                relate(&mut coflows, at, other.index(at), *kind == 1);
            }
        }
        coflows
    })
}

/// Lets a coflow start after an earlier one, or descend from it; both jobs become one.
fn relate(coflows: &mut [CoflowSpec], at: usize, other: usize, starts_after: bool) {
    let (parent, ancestors) = (coflows[other].id, coflows[other].dependencies.ancestors.clone());
    let own = &mut coflows[at].dependencies;
    if starts_after {
        own.after.push(parent);
    } else {
        own.ancestors.extend(ancestors.into_iter().chain([parent]));
    }
    let (from, to) = (coflows[at].job(), coflows[other].job());
    for coflow in coflows.iter_mut().filter(|coflow| [from, to].contains(&coflow.job())) {
        coflow.dependencies.job = Some(to);
    }
}

pub(crate) struct Graph {
    coflows: Vec<CoflowSpec>,
    /// Per coflow, the seconds of the longest path behind it: with compute times, and of transfers alone.
    tails: Vec<[f64; 2]>,
}

impl Graph {
    /// `alone` gives the seconds that a coflow needs on an empty fabric. Every coflow stands after those it names.
    pub(crate) fn new(coflows: &[CoflowSpec], alone: impl Fn(usize) -> f64) -> Graph {
        let mut tails = vec![[0.0f64; 2]; coflows.len()];
        for child in (0..coflows.len()).rev() {
            let compute = coflows[child].dependencies.compute.as_secs();
            let path = [compute + alone(child) + tails[child][0], alone(child) + tails[child][1]];
            for parent in 0..child {
                if coflows[child].dependencies.after.contains(&coflows[parent].id) {
                    tails[parent] = [tails[parent][0].max(path[0]), tails[parent][1].max(path[1])];
                }
            }
        }
        Graph { coflows: coflows.to_vec(), tails }
    }

    fn find(&self, id: CoflowId) -> usize {
        self.coflows.iter().position(|coflow| coflow.id == id).expect("a coflow of the run")
    }

    /// When a coflow arrives, as far as ends are known; none while it waits.
    pub(crate) fn arrival(&self, at: usize, ends: &[Option<f64>]) -> Option<f64> {
        let CoflowSpec { arrival, dependencies, .. } = &self.coflows[at];
        let after = dependencies.after.iter().map(|&id| ends[self.find(id)]);
        let begin = after.collect::<Option<Vec<f64>>>()?.into_iter().fold(arrival.as_secs(), f64::max);
        Some(begin + dependencies.compute.as_secs())
    }

    /// The latest arrival among the first coflows that a live one descends from, of those that came before it.
    fn place(&self, at: usize, arrivals: &[Option<f64>]) -> f64 {
        let named = &self.coflows[at].dependencies;
        let parents = named.after.iter().chain(&named.ancestors).map(|&id| self.find(id));
        let before =
            parents.filter(|&parent| arrivals[parent].is_some_and(|secs| Some(secs) <= arrivals[at]));
        let places = before.map(|parent| self.place(parent, arrivals));
        places.max_by(f64::total_cmp).or(arrivals[at]).expect("it has arrived")
    }

    /// Live coflows by place and id.
    pub(crate) fn by_place(&self, live: &[usize], arrivals: &[Option<f64>]) -> Vec<usize> {
        let mut sorted = live.to_vec();
        let place = |at: usize| self.place(at, arrivals);
        sorted.sort_by(|&a, &b| {
            place(a).total_cmp(&place(b)).then(self.coflows[a].id.cmp(&self.coflows[b].id))
        });
        sorted
    }

    fn job(&self, at: usize) -> JobId {
        self.coflows[at].job()
    }

    /// Live coflows: jobs by their longest path of transfers, their coflows by their longest path.
    pub(crate) fn by_path(&self, live: &[usize], gamma: impl Fn(usize) -> f64) -> Vec<usize> {
        let of_job = |at: usize| {
            let same = live.iter().filter(|&&other| self.job(other) == self.job(at));
            let left = same.clone().map(|&other| gamma(other) + self.tails[other][1]).fold(0.0, f64::max);
            (left, live.iter().position(|&other| self.job(other) == self.job(at)))
        };
        let mut sorted = live.to_vec();
        sorted.sort_by(|&a, &b| {
            let path = |at: usize| gamma(at) + self.tails[at][0];
            let by_job = of_job(a).partial_cmp(&of_job(b)).expect("numbers");
            by_job.then(path(b).total_cmp(&path(a)))
        });
        sorted
    }

    /// Takes again and again the first coflow that descends from none of those left.
    pub(crate) fn ancestors_first(&self, mut order: Vec<usize>) -> Vec<usize> {
        let mut sorted = Vec::new();
        while !order.is_empty() {
            let free = |&at: &usize| {
                let ancestors = &self.coflows[at].dependencies.ancestors;
                !order.iter().any(|&other| ancestors.contains(&self.coflows[other].id))
            };
            let first = order.iter().position(free).expect("no coflow descends from itself");
            sorted.push(order.remove(first));
        }
        sorted
    }
}

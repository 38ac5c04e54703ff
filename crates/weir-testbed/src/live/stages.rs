//! Which coflows of a run may start now, and which no other coflow needs any more.

use std::collections::BTreeMap;
use weir_model::{Arrivals, CoflowId, CoflowSpec, Span, Time};

/// The coflows of a run, by their index among them. Times count from the run's start, which is the first arrival.
pub(super) struct Stages {
    arrivals: Arrivals,
    index: BTreeMap<CoflowId, usize>,
    /// Coflows that each one names.
    parents: Vec<Vec<usize>>,
    /// How many coflows that name each one have not started, and itself until it ends.
    needed: Vec<usize>,
    /// Those that no other coflow needs any more and that were not taken yet.
    unneeded: Vec<usize>,
}

impl Stages {
    pub(super) fn new(coflows: &[CoflowSpec]) -> Stages {
        let parents = parents(coflows);
        let mut needed = vec![1; coflows.len()];
        parents.iter().flatten().for_each(|&parent| needed[parent] += 1);
        Stages {
            arrivals: Arrivals::new(from_start(coflows)),
            index: coflows.iter().enumerate().map(|(at, coflow)| (coflow.id, at)).collect(),
            parents,
            needed,
            unneeded: Vec::new(),
        }
    }

    /// The next coflow that may start, `since` the run's start.
    pub(super) fn start(&mut self, since: Span) -> Option<usize> {
        let id = self.arrivals.pop(Time::ZERO + since)?.id;
        let started = self.index.get(&id).copied()?;
        self.forget_parents(started);
        Some(started)
    }

    /// How long it is until the next coflow may start, if that does not hang on others.
    pub(super) fn wait(&mut self, since: Span) -> Option<Span> {
        let next = self.arrivals.next_arrival();
        (next < Time::MAX).then(|| next.since(Time::ZERO + since))
    }

    /// A coflow is complete, `since` the run's start.
    pub(super) fn complete(&mut self, id: CoflowId, since: Span) {
        self.arrivals.complete(id, Time::ZERO + since);
        self.end(id);
    }

    /// A coflow was refused. Gives those whose stages will therefore never begin.
    pub(super) fn refuse(&mut self, id: CoflowId) -> Vec<usize> {
        let stopped = self.arrivals.refuse(id);
        let stopped: Vec<usize> =
            stopped.iter().filter_map(|coflow| self.index.get(&coflow.id).copied()).collect();
        for &at in &stopped {
            self.forget_parents(at);
            self.need_less(at);
        }
        stopped
    }

    /// All flows of a coflow have ended, though it may not be complete.
    pub(super) fn end(&mut self, id: CoflowId) {
        if let Some(&at) = self.index.get(&id) {
            self.need_less(at);
        }
    }

    /// A coflow that has ended, and that none still to start descends from: each once.
    pub(super) fn take_unneeded(&mut self) -> Option<usize> {
        self.unneeded.pop()
    }

    fn forget_parents(&mut self, at: usize) {
        for parent in std::mem::take(&mut self.parents[at]) {
            self.need_less(parent);
        }
    }

    fn need_less(&mut self, at: usize) {
        self.needed[at] -= 1;
        if self.needed[at] == 0 {
            self.unneeded.push(at);
        }
    }
}

/// The coflows with arrivals from the run's start, which is the first of them.
pub fn from_start(coflows: &[CoflowSpec]) -> Vec<CoflowSpec> {
    let first = coflows.iter().map(|coflow| coflow.arrival).min().unwrap_or(Time::ZERO);
    let moved = |coflow: &CoflowSpec| CoflowSpec {
        arrival: Time::ZERO + coflow.arrival.since(first),
        ..coflow.clone()
    };
    coflows.iter().map(moved).collect()
}

/// Per coflow, those of the run that it follows on.
pub(super) fn parents(coflows: &[CoflowSpec]) -> Vec<Vec<usize>> {
    let index: BTreeMap<CoflowId, usize> =
        coflows.iter().enumerate().map(|(at, coflow)| (coflow.id, at)).collect();
    let of = |coflow: &CoflowSpec| {
        let named = coflow.dependencies.after.iter().chain(&coflow.dependencies.ancestors);
        let mut parents: Vec<usize> = named.filter_map(|id| index.get(id).copied()).collect();
        parents.sort_unstable();
        parents.dedup();
        parents
    };
    coflows.iter().map(of).collect()
}

/// An order in which every coflow comes behind its parents; coflows in a circle come last.
pub(super) fn parents_first(coflows: &[CoflowSpec]) -> Vec<usize> {
    let parents = parents(coflows);
    let (mut order, mut known) = (Vec::new(), vec![false; coflows.len()]);
    let mut open: Vec<usize> = (0..coflows.len()).collect();
    loop {
        let before = order.len();
        open.retain(|&at| {
            let ready = parents[at].iter().all(|&parent| known[parent]);
            if ready {
                known[at] = true;
                order.push(at);
            }
            !ready
        });
        if order.len() == before {
            order.extend(open);
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::Dependencies;

    fn coflow(id: u64, arrival_ms: u64, after: &[u64], ancestors: &[u64]) -> CoflowSpec {
        let ids = |ids: &[u64]| ids.iter().map(|&id| CoflowId(id)).collect();
        let dependencies =
            Dependencies { after: ids(after), ancestors: ids(ancestors), ..Dependencies::default() };
        let base = CoflowSpec::new(CoflowId(id), Time::from_millis(arrival_ms), Vec::new());
        CoflowSpec { dependencies, ..base }
    }

    #[test]
    fn a_coflow_is_needed_until_it_has_ended_and_all_that_follow_on_it_have_started() {
        // 30 and 40 follow on 20, which comes behind them in the list; 40 arrives by itself, 10 ms after the first.
        let coflows = [coflow(30, 100, &[20], &[]), coflow(20, 100, &[], &[]), coflow(40, 110, &[], &[20])];
        assert_eq!(parents_first(&coflows), [1, 2, 0]);
        let mut stages = Stages::new(&coflows);
        let ms = Span::from_millis;
        assert_eq!(
            (stages.start(ms(0)), stages.start(ms(0)), stages.wait(ms(4))),
            (Some(1), None, Some(ms(6)))
        );
        stages.complete(CoflowId(20), ms(50));
        assert_eq!(
            (stages.take_unneeded(), stages.start(ms(50)), stages.start(ms(50))),
            (None, Some(2), Some(0))
        );
        assert_eq!(
            (stages.take_unneeded(), stages.take_unneeded(), stages.wait(ms(50))),
            (Some(1), None, None)
        );
    }

    #[test]
    fn stages_that_follow_on_a_refused_coflow_are_needed_no_longer_and_end_with_it() {
        let coflows = [coflow(1, 0, &[], &[]), coflow(2, 0, &[1], &[]), coflow(3, 0, &[2], &[])];
        let mut stages = Stages::new(&coflows);
        assert_eq!(stages.start(Span::ZERO), Some(0));
        assert_eq!(stages.refuse(CoflowId(1)), [1, 2]);
        stages.end(CoflowId(1));
        let mut unneeded: Vec<usize> = std::iter::from_fn(|| stages.take_unneeded()).collect();
        unneeded.sort_unstable();
        assert_eq!(unneeded, [0, 1, 2]);
    }
}

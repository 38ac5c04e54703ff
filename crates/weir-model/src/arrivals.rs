//! Which coflow arrives when: at its own time, or once what it waits for is complete and its stage has computed.
//!
//! One copy of this serves simulated and live runs, so that a job graph means the same in both.

use crate::{CoflowId, CoflowSpec, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::vec::IntoIter;

/// Coflows of a run that have not arrived. Call order: [`Arrivals::pop`] until it gives none, then, when one of those
/// that arrived has ended, [`Arrivals::complete`] or [`Arrivals::refuse`], and again.
#[derive(Debug)]
pub struct Arrivals {
    /// Coflows that wait for no other, by (arrival, id); their compute time is part of their arrival.
    fixed: Peekable<IntoIter<CoflowSpec>>,
    /// Coflows that waited for others and wait no more.
    released: BTreeMap<(Time, CoflowId), CoflowSpec>,
    stages: Stages,
}

impl Arrivals {
    /// Of these coflows, in any order; each id once.
    pub fn new(coflows: Vec<CoflowSpec>) -> Arrivals {
        let (stages, mut fixed) = Stages::new(coflows);
        fixed.iter_mut().for_each(|coflow| coflow.arrival = coflow.arrival + coflow.dependencies.compute);
        fixed.sort_by_key(|coflow| (coflow.arrival, coflow.id));
        Arrivals { fixed: fixed.into_iter().peekable(), released: BTreeMap::new(), stages }
    }

    /// When the next coflow arrives, [`Time::MAX`] if none will unless something completes.
    pub fn next_arrival(&mut self) -> Time {
        let fixed = self.fixed.peek().map_or(Time::MAX, |coflow| coflow.arrival);
        self.released.first_key_value().map_or(fixed, |(&(at, _), _)| at.min(fixed))
    }

    /// The next coflow that has arrived by `now`, by (arrival, id), with the time of its arrival and its job's place.
    pub fn pop(&mut self, now: Time) -> Option<CoflowSpec> {
        let fixed = self.fixed.peek().map(|coflow| (coflow.arrival, coflow.id));
        let released = self.released.first_key_value().map(|(&key, _)| key);
        // Both are in the order of (arrival, id), so that the lesser of their first ones is the
        // next of all.
        let coflow = match (fixed, released) {
            (Some(fixed), Some(released)) if released < fixed => self.pop_released(now),
            (None, Some(_)) => self.pop_released(now),
            _ => self.fixed.next_if(|coflow| coflow.arrival <= now),
        }?;
        Some(self.stages.place(coflow))
    }

    fn pop_released(&mut self, now: Time) -> Option<CoflowSpec> {
        let first = self.released.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }

    /// A coflow is complete: stages that waited for it alone begin to compute.
    pub fn complete(&mut self, id: CoflowId, now: Time) {
        for coflow in self.stages.complete(id, now) {
            self.released.insert((coflow.arrival, coflow.id), coflow);
        }
    }

    /// A coflow was refused and will never be complete. Takes out those that wait for it, or for one of these.
    pub fn refuse(&mut self, id: CoflowId) -> Vec<CoflowSpec> {
        let (mut refused, mut open) = (Vec::new(), vec![id]);
        while let Some(id) = open.pop() {
            for waiter in self.stages.waiters.remove(&id).unwrap_or_default() {
                if let Some(waiting) = self.stages.waiting.remove(&waiter) {
                    open.push(waiter);
                    refused.push(waiting.coflow);
                }
            }
        }
        refused
    }

    /// A coflow that waits for others, if any does.
    pub fn any_waiting(&self) -> Option<CoflowId> {
        self.stages.waiting.keys().next().copied()
    }
}

/// Coflows that wait for others, and who waits for whom. Empty where coflows have no dependencies.
#[derive(Debug, Default)]
struct Stages {
    waiting: BTreeMap<CoflowId, Waiting>,
    waiters: BTreeMap<CoflowId, Vec<CoflowId>>,
    /// Places of jobs, as they stand for coflows that arrived and that others descend from.
    places: BTreeMap<CoflowId, Option<Time>>,
}

#[derive(Debug)]
struct Waiting {
    coflow: CoflowSpec,
    /// Coflows it still waits for.
    left: usize,
}

impl Stages {
    /// Takes out what waits for others of these coflows, and gives the rest back.
    fn new(coflows: Vec<CoflowSpec>) -> (Stages, Vec<CoflowSpec>) {
        let mut stages = Stages::default();
        let related = |coflow: &CoflowSpec| {
            !(coflow.dependencies.after.is_empty() && coflow.dependencies.ancestors.is_empty())
        };
        if !coflows.iter().any(related) {
            return (stages, coflows);
        }
        let known: BTreeSet<CoflowId> = coflows.iter().map(|coflow| coflow.id).collect();
        let mut fixed = Vec::new();
        for coflow in coflows {
            let named = &coflow.dependencies;
            let parents = named.after.iter().chain(&named.ancestors).filter(|id| known.contains(id));
            stages.places.extend(parents.map(|&id| (id, None)));
            // A coflow that is not of this run never completes here: no other can wait for it.
            let after: BTreeSet<CoflowId> =
                named.after.iter().filter(|id| known.contains(id)).copied().collect();
            if after.is_empty() {
                fixed.push(coflow);
                continue;
            }
            after.iter().for_each(|&id| stages.waiters.entry(id).or_default().push(coflow.id));
            stages.waiting.insert(coflow.id, Waiting { left: after.len(), coflow });
        }
        (stages, fixed)
    }

    /// What waited for this coflow alone, arriving when its stage has computed.
    fn complete(&mut self, id: CoflowId, now: Time) -> Vec<CoflowSpec> {
        let mut released = Vec::new();
        for waiter in self.waiters.remove(&id).unwrap_or_default() {
            // Taken out before, where another coflow that it waited for was refused.
            let Some(waiting) = self.waiting.get_mut(&waiter) else { continue };
            waiting.left -= 1;
            if waiting.left == 0
                && let Some(Waiting { mut coflow, .. }) = self.waiting.remove(&waiter)
            {
                // However early its parents are complete, a stage begins no sooner than it says.
                coflow.arrival = coflow.arrival.max(now) + coflow.dependencies.compute;
                released.push(coflow);
            }
        }
        released
    }

    /// Gives a coflow that arrives its job's place: the latest of those it descends from.
    fn place(&mut self, mut coflow: CoflowSpec) -> CoflowSpec {
        if self.places.is_empty() {
            return coflow;
        }
        let named = &coflow.dependencies;
        let of = |id: &CoflowId| self.places.get(id).copied().flatten();
        let inherited = named.after.iter().chain(&named.ancestors).filter_map(of).max();
        coflow.dependencies.place = coflow.dependencies.place.or(inherited);
        let place = coflow.dependencies.place.unwrap_or(coflow.arrival);
        if let Some(own) = self.places.get_mut(&coflow.id) {
            *own = Some(place);
        }
        coflow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dependencies, Span};

    fn coflow(id: u64, arrival_ms: u64, after: &[u64], compute_ms: u64) -> CoflowSpec {
        let after = after.iter().map(|&id| CoflowId(id)).collect();
        let dependencies =
            Dependencies { after, compute: Span::from_millis(compute_ms), ..Dependencies::default() };
        let base = CoflowSpec::new(CoflowId(id), Time::from_millis(arrival_ms), Vec::new());
        CoflowSpec { dependencies, ..base }
    }

    fn pop(arrivals: &mut Arrivals) -> Option<(u64, u64)> {
        let next = arrivals.next_arrival();
        arrivals.pop(next).map(|coflow| (coflow.id.0, coflow.arrival.nanos() / 1_000_000))
    }

    #[test]
    fn a_stage_arrives_when_the_last_of_those_it_waits_for_is_complete_and_it_has_computed() {
        // 3 waits for 1 and 2, complete at 40 and 70, and computes for 5; 4 waits for 2 and may not begin before 100.
        let coflows = vec![
            coflow(4, 100, &[2], 1),
            coflow(3, 0, &[1, 2], 5),
            coflow(1, 0, &[], 20),
            coflow(2, 30, &[9], 0),
        ];
        let mut arrivals = Arrivals::new(coflows);
        assert_eq!((pop(&mut arrivals), pop(&mut arrivals)), (Some((1, 20)), Some((2, 30))));
        arrivals.complete(CoflowId(1), Time::from_millis(40));
        assert_eq!((arrivals.next_arrival(), arrivals.any_waiting()), (Time::MAX, Some(CoflowId(3))));
        arrivals.complete(CoflowId(2), Time::from_millis(70));
        assert_eq!((pop(&mut arrivals), pop(&mut arrivals)), (Some((3, 75)), Some((4, 101))));
        assert_eq!((arrivals.next_arrival(), arrivals.any_waiting()), (Time::MAX, None));
    }

    #[test]
    fn a_stage_has_the_place_of_the_latest_it_descends_from() {
        let coflows = vec![coflow(1, 10, &[], 0), coflow(2, 20, &[], 0), coflow(3, 0, &[1, 2], 0)];
        let mut arrivals = Arrivals::new(coflows);
        let early = [arrivals.pop(Time::MAX), arrivals.pop(Time::MAX)];
        assert!(early.iter().flatten().all(|coflow| coflow.dependencies.place.is_none()));
        (1..=2).for_each(|id| arrivals.complete(CoflowId(id), Time::from_millis(50)));
        let stage = arrivals.pop(Time::MAX).unwrap();
        assert_eq!(
            (stage.arrival, stage.dependencies.place),
            (Time::from_millis(50), Some(Time::from_millis(20)))
        );
    }

    #[test]
    fn what_waits_for_a_refused_coflow_goes_with_it() {
        let coflows =
            vec![coflow(1, 0, &[], 0), coflow(2, 0, &[1], 0), coflow(3, 0, &[2], 0), coflow(4, 0, &[], 0)];
        let mut arrivals = Arrivals::new(coflows);
        let refused: Vec<u64> = arrivals.refuse(CoflowId(1)).iter().map(|coflow| coflow.id.0).collect();
        assert_eq!((refused, arrivals.any_waiting()), (vec![2, 3], None));
    }
}

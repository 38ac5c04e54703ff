//! What the policy is told of jobs: who descends from whom, what follows, and, where senders decide, whose turn it is.
//!
//! # Problem
//! A stage of a job waits for the one before it. Where the later stage's coflow is served first, both wait.
//!
//! # Approach
//! Plans by the coordinator: the policy hears of every coflow's ancestors that are known here, of its job, and of what
//! the driver said will follow, and orders by that (`order/ancestry.rs` and `order/critical_path.rs` of the policies).
//!
//! Where senders decide: Aalo orders a queue by coflow id, which is the job's id and the generation within it. Here
//! ids count up, so a parent's is below those of its children; what is left is to give a whole job one place in time.
//!
//! # Terminology
//! The place of a coflow is a time. A queue is served by (place, id). The root of a coflow stands for its job: the
//! first that it descends from, unless its driver named another.
//!
//! # Pseudo-code
//! ```text
//! when the first flow of coflow c is opened:
//!     place = latest place of its ancestors, of those that have one; or now, if none has
//!     place = the earliest of this and of the places that descendants have already
//! ```
//!
//! # Properties
//! * (place, id) of a coflow is above that of each of its ancestors, whichever arrived first.
//! * A coflow without parents has its arrival for its place: first come, first served.
//! * A child whose parents were unregistered after its own registration keeps the place and the root that they had
//!   then. A coordinator that restarted in between does not know them any more.
//!
//! # Departures
//! Aalo, section 5: ids there are of trees with one root. A coflow with parents of several jobs takes the place
//! of the latest of them, and the first root.

use super::state::Coordinator;
use std::collections::BTreeSet;
use std::ops::Bound;
use weir_model::{CoflowId, Dependencies, JobId, Span, Tail, Time};

impl Coordinator {
    /// Remembers, while parents are known, what place and root they give a coflow that was just registered.
    pub(super) fn inherit(&mut self, id: CoflowId) {
        let (inherited, root) = (self.place_of_ancestors(id), self.root(id));
        if let Some(coflow) = self.coflows.get_mut(&id) {
            coflow.inherited_place = inherited;
            coflow.root = Some(root);
        }
    }

    /// The coflow that its driver said stands for its job; else the first that it descends from, or itself.
    fn root(&self, id: CoflowId) -> JobId {
        let stated = |id: CoflowId| {
            let coflow = self.coflows.get(&id)?;
            if coflow.options.job > 0 { Some(JobId(coflow.options.job)) } else { coflow.root }
        };
        let of_ancestors =
            || self.ancestors(id).into_iter().map(|other| stated(other).unwrap_or(JobId(other.0))).min();
        stated(id).or_else(of_ancestors).unwrap_or(JobId(id.0))
    }

    /// What the policy is told of a coflow's job.
    pub(super) fn dependencies(&self, id: CoflowId) -> Dependencies {
        let Some(coflow) = self.coflows.get(&id) else { return Dependencies::default() };
        let known = self.ancestors(id).into_iter().filter(|ancestor| self.coflows.contains_key(ancestor));
        let micros = |micros: u64| Span::from_nanos(micros.saturating_mul(1000));
        Dependencies {
            job: Some(self.root(id)),
            ancestors: known.collect(),
            tail: Tail {
                time: micros(coflow.options.tail_us),
                transfer: micros(coflow.options.tail_transfer_us),
            },
            place: coflow.place,
            ..Dependencies::default()
        }
    }

    /// Gives a coflow that has arrived its place among others, once.
    pub(super) fn take_place(&mut self, id: CoflowId) {
        let Some(coflow) = self.coflows.get(&id) else { return };
        let (Some(arrived), None) = (coflow.arrived, coflow.place) else { return };
        let of_ancestors = self.place_of_ancestors(id).max(coflow.inherited_place);
        let later = self
            .coflows
            .range((Bound::Excluded(id), Bound::Unbounded))
            .filter(|(_, other)| !other.options.parents.is_empty());
        let descends = |(other, _): &(&CoflowId, _)| self.ancestors(**other).contains(&id);
        // A child may have arrived first; its place cannot be moved any more, so its ancestor takes the same.
        let of_descendants = later.filter(descends).filter_map(|(_, other)| other.place).min();
        let place = of_ancestors.unwrap_or(arrived);
        let place = of_descendants.map_or(place, |first| place.min(first));
        if let Some(coflow) = self.coflows.get_mut(&id) {
            coflow.place = Some(place);
        }
    }

    fn place_of_ancestors(&self, id: CoflowId) -> Option<Time> {
        let ancestors = self.ancestors(id);
        let known = ancestors.iter().filter_map(|ancestor| self.coflows.get(ancestor));
        known.filter_map(|ancestor| ancestor.place.max(ancestor.inherited_place)).max()
    }

    /// All coflows that this one descends from. A parent that is later than its child does not count: ids grow from
    /// parents to children, so no coflow descends from itself.
    fn ancestors(&self, id: CoflowId) -> BTreeSet<CoflowId> {
        let (mut found, mut open) = (BTreeSet::new(), vec![id]);
        while let Some(child) = open.pop() {
            let parents = self.coflows.get(&child).map_or(&[][..], |coflow| &coflow.options.parents);
            let parents = parents.iter().copied().map(CoflowId);
            open.extend(parents.filter(|&parent| parent < child && found.insert(parent)));
        }
        found
    }
}

//! One flow after the other, whatever coflow it belongs to: the per-flow prioritization that Varys (SIGCOMM
//! 2014, section 7) compares with, as an ideal pFabric (SIGCOMM 2013) or PDQ (SIGCOMM 2012) would do.
//!
//! # Problem
//! The network serves the most urgent flow first: the smallest, the one whose deadline is next, or one of the
//! coflow of which its sender has least. A trace has hundreds of thousands of flows, and something ends at every
//! moment.
//!
//! # Approach
//! Go through the flows by urgency, each takes the least residual of its links. Since that fills a link of its
//! path, only the first flow of every path class can get anything. Flows that wait do not move, so their
//! urgency stays what it is (a part counts with the size it had): a queue per path class keeps them sorted.
//!
//! On a switch of equal ports a flow gets a whole port or nothing, so the plan is a matching of senders and
//! receivers, and the one that this rule makes is the only stable one: no waiting flow is more urgent than what
//! both its ports do. It is mended where it changes: see [`matching`].
//!
//! # Terminology
//! * key: what flows are sorted by, smaller first; see [`FlowKey`].
//! * head: the first waiting flow of a path class.
//!
//! # Pseudo-code
//! ```text
//! for flow by key:
//!     rate = least residual over the links of its path; take it from them
//! ```
//!
//! # Properties
//! * Every live flow crosses a link with nothing left (work conservation).
//! * At most one flow of a path class moves.
//! * Ties break by (arrival, coflow id, index of the flow).
//! * On a switch of equal ports a flow that ends costs a few visits to the classes of a port, elsewhere one
//!   visit to every class.
//!
//! # Departures
//! pFabric and PDQ approximate this order hop by hop; here it is exact and at once. PDQ ends a flow early that
//! cannot meet its deadline any more; here it goes on, first of all.

mod matching;
mod queues;

use super::Residual;
use crate::{CoflowTable, Grant, Plan};
use matching::Matching;
use queues::{FlowKey, Queues};
use weir_model::Fabric;

/// Which flow goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowOrder {
    /// The one with the fewest bytes left.
    SmallestFirst,
    /// The one whose coflow is due next, those without a deadline last; among equals the smallest.
    EarliestDeadlineFirst,
    /// The one of the coflow that has the fewest bytes where the flow's path begins, ended flows counted too: what
    /// a sender knows by itself. Among equals by (arrival, coflow id, index).
    SmallestPartFirst,
}

/// Rates of single flows by urgency.
#[derive(Debug)]
pub struct FlowByFlow {
    queues: Queues,
    residual: Residual,
    matching: Option<Matching>,
    planned: bool,
    heads: Vec<(FlowKey, usize)>,
}

impl FlowByFlow {
    /// Rates by an order of flows.
    pub fn new(order: FlowOrder) -> FlowByFlow {
        FlowByFlow {
            queues: Queues::new(order),
            residual: Residual::default(),
            matching: None,
            planned: false,
            heads: Vec::new(),
        }
    }

    /// Adds the grants from now on to an empty plan.
    pub fn allocate(&mut self, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        if !self.residual.knows(fabric) {
            self.queues.clear();
            self.matching = Matching::on(fabric);
            self.planned = false;
        }
        self.residual.reset(fabric);
        let anew = !self.planned || view.changes().disturbed;
        self.planned = true;
        if anew {
            self.queues.sync(view);
        }
        let Some(matching) = &mut self.matching else {
            self.walk(view, plan);
            return;
        };
        if anew {
            matching.begin(&self.queues, view);
            matching.mend(&mut self.queues, view);
            plan.grants.extend(self.queues.served().map(|flow| matching.grant(flow)));
        } else {
            matching.free(&mut self.queues, view);
            matching.mend(&mut self.queues, view);
            plan.continues = true;
            matching.name_changes(&self.queues, view, plan);
        }
    }

    /// The rule itself, from the beginning.
    fn walk(&mut self, view: &CoflowTable, plan: &mut Plan) {
        self.queues.let_all_wait(view);
        self.heads.clear();
        self.heads.extend(self.queues.heads());
        // Heads alone: the first flow of a class fills a link of the path, so the second one of the class gets nothing.
        self.heads.sort_unstable();
        for &(_, class) in &self.heads {
            let rate = self.residual.take_all(view.classes()[class].path());
            if rate > 0.0 {
                let flow = self.queues.serve(class, view);
                plan.grants.extend(flow.map(|flow| Grant { flow, bytes_per_sec: rate }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlowRef;
    use proptest::prelude::*;
    use weir_model::{Bytes, CoflowId, CoflowSpec, FlowId, FlowSpec, HostId, Rate, Span, Time};

    const HOSTS: u32 = 6;

    /// Coflows of flows of few sizes, so that many are equal.
    fn coflows() -> impl Strategy<Value = Vec<CoflowSpec>> {
        let flow = (0..HOSTS, 0..HOSTS, 1u64..5).prop_map(|(source, destination, size)| FlowSpec {
            source: HostId(source),
            destination: HostId(destination),
            size: Bytes(size * 1000),
            group: 0,
        });
        prop::collection::vec((prop::option::of(1u64..9), prop::collection::vec(flow, 1..30)), 1..6).prop_map(
            |all| {
                let coflow = |(id, (deadline, flows)): (u64, (Option<u64>, Vec<FlowSpec>))| CoflowSpec {
                    deadline: deadline.map(Span::from_millis),
                    ..CoflowSpec::new(CoflowId(id), Time::from_millis(id), flows)
                };
                (1u64..).zip(all).map(coflow).collect()
            },
        )
    }

    /// The next end, and the flows that end then.
    fn step(table: &mut CoflowTable, plan: &Plan) -> bool {
        let Some(span) = table.next_end() else { return false };
        table.advance(plan, span);
        let (mut none, mut ended) = (Vec::new(), Vec::new());
        table.take_ends(&mut none, &mut ended);
        for at in ended {
            table.finish_flow(at);
            if table.coflow(at.coflow).live_flows() == 0 {
                table.remove(at.coflow);
            }
        }
        true
    }

    proptest! {
        #[test]
        fn a_mended_matching_is_the_walk_from_the_beginning(coflows in coflows(), pause in 1usize..9) {
            let orders =
                [FlowOrder::SmallestFirst, FlowOrder::EarliestDeadlineFirst, FlowOrder::SmallestPartFirst];
            for order in orders {
                let fabric = Fabric::big_switch(HOSTS, Rate::from_bytes_per_sec(1e6)).unwrap();
                let mut table = CoflowTable::new(&fabric);
                let mut mended = FlowByFlow::new(order);
                let mut waiting = coflows.iter();
                for event in 0.. {
                    if event % pause == 0 && let Some(spec) = waiting.next() {
                        table.insert(spec, FlowId(spec.id.0 * 100), &fabric);
                    }
                    let mut plan = Plan::default();
                    mended.allocate(&fabric, &table, &mut plan);
                    let mut walking = FlowByFlow::new(order);
                    let mut walk = Plan::default();
                    walking.residual.reset(&fabric);
                    walking.queues.sync(&table);
                    walking.walk(&table, &mut walk);
                    table.adopt(&plan);
                    let sorted = |mut flows: Vec<FlowRef>| { flows.sort(); flows };
                    let granted = sorted(table.grants().map(|(flow, _)| flow).collect());
                    let expected = sorted(walk.grants.iter().map(|grant| grant.flow).collect());
                    prop_assert_eq!(granted, expected);
                    if !step(&mut table, &plan) && waiting.len() == 0 {
                        break;
                    }
                }
            }
        }
    }
}

//! Coflow after coflow, each over all the ways its bytes may take.
//!
//! # Problem
//! Between sites a coflow's slowest pair decides when it ends, while other links stand idle; but a detour takes two
//! links from the coflows that come after. Rates on links and routes decide each other.
//!
//! # Approach
//! Give the first coflow routes, and the least rates that let it end as soon as they allow (MADD, over routes); the next
//! one takes what is left. Then no flow waits for a link that stands idle.
//!
//! # Terminology
//! * routes: how many of a coflow's bytes take which path; see [`crate::route`].
//! * way: a path of a pair of sites, named by its next hop.
//! * T: seconds until the slowest link is done with what its routes put on it.
//!
//! # Pseudo-code
//! ```text
//! for coflow in order:
//!     routes = router(bytes left by pair; capacities, or what is left of them)
//!     unless T is infinite: for pair, way: budget = bytes on it / T
//!     for flow by group, largest first: take of its pair's budgets what its path has left
//!     (flows inside a site: all that their path has left)
//! for coflow in order, flow by group: all that its direct path has left
//! where detours may fill: for coflow in order, flow by group, way by next hop: all that it has left
//! ```
//!
//! # Properties
//! * Every live flow crosses, on its direct path, a link with nothing left (work conservation); where detours may fill,
//!   on every path.
//! * A coflow that is alone ends after T, the time its routes take.
//! * On a fabric without sites this is strict priority with Largest Flow Group First.
//!
//! # Departures
//! Terra (You, Chowdhury, 2019) solves a linear program per coflow on what is left of links, shortest first, as this does
//! with a [`Router`]; it lets groups of one coflow advance in step. Here the group with most to do goes first within what its
//! pair is given, as in Siphon. Links of hosts bound single flows and enter T nowhere.

use super::{FlowGroups, GroupOrder, Residual};
use crate::route::{Pair, Router, SiteNetwork};
use crate::{CoflowTable, Detour, FlowRef, Grant, Plan, Slot};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_model::LinkId;

/// Which bytes and capacities the router is given for a coflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowing {
    /// What the coflow was when it was whole, and all that links can carry: once and for all, as long as that is the
    /// same.
    Beginning,
    /// What it has left, and all that links can carry: as if the coflow were alone.
    Capacity,
    /// What it has left, and what coflows before it leave; and what no direct path needs may be taken by detours.
    Others,
}

/// Grants and detours by order.
pub struct ByRoute {
    router: Arc<dyn Router>,
    knowing: Knowing,
    groups: FlowGroups,
    given: Vec<Given>,
    path: Vec<LinkId>,
}

/// A rate that is given to a flow, directly or by a relay.
#[derive(Clone, Copy, Debug)]
struct Given {
    flow: FlowRef,
    relay: Option<usize>,
    bytes_per_sec: f64,
}

impl ByRoute {
    /// Rates over the routes of this router.
    pub fn new(router: Arc<dyn Router>, knowing: Knowing, groups: GroupOrder) -> ByRoute {
        let groups = FlowGroups::new(groups);
        ByRoute { router, knowing, groups, given: Vec::new(), path: Vec::new() }
    }

    /// Adds the grants and detours of all coflows to a plan, in this order.
    pub fn allocate(
        &mut self,
        network: &SiteNetwork,
        view: &CoflowTable,
        order: &[Slot],
        residual: &mut Residual,
        plan: &mut Plan,
    ) {
        self.given.clear();
        for &slot in order {
            let budgets = self.budgets(network, view, slot, residual);
            self.spend(network, view, slot, budgets, residual);
        }
        for &slot in order {
            self.fill_directly(view, slot, residual);
        }
        if self.knowing == Knowing::Others {
            for &slot in order {
                self.fill_detours(network, view, slot, residual);
            }
        }
        self.write(plan);
    }

    /// The rates at which a coflow's pairs use each way; none if a pair of it has no way left.
    fn budgets(
        &self,
        network: &SiteNetwork,
        view: &CoflowTable,
        slot: Slot,
        residual: &Residual,
    ) -> BTreeMap<(Pair, usize), f64> {
        let mut budgets = BTreeMap::new();
        let routes = match self.knowing {
            Knowing::Beginning => {
                let whole =
                    |demand| Some(self.router.route(&network.whole_demand(view, slot)?).applied_to(demand));
                network.demand(view, slot).and_then(whole)
            }
            Knowing::Capacity => network.demand(view, slot).map(|demand| self.router.route(&demand)),
            Knowing::Others => {
                let demand = network.demand_on(view, slot, |link| residual.left(link));
                demand.map(|demand| self.router.route(&demand))
            }
        };
        let Some(routes) = routes else { return budgets };
        let secs = routes.makespan_s();
        // Infinite where a pair has bytes and no capacity is left for them: rates of 0 for all, so nothing is budgeted.
        if !(secs > 0.0 && secs.is_finite()) {
            return budgets;
        }
        for pair in routes.demand().pairs() {
            for hop in (0..network.sites()).filter(|&hop| hop != pair.0) {
                let bytes = routes.split_bytes(pair.0, pair.1, hop);
                if bytes > 0.0 {
                    budgets.insert((pair, hop), bytes / secs);
                }
            }
        }
        budgets
    }

    /// Hands a coflow's budgets to its flows.
    fn spend(
        &mut self,
        network: &SiteNetwork,
        view: &CoflowTable,
        slot: Slot,
        mut budgets: BTreeMap<(Pair, usize), f64>,
        residual: &mut Residual,
    ) {
        let ByRoute { groups, given, path, .. } = self;
        for (at, direct) in groups.in_turn(view, slot) {
            let Some(pair) = network.pair(view, at) else {
                take(given, at, None, direct, f64::INFINITY, residual);
                continue;
            };
            for (&(_, hop), budget) in budgets.range_mut((pair, 0)..=(pair, usize::MAX)) {
                network.path(direct, pair, hop, path);
                let relay = (hop != pair.1).then_some(hop);
                // The budget is the pair's: the first flow may use it up, as in Largest Flow Group First.
                *budget -= take(given, at, relay, path, *budget, residual);
            }
        }
    }

    fn fill_directly(&mut self, view: &CoflowTable, slot: Slot, residual: &mut Residual) {
        for (at, direct) in self.groups.in_turn(view, slot) {
            take(&mut self.given, at, None, direct, f64::INFINITY, residual);
        }
    }

    fn fill_detours(
        &mut self,
        network: &SiteNetwork,
        view: &CoflowTable,
        slot: Slot,
        residual: &mut Residual,
    ) {
        let ByRoute { groups, given, path, .. } = self;
        for (at, direct) in groups.in_turn(view, slot) {
            let Some(pair) = network.pair(view, at) else { continue };
            for relay in (0..network.sites()).filter(|&site| site != pair.0 && site != pair.1) {
                network.path(direct, pair, relay, path);
                take(given, at, Some(relay), path, f64::INFINITY, residual);
            }
        }
    }

    /// One grant for each flow, and its detours.
    fn write(&mut self, plan: &mut Plan) {
        // One flow may have been given rates in all three rounds, by the same way too; the plan has one grant and one detour per way.
        self.given.sort_by_key(|given| (given.flow, given.relay));
        for of_flow in self.given.chunk_by(|one, other| one.flow == other.flow) {
            let bytes_per_sec = of_flow.iter().map(|given| given.bytes_per_sec).sum();
            plan.grants.push(Grant { flow: of_flow[0].flow, bytes_per_sec });
            for by_way in of_flow.chunk_by(|one, other| one.relay == other.relay) {
                let Some(relay) = by_way[0].relay else { continue };
                let bytes_per_sec = by_way.iter().map(|given| given.bytes_per_sec).sum();
                plan.detours.push(Detour { flow: of_flow[0].flow, relay: relay as u32, bytes_per_sec });
            }
        }
    }
}

/// Gives a flow what a path has left, `most` at most, and says how much that was.
fn take(
    given: &mut Vec<Given>,
    flow: FlowRef,
    relay: Option<usize>,
    path: &[LinkId],
    most: f64,
    residual: &mut Residual,
) -> f64 {
    let bytes_per_sec = most.min(residual.least(path));
    if bytes_per_sec > 0.0 {
        path.iter().for_each(|&link| residual.take(link, bytes_per_sec));
        given.push(Given { flow, relay, bytes_per_sec });
    }
    bytes_per_sec
}

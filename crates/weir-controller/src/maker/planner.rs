//! Decisions of a policy that simulations run as well: its plan of the state, said as an order and splits.

use super::Links;
use crate::decision::Split;
use crate::records::State;
use std::collections::BTreeMap;
use weir_model::{Bytes, CoflowId, CoflowSpec, Fabric, FlowId, FlowSpec, HostId, SiteSpec, Time};
use weir_policy::{Chosen, CoflowTable, FlowRef, Plan};

/// A policy for links between sites, as it was chosen by name.
pub(super) struct Planner {
    chosen: Chosen,
}

/// Coflows, first to be served first, and where not all goes directly.
pub(super) type Planned = (Vec<u64>, Vec<Split>);

impl Planner {
    pub(super) fn new(chosen: Chosen) -> Planner {
        Planner { chosen }
    }

    /// What the policy makes of a state: a host stands for each site, and a flow for what is left of a coflow from one to
    /// another. A policy that says no order leaves coflows in that of their arrival; those that it has wait get their
    /// splits with a later state.
    pub(super) fn plan(&self, links: &Links, state: &State) -> Planned {
        let sites = links.sites.len();
        let spec = SiteSpec { hosts_per_site: vec![1; sites], host_rate: None, rates: links.mean() };
        // Refused where there are fewer than two sites: then nothing is to be decided.
        let Ok(fabric) = Fabric::sites(&spec) else { return Planned::default() };
        let mut table = CoflowTable::new(&fabric);
        let mut first_flow = 0;
        for coflow in coflows(links, state) {
            table.insert(&coflow, FlowId(first_flow), &fabric);
            first_flow += coflow.flows.len() as u64;
        }
        // The latest arrival stands for now: decision makers with other clocks must come to the same plan.
        let now = state.coflows.values().map(|coflow| coflow.arrival_ns).max().unwrap_or(0);
        // A fresh instance: policies remember what they made of a table, and every state is another one.
        let (mut policy, mut plan) = (self.chosen.create(), Plan::default());
        policy.plan(Time::from_nanos(now), &fabric, &table, &mut plan);
        let slots = if plan.order.is_empty() { table.slots() } else { &plan.order };
        let order = slots.iter().map(|&slot| table.coflow(slot).id().0).collect();
        (order, splits(links, &table, &plan))
    }
}

/// Where not all of a flow goes directly.
fn splits(links: &Links, table: &CoflowTable, plan: &Plan) -> Vec<Split> {
    let mut detours: BTreeMap<FlowRef, Vec<(u32, f64)>> = BTreeMap::new();
    for detour in &plan.detours {
        detours
            .entry(detour.flow)
            .or_default()
            .push((links.sites[detour.relay as usize], detour.bytes_per_sec));
    }
    let split = |(at, via): (FlowRef, Vec<(u32, f64)>)| {
        let grant = plan.grants.iter().find(|grant| grant.flow == at)?.bytes_per_sec;
        let class = &table.classes()[table.flow(at).class()?.index()];
        let site = |host: HostId| links.sites[host.index()];
        Some(Split {
            coflow: table.coflow(at.coflow).id().0,
            from: site(class.source()),
            to: site(class.destination()),
            via: via.into_iter().map(|(site, rate)| (site, rate / grant)).collect(),
        })
    };
    detours.into_iter().filter_map(split).collect()
}

/// Coflows of a state, in the order of arrival.
fn coflows(links: &Links, state: &State) -> Vec<CoflowSpec> {
    let host = |site: u32| links.sites.binary_search(&site).ok().map(|index| HostId(index as u32));
    let flow = |(&(from, to), &left): (&(u32, u32), &f64)| {
        // At least a byte: a flow of which all moved would end before the policy sees it.
        let size = Bytes((left.ceil() as u64).max(1));
        Some(FlowSpec { source: host(from)?, destination: host(to)?, size, group: 0 })
    };
    let coflow = |(&id, coflow): (&u64, &crate::records::CoflowState)| {
        let flows = coflow.left.iter().filter_map(flow).collect();
        CoflowSpec::new(CoflowId(id), Time::from_nanos(coflow.arrival_ns), flows)
    };
    let mut coflows: Vec<CoflowSpec> = state.coflows.iter().map(coflow).collect();
    coflows.sort_by_key(|coflow| (coflow.arrival, coflow.id));
    coflows
}

//! Laws that every policy obeys. Those of the registry are held to them by being registered, those of other crates by
//! [`check`].

use crate::{CoflowTable, FlowRef, Form, Plan, Policy, PolicyInfo};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use weir_model::*;

/// Tolerance of comparisons between rates, relative to a link's capacity: rounding of sums.
const ROUNDING: f64 = 1e-6;

fn fabrics() -> impl Strategy<Value = Fabric> {
    let rate = (1u32..8).prop_map(|tenth| Rate::from_bytes_per_sec(f64::from(tenth) * 1.25e7));
    let switch = prop::collection::vec(rate.clone(), 4..=6).prop_map(|rates| Fabric::big_switch_with(&rates));
    let racks = (rate.clone(), 10u32..45).prop_map(|(host_rate, tenths)| {
        let oversubscription = f64::from(tenths) / 10.0;
        Fabric::racks(&RackSpec { hosts_per_rack: 2, racks: 3, host_rate, oversubscription })
    });
    let sites =
        (prop::option::of(rate.clone()), prop::collection::vec(rate, 9)).prop_map(|(host_rate, rates)| {
            let rates = rates.chunks(3).map(<[Rate]>::to_vec).collect();
            Fabric::sites(&SiteSpec { hosts_per_site: vec![2, 1, 2], host_rate, rates })
        });
    let in_sites = (racks.clone(), rate_between()).prop_map(|(racks, between)| {
        let mut fabric = racks?;
        for (from, to) in [(0, 1), (1, 0)] {
            fabric.join_sites(from, to, between)?;
        }
        // The last rack is a site of its own.
        (0..6).for_each(|host| fabric.move_host(HostId(host), Some(host / 2), Some(host / 4)));
        Ok(fabric)
    });
    prop_oneof![switch, racks, sites, in_sites].prop_map(|fabric| fabric.expect("a fabric that can be built"))
}

fn rate_between() -> impl Strategy<Value = Rate> {
    (1u32..20).prop_map(|tenth| Rate::from_bytes_per_sec(f64::from(tenth) * 1.25e7))
}

fn workloads() -> impl Strategy<Value = Vec<CoflowSpec>> {
    let flow = (0u32..4, 0u32..4, 1_000_000u64..300_000_000).prop_map(|(source, destination, size)| {
        FlowSpec { source: HostId(source), destination: HostId(destination), size: Bytes(size), group: 0 }
    });
    let coflow = (0u64..3000, prop::collection::vec(flow, 1..10));
    prop::collection::vec(coflow, 1..8).prop_map(|coflows| {
        let with_id = (1u64..).zip(coflows);
        with_id
            .map(|(id, (millis, flows))| CoflowSpec::new(CoflowId(id), Time::from_millis(millis), flows))
            .collect()
    })
}

/// Many coflows on a switch whose flows have equal sizes, no two coflows the same ones: links fill at the
/// same flow, and flows end together.
fn busy_switch() -> impl Strategy<Value = (Fabric, Vec<CoflowSpec>)> {
    let flow = (0u32..8, 0u32..8, 1u64..4);
    let coflow = prop::collection::vec(flow, 1..40);
    let coflows = prop::collection::vec(coflow, 1..10).prop_map(|coflows| {
        let with_id = (1u64..).zip(coflows);
        let spec = |(id, flows): (u64, Vec<(u32, u32, u64)>)| {
            let flow = |(source, destination, units)| FlowSpec {
                source: HostId(source),
                destination: HostId(destination),
                size: Bytes(units * (10_000_000 + 1_379_113 * id)),
                group: 0,
            };
            CoflowSpec::new(CoflowId(id), Time::from_millis(id), flows.into_iter().map(flow).collect())
        };
        with_id.map(spec).collect()
    });
    let rates = prop_oneof![Just(vec![1.25e8; 8]), prop::collection::vec(5e7..2e8f64, 8)];
    let fabric = |rates: Vec<f64>| {
        let rates: Vec<Rate> = rates.into_iter().map(Rate::from_bytes_per_sec).collect();
        Fabric::big_switch_with(&rates).expect("a fabric that can be built")
    };
    (rates.prop_map(fabric), coflows)
}

/// A table, and the policy that plans for it.
struct Host {
    fabric: Fabric,
    table: CoflowTable,
    policy: Box<dyn Policy>,
    plan: Plan,
    now: Time,
}

impl Host {
    fn new(fabric: &Fabric, info: &PolicyInfo) -> Host {
        let table = CoflowTable::new(fabric);
        let now = Time::from_millis(3000);
        Host { fabric: fabric.clone(), table, policy: info.create(), plan: Plan::default(), now }
    }

    /// Flow ids are coflow id * 100 + index, whatever the order of insertion.
    fn insert(&mut self, coflow: &CoflowSpec) {
        self.table.insert(coflow, FlowId(coflow.id.0 * 100), &self.fabric);
    }

    fn plan(&mut self) -> Vec<(FlowId, f64)> {
        self.policy.plan(self.now, &self.fabric, &self.table, &mut self.plan);
        self.table.adopt(&self.plan);
        self.rates()
    }

    /// Rates of all live flows that cross a link, by flow id.
    fn rates(&self) -> Vec<(FlowId, f64)> {
        let mut rates = Vec::new();
        self.plan.for_each_rate(&self.table, |at, rate| {
            let flow = self.table.flow(at);
            if flow.class().is_some() {
                rates.push((flow.id(), rate.bytes_per_sec()));
            }
        });
        rates.sort_by_key(|&(id, _)| id);
        rates
    }

    fn at(&self, id: FlowId) -> FlowRef {
        self.table.find_flow(id).expect("a live flow")
    }

    fn path(&self, id: FlowId) -> Path {
        let class = self.table.flow(self.at(id)).class().expect("a flow that crosses a link");
        *self.table.classes()[class.index()].path()
    }

    /// Moves to the next completion under the plan and ends the flows that are complete then.
    fn step(&mut self, rates: &[(FlowId, f64)]) -> bool {
        let left: Vec<f64> = rates.iter().map(|&(id, _)| self.table.remaining(self.at(id))).collect();
        let secs = left.iter().zip(rates).map(|(left, (_, rate))| left / rate).fold(f64::INFINITY, f64::min);
        if secs == f64::INFINITY {
            return false;
        }
        let span = Span::from_secs_ceil(secs);
        self.table.advance(&self.plan, span);
        self.now = self.now + span;
        for (&(id, rate), left) in rates.iter().zip(left) {
            // Rounding may leave a trace of a flow that ends with others.
            if left <= rate * span.as_secs() + 1e-3 {
                let at = self.at(id);
                self.table.finish_flow(at);
                if self.table.coflow(at.coflow).live_flows() == 0 {
                    self.table.remove(at.coflow);
                }
            }
        }
        true
    }
}

fn used(host: &Host, rates: &[(FlowId, f64)]) -> Vec<f64> {
    let mut used = vec![0.0; host.fabric.links().len()];
    for &(id, rate) in rates {
        for link in host.path(id).iter() {
            used[link.index()] += rate;
        }
    }
    let mut detoured = std::collections::BTreeMap::new();
    for detour in &host.plan.detours {
        let flow = host.table.flow(detour.flow);
        *detoured.entry(flow.id()).or_insert(0.0) += detour.bytes_per_sec;
        let class = &host.table.classes()[flow.class().expect("a flow that crosses a link").index()];
        let site = |host_id| host.fabric.site_of(host_id).expect("a fabric of sites");
        let (from, to) = (site(class.source()), site(class.destination()));
        let link = |from, to| host.fabric.between(from, to).expect("two different sites").index();
        assert!(detour.bytes_per_sec > 0.0);
        used[link(from, to)] -= detour.bytes_per_sec;
        used[link(from, detour.relay)] += detour.bytes_per_sec;
        used[link(detour.relay, to)] += detour.bytes_per_sec;
    }
    for &(id, rate) in rates {
        let detoured = detoured.get(&id).copied().unwrap_or(0.0);
        assert!(detoured <= rate * (1.0 + ROUNDING), "flow {id}: {detoured} of {rate} by detours");
    }
    used
}

fn capacity_is_kept_and_claims_hold(host: &Host, info: &PolicyInfo, rates: &[(FlowId, f64)]) {
    let used = used(host, rates);
    let full: Vec<bool> = used
        .iter()
        .zip(host.fabric.links())
        .map(|(used, link)| {
            let capacity = link.capacity.bytes_per_sec();
            assert!(*used <= capacity * (1.0 + ROUNDING), "{}: {} over capacity", info.name, link.kind);
            *used >= capacity * (1.0 - ROUNDING)
        })
        .collect();
    for &(id, rate) in rates {
        assert!(rate >= 0.0 && rate.is_finite(), "{}: flow {id} at {rate}", info.name);
        let blocked = host.path(id).iter().any(|link| full[link.index()]);
        assert!(blocked || !info.claims.work_conserving, "{}: flow {id} could go faster", info.name);
        assert!(rate > 0.0 || !info.claims.starvation_free, "{}: flow {id} starves", info.name);
    }
}

fn assert_same_rates(name: &str, law: &str, a: &[(FlowId, f64)], b: &[(FlowId, f64)], tolerance: f64) {
    assert_eq!(a.len(), b.len(), "{name}: {law}");
    for (a, b) in a.iter().zip(b) {
        // What is left of a flow before its end is a difference of large sums: of rates of a few bytes a second,
        // a hundred thousandth of any link here, rounding has the last digits.
        let same = a.0 == b.0 && (a.1 - b.1).abs() <= tolerance * a.1.max(b.1).max(100.0);
        assert!(same, "{name}: {law}: {a:?} and {b:?}");
    }
}

/// A table with the coflows of another, and what is left of each flow there, made in one go.
fn rebuilt(host: &Host, info: &PolicyInfo) -> Host {
    let mut fresh = Host::new(&host.fabric, info);
    for (slot, coflow) in host.table.coflows() {
        let spec = CoflowSpec::new(coflow.id(), coflow.arrival(), Vec::new());
        let at = fresh.table.insert(&spec, FlowId(0), &host.fabric);
        for (index, flow) in (0u32..).zip(coflow.flows()) {
            let (source, destination) = match flow.class().map(|class| &host.table.classes()[class.index()]) {
                Some(class) => (class.source(), class.destination()),
                // It crosses no link: any host of its own will do.
                None => (HostId(0), HostId(0)),
            };
            let spec = FlowSpec { source, destination, size: flow.size(), group: 0 };
            let added = fresh.table.add_flow(at, flow.id(), &spec, &host.fabric);
            if !flow.live() {
                fresh.table.finish_flow(added);
            } else if flow.class().is_some() {
                let left = host.table.remaining(FlowRef { coflow: slot, flow: index });
                fresh.table.set_remaining(added, left);
            }
        }
    }
    fresh.now = host.now;
    fresh
}

fn claims(info: &PolicyInfo, fabric: &Fabric, coflows: &[CoflowSpec]) {
    let mut host = Host::new(fabric, info);
    let mut waiting = coflows.iter();
    loop {
        let arrived = waiting.next();
        if let Some(coflow) = arrived {
            host.insert(coflow);
        }
        let rates = host.plan();
        capacity_is_kept_and_claims_hold(&host, info, &rates);
        if !host.step(&rates) && arrived.is_none() {
            break;
        }
    }
    let left = host.rates();
    assert!(left.is_empty(), "{}: {left:?} left", info.name);
}

/// Moving on takes exactly rate * span from every flow, in one step or in several.
fn movement(info: &PolicyInfo, fabric: &Fabric, coflows: &[CoflowSpec], parts: u64) {
    let mut host = Host::new(fabric, info);
    coflows.iter().for_each(|coflow| host.insert(coflow));
    let rates = host.plan();
    let before: Vec<f64> = rates.iter().map(|&(id, _)| host.table.remaining(host.at(id))).collect();
    // 6 ms: 1/6 of what the smallest flow takes alone on the fastest link.
    for _ in 0..parts {
        host.table.advance(&host.plan, Span::from_nanos(6_000_000 / parts));
    }
    for (&(id, rate), before) in rates.iter().zip(before) {
        let moved = before - host.table.remaining(host.at(id));
        assert!((moved - rate * 6e-3).abs() <= 1e-6 * before, "{}: {moved} of {rate}", info.name);
    }
}

/// To the bit when asked again; up to the rounding of sums when the table was filled in another order.
fn determinism(info: &PolicyInfo, fabric: &Fabric, coflows: &[CoflowSpec]) {
    let mut forward = Host::new(fabric, info);
    let mut again = Host::new(fabric, info);
    let mut backward = Host::new(fabric, info);
    coflows.iter().for_each(|coflow| {
        forward.insert(coflow);
        again.insert(coflow)
    });
    coflows.iter().rev().for_each(|coflow| backward.insert(coflow));
    let rates = forward.plan();
    assert_same_rates(info.name, "deterministic", &rates, &again.plan(), 0.0);
    assert_same_rates(info.name, "independent of order", &rates, &backward.plan(), 1e-12);
}

/// A policy with a history plans as one that sees the same flows for the first time, and a table that
/// was moved on knows the same sums as one that was filled anew.
fn no_history(info: &PolicyInfo, fabric: &Fabric, coflows: &[CoflowSpec], steps: usize) {
    let mut host = Host::new(fabric, info);
    let mut waiting = coflows.iter();
    host.insert(waiting.next().expect("at least one coflow"));
    for step in 0..steps {
        let rates = host.plan();
        host.step(&rates);
        if step % 2 == 0 {
            waiting.next().into_iter().for_each(|coflow| host.insert(coflow));
        }
    }
    let mut fresh = rebuilt(&host, info);
    let rates = host.plan();
    assert_same_rates(info.name, "no trace of history", &rates, &fresh.plan(), ROUNDING);
    for (slot, coflow) in host.table.coflows().filter(|_| host.plan.form == Form::Drains) {
        let mut sums = vec![0.0; host.fabric.links().len()];
        for (index, _) in (0u32..).zip(coflow.flows()).filter(|(_, flow)| flow.class().is_some()) {
            let at = FlowRef { coflow: slot, flow: index };
            if host.table.flow(at).live() {
                let path = host.path(host.table.flow(at).id());
                path.iter().for_each(|link| sums[link.index()] += host.table.remaining(at));
            }
        }
        for (link, sum) in (0u32..).zip(sums) {
            assert!((host.table.demand(slot, LinkId(link)) - sum).abs() <= 1.0, "sum of link {link}");
        }
    }
}

/// What the network became while coflows moved is what it might have been from the beginning.
fn growth(info: &PolicyInfo, coflows: &[CoflowSpec], steps: usize, racked: u32, moved: u32, grown: bool) {
    let rate = Rate::from_bytes_per_sec;
    let spec = RackSpec { hosts_per_rack: 2, racks: 2, host_rate: rate(1.25e8), oversubscription: 2.0 };
    let fabric = if racked == 0 { Fabric::big_switch(4, rate(1.25e8)) } else { Fabric::racks(&spec) };
    let mut host = Host::new(&fabric.expect("a fabric"), info);
    let mut waiting = coflows.iter();
    host.insert(waiting.next().expect("at least one coflow"));
    for step in 0..2 * steps {
        if step == steps {
            let ids: Vec<FlowId> = host.plan().into_iter().map(|(id, _)| id).collect();
            let left = |host: &Host| -> Vec<f64> {
                ids.iter().map(|&id| host.table.remaining(host.at(id))).collect()
            };
            let (before, slots) = (left(&host), host.table.slots().to_vec());
            let attained: Vec<f64> = slots.iter().map(|&slot| host.table.attained(slot)).collect();
            let mut joined = HostId(3 - moved);
            if grown {
                let rack = host.fabric.add_rack(rate(4e7), rate(9e7)).expect("a rack");
                joined = host.fabric.add_host(rate(5e7), rate(2e8), Some(rack)).expect("a host");
                host.fabric.join_sites(0, 1, rate(6e7)).expect("a link");
                host.fabric.move_host(joined, Some(rack), Some(0));
                host.fabric.move_host(HostId(moved), Some(rack), Some(1));
            } else {
                host.fabric.move_host(HostId(moved), (racked > 0 && moved > 1).then_some(0), None);
            }
            host.table.refit(&host.fabric);
            for (before, after) in before.iter().zip(left(&host)) {
                assert!((before - after).abs() <= 1.0, "{}: {before} left, then {after}", info.name);
            }
            for (&slot, before) in slots.iter().zip(attained) {
                assert!((host.table.attained(slot) - before).abs() <= 10.0, "{}", info.name);
            }
            let flow =
                |source, destination| FlowSpec { source, destination, size: Bytes(20_000_000), group: 0 };
            let both = vec![flow(joined, HostId(moved)), flow(HostId(0), joined)];
            host.insert(&CoflowSpec::new(CoflowId(99), host.now, both));
        }
        let mut fresh = rebuilt(&host, info);
        let rates = host.plan();
        capacity_is_kept_and_claims_hold(&host, info, &rates);
        if rates.iter().all(|&(id, _)| host.table.remaining(host.at(id)) > 10.0) {
            assert_same_rates(info.name, "as always so", &rates, &fresh.plan(), ROUNDING);
        }
        host.step(&rates);
        if step % 2 == 0 {
            waiting.next().into_iter().for_each(|coflow| host.insert(coflow));
        }
    }
}

/// Rates are for flows that are open: a coflow alone moves as it would if nothing more were to come.
fn nothing_for_later(info: &PolicyInfo, fabric: &Fabric, coflows: &[CoflowSpec], link: usize, bytes: f64) {
    let (mut alone, mut expecting) = (Host::new(fabric, info), Host::new(fabric, info));
    for host in [&mut alone, &mut expecting] {
        host.insert(&CoflowSpec { deadline: None, ..coflows[0].clone() });
    }
    if let Some(&slot) = expecting.table.slots().first() {
        expecting.table.expect(slot, vec![(LinkId((link % fabric.links().len()) as u32), bytes)]);
    }
    let rates = expecting.plan();
    capacity_is_kept_and_claims_hold(&expecting, info, &rates);
    assert_same_rates(info.name, "nothing for what is to come", &rates, &alone.plan(), ROUNDING);
}

/// At every event of a run on a switch, where plans only say what changes.
fn continuation(info: &PolicyInfo, fabric: &Fabric, coflows: &[CoflowSpec]) {
    let mut host = Host::new(fabric, info);
    let mut waiting = coflows.iter();
    for step in 0.. {
        if step % 16 == 0 {
            waiting.next().into_iter().for_each(|coflow| host.insert(coflow));
        }
        let mut fresh = rebuilt(&host, info);
        let rates = host.plan();
        // Of the last bytes before an end no more than the rounding of sums may be left.
        if rates.iter().all(|&(id, _)| host.table.remaining(host.at(id)) > 10.0) {
            assert_same_rates(info.name, "goes on", &rates, &fresh.plan(), ROUNDING);
        }
        if !host.step(&rates) && waiting.len() == 0 {
            break;
        }
    }
}

/// Holds a policy to all laws, on as many networks and workloads of each as `cases` says, drawn at random. Each is about
/// what the policy does after any history: links are not filled above their capacity, and its [`Claims`](crate::Claims) are true; bytes
/// move as planned; the order of insertion and what was before make no difference, nor does how the network became
/// what it is; nothing is kept for what is to come; a plan that goes on says what one from the beginning would say.
///
/// # Panics
/// If one is broken, with the smallest case that was found.
pub fn check(info: &PolicyInfo, cases: u32) {
    hold(cases, &(fabrics(), workloads()), |(fabric, coflows)| claims(info, &fabric, &coflows));
    hold(cases, &(fabrics(), workloads(), 1u64..4), |(fabric, coflows, parts)| {
        movement(info, &fabric, &coflows, parts)
    });
    hold(cases, &(fabrics(), workloads()), |(fabric, coflows)| determinism(info, &fabric, &coflows));
    hold(cases, &(fabrics(), workloads(), 1usize..12), |(fabric, coflows, steps)| {
        no_history(info, &fabric, &coflows, steps)
    });
    if !info.between_sites {
        hold(
            cases,
            &(workloads(), 1usize..8, 0u32..2, 0u32..4, any::<bool>()),
            |(coflows, steps, racked, moved, grown)| growth(info, &coflows, steps, racked, moved, grown),
        );
    }
    hold(cases, &(fabrics(), workloads(), 0usize..64, 1.0..1e12f64), |(fabric, coflows, link, bytes)| {
        nothing_for_later(info, &fabric, &coflows, link, bytes)
    });
    hold(cases, &busy_switch(), |(fabric, coflows)| continuation(info, &fabric, &coflows));
}

fn hold<S: Strategy>(cases: u32, inputs: &S, law: impl Fn(S::Value)) {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    let kept = TestRunner::new(config).run(inputs, |input| {
        law(input);
        Ok(())
    });
    if let Err(broken) = kept {
        panic!("{broken}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn capacity_work_conservation_and_starvation_from_first_flow_to_last(fabric in fabrics(), coflows in workloads()) {
            registry().iter().for_each(|info| claims(info, &fabric, &coflows));
        }

        #[test]
        fn bytes_move_at_the_planned_rates(fabric in fabrics(), coflows in workloads(), parts in 1u64..4) {
            registry().iter().for_each(|info| movement(info, &fabric, &coflows, parts));
        }

        #[test]
        fn plans_are_deterministic_and_independent_of_input_order(fabric in fabrics(), coflows in workloads()) {
            registry().iter().for_each(|info| determinism(info, &fabric, &coflows));
        }

        #[test]
        fn history_leaves_no_trace(fabric in fabrics(), coflows in workloads(), steps in 1usize..12) {
            registry().iter().for_each(|info| no_history(info, &fabric, &coflows, steps));
        }

        #[test]
        fn a_network_that_grows_and_moves_is_planned_as_if_it_had_always_been_so(coflows in workloads(), steps in 1usize..8, racked in 0u32..2, moved in 0u32..4, grown in any::<bool>()) {
            registry().iter().filter(|info| !info.between_sites).for_each(|info| growth(info, &coflows, steps, racked, moved, grown));
        }

        #[test]
        fn what_is_to_come_is_given_nothing(fabric in fabrics(), coflows in workloads(), link in 0usize..64, bytes in 1.0..1e12f64) {
            registry().iter().for_each(|info| nothing_for_later(info, &fabric, &coflows, link, bytes));
        }

        #[test]
        fn plans_that_go_on_are_plans_from_the_beginning((fabric, coflows) in busy_switch()) {
            registry().iter().for_each(|info| continuation(info, &fabric, &coflows));
        }
    }
}

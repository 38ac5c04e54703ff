//! Coflows between datacenters: cases with exact answers. A unit is 10^6 bytes, links move whole units per second.

use proptest::prelude::*;
use weir_model::{
    Bytes, CapacityChange, CoflowId, CoflowSpec, Fabric, FlowSpec, HostId, LinkId, LinkKind, Rate, SiteSpec,
    Time,
};
use weir_policy::create;
use weir_sim::{FlowRecord, Observer, Options, simulate_changing};

const UNIT: f64 = 1e6;

/// Three sites; hosts 0 and 1 are in site 0, 2 and 3 in site 1, 4 and 5 in site 2. Every link has rate 1.
fn three_sites() -> Fabric {
    let rates = vec![vec![Rate::from_bytes_per_sec(UNIT); 3]; 3];
    Fabric::sites(&SiteSpec { hosts_per_site: vec![2; 3], host_rate: None, rates }).expect("a fabric")
}

fn link(fabric: &Fabric, from: u32, to: u32) -> LinkId {
    let found = fabric.links().iter().position(|link| link.kind == LinkKind::Site { from, to });
    LinkId(found.expect("a link between the sites") as u32)
}

/// A coflow from `(sender, receiver, units)`.
fn coflow(id: u64, arrival: u64, flows: &[(u32, u32, f64)]) -> CoflowSpec {
    let flow = |&(source, destination, units): &(u32, u32, f64)| FlowSpec {
        source: HostId(source),
        destination: HostId(destination),
        size: Bytes((units * UNIT) as u64),
        group: 0,
    };
    CoflowSpec::new(CoflowId(id), Time::from_millis(arrival * 1000), flows.iter().map(flow).collect())
}

#[derive(Default)]
struct FlowEnds(Vec<FlowRecord>);

impl Observer for FlowEnds {
    fn flow_completed(&mut self, flow: FlowRecord) {
        self.0.push(flow);
    }
}

/// Completion times of coflows, and ends of flows, in order of input.
fn run(policy: &str, changes: Vec<CapacityChange>, coflows: Vec<CoflowSpec>) -> (Vec<f64>, Vec<f64>) {
    let mut ends = FlowEnds::default();
    let mut policy = create(policy).expect("a registered policy");
    let options = Options::default();
    let outcome = simulate_changing(&three_sites(), changes, coflows, policy.as_mut(), &options, &mut ends);
    let ccts = outcome.expect("nobody starves").coflows.iter().map(|record| record.cct.as_secs()).collect();
    ends.0.sort_by_key(|flow| flow.id);
    (ccts, ends.0.iter().map(|flow| flow.completed.as_secs()).collect())
}

#[track_caller]
fn assert_times(actual: &[f64], expected: &[f64]) {
    let near = |(actual, expected): (&f64, &f64)| (actual - expected).abs() < 1e-7;
    let all = actual.len() == expected.len() && actual.iter().zip(expected).all(near);
    assert!(all, "{actual:?}, expected {expected:?}");
}

/// Siphon, Figs 3 to 5: reducers 2 and 3 in site 1 read from sites 0 and 2, and compute for as long as they have read
/// units. When each has read, and when it ends.
fn reducers(policy: &str) -> [(f64, f64); 2] {
    let shuffle = coflow(1, 0, &[(0, 2, 3.0), (4, 2, 1.0), (0, 3, 2.0), (4, 3, 1.0)]);
    let (ccts, ends) = run(policy, Vec::new(), vec![shuffle]);
    // The last byte comes when the link from site 0 has moved 5 units, whoever is served first.
    assert_times(&ccts, &[5.0]);
    let read = [ends[0].max(ends[1]), ends[2].max(ends[3])];
    [(read[0], read[0] + 4.0), (read[1], read[1] + 3.0)]
}

#[test]
fn siphon_figure_4_the_largest_flow_group_first_ends_the_job_at_8() {
    let [first, second] = reducers("mrtf");
    assert_times(&[first.0, first.1, second.0, second.1], &[3.0, 7.0, 5.0, 8.0]);
}

#[test]
fn siphon_figure_5_the_reverse_ends_it_at_9() {
    let [first, second] = reducers("mrtf:groups=smallest");
    assert_times(&[first.0, first.1, second.0, second.1], &[5.0, 9.0, 2.0, 5.0]);
}

/// A link that was seen at 3 and at 1 units a second and has 1 now; another that always has 1. Both coflows want the
/// first: one of 2.4 units, and one of 1 unit with 1.5 on the other link.
fn after_a_slow_down(policy: &str) -> Vec<f64> {
    let slowing = link(&three_sites(), 0, 1);
    let change = |secs: u64, units: f64| CapacityChange {
        at: Time::from_millis(secs * 1000),
        link: slowing,
        capacity: Rate::from_bytes_per_sec(units * UNIT),
    };
    let coflows = vec![coflow(1, 2, &[(0, 2, 2.4)]), coflow(2, 2, &[(1, 3, 1.0), (4, 3, 1.5)])];
    run(policy, vec![change(0, 3.0), change(1, 1.0)], coflows).0
}

#[test]
fn the_estimate_of_bandwidth_decides_who_has_least_left() {
    // By the mean, 2 units a second: 1.2 s against 1.5. The first goes first, and the link moves 3.4 units in all.
    assert_times(&after_a_slow_down("mrtf"), &[2.4, 3.4]);
    assert_times(&after_a_slow_down("mrtf:estimate=median"), &[2.4, 3.4]);
    // By what it has now: 2.4 s against 1.5.
    assert_times(&after_a_slow_down("mrtf:estimate=last"), &[3.4, 1.5]);
}

/// Two coflows, each with 6 units on one link and a trifle on the other's. The first link was seen at 3 units a second
/// three times of four, and once at 1; the second always at 2.6.
fn on_links_of_different_spread(policy: &str) -> Vec<f64> {
    let fabric = three_sites();
    let change = |secs: u64, link: LinkId, units: f64| CapacityChange {
        at: Time::from_millis(secs * 1000),
        link,
        capacity: Rate::from_bytes_per_sec(units * UNIT),
    };
    let (first, second) = (link(&fabric, 0, 1), link(&fabric, 2, 1));
    let seen = [3.0, 1.0, 3.01, 3.02];
    let mut changes: Vec<CapacityChange> =
        (0u64..).zip(seen).map(|(secs, units)| change(secs, first, units)).collect();
    changes.push(change(0, second, 2.6));
    let coflows =
        vec![coflow(1, 4, &[(0, 2, 6.0), (4, 2, 0.06)]), coflow(2, 4, &[(0, 3, 0.06), (4, 3, 6.0)])];
    run(policy, changes, coflows).0
}

/// Siphon, Fig. 1: what is faster most often, and what is faster at the mean.
#[test]
fn siphon_figure_1_simulation_prefers_who_is_shorter_more_often() {
    // The first link has 3.02 now. Whoever goes second waits for the other's trifle.
    let shorter_more_often = [6.0 / 3.02, 6.06 / 2.6];
    assert_times(&on_links_of_different_spread("monte-carlo"), &shorter_more_often);
    // At the mean of 2.5075 units a second 6 units take longer than at 2.6. So the second coflow goes first, until all
    // that the first has left is its trifle, and takes that on.
    let shorter_at_the_mean = [6.06 / 3.02 + 0.06 / 2.6, 6.06 / 2.6];
    assert_times(&on_links_of_different_spread("lookahead"), &shorter_at_the_mean);
    // On average, too: the first may take 6 s. But once the second's trifle is out of the first's way, after 0.02 s, the
    // first waits for its own trifle only, and that for 2.3 s: 2.995 + 2.311 s are less than 2.288 + 3.233.
    let shorter_on_average = [6.06 / 3.02, 6.06 / 2.6];
    assert_times(&on_links_of_different_spread("monte-carlo:decide=mean"), &shorter_on_average);
}

#[test]
fn simulation_says_the_same_for_the_same_seed_and_needs_few_rounds_to_see_what_is_plain() {
    let expected = on_links_of_different_spread("monte-carlo");
    for settings in ["rounds=50", "seed=2", "depth=1:breadth=1", "depth=2:breadth=2:rounds=1000"] {
        let policy = format!("monte-carlo:{settings}");
        assert_times(&on_links_of_different_spread(&policy), &expected);
    }
}

proptest! {
    /// Which flow group goes first changes when reducers have read, never when the last of them has.
    #[test]
    fn the_order_of_flow_groups_never_changes_the_slowest_read(
        flows in prop::collection::vec((0u32..6, 0u32..6, 1u32..20), 1..20),
    ) {
        let flows: Vec<(u32, u32, f64)> =
            flows.into_iter().map(|(source, destination, tenths)| (source, destination, f64::from(tenths) / 10.0)).collect();
        let slowest = |policy: &str| run(policy, Vec::new(), vec![coflow(1, 0, &flows)]).0[0];
        let expected = slowest("mrtf");
        for policy in ["mrtf:groups=smallest", "mrtf:groups=off"] {
            // Up to a nanosecond for every end on the way.
            prop_assert!((slowest(policy) - expected).abs() < 1e-7, "{policy}: {} and {expected}", slowest(policy));
        }
    }
}

/// Four sites of one host each.
fn four_sites(rates: &[u32]) -> Fabric {
    let rate = |&rate: &u32| Rate::from_bytes_per_sec(f64::from(rate) * UNIT);
    let rates = rates.chunks(4).map(|row| row.iter().map(rate).collect()).collect();
    Fabric::sites(&SiteSpec { hosts_per_site: vec![1; 4], host_rate: None, rates }).expect("a fabric")
}

/// Bytes that a coflow has to get from one side of a cut to the other, over what the links between can carry: the
/// longest such time. No way round a cut exists.
fn slowest_cut_s(fabric: &Fabric, coflow: &CoflowSpec) -> f64 {
    let near = |cut: u32, site: u32| cut & (1 << site) != 0;
    let crosses = |cut: u32, from: u32, to: u32| near(cut, from) && !near(cut, to);
    let secs = (1u32..15).map(|cut| {
        let flows = coflow.flows.iter().filter(|flow| crosses(cut, flow.source.0, flow.destination.0));
        let bytes: f64 = flows.map(|flow| flow.size.0 as f64).sum();
        let links = fabric.links().iter().filter(|link| match link.kind {
            LinkKind::Site { from, to } => crosses(cut, from, to),
            _ => false,
        });
        bytes / links.map(|link| link.capacity.bytes_per_sec()).sum::<f64>()
    });
    secs.fold(0.0, f64::max)
}

proptest! {
    /// Relays help, and nothing helps beyond what any cut lets through.
    #[test]
    fn routed_coflows_are_as_fast_as_their_routes_and_no_faster_than_cuts_allow(
        rates in prop::collection::vec(1u32..9, 16),
        sizes in prop::collection::vec(prop::collection::vec((0u32..4, 0u32..4, 1u32..50), 1..5), 1..6),
    ) {
        let fabric = four_sites(&rates);
        let coflows: Vec<CoflowSpec> = (1u64..).zip(&sizes).map(|(id, flows)| {
            let flows: Vec<_> = flows.iter().map(|&(from, to, units)| (from, to, f64::from(units))).collect();
            coflow(id, id / 2, &flows)
        }).collect();
        for policy in ["siphon", "siphon:reroute=off", "siphon:routes=published", "sebf-routed"] {
            let simulate = |coflows: &[CoflowSpec]| {
                let mut policy = create(policy).expect("a policy");
                let outcome = simulate_changing(
                    &fabric, Vec::new(), coflows.to_vec(), policy.as_mut(), &Options::default(), &mut (),
                );
                outcome.expect("nobody starves").coflows
            };
            for record in simulate(&coflows) {
                let coflow = coflows.iter().find(|coflow| coflow.id == record.id).expect("it was asked for");
                let least = slowest_cut_s(&fabric, coflow);
                prop_assert!(record.cct.as_secs() >= least - 1e-6, "{policy}: {} beats its cuts", record.id);
            }
            for coflow in &coflows {
                let alone = simulate(std::slice::from_ref(coflow))[0];
                let direct = weir_sim::isolation(&fabric, coflow).as_secs();
                prop_assert!(alone.cct.as_secs() <= direct + 1e-6, "{policy}: relays slow {} down", coflow.id);
            }
        }
    }
}

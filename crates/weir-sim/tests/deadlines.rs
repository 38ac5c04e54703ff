//! Coflows with deadlines: what a policy lets in ends in time, and no plan exceeds a capacity.

mod support;

use proptest::prelude::*;
use support::{busy_switch, fabrics, workloads};
use weir_model::{Bytes, CoflowId, CoflowSpec, Fabric, FlowSpec, HostId, Rate, Span, Time};
use weir_policy::{CoflowTable, Plan, create};
use weir_sim::{Observer, Options, Outcome, Replan, isolation, simulate_observed};

/// Policies that promise deadlines.
const PROMISING: [&str; 4] =
    ["varys-deadline", "varys-deadline:admission=rates", "virtual-cluster", "virtual-cluster:reserve=links"];

/// Deadlines of every kind: none, tighter than alone on the network, exactly as long, somewhat and much longer.
fn with_deadlines(fabric: &Fabric, coflows: &[CoflowSpec], kinds: &[(u8, f64)]) -> Vec<CoflowSpec> {
    let draw = |(coflow, (kind, share)): (&CoflowSpec, &(u8, f64))| {
        let alone = isolation(fabric, coflow);
        let times = |factor: f64| Some(Span::from_secs_ceil(alone.as_secs() * factor));
        let deadline = match kind {
            0 => None,
            1 => times(0.5 + share / 2.0),
            2 => Some(alone),
            3 => times(1.0 + share),
            _ => times(1.0 + 8.0 * share),
        };
        CoflowSpec { deadline, ..coflow.clone() }
    };
    coflows.iter().zip(kinds.iter().cycle()).map(draw).collect()
}

fn kinds() -> impl Strategy<Value = Vec<(u8, f64)>> {
    prop::collection::vec((0u8..5, 0.0..1.0f64), 8)
}

/// Panics if a plan gives a link more than its capacity, but for what it moves in a few nanoseconds: ends are whole
/// nanoseconds, and what one of them came too late for must go before a deadline all the same.
struct Capacities<'a>(&'a Fabric);

impl Observer for Capacities<'_> {
    fn moved(&mut self, from: Time, to: Time, table: &CoflowTable, plan: &Plan) {
        let mut used = vec![0.0; self.0.links().len()];
        plan.for_each_rate(table, |at, rate| {
            if let Some(class) = table.flow(at).class() {
                let path = *table.classes()[class.index()].path();
                path.iter().for_each(|link| used[link.index()] += rate.bytes_per_sec());
            }
        });
        for (used, link) in used.iter().zip(self.0.links()) {
            let part = used / link.capacity.bytes_per_sec();
            let excess_secs = (part - 1.0 - 1e-6) * to.since(from).as_secs();
            assert!(excess_secs <= 4e-9, "{}: {part} of its capacity from {from:?} to {to:?}", link.kind);
        }
    }
}

fn run(fabric: &Fabric, coflows: &[CoflowSpec], policy: &str, options: &Options) -> Outcome {
    let mut policy = create(policy).expect("a registered policy");
    simulate_observed(fabric, coflows.to_vec(), policy.as_mut(), options, &mut Capacities(fabric))
        .expect("nobody starves")
}

fn promises_are_kept(fabric: &Fabric, coflows: &[CoflowSpec]) -> Result<(), TestCaseError> {
    for policy in PROMISING {
        for replan in [Replan::FlowCompletions, Replan::CoflowEvents] {
            let outcome = run(fabric, coflows, policy, &Options { replan, ..Options::default() });
            prop_assert_eq!(outcome.coflows.len(), coflows.len());
            for record in &outcome.coflows {
                let spec =
                    coflows.iter().find(|coflow| coflow.id == record.id).expect("a coflow of the input");
                let deadline = spec.deadline.unwrap_or(Span::MAX);
                prop_assert!(
                    !record.admitted || record.cct <= deadline,
                    "{policy}: coflow {} was let in and took {:?} of {deadline:?}",
                    record.id,
                    record.cct
                );
                prop_assert!(record.admitted || spec.deadline.is_some(), "{policy} refused {}", record.id);
            }
            let refused = outcome.coflows.iter().filter(|record| !record.admitted).count();
            prop_assert_eq!(refused, outcome.refused.len());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn nobody_who_was_let_in_is_late(fabric in fabrics(), coflows in workloads(), kinds in kinds()) {
        promises_are_kept(&fabric, &with_deadlines(&fabric, &coflows, &kinds))?;
    }

    #[test]
    fn nobody_is_late_on_busy_switches((fabric, coflows) in busy_switch(), kinds in kinds()) {
        promises_are_kept(&fabric, &with_deadlines(&fabric, &coflows, &kinds))?;
    }

    /// By order alone nothing is refused. Alone on the network a coflow is in time where that can be; those that are due first are never
    /// late for others.
    #[test]
    fn by_class_keeps_capacities_and_the_coflow_that_is_due_first_is_in_time(
        fabric in fabrics(), coflows in workloads(), kinds in kinds()
    ) {
        let coflows = with_deadlines(&fabric, &coflows, &kinds);
        let outcome = run(&fabric, &coflows, "by-class", &Options::default());
        prop_assert!(outcome.coflows.iter().all(|record| record.admitted));
        let due = |spec: &CoflowSpec| spec.deadline.map(|deadline| spec.arrival + deadline);
        // One that all others with a deadline are due after, with as much time as it takes alone and some more.
        let first = coflows.iter().filter(|spec| due(spec).is_some()).min_by_key(|spec| due(spec));
        if let Some((spec, deadline)) = first.and_then(|spec| Some((spec, spec.deadline?)))
            && coflows.iter().filter(|other| due(other) == due(spec)).count() == 1
            && deadline.as_secs() > isolation(&fabric, spec).as_secs() * 1.001 + 2e-6
        {
            let record = outcome.coflows.iter().find(|record| record.id == spec.id).expect("a record");
            prop_assert!(record.cct <= deadline, "{:?} of {deadline:?}", record.cct);
            // And not much sooner, unless it was of flows that cross no link.
            prop_assert!(
                record.cct.as_secs() > deadline.as_secs() - 2e-6 || isolation(&fabric, spec) == Span::ZERO,
                "{:?} of {deadline:?}", record.cct
            );
        }
    }

    /// Per-flow policies move within capacities whatever the deadlines, and let everything in.
    #[test]
    fn flows_by_deadline_keep_capacities((fabric, coflows) in busy_switch(), kinds in kinds()) {
        let coflows = with_deadlines(&fabric, &coflows, &kinds);
        let outcome = run(&fabric, &coflows, "flow-edf", &Options::default());
        prop_assert!(outcome.coflows.iter().all(|record| record.admitted));
    }
}

#[test]
fn a_coflow_alone_is_let_in_just_when_its_deadline_is_not_below_its_isolation_time() {
    let fabric = Fabric::big_switch(4, Rate::from_bytes_per_sec(1.25e8)).expect("a fabric");
    for size in [3_333_333u64, 1, 777, 125_000_001] {
        let flow = |source: u32| FlowSpec {
            source: HostId(source),
            destination: HostId(3),
            size: Bytes(size),
            group: 0,
        };
        let spec = CoflowSpec::new(CoflowId(1), Time::from_millis(5), (0..3).map(flow).collect());
        let alone = isolation(&fabric, &spec);
        for (deadline, admitted) in [(alone, true), (Span::from_nanos(alone.nanos() - 1), false)] {
            let spec = CoflowSpec { deadline: Some(deadline), ..spec.clone() };
            for policy in PROMISING {
                let outcome = run(&fabric, std::slice::from_ref(&spec), policy, &Options::default());
                assert_eq!(outcome.coflows[0].admitted, admitted, "{policy}: {size} bytes in {deadline:?}");
            }
        }
    }
}

#[test]
fn a_refusal_says_which_link_lacks_how_much() {
    // The uplink of host 0 moves 1 MB/s. The first has 2 MB to move in 4 s there, the second would need 3 MB in
    // 4 s = 6 Mbit/s where 2 MB in 4 s = 4 Mbit/s is left.
    let fabric = Fabric::big_switch(2, Rate::from_bytes_per_sec(1e6)).expect("a fabric");
    let coflow = |id: u64, bytes: u64| {
        let flow = FlowSpec { source: HostId(0), destination: HostId(1), size: Bytes(bytes), group: 0 };
        let spec = CoflowSpec::new(CoflowId(id), Time::ZERO, vec![flow]);
        CoflowSpec { deadline: Some(Span::from_millis(4000)), ..spec }
    };
    let outcome =
        run(&fabric, &[coflow(1, 2_000_000), coflow(2, 3_000_000)], "varys-deadline", &Options::default());
    assert_eq!(outcome.refused[0].id, CoflowId(2));
    assert_eq!(
        outcome.refused[0].reason,
        "host 0 up: 6 Mbit/s needed for 4 s until the deadline, 4 Mbit/s left by coflows let in before"
    );
}

/// Host 1 sends little for the first coflow: as a virtual cluster that is kept as much for it as for host 0.
#[test]
fn reservations_by_link_leave_room_that_those_of_a_virtual_cluster_do_not() {
    let fabric = Fabric::big_switch(5, Rate::from_bytes_per_sec(125e6)).expect("a fabric");
    let flow = |source, destination, megabytes: u64| FlowSpec {
        source: HostId(source),
        destination: HostId(destination),
        size: Bytes(megabytes * 1_000_000),
        group: 0,
    };
    let coflow = |id, flows| CoflowSpec {
        deadline: Some(Span::from_millis(1000)),
        ..CoflowSpec::new(CoflowId(id), Time::ZERO, flows)
    };
    let coflows = [coflow(1, vec![flow(0, 2, 60), flow(1, 3, 5)]), coflow(2, vec![flow(1, 4, 100)])];
    for (policy, both) in [("virtual-cluster", false), ("virtual-cluster:reserve=links", true)] {
        let outcome = run(&fabric, &coflows, policy, &Options::default());
        let second = outcome.coflows.iter().find(|record| record.id == CoflowId(2)).expect("a record");
        assert_eq!(second.admitted, both, "{policy}");
        // Whoever was let in ends when it is due, and not sooner.
        for record in outcome.coflows.iter().filter(|record| record.admitted) {
            assert_eq!(record.cct, Span::from_millis(1000), "{policy}");
        }
    }
}

/// A link of 1 MB/s. 1 MB that is due after 4 s takes a quarter of it, and ends a microsecond before that; 2 MB beside it are there
/// after 2.67 s, where they would have waited a second under `varys`. If it is due after 0.9 s it is a coflow like the other one, and
/// the smaller.
#[test]
fn by_class_ends_a_coflow_just_before_its_deadline_and_leaves_the_rest_to_others() {
    let fabric = Fabric::big_switch(2, Rate::from_bytes_per_sec(1e6)).expect("a fabric");
    let coflow = |id, megabytes: u64, deadline| {
        let size = Bytes(megabytes * 1_000_000);
        let flow = FlowSpec { source: HostId(0), destination: HostId(1), size, group: 0 };
        CoflowSpec { deadline, ..CoflowSpec::new(CoflowId(id), Time::ZERO, vec![flow]) }
    };
    for (millis, ends) in [(4_000, [3_999_999, 2_666_667]), (900, [1_000_000, 3_000_000])] {
        let coflows = [coflow(1, 1, Some(Span::from_millis(millis))), coflow(2, 2, None)];
        for replan in [Replan::FlowCompletions, Replan::CoflowEvents] {
            let outcome = run(&fabric, &coflows, "by-class", &Options { replan, ..Options::default() });
            let mut ended: Vec<(u64, u64)> = outcome
                .coflows
                .iter()
                .map(|record| (record.id.0, (record.cct.nanos() + 500) / 1000))
                .collect();
            ended.sort_unstable();
            assert_eq!(ended, [(1, ends[0]), (2, ends[1])], "{millis} ms");
        }
    }
}

/// A link that is booked full has left what rounding leaves of it: to a coflow with a byte there that looks like a share, and it
/// was let in with a booking of bytes that never move.
#[test]
fn a_coflow_with_a_tiny_flow_on_a_full_link_is_promised_no_rounding() {
    let fabric = Fabric::big_switch(6, Rate::from_bytes_per_sec(125e6)).expect("a fabric");
    let flow = |(source, destination, size)| FlowSpec {
        source: HostId(source),
        destination: HostId(destination),
        size: Bytes(size),
        group: 0,
    };
    let coflow = |id, at, within, flows: &[(u32, u32, u64)]| CoflowSpec {
        deadline: Some(Span::from_nanos(within)),
        ..CoflowSpec::new(CoflowId(id), Time::from_nanos(at), flows.iter().copied().map(flow).collect())
    };
    for tiny in [1, 10] {
        let coflows = vec![
            coflow(0, 0, 389_052_503, &[(0, 1, 39_484_372)]),
            coflow(1, 100_000_000, 200_000_000, &[(0, 1, 1_000_000), (2, 4, tiny)]),
            coflow(2, 61_677_000, 231_820_486, &[(2, 3, 27_857_900)]),
        ];
        let mut policy = create("varys-deadline").expect("a policy");
        let mut capacities = Capacities(&fabric);
        let outcome = simulate_observed(
            &fabric,
            coflows.clone(),
            policy.as_mut(),
            &Options::default(),
            &mut capacities,
        )
        .expect("a run");
        for record in outcome.coflows.iter().filter(|record| record.admitted) {
            let due = coflows[record.id.0 as usize].deadline.expect("one");
            assert!(record.cct <= due, "{record:?} is late");
        }
    }
}

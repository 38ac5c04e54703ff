//! The fast simulator against the slow, obvious one, and laws of every run.

#[path = "support/changing.rs"]
mod changing;
#[path = "support/graphs.rs"]
mod graphs;
#[path = "support/reference.rs"]
mod reference;
#[path = "support/sites.rs"]
mod sites;
mod support;
#[path = "support/tiers.rs"]
mod tiers;

use changing::changing_fabrics;
use graphs::job_graphs;
use proptest::prelude::*;
use std::ops::Range;
use support::{busy_switch, fabrics, workloads};
use weir_model::{CapacityChange, CoflowSpec, Fabric, Span, Time};
use weir_policy::{create, registry};
use weir_sim::{
    FlowRecord, Observer, Options, Outcome, Replan, simulate, simulate_changing, simulate_observed,
};

fn run(fabric: &Fabric, coflows: &[CoflowSpec], policy: &str, options: &Options) -> Outcome {
    let mut policy = create(policy).expect("a registered policy");
    simulate(fabric, coflows.to_vec(), policy.as_mut(), options).expect("nobody starves")
}

/// Whether a policy sends coflows round by other sites here; between_sites.rs holds these to bounds of their own.
fn takes_relays(fabric: &Fabric, policy: &str) -> bool {
    fabric.site_count() > 0 && ["sebf-routed", "siphon"].contains(&policy)
}

/// Every coflow ends when the reference says, up to the rounding of completions to nanoseconds.
///
/// Two flows may end at exactly the same time, and which end is rounded up then decides whether a part of a byte
/// waits behind the other's coflow. Both answers are right: where they differ, the reference must give the
/// simulator's for a workload in which the flows of one coflow, or one of them, are a byte larger.
fn both_agree(
    fabric: &Fabric,
    changes: &[CapacityChange],
    coflows: &[CoflowSpec],
    except: &[&str],
) -> Result<(), TestCaseError> {
    // Nothing slow and obvious decides routes.
    let names = registry().iter().map(|info| info.name).filter(|name| !takes_relays(fabric, name));
    for policy in names.filter(|name| !except.contains(name)) {
        let mut fast = create(policy).expect("a registered policy");
        let (changes_to_come, all, options) = (changes.to_vec(), coflows.to_vec(), Options::default());
        let outcome = simulate_changing(fabric, changes_to_come, all, fast.as_mut(), &options, &mut ());
        let outcome = outcome.expect("nobody starves");
        let expected = |coflows: &[CoflowSpec]| reference::completion_times(fabric, changes, coflows, policy);
        let differ = |expected: &[f64]| {
            coflows.iter().zip(expected).find_map(|(coflow, &expected)| {
                let record = outcome.coflows.iter().find(|record| record.id == coflow.id);
                let cct = record.expect("every coflow has a record").cct.as_secs();
                ((cct - expected).abs() > 1e-6 + 1e-6 * expected).then_some((coflow.id, cct, expected))
            })
        };
        let Some((id, cct, expected_cct)) = differ(&expected(coflows)) else { continue };
        let with_a_byte_more = |coflow: usize, flows: Range<usize>| {
            let mut larger = coflows.to_vec();
            larger[coflow].flows[flows].iter_mut().for_each(|flow| flow.size.0 += 1);
            differ(&expected(&larger)).is_none()
        };
        let is_tie = coflows.iter().enumerate().any(|(at, coflow)| {
            let count = coflow.flows.len();
            with_a_byte_more(at, 0..count) || (0..count).any(|flow| with_a_byte_more(at, flow..flow + 1))
        });
        prop_assert!(is_tie, "{policy}: coflow {id} ends after {cct} s, expected {expected_cct} s");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn fast_and_slow_simulator_agree_on_every_coflow(fabric in fabrics(), coflows in workloads()) {
        both_agree(&fabric, &[], &coflows, &[])?;
    }

    /// The same where coflows start after others, or go behind others that they descend from.
    #[test]
    fn fast_and_slow_simulator_agree_on_job_graphs(fabric in fabrics(), coflows in job_graphs()) {
        both_agree(&fabric, &[], &coflows, &[])?;
    }

    /// The same where capacities change while coflows move.
    #[test]
    fn fast_and_slow_simulator_agree_where_capacities_change(
        (fabric, changes) in changing_fabrics(),
        coflows in workloads(),
    ) {
        // Deadlines cannot be promised there, and draws of bandwidth are not made twice.
        both_agree(&fabric, &changes, &coflows, &["monte-carlo", "siphon", "varys-deadline", "virtual-cluster"])?;
    }

    /// The same where plans mostly go on from the last one, with many ties. Not for orders by what is left of
    /// single flows: numbers that are equal there differ by the rounding of two different simulators, and ends
    /// less than a nanosecond apart are one event here and two in the reference.
    #[test]
    fn fast_and_slow_simulator_agree_on_busy_switches((fabric, coflows) in busy_switch()) {
        both_agree(&fabric, &[], &coflows, &["flow-edf", "ncf", "open-shop", "scf", "smallest-flow", "tcf"])?;
    }

    /// Nobody beats an empty network, every byte arrives once, whatever the policy and mode.
    #[test]
    fn no_coflow_is_below_isolation_and_bytes_are_conserved(fabric in fabrics(), coflows in workloads()) {
        for info in registry() {
            for replan in [Replan::FlowCompletions, Replan::CoflowEvents] {
                let outcome = run(&fabric, &coflows, info.name, &Options { replan, ..Options::default() });
                prop_assert_eq!(outcome.coflows.len(), coflows.len());
                prop_assert_eq!(outcome.delivered, coflows.iter().map(CoflowSpec::bytes).sum());
                for record in &outcome.coflows {
                    // Exact up to the side of a whole nanosecond on which a division falls. The isolation time is that
                    // of direct paths: relays may beat it.
                    let bounded = record.cct + Span::from_nanos(1) >= record.isolation;
                    prop_assert!(bounded || takes_relays(&fabric, info.name),
                        "{}: coflow {} in {:?}, isolation {:?}", info.name, record.id, record.cct, record.isolation);
                }
            }
        }
    }

    /// The order in which coflows are passed in changes nothing.
    #[test]
    fn input_order_changes_nothing(fabric in fabrics(), coflows in job_graphs()) {
        for info in registry() {
            let forward = run(&fabric, &coflows, info.name, &Options::default());
            let mut backward = coflows.clone();
            backward.reverse();
            prop_assert_eq!(&forward, &run(&fabric, &backward, info.name, &Options::default()));
        }
    }
}

#[derive(Default)]
struct Flows(Vec<FlowRecord>);

impl Observer for Flows {
    fn flow_completed(&mut self, flow: FlowRecord) {
        self.0.push(flow);
    }
}

proptest! {
    #[test]
    fn every_flow_is_reported_once_and_the_last_one_ends_its_coflow(coflows in workloads()) {
        let fabric = Fabric::big_switch(4, weir_model::Rate::from_bytes_per_sec(1e8)).unwrap();
        for info in registry() {
            let mut flows = Flows::default();
            let mut policy = info.create();
            let outcome =
                simulate_observed(&fabric, coflows.clone(), policy.as_mut(), &Options::default(), &mut flows).unwrap();
            prop_assert_eq!(flows.0.len(), coflows.iter().map(CoflowSpec::width).sum::<usize>());
            for record in &outcome.coflows {
                let last = flows.0.iter().filter(|flow| flow.coflow == record.id).map(|flow| flow.completed).max();
                prop_assert_eq!(last.unwrap_or(Time::ZERO), record.arrival + record.cct);
            }
        }
    }
}

//! Receivers that ask for a part of their data at a time.

mod support;

use proptest::prelude::*;
use support::{busy_switch, fabrics, workloads};
use weir_model::{Bytes, CoflowId, CoflowSpec, Fabric, FlowSpec, HostId, Rate, Span, Time};
use weir_policy::{create, registry};
use weir_sim::{FlowRecord, Observer, Options, Outcome, Window, simulate, simulate_observed};

fn run(fabric: &Fabric, coflows: &[CoflowSpec], policy: &str, window: Option<Window>) -> Outcome {
    let mut policy = create(policy).expect("a registered policy");
    let options = Options { window, ..Options::default() };
    simulate(fabric, coflows.to_vec(), policy.as_mut(), &options).expect("nobody starves")
}

fn window(bytes: u64, expected: bool) -> Option<Window> {
    Some(Window { bytes: Bytes(bytes), expected, blocks: false })
}

/// Worked out by hand. Host 0 sends 3000 bytes to 1 and, for another coflow, 1000 to 2, at 100 bytes/s. Known at once, the
/// second goes first: 10 s, and 40 s for the first. With windows of 500 bytes both show 500; the first, older, goes first, and
/// never shows more than the second: 30 s, 40 s. Where the policy is told what is to come it does as if all were open.
#[test]
fn windows_hide_which_coflow_is_small_unless_the_policy_is_told() {
    let fabric = Fabric::big_switch(3, Rate::from_bytes_per_sec(100.0)).unwrap();
    let coflow = |id, destination, size| {
        let flow =
            FlowSpec { source: HostId(0), destination: HostId(destination), size: Bytes(size), group: 0 };
        CoflowSpec::new(CoflowId(id), Time::ZERO, vec![flow])
    };
    let coflows = [coflow(1, 1, 3000), coflow(2, 2, 1000)];
    let ccts = |window| -> Vec<f64> {
        let outcome = run(&fabric, &coflows, "varys", window);
        outcome.coflows.iter().map(|record| record.cct.as_secs().round()).collect()
    };
    assert_eq!(ccts(None), [40.0, 10.0]);
    assert_eq!(ccts(window(500, false)), [30.0, 40.0]);
    assert_eq!(ccts(window(500, true)), [40.0, 10.0]);
}

#[derive(Default)]
struct Flows(Vec<FlowRecord>);

impl Observer for Flows {
    fn flow_completed(&mut self, flow: FlowRecord) {
        self.0.push(flow);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Under every policy all bytes of every flow arrive, and no coflow beats an empty network.
    #[test]
    fn every_byte_arrives_by_windows(
        fabric in fabrics(), coflows in workloads(), bytes in 10_000_000u64..100_000_000, expected: bool
    ) {
        // Isolation times are those of direct links, which relays may beat.
        for info in registry().iter().filter(|info| fabric.site_count() == 0 || !info.between_sites) {
            let mut flows = Flows::default();
            let options = Options { window: window(bytes, expected), ..Options::default() };
            let outcome =
                simulate_observed(&fabric, coflows.clone(), info.create().as_mut(), &options, &mut flows).unwrap();
            prop_assert_eq!(outcome.coflows.len(), coflows.len());
            for coflow in &coflows {
                let mut arrived = vec![0; coflow.flows.len()];
                let of = flows.0.iter().filter(|flow| flow.coflow == coflow.id);
                of.for_each(|flow| arrived[flow.index] += flow.size.0);
                let sizes: Vec<u64> = coflow.flows.iter().map(|flow| flow.size.0).collect();
                prop_assert_eq!(arrived, sizes, "{}", info.name);
            }
            for record in &outcome.coflows {
                prop_assert!(record.cct + Span::from_nanos(1) >= record.isolation, "{}", info.name);
            }
        }
    }

    /// A policy that looks at no sizes hears nothing of what is to come.
    #[test]
    fn policies_without_sizes_do_not_hear_what_is_to_come((fabric, coflows) in busy_switch(), bytes in 10_000_000u64..100_000_000) {
        for policy in ["dclas", "fair", "fifo", "baraat"] {
            let [told, not] = [true, false].map(|expected| run(&fabric, &coflows, policy, window(bytes, expected)));
            prop_assert_eq!(told, not, "{}", policy);
        }
    }
}

/// Twelve tasks at six hosts have a block of 400 bytes each for twelve others there, of which two are at the same host: at 100
/// bytes/s a host's link needs 80 s. In parts of a fifth of the window all links are full. Tasks that ask for one block at a
/// time, each in an order of its own, leave uplinks idle that nobody asks just then.
#[test]
fn tasks_that_ask_for_one_block_at_a_time_leave_uplinks_idle() {
    let fabric = Fabric::big_switch(6, Rate::from_bytes_per_sec(100.0)).unwrap();
    let pairs = (0..12).flat_map(|group| (0..12).map(move |map| (map, group)));
    let pairs = pairs.filter(|(map, group)| map % 6 != group % 6);
    let flows = pairs.map(|(map, group)| FlowSpec {
        source: HostId(map % 6),
        destination: HostId(group % 6),
        size: Bytes(400),
        group,
    });
    let coflow = CoflowSpec::new(CoflowId(1), Time::ZERO, flows.collect());
    for policy in ["varys", "fair", "dclas"] {
        let seconds = |bytes, blocks| {
            let window = Some(Window { bytes: Bytes(bytes), expected: false, blocks });
            run(&fabric, std::slice::from_ref(&coflow), policy, window).coflows[0].cct.as_secs().round()
        };
        assert_eq!([seconds(500, false), seconds(10_000, true)], [80.0; 2], "{policy}");
        assert!((100.0..160.0).contains(&seconds(500, true)), "{policy}: {}", seconds(500, true));
    }
}

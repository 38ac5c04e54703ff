//! What the starvation guard of Varys guarantees: service in every T + delta.

use weir_model::*;
use weir_policy::{CoflowTable, Plan, create};
use weir_sim::{Observer, Options, simulate_observed};

/// Bytes of a unit, and what the link moves in a second.
const UNIT: f64 = 1e6;

/// What the coflow with id 0 had sent whenever something happened: (seconds, units).
#[derive(Default)]
struct Sent(Vec<(f64, f64)>);

impl Observer for Sent {
    fn moved(&mut self, from: Time, _to: Time, table: &CoflowTable, _plan: &Plan) {
        if let Some(slot) = table.find_coflow(CoflowId(0)) {
            self.0.push((from.as_secs(), table.attained(slot) / UNIT));
        }
    }
}

/// A coflow of 10 units, and one of a unit every second that takes its only link: for 20 s it would never move.
fn crowded() -> Vec<CoflowSpec> {
    let spec = |id: u64, arrival_s: u64, units: f64| {
        let flow = FlowSpec {
            source: HostId(0),
            destination: HostId(0),
            size: Bytes((units * UNIT) as u64),
            group: 0,
        };
        CoflowSpec::new(CoflowId(id), Time::from_millis(1000 * arrival_s), vec![flow])
    };
    let small = (0..20).map(|second| spec(second + 1, second, 1.0));
    small.chain([spec(0, 0, 10.0)]).collect()
}

fn sent(policy: &str) -> Vec<(f64, f64)> {
    let fabric = Fabric::big_switch(1, Rate::from_bytes_per_sec(UNIT)).expect("a fabric");
    let mut policy = create(policy).expect("a policy");
    let mut sent = Sent::default();
    simulate_observed(&fabric, crowded(), policy.as_mut(), &Options::default(), &mut sent).expect("an end");
    sent.0
}

/// Units sent by a time at which something happens.
fn at(sent: &[(f64, f64)], secs: f64) -> f64 {
    sent.iter().find(|(now, _)| (now - secs).abs() < 1e-6).expect("something happens then").1
}

#[test]
fn every_coflow_is_served_in_every_interval() {
    let sent = sent("varys:T=2s:delta=200ms");
    // At 2 s the second small one has just ended, and the third has come: each has half of the link for 0.2 s.
    assert!((at(&sent, 2.2) - 0.1).abs() < 1e-6, "{sent:?}");
    for interval in 1..9 {
        let end = 2.2 * f64::from(interval);
        let served = at(&sent, end) - if interval == 1 { 0.0 } else { at(&sent, end - 2.2) };
        // There are at most two small ones beside it: what it keeps one from sending, that one sends later.
        assert!(served >= 0.2 / 4.0, "interval {interval}: {served}");
    }
}

#[test]
fn without_the_guard_it_waits_for_all_others() {
    let sent = sent("varys");
    assert_eq!(at(&sent, 19.0), 0.0);
}

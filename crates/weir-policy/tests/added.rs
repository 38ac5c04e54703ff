//! Policies of other crates: what the registry says of them holds as of those of this one.

use weir_model::{Bytes, Rate, Time};
use weir_policy::local::{LocalCoflow, LocalFlow, LocalRule};
use weir_policy::local_rule;
use weir_policy::order::attained::QueueSettings;
use weir_policy::{Claims, PolicyInfo};

/// All to the first flow.
#[derive(Debug)]
struct First;

impl LocalRule for First {
    fn share(&self, _: Time, uplink: Rate, coflows: &[LocalCoflow], rates: &mut Vec<Rate>) {
        let flows = coflows.iter().map(|coflow| coflow.flows.len()).sum();
        rates.clear();
        rates.resize(flows, Rate::ZERO);
        rates.iter_mut().take(1).for_each(|rate| *rate = uplink);
    }
}

const POLICIES: [PolicyInfo; 1] = [PolicyInfo {
    name: "first-flow",
    summary: "fair where the coordinator decides, and all to the first flow where senders do",
    paper: "none",
    claims: Claims { work_conserving: true, starvation_free: false },
    between_sites: false,
    local: Some(|_| Box::new(First)),
    parameters: &[],
    make: |_| weir_policy::create("fair").expect("a policy of this crate"),
}];

#[test]
fn senders_find_the_rule_of_a_policy_that_was_added() {
    assert!(weir_policy::add_policies(&POLICIES));
    let queues =
        QueueSettings { queues: 10, exponent: 10.0, first_bytes: 1e7, sync_interval: weir_model::Span::ZERO };
    let rule = local_rule("first-flow", queues).expect("it has one");
    let flow = LocalFlow { usable: Rate::from_bytes_per_sec(f64::INFINITY) };
    let coflows = [LocalCoflow { queue: 0, sent: Bytes(0), flows: vec![flow; 2] }];
    let mut rates = Vec::new();
    rule.share(Time::ZERO, Rate::from_bytes_per_sec(5.0), &coflows, &mut rates);
    assert_eq!(rates.iter().map(|rate| rate.bytes_per_sec()).collect::<Vec<_>>(), [5.0, 0.0]);
    assert!(local_rule("dclas", queues).is_some());
    assert!(local_rule("fair", queues).is_none() && local_rule("no-such-policy", queues).is_none());
}

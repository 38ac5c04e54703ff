//! D-CLAS at one sender (Chowdhury, Stoica, Efficient Coflow Scheduling Without Prior Knowledge, SIGCOMM 2015,
//! sections 4 and 5).
//!
//! # Problem
//! Queues follow what a coflow has sent everywhere, and only the coordinator can sum that up. A sender must
//! use its uplink well in the meantime, and a small coflow must not wait for the coordinator.
//!
//! # Approach
//! The sender takes the queue it last heard of, the first for a coflow it heard nothing of, and divides its own
//! uplink by the rule of the whole network: queue before queue (strict), or a part for every queue (weighted).
//! What a flow cannot use, because its receiver is busy, goes to the next in order.
//!
//! # Terminology
//! * heard queue: the one the coordinator told last.
//! * own queue: the one that the coflow would be in if no other sender had sent anything of it.
//!
//! # Pseudo-code
//! ```text
//! queue of a coflow = the later of its heard and its own queue
//! strict:   for coflows by (queue, arrival): share what is left equally among its flows, each at most what it
//!           can use
//! weighted: part of queue q = uplink * (K - q) / (sum of K - p over all queues p with flows)
//!           for each queue: its coflows by arrival share its part in that way
//!           then all coflows by (queue, arrival) share what is left in that way
//! ```
//!
//! # Properties
//! * The uplink idles only if every flow has all that it can use.
//! * A coflow never moves up: both its queues only grow.
//! * Where receivers limit no flow, a sender's rates are those of the policy for the whole network.
//!
//! # Departures
//! The own queue is ours: a sender that alone sends much of a coflow need not wait to hear that it did. It
//! moves no coflow earlier than the sum over all senders would.

use super::{LocalCoflow, LocalRule};
use crate::order::attained::{QueueSettings, Thresholds};
use weir_model::{Rate, Time};

/// Serves queue before queue: a later one has what earlier ones leave.
#[derive(Debug)]
pub(crate) struct Strict(Thresholds);

/// Divides the uplink among queues by weight: each has a part of its own.
#[derive(Debug)]
pub(crate) struct Weighted(Thresholds);

/// Flows of coflows in the order in which they are served, and what each was given.
struct Portions<'a> {
    /// Queue, place of its first flow among all, the coflow.
    order: Vec<(u32, usize, &'a LocalCoflow)>,
    given: Vec<f64>,
}

impl<'a> Portions<'a> {
    fn new(thresholds: &Thresholds, coflows: &'a [LocalCoflow]) -> Portions<'a> {
        let mut flows = 0;
        let mut order: Vec<_> = coflows
            .iter()
            .map(|coflow| {
                let first = flows;
                flows += coflow.flows.len();
                (thresholds.queue(coflow.queue, coflow.sent.0 as f64), first, coflow)
            })
            .collect();
        order.sort_by_key(|&(queue, first, _)| (queue, first));
        Portions { order, given: vec![0.0; flows] }
    }

    /// Gives all of `amount` that it can use to the coflow in that place of the order; returns the rest.
    fn give(&mut self, place: usize, amount: f64) -> f64 {
        let (_, first, coflow) = self.order[place];
        let given = &mut self.given[first..][..coflow.flows.len()];
        let want = |at: usize, given: &[f64]| (coflow.flows[at].usable.bytes_per_sec() - given[at]).max(0.0);
        let mut by_want: Vec<usize> = (0..given.len()).collect();
        // The least wish first: what it does not take of its equal part is shared by those that can use more.
        by_want.sort_by(|&a, &b| want(a, given).total_cmp(&want(b, given)));
        let mut left = amount;
        for (done, &at) in by_want.iter().enumerate() {
            let part = want(at, given).min(left / (by_want.len() - done) as f64);
            given[at] += part;
            left = (left - part).max(0.0);
        }
        left
    }

    fn write(self, rates: &mut Vec<Rate>) {
        rates.clear();
        rates.extend(self.given.into_iter().map(Rate::from_bytes_per_sec));
    }
}

impl Strict {
    pub(crate) fn new(settings: QueueSettings) -> Strict {
        Strict(Thresholds::new(&settings))
    }
}

impl LocalRule for Strict {
    fn share(&self, _: Time, uplink: Rate, coflows: &[LocalCoflow], rates: &mut Vec<Rate>) {
        let mut portions = Portions::new(&self.0, coflows);
        let places = 0..portions.order.len();
        places.fold(uplink.bytes_per_sec(), |left, place| portions.give(place, left));
        portions.write(rates);
    }
}

impl Weighted {
    pub(crate) fn new(settings: QueueSettings) -> Weighted {
        Weighted(Thresholds::new(&settings))
    }
}

impl LocalRule for Weighted {
    fn share(&self, _: Time, uplink: Rate, coflows: &[LocalCoflow], rates: &mut Vec<Rate>) {
        let mut portions = Portions::new(&self.0, coflows);
        let mut queues: Vec<u32> = portions.order.iter().map(|&(queue, ..)| queue).collect();
        // Sorted by queue, so equal numbers stand together.
        queues.dedup();
        // K - q with queues from 0: the first of K queues weighs K, the last one 1.
        let weight = |queue: u32| f64::from(self.0.count() - queue);
        let sum: f64 = queues.iter().map(|&queue| weight(queue)).sum();
        let (mut place, mut left) = (0, 0.0);
        for queue in queues {
            let mut part = uplink.bytes_per_sec() * weight(queue) / sum;
            while portions.order.get(place).is_some_and(|&(of, ..)| of == queue) {
                part = portions.give(place, part);
                place += 1;
            }
            left += part;
        }
        // Second round: what some queues could not use, in the order of all queues, so that the uplink does not idle.
        (0..place).fold(left, |left, place| portions.give(place, left));
        portions.write(rates);
    }
}

#[cfg(test)]
mod tests {
    use super::super::LocalFlow;
    use super::*;
    use crate::find;
    use crate::local_rule;
    use proptest::prelude::*;
    use weir_model::Bytes;

    const FREE: f64 = f64::INFINITY;

    fn coflow(queue: u32, sent: u64, usable: &[f64]) -> LocalCoflow {
        let flow = |&rate: &f64| LocalFlow { usable: Rate::from_bytes_per_sec(rate) };
        LocalCoflow { queue, sent: Bytes(sent), flows: usable.iter().map(flow).collect() }
    }

    /// Rates of an uplink of 19 bytes a second.
    fn share(policy: &str, coflows: &[LocalCoflow]) -> Vec<f64> {
        let queues = find(policy).expect("a policy").sender_queues().expect("decided at senders");
        let rule = local_rule(policy, queues).expect("decided at senders");
        let mut rates = vec![Rate::from_bytes_per_sec(99.0)];
        rule.share(Time::ZERO, Rate::from_bytes_per_sec(19.0), coflows, &mut rates);
        rates.into_iter().map(Rate::bytes_per_sec).collect()
    }

    #[test]
    fn the_first_coflow_of_the_first_queue_takes_the_uplink_for_its_flows_alike() {
        let coflows = [coflow(1, 0, &[FREE]), coflow(0, 0, &[FREE, FREE]), coflow(0, 0, &[FREE])];
        assert_eq!(share("dclas-strict", &coflows), [0.0, 9.5, 9.5, 0.0]);
    }

    #[test]
    fn what_a_receiver_cannot_take_goes_to_the_next_in_order() {
        // The first coflow: 3 for the flow that can use no more, and 7 for the other: 9 are left.
        let coflows = [coflow(0, 0, &[7.0, 3.0]), coflow(0, 0, &[0.0, FREE]), coflow(0, 0, &[FREE])];
        assert_eq!(share("dclas-strict", &coflows), [7.0, 3.0, 0.0, 9.0, 0.0]);
    }

    #[test]
    fn queues_share_by_their_weights_and_within_one_the_first_comes_first() {
        // Ten queues weigh 10, 9, ..: the first two of them have 19 in all.
        let coflows = [coflow(1, 0, &[FREE]), coflow(0, 0, &[FREE, FREE]), coflow(0, 0, &[FREE])];
        assert_eq!(share("dclas", &coflows), [9.0, 5.0, 5.0, 0.0]);
        // The first queue uses 4 + 3 of its 10; the second gets the rest, too.
        let coflows = [coflow(1, 0, &[FREE]), coflow(0, 0, &[4.0]), coflow(0, 0, &[3.0])];
        assert_eq!(share("dclas", &coflows), [12.0, 4.0, 3.0]);
    }

    #[test]
    fn a_coflow_nobody_heard_of_goes_before_one_in_a_later_queue_at_once() {
        let coflows = [coflow(1, 20_000_000, &[FREE]), coflow(0, 0, &[FREE])];
        assert_eq!(share("dclas-strict", &coflows), [0.0, 19.0]);
    }

    #[test]
    fn what_a_sender_sent_itself_moves_a_coflow_down_and_nothing_moves_it_up() {
        // 10 MB are the first threshold: with so much the earlier coflow is in the second queue.
        let rates = |sent| share("dclas-strict", &[coflow(0, sent, &[FREE]), coflow(0, 0, &[FREE])]);
        assert_eq!(rates(9_999_999 - 1), [19.0, 0.0]);
        assert_eq!(rates(10_000_000), [0.0, 19.0]);
        // Little was sent here, but elsewhere more than 100 MB: the third queue is behind the second.
        let heard = [coflow(2, 5, &[FREE]), coflow(0, 10_000_000, &[FREE])];
        assert_eq!(share("dclas-strict", &heard), [0.0, 19.0]);
    }

    proptest! {
        #[test]
        fn no_more_than_can_be_used_and_all_of_the_uplink_that_can_be(
            coflows in prop::collection::vec(
                (0u32..12, 0u64..2_000_000_000, prop::collection::vec(prop_oneof![Just(FREE), 0.0..30.0f64], 0..6)),
                0..8,
            ),
            policy in prop_oneof![Just("dclas"), Just("dclas-strict")],
        ) {
            let coflows: Vec<_> = coflows.iter().map(|(queue, sent, usable)| coflow(*queue, *sent, usable)).collect();
            let usable: Vec<f64> =
                coflows.iter().flat_map(|coflow| &coflow.flows).map(|flow| flow.usable.bytes_per_sec()).collect();
            let rates = share(policy, &coflows);
            prop_assert_eq!(rates.len(), usable.len());
            prop_assert!(rates.iter().zip(&usable).all(|(rate, most)| *rate >= 0.0 && *rate <= most + 1e-9));
            let (sum, most): (f64, f64) = (rates.iter().sum(), usable.iter().sum());
            prop_assert!((sum - most.min(19.0)).abs() < 1e-6, "{sum} of {most}");
        }

        /// Every flow has a receiver of its own: the sender's uplink is all there is to share.
        #[test]
        fn a_sender_whose_receivers_limit_nobody_decides_as_the_policy_for_all(
            coflows in prop::collection::vec((0u64..200_000_000, 1usize..5), 1..6),
            policy in prop_oneof![Just("dclas"), Just("dclas-strict")],
        ) {
            let local: Vec<_> =
                coflows.iter().map(|&(sent, flows)| coflow(0, sent, &vec![FREE; flows])).collect();
            let planned = planned(policy, &coflows);
            for (rate, planned) in share(policy, &local).into_iter().zip(planned) {
                prop_assert!((rate - planned).abs() < 1e-6, "{rate} {planned}");
            }
        }
    }

    /// Rates by the policy of that name, for coflows of so many bytes sent and so many flows from one host.
    fn planned(policy: &str, coflows: &[(u64, usize)]) -> Vec<f64> {
        use crate::{CoflowTable, FlowRef, Plan};
        use weir_model::{CoflowId, CoflowSpec, Fabric, FlowId, FlowSpec, HostId};
        let rates = [vec![19.0], vec![1000.0; 32]].concat().into_iter().map(Rate::from_bytes_per_sec);
        let fabric = Fabric::big_switch_with(&rates.collect::<Vec<_>>()).expect("rates above 0");
        let mut table = CoflowTable::new(&fabric);
        let (mut next, mut flows) = (0, Vec::new());
        for (id, &(sent, count)) in (0u64..).zip(coflows) {
            let flow = |at: u32| FlowSpec {
                source: HostId(0),
                destination: HostId(at + 1),
                size: Bytes(1 << 40),
                group: 0,
            };
            let of_coflow = (next..next + count as u32).map(flow).collect();
            let spec = CoflowSpec::new(CoflowId(id), Time::from_nanos(id), of_coflow);
            let slot = table.insert(&spec, FlowId(u64::from(next)), &fabric);
            table.add_attained(slot, sent as f64);
            flows.extend((0..count as u32).map(|flow| FlowRef { coflow: slot, flow }));
            next += count as u32;
        }
        let mut plan = Plan::default();
        crate::create(policy).expect("a policy").plan(Time::ZERO, &fabric, &table, &mut plan);
        table.adopt(&plan);
        flows.into_iter().map(|at| plan.rate(&table, at).bytes_per_sec()).collect()
    }
}

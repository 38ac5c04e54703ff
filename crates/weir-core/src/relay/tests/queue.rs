//! The queue of a next hop against an obvious model, and its shares against numbers worked out by hand.

use super::super::facts::Message;
use super::super::queue::NextHopQueue;
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_proto::relay::FlowKey;

fn key(flow: u64) -> FlowKey {
    FlowKey { coflow: flow, reducer: 0, mapper: 0 }
}

fn message(flow: u64, offset: u64, length: u32) -> Message<()> {
    Message { key: key(flow), offset, length, hop_limit: 1, payload: () }
}

#[derive(Clone, Debug)]
enum Step {
    Class { flow: u64, rank: u64, weight: u32 },
    Push { flow: u64, place: u64, length: u32 },
    Credit { flow: u64, more: u64 },
    Pop,
    TakeWaiting { flow: u64 },
    Remove { flow: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let flow = 0u64..4;
    prop_oneof![
        2 => (flow.clone(), 0u64..3, 1u32..5).prop_map(|(flow, rank, weight)| Step::Class { flow, rank, weight }),
        6 => (flow.clone(), 0u64..20, 1u32..1000)
            .prop_map(|(flow, place, length)| Step::Push { flow, place, length }),
        4 => (flow.clone(), 0u64..3000).prop_map(|(flow, more)| Step::Credit { flow, more }),
        6 => Just(Step::Pop),
        1 => flow.clone().prop_map(|flow| Step::TakeWaiting { flow }),
        1 => flow.prop_map(|flow| Step::Remove { flow }),
    ]
}

/// A flow of the model: what waits, how much was sent, and how much may be.
#[derive(Default)]
struct Model {
    rank: u64,
    waiting: BTreeMap<u64, u32>,
    sent: u64,
    credit: u64,
}

impl Model {
    fn is_ready(&self) -> bool {
        self.waiting
            .first_key_value()
            .is_some_and(|(&offset, &length)| offset + u64::from(length) <= self.credit)
    }
}

proptest! {
    #[test]
    fn no_ready_flow_of_a_lesser_rank_is_passed_over_and_a_flows_first_message_goes_first(
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let (mut queue, mut model) = (NextHopQueue::default(), BTreeMap::<u64, Model>::new());
        for step in steps {
            match step {
                Step::Class { flow, rank, weight } => {
                    queue.set_class(key(flow), rank, f64::from(weight));
                    model.entry(flow).or_default().rank = rank;
                }
                Step::Push { flow, place, length } => {
                    let offset = 1000 * place;
                    let taken = queue.push(message(flow, offset, length));
                    let expected = model.get_mut(&flow).filter(|flow| !flow.waiting.contains_key(&offset));
                    prop_assert_eq!(taken, expected.is_some());
                    if let Some(flow) = expected {
                        flow.waiting.insert(offset, length);
                    }
                }
                Step::Credit { flow, more } => {
                    let credit = model.get(&flow).map_or(more, |flow| flow.credit + more);
                    queue.set_credit(key(flow), credit);
                    // A word that is taken back is not heard.
                    queue.set_credit(key(flow), credit.saturating_sub(10));
                    if let Some(flow) = model.get_mut(&flow) {
                        flow.credit = credit;
                    }
                }
                Step::Pop => {
                    let best = model.values().filter(|flow| flow.is_ready()).map(|flow| flow.rank).min();
                    prop_assert_eq!(queue.is_ready(), best.is_some());
                    let popped = queue.pop();
                    prop_assert_eq!(popped.is_some(), best.is_some());
                    let Some(popped) = popped else { continue };
                    let flow = model.get_mut(&popped.key.coflow).unwrap();
                    prop_assert!(flow.is_ready());
                    prop_assert_eq!(Some(flow.rank), best);
                    prop_assert_eq!(flow.waiting.pop_first(), Some((popped.offset, popped.length)));
                    flow.sent += u64::from(popped.length);
                    prop_assert_eq!(queue.sent(popped.key), flow.sent);
                }
                Step::TakeWaiting { flow } => {
                    let taken: Vec<_> = queue.take_waiting(key(flow)).map(|held| held.offset).collect();
                    let waiting = model.get_mut(&flow).map(|flow| std::mem::take(&mut flow.waiting));
                    let expected: Vec<_> = waiting.unwrap_or_default().into_iter().map(|held| held.0).collect();
                    prop_assert_eq!(taken, expected);
                }
                Step::Remove { flow } => {
                    queue.remove(key(flow));
                    model.remove(&flow);
                }
            }
            for (&flow, expected) in &model {
                prop_assert_eq!(queue.holds(key(flow)), !expected.waiting.is_empty());
            }
        }
    }

    /// The bound of start-time fair queueing: two flows that are both ready all along differ, in what they got over
    /// their weights, by no more than a longest message of each over its weight.
    #[test]
    fn flows_of_a_rank_share_by_weight(
        weights in (1u32..8, 1u32..8), lengths in (1u32..1000, 1u32..1000), pops in 1usize..200,
    ) {
        let mut queue = NextHopQueue::default();
        let flows = [(weights.0, lengths.0), (weights.1, lengths.1)];
        for (flow, (weight, length)) in (0u64..).zip(flows) {
            queue.set_class(key(flow), 7, f64::from(weight));
            queue.set_credit(key(flow), u64::MAX);
            for number in 0..200 {
                prop_assert!(queue.push(message(flow, number * u64::from(length), length)));
            }
        }
        for _ in 0..pops {
            prop_assert!(queue.pop().is_some());
        }
        let [one, other] = [0u64, 1].map(|flow| queue.sent(key(flow)) as f64 / f64::from(flows[flow as usize].0));
        let bound: f64 = flows.iter().map(|&(weight, length)| f64::from(length) / f64::from(weight)).sum();
        prop_assert!((one - other).abs() <= bound + 1.0, "{one} {other} {bound}");
    }
}

/// Weights 3 and 1, messages of 100 bytes: of eight messages the first flow has six.
#[test]
fn three_to_one_is_three_to_one() {
    let mut queue = NextHopQueue::default();
    for (flow, weight) in [(1, 3.0), (2, 1.0)] {
        queue.set_class(key(flow), 0, weight);
        queue.set_credit(key(flow), 10_000);
        for number in 0..10 {
            assert!(queue.push(message(flow, 100 * number, 100)));
        }
    }
    for _ in 0..8 {
        assert!(queue.pop().is_some());
    }
    assert_eq!((queue.sent(key(1)), queue.sent(key(2))), (600, 200));
}

/// A flow that comes late begins at its rank's virtual time: it does not make up for what it missed.
#[test]
fn a_flow_that_comes_late_gets_its_share_from_then_on() {
    let mut queue = NextHopQueue::default();
    for flow in [1, 2] {
        queue.set_class(key(flow), 0, 1.0);
        queue.set_credit(key(flow), 100_000);
    }
    for number in 0..100 {
        assert!(queue.push(message(1, 100 * number, 100)));
    }
    for _ in 0..50 {
        assert!(queue.pop().is_some());
    }
    for number in 0..100 {
        assert!(queue.push(message(2, 100 * number, 100)));
    }
    for _ in 0..20 {
        assert!(queue.pop().is_some());
    }
    assert_eq!((queue.sent(key(1)), queue.sent(key(2))), (6_000, 1_000));
}

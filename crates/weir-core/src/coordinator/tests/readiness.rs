//! Small coflows are left to TCP; others are planned once their gets are there, or were waited for.

use super::super::state::agent_flow;
use super::*;

/// Capacity is 1 MB/s, so that 0.25 s of a link are 250,000 bytes.
fn bypassing() -> Pair {
    Pair::with(tuned(config(4, 1), |tuning| tuning.bypass = Span::from_millis(250)))
}

fn gathering(ready_wait_ms: u64) -> Pair {
    Pair::with(tuned(config(4, 1), |tuning| tuning.ready_wait = Span::from_millis(ready_wait_ms)))
}

const TCP: f64 = f64::INFINITY;

#[test]
fn a_small_coflow_starts_without_a_plan_and_the_policy_never_sees_it() {
    let mut pair = bypassing();
    let (large, small) = (pair.register(1), pair.register(1));
    let first = pair.open(large, "large", 10_000_000, 0, 1);
    let plans = |pair: &mut Pair| {
        let counters = pair.coordinator.status(pair.now).counters;
        counters.iter().find(|counter| counter.name == "plans").unwrap().value
    };
    let before = plans(&mut pair);
    pair.agents[0].handle_put(block(small, "small", 249_999)).unwrap();
    // Before anything is said to the coordinator.
    let second = pair.agents[0].handle_request(pair.now, &request(small, 0, 1, "small")).unwrap().flow;
    assert_eq!(pair.rate(0, second), TCP);
    pair.settle();
    assert_eq!(pair.rate(0, second), TCP);
    assert_rate(pair.rate(0, first), CAPACITY);
    let status = pair.coordinator.status(pair.now);
    let row = status.coflows.iter().find(|coflow| coflow.coflow == small.0).unwrap();
    assert_eq!((row.bypassed, row.live_flows, row.bytes_left), (true, 1, 249_999));
    assert!(row.waits_for.contains("left to TCP"), "{}", row.waits_for);
    pair.wait(300);
    pair.finish(0, second, 249_999);
    let record = &pair.coordinator.status(pair.now).completed[0];
    assert_eq!((record.coflow, record.flows, record.bytes), (small.0, 1, 249_999));
    assert!((record.cct_s - 0.3).abs() < 1e-9, "{}", record.cct_s);
    assert_eq!(plans(&mut pair), before);
}

#[test]
fn a_coflow_as_long_as_the_bound_is_scheduled() {
    let mut pair = bypassing();
    let coflow = pair.register(1);
    let flow = pair.open(coflow, "b", 250_000, 0, 1);
    assert_rate(pair.rate(0, flow), CAPACITY);
}

#[test]
fn a_bypassed_coflow_that_grows_is_scheduled_with_all_its_flows() {
    let mut pair = bypassing();
    let coflow = pair.register(0);
    let first = pair.open(coflow, "a", 200_000, 0, 3);
    assert_eq!(pair.rate(0, first), TCP);
    // No agent knows more than 200,000 bytes; the link to host 3 has 400,000 to carry.
    pair.agents[1].handle_put(block(coflow, "b", 200_000)).unwrap();
    let second = pair.agents[1].handle_request(pair.now, &request(coflow, 0, 3, "b")).unwrap().flow;
    assert_eq!(pair.rate(1, second), TCP);
    pair.settle();
    assert_rate(pair.rate(0, first), CAPACITY / 2.0);
    assert_rate(pair.rate(1, second), CAPACITY / 2.0);
    // It does not become small again: later flows wait for their plan.
    pair.agents[0].handle_put(block(coflow, "c", 10)).unwrap();
    let third = pair.agents[0].handle_request(pair.now, &request(coflow, 0, 1, "c")).unwrap().flow;
    assert_rate(pair.rate(0, third), 0.0);
}

#[test]
fn done_bytes_count_for_the_size_of_a_coflow() {
    let mut pair = bypassing();
    let coflow = pair.register(0);
    let first = pair.open(coflow, "a", 200_000, 0, 3);
    pair.finish(0, first, 200_000);
    let second = pair.open(coflow, "b", 60_000, 1, 3);
    assert_rate(pair.rate(1, second), CAPACITY);
}

#[test]
fn a_flow_that_is_asked_for_again_counts_once() {
    let mut pair = bypassing();
    let coflow = pair.register(1);
    let first = pair.open(coflow, "a", 200_000, 0, 3);
    pair.agents[0].handle_closed(first, false);
    pair.settle();
    let again = pair.agents[0].handle_request(pair.now, &request(coflow, 0, 3, "a")).unwrap().flow;
    pair.settle();
    let status = pair.coordinator.status(pair.now);
    assert!(status.coflows[0].bypassed);
    // Its agent alone thinks of 400,000 bytes and has it wait; the coordinator knows better.
    assert_eq!(pair.rate(0, again), TCP);
}

#[test]
fn blocks_that_wait_to_be_asked_for_count_for_the_agents_own_guess() {
    let mut pair = bypassing();
    let coflow = pair.register(0);
    pair.agents[0].handle_put(block(coflow, "later", 1_000_000)).unwrap();
    pair.agents[0].handle_put(block(coflow, "now", 1000)).unwrap();
    let flow = pair.agents[0].handle_request(pair.now, &request(coflow, 0, 1, "now")).unwrap().flow;
    assert_rate(pair.rate(0, flow), 0.0);
}

#[test]
fn a_coflow_with_a_deadline_is_never_bypassed() {
    let mut pair = bypassing();
    let options = v1::CoflowOptions { flows: 1, deadline_ms: 60_000, ..v1::CoflowOptions::default() };
    let register = v1::RegisterRequest { options: Some(options), request_key: 0 };
    let coflow = pair.coordinator.handle_register(pair.now, register).unwrap();
    pair.settle();
    pair.agents[0].handle_put(block(coflow, "b", 1000)).unwrap();
    let flow = pair.agents[0].handle_request(pair.now, &request(coflow, 0, 1, "b")).unwrap().flow;
    assert_rate(pair.rate(0, flow), 0.0);
    pair.settle();
    assert!(pair.rate(0, flow) < TCP);
}

#[test]
fn an_agent_that_is_back_goes_on_with_a_bypassed_coflow() {
    let mut pair = bypassing();
    let coflow = pair.register(2);
    let flow = pair.open(coflow, "b", 100_000, 0, 1);
    pair.restart_coordinator(1_000);
    pair.coordinator = Coordinator::new(
        tuned(config(4, 1_000), |tuning| tuning.bypass = Span::from_millis(250)),
        &weir_policy::find("varys").unwrap(),
    );
    pair.connect_all();
    assert_eq!(pair.rate(0, flow), TCP);
    assert!(pair.coordinator.status(pair.now).coflows[0].bypassed);
}

#[test]
fn what_was_served_before_a_restart_counts_for_the_size_of_a_coflow() {
    let mut pair = bypassing();
    let coflow = pair.register(0);
    let first = pair.open(coflow, "a", 200_000, 0, 1);
    pair.finish(0, first, 200_000);
    pair.restart_coordinator(1_000);
    pair.coordinator = Coordinator::new(
        tuned(config(4, 1_000), |tuning| tuning.bypass = Span::from_millis(250)),
        &weir_policy::find("varys").unwrap(),
    );
    pair.connect_all();
    let second = pair.open(coflow, "b", 60_000, 0, 2);
    assert_rate(pair.rate(0, second), CAPACITY);
}

#[test]
fn bypass_off_means_that_the_smallest_coflow_is_scheduled() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    pair.agents[0].handle_put(block(coflow, "b", 1)).unwrap();
    let flow = pair.agents[0].handle_request(pair.now, &request(coflow, 0, 1, "b")).unwrap().flow;
    assert_rate(pair.rate(0, flow), 0.0);
    pair.settle();
    assert!(!pair.coordinator.status(pair.now).coflows[0].bypassed);
}

#[test]
fn a_coflow_is_planned_when_all_its_gets_are_there() {
    let mut pair = gathering(1000);
    let coflow = pair.register(2);
    let first = pair.open(coflow, "a", 1_000_000, 0, 2);
    // The first of two gets: paused, for longer than a flow waits for a plan that does not come.
    pair.wait(900);
    assert_rate(pair.rate(0, first), 0.0);
    let status = pair.coordinator.status(pair.now);
    assert_eq!(status.coflows[0].waits_for, "the rest of the flows it announced");
    let second = pair.open(coflow, "b", 1_000_000, 1, 2);
    assert_rate(pair.rate(0, first), CAPACITY / 2.0);
    assert_rate(pair.rate(1, second), CAPACITY / 2.0);
}

#[test]
fn one_missing_get_does_not_block_a_coflow_for_ever() {
    let mut pair = gathering(1000);
    let coflow = pair.register(2);
    let first = pair.open(coflow, "a", 10_000_000, 0, 2);
    pair.wait(999);
    assert_rate(pair.rate(0, first), 0.0);
    pair.wait(1);
    assert_rate(pair.rate(0, first), CAPACITY);
    // The limit counts from the first get: the late one joins at once.
    pair.wait(500);
    let second = pair.open(coflow, "b", 10_000_000, 1, 2);
    assert_rate(pair.rate(1, second), CAPACITY / 2.0);
}

#[test]
fn a_sealed_coflow_waits_for_no_more_gets() {
    let mut pair = gathering(1000);
    let coflow = pair.register(2);
    let first = pair.open(coflow, "a", 10_000_000, 0, 2);
    pair.coordinator.handle_seal(pair.now, coflow).unwrap();
    pair.settle();
    assert_rate(pair.rate(0, first), CAPACITY);
}

#[test]
fn a_coflow_that_announced_no_number_is_planned_at_its_first_get() {
    let mut pair = gathering(1000);
    let coflow = pair.register(0);
    let flow = pair.open(coflow, "a", 1_000_000, 0, 2);
    assert_rate(pair.rate(0, flow), CAPACITY);
}

#[test]
fn a_coflow_that_gathers_does_not_hold_up_others_and_may_end() {
    let mut pair = gathering(1000);
    let (waiting, other) = (pair.register(2), pair.register(1));
    pair.open(waiting, "a", 1000, 0, 2);
    let moving = pair.open(other, "b", 1_000_000, 0, 2);
    assert_rate(pair.rate(0, moving), CAPACITY);
    assert!(pair.unregister(waiting).is_some());
    pair.wait(1000);
    assert_eq!(pair.coordinator.status(pair.now).coflows.len(), 1);
}

#[test]
fn gets_of_a_coflow_that_announced_more_share_a_plan() {
    let mut pair = gathering(3);
    let coflow = pair.register(2);
    let get = |pair: &mut Pair, name: &str, from: usize| {
        pair.agents[from].handle_put(block(coflow, name, 1_000_000)).unwrap();
        pair.agents[from].handle_request(pair.now, &request(coflow, 0, 2, name)).unwrap();
        while let Some(message) = pair.agents[from].poll_message(pair.now) {
            let session = pair.sessions[from].unwrap();
            pair.coordinator.handle_agent(pair.now, session, message);
        }
    };
    get(&mut pair, "a", 0);
    assert_eq!(pair.coordinator.plan_due(), None);
    assert_eq!(pair.coordinator.next_timeout(), Some(pair.now + Span::from_millis(3)));
    pair.now = pair.now + Span::from_millis(1);
    get(&mut pair, "b", 1);
    assert_eq!(pair.coordinator.plan_due(), Some(pair.now));
}

#[test]
fn a_broadcast_is_ready_when_all_receivers_of_its_one_block_asked() {
    let mut pair = gathering(1000);
    let coflow = pair.register(3);
    pair.agents[0].handle_put(block(coflow, "b", 900_000)).unwrap();
    let flows: Vec<FlowNumber> = (1..4)
        .map(|to| pair.agents[0].handle_request(pair.now, &request(coflow, 0, to, "b")).unwrap().flow)
        .collect();
    pair.settle();
    // One uplink for three copies.
    for &flow in &flows {
        assert_rate(pair.rate(0, flow), CAPACITY / 3.0);
    }
    pair.wait(2700);
    for flow in flows {
        pair.finish(0, flow, 900_000);
    }
    let record = &pair.coordinator.status(pair.now).completed[0];
    assert_eq!((record.coflow, record.flows, record.bytes), (coflow.0, 3, 2_700_000));
}

/// Something that may happen to a cluster of four hosts.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Register {
        flows: u64,
        deadline: bool,
    },
    /// A new block of a coflow is put and asked for.
    Open {
        coflow: usize,
        size: u64,
        from: usize,
        to: u32,
    },
    Send {
        flow: usize,
        bytes: u64,
    },
    Close {
        flow: usize,
    },
    Wait {
        millis: u64,
    },
    Seal {
        coflow: usize,
    },
    Unregister {
        coflow: usize,
    },
    /// A session ends, and another begins.
    Reconnect {
        host: usize,
    },
}

fn happening() -> impl proptest::strategy::Strategy<Value = Happening> {
    use proptest::prelude::*;
    prop_oneof![
        (0u64..5, any::<bool>()).prop_map(|(flows, deadline)| Happening::Register { flows, deadline }),
        (0usize..6, 1u64..400_000, 0usize..4, 0u32..4).prop_map(|(coflow, size, from, to)| Happening::Open {
            coflow,
            size,
            from,
            to
        }),
        (0usize..6, 1u64..400_000, 0usize..4, 0u32..4).prop_map(|(coflow, size, from, to)| Happening::Open {
            coflow,
            size,
            from,
            to
        }),
        (0usize..20, 1u64..200_000).prop_map(|(flow, bytes)| Happening::Send { flow, bytes }),
        (0usize..20).prop_map(|flow| Happening::Close { flow }),
        (0u64..80).prop_map(|millis| Happening::Wait { millis }),
        (0usize..6).prop_map(|coflow| Happening::Seal { coflow }),
        (0usize..6).prop_map(|coflow| Happening::Unregister { coflow }),
        (0usize..4).prop_map(|host| Happening::Reconnect { host }),
    ]
}

/// A cluster and what was made in it.
struct History {
    pair: Pair,
    coflows: Vec<CoflowId>,
    /// Serving host, flow, bytes left.
    flows: Vec<(usize, FlowNumber, u64)>,
}

impl History {
    fn happen(&mut self, happening: Happening) {
        let coflow = |at: usize| self.coflows.get(at).copied();
        let now = self.pair.now;
        match happening {
            Happening::Register { flows, deadline } => {
                let deadline_ms = if deadline { 1000 } else { 0 };
                let options = v1::CoflowOptions { flows, deadline_ms, ..v1::CoflowOptions::default() };
                let register = v1::RegisterRequest { options: Some(options), request_key: 0 };
                self.coflows.push(self.pair.coordinator.handle_register(now, register).unwrap());
            }
            Happening::Open { coflow: at, size, from, to } => {
                let (Some(coflow), name) = (coflow(at), self.flows.len().to_string()) else { return };
                if self.pair.agents[from].handle_put(block(coflow, &name, size)).is_ok() {
                    let opened = self.pair.agents[from].handle_request(now, &request(coflow, 0, to, &name));
                    self.flows.push((from, opened.unwrap().flow, size));
                }
            }
            Happening::Send { flow, bytes } => {
                let Some((host, flow, left)) = self.flows.get_mut(flow) else { return };
                let bytes = bytes.min(*left);
                if self.pair.agents[*host].pacing(*flow).is_some() && bytes > 0 {
                    *left -= bytes;
                    self.pair.agents[*host].handle_sent(now, *flow, bytes);
                }
            }
            Happening::Close { flow } => {
                let Some(&(host, flow, left)) = self.flows.get(flow) else { return };
                self.pair.agents[host].handle_closed(flow, left == 0);
            }
            Happening::Wait { millis } => self.pair.wait(millis),
            Happening::Seal { coflow: at } => {
                let _ = coflow(at).map(|coflow| self.pair.coordinator.handle_seal(now, coflow));
            }
            Happening::Unregister { coflow: at } => {
                let _ = coflow(at).map(|coflow| self.pair.unregister(coflow));
            }
            Happening::Reconnect { host } => {
                self.pair.agents[host].handle_session_lost();
                self.pair.next_session += 1;
                self.pair.sessions[host] = Some(SessionId(self.pair.next_session));
                self.pair.agents[host].handle_session_up(now);
            }
        }
        self.pair.settle();
        // What the coordinator aborted is gone.
        for host in 0..4 {
            while let Some(flow) = self.pair.agents[host].poll_abort() {
                self.pair.agents[host].handle_closed(flow, false);
            }
        }
        self.pair.settle();
    }

    fn check(&self) {
        use crate::coordinator::readiness::Stage;
        let coordinator = &self.pair.coordinator;
        for (key, flow) in &coordinator.flows {
            let coflow = &coordinator.coflows[&flow.coflow];
            let scheduled = coflow.stage == Stage::Scheduled;
            assert_eq!(coflow.outside.contains(key), !scheduled);
            assert_eq!(flow.at.is_some(), scheduled && flow.left() > 0);
            // The first plan follows a get within the same moment here, so no receiver has waited in vain.
            let unscheduled = self.pair.rate(flow.host.0 as usize, agent_flow(*key)) == TCP;
            match coflow.stage {
                Stage::Bypassed | Stage::Refused => assert!(unscheduled),
                Stage::Gathering(until) => assert!(until > self.pair.now),
                Stage::Scheduled => assert!(!unscheduled || flow.left() == 0),
            }
        }
        for (id, coflow) in &coordinator.coflows {
            let waits = coordinator.gathering.iter().filter(|(_, other)| other == id).count();
            assert_eq!(waits == 1, matches!(coflow.stage, Stage::Gathering(_)));
            assert!(waits <= 1 && coflow.outside.iter().all(|key| coordinator.flows.contains_key(key)));
        }
        assert!(coordinator.gathering.iter().all(|(_, id)| coordinator.coflows.contains_key(id)));
    }
}

proptest::proptest! {
    #[test]
    fn every_flow_is_in_the_table_or_outside_and_its_agent_knows(
        happenings in proptest::collection::vec(happening(), 1..60),
    ) {
        let times = (Span::from_millis(250), Span::from_millis(50));
        let config = tuned(config(4, 1), |tuning| (tuning.bypass, tuning.ready_wait) = times);
        let mut history = History { pair: Pair::with(config), coflows: Vec::new(), flows: Vec::new() };
        for happening in happenings {
            history.happen(happening);
            history.check();
        }
    }
}

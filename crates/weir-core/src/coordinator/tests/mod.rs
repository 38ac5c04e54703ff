//! A coordinator and its agents on virtual time, without sockets.

mod admission;
mod ancestry;
mod attacks;
mod batching;
mod calls;
mod changes;
mod claims;
mod classes;
mod defects;
mod differences;
mod draining;
mod expected;
mod foreign;
mod giving;
mod holders;
mod joining;
mod leases;
mod noise;
mod observing;
mod offers;
mod pauses;
mod readiness;
mod repair;
mod senders;
mod sizes;
mod slow;
mod sweeping;
mod topology;
mod witnesses;

use super::{Coordinator, CoordinatorConfig, DeadlineMargin, Output, SessionId, Tuning, Wire};
use crate::agent::{Agent, AgentConfig, BlockEntry, Pacing};
use crate::ids::{FlowNumber, HostNumber};
use weir_model::{CoflowId, Fabric, Rate, Span, Time};
use weir_proto::data::{Identity, Request, Status};
use weir_proto::v1;

const LEASE: Span = Span::from_millis(1000);
const CAPACITY: f64 = 1e6;

/// Two hosts or more, links of 1 MB/s; every message arrives at once.
struct Pair {
    now: Time,
    coordinator: Coordinator,
    agents: Vec<Agent>,
    sessions: Vec<Option<SessionId>>,
    next_session: u64,
    /// What holds flows up is the path, not their receivers.
    path_is_full: bool,
    /// All messages so far, those of agents with their hosts.
    said: Vec<Said>,
}

#[derive(Clone, Debug, PartialEq)]
enum Said {
    Agent(usize, v1::AgentMessage),
    Coordinator(Box<v1::CoordinatorMessage>),
}

/// Nothing is bypassed, and nothing waits for gets that are missing.
fn config(hosts: u32, first_coflow: u64) -> CoordinatorConfig {
    let fabric = Fabric::big_switch(hosts, Rate::from_bytes_per_sec(CAPACITY)).unwrap();
    let (bypass, ready_wait) = (Span::ZERO, Span::ZERO);
    let wire = Wire { bytes_per_byte: 1.0, headroom: 1.0 };
    let (deadline_margin, sync_interval) = (DeadlineMargin::NONE, Span::from_millis(10));
    CoordinatorConfig {
        fabric,
        joining: None,
        lease: LEASE,
        first_coflow: CoflowId(first_coflow),
        wire,
        coflow_lease: Span::MAX,
        tuning: Tuning { bypass, ready_wait, deadline_margin, sync_interval, batch: Span::ZERO },
    }
}

fn tuned(mut config: CoordinatorConfig, tune: impl FnOnce(&mut Tuning)) -> CoordinatorConfig {
    tune(&mut config.tuning);
    config
}

fn coordinator(hosts: u32, first_coflow: u64) -> Coordinator {
    Coordinator::new(config(hosts, first_coflow), &weir_policy::find("varys").unwrap())
}

fn block(coflow: CoflowId, name: &str, size: u64) -> BlockEntry {
    BlockEntry::of_file(coflow, name.to_owned(), "/data".to_owned(), size, Identity::drawn([1; 16]))
}

/// A request of a receiver that takes any block of the name.
fn request(coflow: CoflowId, offset: u64, destination: u32, name: &str) -> Request {
    let (identity, block) = (Identity::UNKNOWN, name.to_owned());
    Request { coflow: coflow.0, offset, destination, group: 0, identity, block }
}

/// An agent as a host's new process has it.
fn agent(host: u32, incarnation: u64) -> Agent {
    Agent::new(AgentConfig {
        host: HostNumber(host),
        data_address: format!("10.0.0.{host}:7071"),
        incarnation,
        spool_identity: 0,
        first_plan_wait: Span::from_millis(100),
        report_interval: Span::from_millis(20),
        batch: Span::ZERO,
        ..AgentConfig::default()
    })
}

impl Pair {
    fn new(hosts: u32) -> Pair {
        Pair::with(config(hosts, 1))
    }

    fn with(config: CoordinatorConfig) -> Pair {
        Pair::under(config, "varys")
    }

    fn under(config: CoordinatorConfig, policy: &str) -> Pair {
        let hosts = config.fabric.hosts();
        let agents = (0..hosts).map(|host| agent(host, 1));
        let mut pair = Pair {
            now: Time::from_millis(1_000_000),
            coordinator: Coordinator::new(config, &weir_policy::find(policy).unwrap()),
            said: Vec::new(),
            agents: agents.collect(),
            sessions: vec![None; hosts as usize],
            next_session: 0,
            path_is_full: false,
        };
        pair.connect_all();
        pair
    }

    fn connect_all(&mut self) {
        for agent in &mut self.agents {
            agent.handle_terms(self.now, self.coordinator.terms());
        }
        self.connect_all_but_terms();
    }

    /// Sessions of agents that go by the terms they have.
    fn connect_all_but_terms(&mut self) {
        for host in 0..self.agents.len() {
            self.start_session(host);
        }
        self.settle();
    }

    fn start_session(&mut self, host: usize) {
        self.next_session += 1;
        self.sessions[host] = Some(SessionId(self.next_session));
        self.agents[host].handle_session_up(self.now);
    }

    /// Delivers messages and plans until nothing is left to say.
    fn settle(&mut self) {
        loop {
            let mut idle = true;
            for host in 0..self.agents.len() {
                self.agents[host].handle_timeout(self.now);
                while let Some(flow) = self.agents[host].poll_suspect() {
                    let waited = if self.path_is_full { 0 } else { self.now.nanos() };
                    self.agents[host].handle_waited(self.now, flow, Span::from_nanos(waited));
                }
                while let Some(message) = self.agents[host].poll_message(self.now) {
                    let Some(session) = self.sessions[host] else { continue };
                    idle = false;
                    self.said.push(Said::Agent(host, message.clone()));
                    match &message.events[0].kind {
                        Some(v1::agent_event::Kind::Hello(hello)) => {
                            self.coordinator.handle_hello(self.now, session, hello.clone()).unwrap();
                        }
                        _ => self.coordinator.handle_agent(self.now, session, message),
                    }
                }
            }
            self.coordinator.handle_timeout(self.now);
            // Plans are asked for early: a test is to see what follows from an event. Syncs keep to their interval.
            let due = self.coordinator.plan_due().is_some_and(|due| due <= self.now);
            let plans = due || self.coordinator.senders.is_none();
            idle &= !(plans && self.coordinator.plan_now(self.now));
            self.coordinator.check_dues();
            while let Some((session, message)) = self.coordinator.poll_message() {
                if let Some(host) = self.sessions.iter().position(|&other| other == Some(session)) {
                    self.said.push(Said::Coordinator(Box::new(message.clone())));
                    self.agents[host].handle_coordinator(self.now, message);
                    idle = false;
                }
            }
            if idle {
                return;
            }
        }
    }

    /// Lets time pass for coordinator and agents, a second at a time: to a coordinator a longer step is one that it did not run in.
    fn wait(&mut self, millis: u64) {
        let end = self.now + Span::from_millis(millis);
        loop {
            self.now = end.min(self.now + Span::from_millis(1_000));
            self.settle();
            if self.now == end {
                return;
            }
        }
    }

    fn register(&mut self, flows: u64) -> CoflowId {
        let options = v1::CoflowOptions { flows, ..v1::CoflowOptions::default() };
        let request = v1::RegisterRequest { options: Some(options), request_key: 0 };
        let coflow = self.coordinator.handle_register(self.now, request).unwrap();
        self.settle();
        coflow
    }

    /// Puts a block at `from` and lets host `to` get it; returns the agent's flow id.
    fn open(&mut self, coflow: CoflowId, name: &str, size: u64, from: usize, to: u32) -> FlowNumber {
        let flow = self.ask_block(coflow, name, size, from, to);
        self.settle();
        flow
    }

    /// Puts a block, and lets host `to` ask for it; the coordinator does not hear of it yet.
    fn ask_block(&mut self, coflow: CoflowId, name: &str, size: u64, from: usize, to: u32) -> FlowNumber {
        self.agents[from].handle_put(block(coflow, name, size)).unwrap();
        self.ask(coflow, name, from, to)
    }

    /// Lets host `to` ask `from` for a block; returns the agent's flow id. The coordinator does not hear of it yet.
    fn ask(&mut self, coflow: CoflowId, name: &str, from: usize, to: u32) -> FlowNumber {
        let request = request(coflow, 0, to, name);
        self.agents[from].handle_request(self.now, &request).unwrap().flow
    }

    /// Unregisters a coflow. Its agents may wait a little for receivers that have all and did not say so.
    fn unregister(&mut self, coflow: CoflowId) -> Option<v1::CoflowRecord> {
        self.coordinator.handle_unregister(self.now, 1, coflow);
        self.settle();
        loop {
            match self.coordinator.poll_unregistered() {
                Some(unregistered) => return unregistered.record,
                None => self.wait(50),
            }
        }
    }

    fn rate(&self, host: usize, flow: FlowNumber) -> f64 {
        match self.agents[host].pacing(flow).unwrap() {
            Pacing::Rated(rate) => rate.bytes_per_sec(),
            Pacing::Paused => 0.0,
            Pacing::Unscheduled => f64::INFINITY,
        }
    }

    fn finish(&mut self, host: usize, flow: FlowNumber, bytes: u64) {
        self.agents[host].handle_sent(self.now, flow, bytes);
        self.agents[host].handle_closed(flow, true);
        self.settle();
    }
}

/// All policies for hosts whose rates are to be followed.
fn policies_of_rates() -> impl Iterator<Item = &'static weir_policy::PolicyInfo> {
    let for_hosts = weir_policy::registry().iter().filter(|info| !info.between_sites);
    for_hosts.filter(|info| info.create().classes().is_none())
}

fn assert_rate(actual: f64, expected: f64) {
    assert!((actual - expected).abs() < 1.0, "{actual} instead of {expected}");
}

#[test]
fn a_lone_flow_gets_its_whole_path() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    let flow = pair.open(coflow, "b", 1_000_000, 0, 1);
    assert_rate(pair.rate(0, flow), CAPACITY);
}

#[test]
fn a_smaller_coflow_preempts_and_the_larger_goes_on_after_it() {
    let mut pair = Pair::new(2);
    let (large, small) = (pair.register(1), pair.register(1));
    let first = pair.open(large, "large", 10_000_000, 0, 1);
    let second = pair.open(small, "small", 100_000, 0, 1);
    assert_rate(pair.rate(0, first), 0.0);
    assert_rate(pair.rate(0, second), CAPACITY);
    pair.wait(100);
    pair.finish(0, second, 100_000);
    assert_rate(pair.rate(0, first), CAPACITY);
}

#[test]
fn capacity_is_free_once_all_bytes_are_sent_though_nobody_acknowledged_yet() {
    let mut pair = Pair::new(2);
    let (large, small) = (pair.register(1), pair.register(1));
    let first = pair.open(large, "large", 10_000_000, 0, 1);
    let second = pair.open(small, "small", 100_000, 0, 1);
    pair.wait(100);
    let now = pair.now;
    pair.agents[0].handle_sent(now, second, 100_000);
    pair.settle();
    assert_rate(pair.rate(0, first), CAPACITY);
}

#[test]
fn a_receiver_that_goes_away_frees_its_capacity() {
    let mut pair = Pair::new(3);
    let (one, two) = (pair.register(1), pair.register(1));
    let gone = pair.open(one, "a", 100_000, 0, 1);
    let other = pair.open(two, "b", 10_000_000, 0, 2);
    assert_rate(pair.rate(0, other), 0.0);
    pair.agents[0].handle_closed(gone, false);
    pair.settle();
    assert_rate(pair.rate(0, other), CAPACITY);
}

#[test]
fn a_lapsed_lease_means_tcp_sharing_for_old_and_new_flows() {
    let mut pair = Pair::new(2);
    let (large, small) = (pair.register(1), pair.register(1));
    let first = pair.open(large, "large", 10_000_000, 0, 1);
    pair.open(small, "small", 100_000, 0, 1);
    assert_rate(pair.rate(0, first), 0.0);
    // The coordinator is gone: nothing is delivered any more.
    pair.sessions = vec![None; 2];
    pair.agents[0].handle_session_lost();
    pair.now = pair.now + LEASE;
    let now = pair.now;
    pair.agents[0].handle_timeout(now);
    assert_eq!(pair.rate(0, first), f64::INFINITY);
    pair.agents[0].handle_put(block(large, "more", 5)).unwrap();
    let request = request(large, 0, 1, "more");
    let third = pair.agents[0].handle_request(now, &request).unwrap().flow;
    assert_eq!(pair.rate(0, third), f64::INFINITY);
}

#[test]
fn a_new_flow_waits_for_its_plan_but_not_for_ever() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    pair.agents[0].handle_put(block(coflow, "b", 10)).unwrap();
    let request = request(coflow, 0, 1, "b");
    let flow = pair.agents[0].handle_request(pair.now, &request).unwrap().flow;
    // The request's message is on its way; no plan arrives.
    assert_eq!(pair.rate(0, flow), 0.0);
    let later = pair.now + Span::from_millis(100);
    pair.agents[0].handle_timeout(later);
    assert_eq!(pair.rate(0, flow), f64::INFINITY);
}

#[test]
fn stale_epochs_are_dropped_and_counted() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    let flow = pair.open(coflow, "b", 1_000_000, 0, 1);
    let pause = v1::Plan {
        coflows: vec![v1::CoflowRate { coflow: coflow.0, drain_per_s: 0.0, whole: false }],
        latest_flow: u64::MAX,
        ..v1::Plan::default()
    };
    let kind = Some(v1::coordinator_message::Kind::Plan(pause));
    let message = v1::CoordinatorMessage { epoch: 1, lease_ms: 1000, heard_ns: 0, kind };
    let now = pair.now;
    pair.agents[0].handle_coordinator(now, message);
    assert_rate(pair.rate(0, flow), CAPACITY);
    assert_eq!(pair.agents[0].stale_dropped(), 1);
}

#[test]
fn a_restarted_coordinator_knows_again_what_its_agents_know() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(3);
    let done = pair.open(coflow, "a", 1000, 0, 1);
    pair.finish(0, done, 1000);
    let moving = pair.open(coflow, "b", 1_000_000, 0, 1);
    let now = pair.now;
    pair.agents[0].handle_sent(now, moving, 250_000);
    pair.wait(50);
    for agent in &mut pair.agents {
        agent.handle_session_lost();
    }
    pair.coordinator = coordinator(2, 1 << 40);
    pair.wait(300);
    pair.connect_all();
    assert_rate(pair.rate(0, moving), CAPACITY);
    let status = pair.coordinator.status(pair.now);
    let known = &status.coflows[0];
    assert_eq!((known.coflow, known.done_flows, known.live_flows), (coflow.0, 1, 1));
    assert_eq!(known.bytes_left, 750_000);
    assert!((known.age_s - 0.35).abs() < 1e-6, "{}", known.age_s);
    assert!(pair.register(1) > coflow, "ids are not given twice");
}

#[test]
fn an_agent_that_is_gone_and_back_serves_its_blocks_again() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    pair.open(coflow, "b", 1_000_000, 0, 1);
    let session = pair.sessions[0].unwrap();
    pair.coordinator.handle_session_lost(pair.now, session);
    let locate = v1::LocateRequest { coflow: coflow.0, block: "b".to_owned(), wait_ms: 0, host: 1 };
    pair.coordinator.handle_locate(pair.now, 1, locate.clone());
    assert_eq!(pair.coordinator.poll_answer().unwrap().reply.holders, []);
    // A new process of the host, from the journal of the old one.
    let mut agent = agent(0, 2);
    while let Some(entry) = pair.agents[0].poll_journal() {
        agent.restore(entry);
    }
    pair.agents[0] = agent;
    pair.connect_all();
    pair.coordinator.handle_locate(pair.now, 2, locate);
    assert_eq!(pair.coordinator.poll_answer().unwrap().reply.holders.len(), 1);
    let request = request(coflow, 262_144, 1, "b");
    let flow = pair.agents[0].handle_request(pair.now, &request).unwrap().flow;
    pair.settle();
    assert_rate(pair.rate(0, flow), CAPACITY);
}

impl Pair {
    /// A coordinator that knows nothing, and no agent attached to it yet.
    fn restart_coordinator(&mut self, first_coflow: u64) {
        for (agent, session) in self.agents.iter_mut().zip(&mut self.sessions) {
            agent.handle_session_lost();
            *session = None;
        }
        self.coordinator = coordinator(self.agents.len() as u32, first_coflow);
    }
}

#[test]
fn a_coflow_completes_though_some_of_its_flows_were_done_before_a_restart() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(2);
    let done = pair.open(coflow, "a", 1000, 0, 1);
    pair.finish(0, done, 1000);
    pair.restart_coordinator(1_000);
    pair.connect_all();
    let last = pair.open(coflow, "b", 2000, 0, 1);
    pair.finish(0, last, 2000);
    let status = pair.coordinator.status(pair.now);
    assert_eq!(status.completed.len(), 1);
    assert_eq!((status.completed[0].flows, status.completed[0].bytes), (2, 3000));
}

#[test]
fn a_sealed_coflow_is_recorded_once_though_agents_come_back_one_by_one() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(0);
    let done = pair.open(coflow, "a", 1000, 0, 1);
    let moving = pair.open(coflow, "b", 2000, 1, 0);
    pair.coordinator.handle_seal(pair.now, coflow).unwrap();
    pair.finish(0, done, 1000);
    pair.restart_coordinator(1_000);
    pair.connect_all();
    pair.finish(1, moving, 2000);
    let completed = pair.coordinator.status(pair.now).completed;
    assert_eq!(completed.len(), 1);
    assert_eq!((completed[0].flows, completed[0].bytes), (2, 3000));
}

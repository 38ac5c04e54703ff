//! The system: coordinator, agents, links, and the loop.

use super::event::{Call, Event, Job};
use super::links::Links;
use super::{Computing, LEAD, ScaleSettings, Traffic};
use crate::events::Queue;
use std::collections::BTreeSet;
use std::hash::Hasher;
use std::time::Instant;
use twox_hash::XxHash3_64;
use weir_core::agent::{Agent, AgentConfig};
use weir_core::coordinator::{Coordinator, CoordinatorConfig, DeadlineMargin, Tuning, Wire, first_coflow};
use weir_core::ids::HostNumber;
use weir_model::{CoflowSpec, Fabric, Span, Time};

/// Clocks show the time of day.
const BEGIN: Time = Time::from_millis(1_700_000_000_000);
/// All agents are there when the first coflow is registered.
const ATTACHED: Span = Span::from_millis(3_000);
/// As of `weir coordinator`.
const LEASE: Span = Span::from_millis(1_000);
const COFLOW_LEASE: Span = Span::from_millis(600_000);
/// As of `weir agent`.
const FIRST_PLAN_WAIT: Span = Span::from_millis(100);
/// No party acts twice within this time for nothing.
const STEP: Span = Span::from_nanos(10_000);

/// A host: its agent, and when it acts next.
pub(super) struct Host {
    pub(super) agent: Agent,
    wakes: Time,
    /// Of the latest [`Event::Ends`], and when it is.
    ends: (u64, Time),
}

/// All parties, and what is to happen.
pub(super) struct System<'a> {
    pub(super) settings: &'a ScaleSettings,
    pub(super) now: Time,
    queue: Queue<Event>,
    pub(super) core: Coordinator,
    wakes: Time,
    pub(super) hosts: Vec<Host>,
    pub(super) links: Links,
    pub(super) jobs: Vec<Job>,
    /// Which flow of which job each get is for.
    pub(super) gets: Vec<(usize, usize)>,
    /// Jobs that are not complete.
    pub(super) left: usize,
    /// Who is to act once all that happens now has happened.
    pub(super) coordinator_acts: bool,
    pub(super) agents_act: BTreeSet<u32>,
    pub(super) done: Control,
    pub(super) wrong: Option<String>,
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// Completion times in the order of the coflows.
    pub ccts: Vec<Span>,
    /// From agents to the coordinator.
    pub up: Traffic,
    /// From the coordinator to agents.
    pub down: Traffic,
    /// Calls of drivers and receivers, without their answers.
    pub calls: u64,
    /// Plans, or syncs where senders decide.
    pub plans: u64,
    /// Events of the run.
    pub events: u64,
    /// Virtual time from the beginning to the end.
    pub took: Span,
    /// Wall-clock time that the parties took to compute.
    pub computing: Computing,
}

impl Control {
    /// Equal for two runs in which all happened at the same times.
    pub fn digest(&self) -> u64 {
        let mut digest = XxHash3_64::new();
        self.ccts.iter().for_each(|cct| digest.write_u64(cct.nanos()));
        let counts = [self.up.messages, self.up.bytes, self.down.messages, self.down.bytes];
        counts.into_iter().for_each(|count| digest.write_u64(count));
        let counts = [self.calls, self.plans, self.events, self.took.nanos()];
        counts.into_iter().for_each(|count| digest.write_u64(count));
        digest.finish()
    }
}

/// Runs coflows through the system until all are complete. Their arrivals count from any time; they wait for no others.
///
/// # Errors
/// What does not fit together, in words; or what went wrong.
pub fn run(settings: &ScaleSettings, coflows: &[CoflowSpec]) -> Result<Control, String> {
    let began = Instant::now();
    let mut system = System::new(settings, coflows)?;
    system.begin();
    while system.left > 0 {
        system.step()?;
    }
    let mut done = system.done;
    done.took = system.now.since(BEGIN);
    done.ccts = system.jobs.iter().map(|job| job.cct).collect();
    done.computing.run = began.elapsed();
    Ok(done)
}

impl<'a> System<'a> {
    fn new(settings: &'a ScaleSettings, coflows: &[CoflowSpec]) -> Result<System<'a>, String> {
        let policy = weir_policy::find(&settings.policy).map_err(|error| error.to_string())?;
        let planned = settings.link.scaled(settings.plan_share);
        let fabric = Fabric::big_switch(settings.hosts, planned).map_err(|error| error.to_string())?;
        let config = CoordinatorConfig {
            fabric,
            joining: None,
            lease: LEASE,
            first_coflow: first_coflow(BEGIN.nanos() / 1_000_000, 0),
            coflow_lease: COFLOW_LEASE,
            // Nothing else passes these links, and interfaces are not measured.
            wire: Wire { bytes_per_byte: 1.0, headroom: 1.0 / settings.plan_share },
            tuning: Tuning {
                bypass: settings.bypass,
                ready_wait: settings.ready_wait,
                deadline_margin: DeadlineMargin::NONE,
                sync_interval: settings.sync_interval,
                batch: settings.batch,
            },
        };
        let hosts = (0..settings.hosts).map(|host| Host {
            agent: Agent::new(agent_config(settings, host)),
            wakes: Time::MAX,
            ends: (0, Time::MAX),
        });
        let first = coflows.iter().map(|coflow| coflow.arrival).min().unwrap_or(Time::ZERO);
        let begins = |coflow: &CoflowSpec| BEGIN + ATTACHED + LEAD + coflow.arrival.since(first);
        let mut gets = Vec::new();
        let mut jobs = Vec::new();
        for coflow in coflows {
            jobs.push(Job::new(begins(coflow), gets.len(), coflow)?);
            gets.extend((0..coflow.flows.len()).map(|flow| (jobs.len() - 1, flow)));
        }
        Ok(System {
            settings,
            now: BEGIN,
            queue: Queue::default(),
            core: Coordinator::new(config, &policy),
            wakes: Time::MAX,
            hosts: hosts.collect(),
            links: Links::new(settings.hosts, settings.link),
            left: jobs.len(),
            jobs,
            gets,
            coordinator_acts: true,
            agents_act: BTreeSet::new(),
            done: Control::default(),
            wrong: None,
        })
    }

    /// All agents attach; drivers have their coflows before them.
    fn begin(&mut self) {
        let terms = self.core.terms();
        for (number, host) in (0..).zip(&mut self.hosts) {
            host.agent.handle_terms(self.now, terms.clone());
            host.agent.handle_session_up(self.now);
            self.agents_act.insert(number);
        }
        for job in 0..self.jobs.len() {
            let begins = self.jobs[job].begins;
            self.queue.push(Time::from_nanos(begins.nanos() - LEAD.nanos()), Event::Register { job });
            self.queue.push(begins, Event::Begin { job });
        }
        self.settle();
    }

    /// Lets all happen that happens next, at one time; then those act to whom it happened.
    fn step(&mut self) -> Result<(), String> {
        let Some(at) = self.queue.next_time() else { return Err(self.stalled()) };
        self.now = at;
        // All that happens at one time is taken in before any party acts on it.
        while self.queue.next_time() == Some(at) {
            let Some((_, _, event)) = self.queue.pop() else { break };
            self.done.events += 1;
            self.happen(event);
        }
        self.settle();
        self.wrong.take().map_or(Ok(()), Err)
    }

    fn stalled(&self) -> String {
        format!("nothing is to happen, and {} coflows are not complete", self.left)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::CoordinatorWakes => {
                if self.wakes <= self.now {
                    self.wakes = Time::MAX;
                    self.coordinator_acts = true;
                }
            }
            Event::AgentWakes { host } => {
                let side = &mut self.hosts[host as usize];
                if side.wakes <= self.now {
                    side.wakes = Time::MAX;
                    self.agents_act.insert(host);
                }
            }
            Event::Upward { host, message } => self.hear_agent(host, *message),
            Event::Downward { host, message } => self.hear_coordinator(host, *message),
            Event::Register { job } => self.later(Event::Call(Call::Register { job })),
            Event::Registered { job, coflow } => self.registered(job, coflow),
            Event::Begin { job } => self.later(Event::Call(Call::Locate { job })),
            Event::Call(call) => self.take_call(call),
            Event::Request { get, holder } => self.request(get, holder),
            Event::Ends { host, number } => {
                // An end that was moved since has another number, and an event of its own.
                if self.hosts[host as usize].ends.0 == number {
                    self.hosts[host as usize].ends.1 = Time::MAX;
                    self.tell_moved(host);
                    self.agents_act.insert(host);
                }
            }
            Event::Received { get, from, flow } => self.received(get, from, flow),
            Event::Done { host, flow } => {
                self.hosts[host as usize].agent.handle_closed(flow, true);
                self.agents_act.insert(host);
            }
        }
    }

    /// All act that have something to do, and links are divided anew.
    fn settle(&mut self) {
        if std::mem::take(&mut self.coordinator_acts) {
            self.settle_coordinator();
        }
        for host in std::mem::take(&mut self.agents_act) {
            self.settle_agent(host);
        }
        self.links.divide(self.now);
        for host in self.links.take_changed_ends() {
            let next = self.links.next_end(host).unwrap_or(Time::MAX);
            let ends = &mut self.hosts[host as usize].ends;
            if next != ends.1 {
                *ends = (ends.0 + 1, next);
                if next < Time::MAX {
                    let number = ends.0;
                    self.queue.push(next.max(self.now), Event::Ends { host, number });
                }
            }
        }
    }

    pub(super) fn wake_coordinator(&mut self) {
        let Some(next) = self.core.next_timeout() else { return };
        let next = next.max(self.now + STEP);
        if next < self.wakes {
            self.wakes = next;
            self.queue.push(next, Event::CoordinatorWakes);
        }
    }

    pub(super) fn wake_agent(&mut self, host: u32) {
        let side = &mut self.hosts[host as usize];
        let Some(next) = side.agent.next_timeout() else { return };
        let next = next.max(self.now + STEP);
        if next < side.wakes {
            side.wakes = next;
            self.queue.push(next, Event::AgentWakes { host });
        }
    }

    /// Something happens as much later as a message takes.
    pub(super) fn later(&mut self, event: Event) {
        self.queue.push(self.now + self.settings.delay, event);
    }

    /// Something happens so much later.
    pub(super) fn after(&mut self, after: Span, event: Event) {
        self.queue.push(self.now + after, event);
    }
}

fn agent_config(settings: &ScaleSettings, host: u32) -> AgentConfig {
    AgentConfig {
        host: HostNumber(host),
        data_address: format!("10.{}.{}.{}:7071", host >> 16, (host >> 8) & 0xff, host & 0xff),
        incarnation: BEGIN.nanos(),
        spool_identity: u64::from(host) + 1,
        first_plan_wait: FIRST_PLAN_WAIT,
        report_interval: settings.report_interval,
        batch: settings.batch,
        ..AgentConfig::default()
    }
}

//! What each party does: the coordinator, agents, and models of drivers, tasks and receivers.

use super::event::{Call, Event, Job, host_of, session_of};
use super::system::System;
use std::time::Instant;
use weir_core::agent::{BlockEntry, Crowd, Output as AgentOutput, Pacing};
use weir_core::coordinator::{Answer, Output};
use weir_core::ids::FlowNumber;
use weir_model::{CoflowId, Span};
use weir_proto::data::{Identity, Request};
use weir_proto::{Message, v1};

/// Longest wait of one call for a holder.
const LOCATE_WAIT_MS: u64 = 60_000;
/// Drivers renew at a third of their lease of ten minutes.
const RENEWAL: Span = Span::from_millis(200_000);

impl System<'_> {
    pub(super) fn hear_agent(&mut self, host: u32, message: v1::AgentMessage) {
        self.done.up.messages += 1;
        self.done.up.bytes += message.encoded_len() as u64;
        let began = Instant::now();
        let session = session_of(host);
        let first = message.events.first().and_then(|event| event.kind.as_ref());
        if let Some(v1::agent_event::Kind::Hello(hello)) = first {
            if let Err(error) = self.core.handle_hello(self.now, session, hello.clone()) {
                self.wrong = Some(error.to_string());
            }
        } else {
            self.core.handle_agent(self.now, session, message);
        }
        self.done.computing.coordinator += began.elapsed();
        self.coordinator_acts = true;
    }

    pub(super) fn take_call(&mut self, call: Call) {
        let (now, began) = (self.now, Instant::now());
        self.done.calls += 1;
        match call {
            Call::Register { job } => self.register(job),
            Call::Locate { job } => self.locate(job),
            Call::Renew { job } => {
                if let Some(coflow) = self.jobs[job].coflow.filter(|_| self.jobs[job].left > 0) {
                    let renewed = self.core.handle_renew(now, &v1::RenewRequest { coflows: vec![coflow.0] });
                    if !renewed.ended.is_empty() {
                        self.wrong = Some(format!("coflow {job} has ended, and its driver lives"));
                    }
                    self.after(RENEWAL, Event::Call(Call::Renew { job }));
                }
            }
            Call::Unregister { job } => {
                if let Some(coflow) = self.jobs[job].coflow {
                    self.core.handle_unregister(now, job as u64, coflow);
                }
            }
        }
        self.done.computing.coordinator += began.elapsed();
        self.coordinator_acts = true;
    }

    fn register(&mut self, job: usize) {
        let Job { flows, weight, .. } = &self.jobs[job];
        let options = v1::CoflowOptions {
            flows: flows.len() as u64,
            weight: *weight,
            // Three renewals in a lease, as the client library has it.
            lease_ms: RENEWAL.nanos() * 3 / 1_000_000,
            ..v1::CoflowOptions::default()
        };
        let request = v1::RegisterRequest { options: Some(options), request_key: job as u64 + 1 };
        match self.core.handle_register(self.now, request) {
            Ok(coflow) => self.later(Event::Registered { job, coflow }),
            Err(error) => self.wrong = Some(format!("coflow {job} is refused: {error}")),
        }
    }

    /// The tasks of a coflow put their blocks.
    pub(super) fn registered(&mut self, number: usize, coflow: CoflowId) {
        let job = &mut self.jobs[number];
        job.coflow = Some(coflow);
        for (index, flow) in job.flows.iter().enumerate() {
            let entry = BlockEntry::of_file(
                coflow,
                block_name(index),
                format!("/{number}/{index}"),
                flow.size.0,
                Identity::drawn(((job.first_get + index) as u128 + 1).to_be_bytes()),
            );
            let host = flow.source.0;
            if let Err(error) = self.hosts[host as usize].agent.handle_put(entry) {
                self.wrong = Some(format!("block {index} of coflow {number} is not taken: {error}"));
            }
            self.agents_act.insert(host);
        }
        self.after(RENEWAL, Event::Call(Call::Renew { job: number }));
    }

    /// The receivers of a coflow ask who has their blocks.
    fn locate(&mut self, number: usize) {
        let job = &self.jobs[number];
        let Some(coflow) = job.coflow else {
            self.wrong = Some(format!("coflow {number} begins before it is registered"));
            return;
        };
        // Every flow has a call of its own, of which the first was counted with the event.
        self.done.calls += job.flows.len() as u64 - 1;
        for (index, flow) in job.flows.iter().enumerate() {
            let request = v1::LocateRequest {
                coflow: coflow.0,
                block: block_name(index),
                wait_ms: LOCATE_WAIT_MS,
                host: flow.destination.0,
            };
            self.core.handle_locate(self.now, (job.first_get + index) as u64, request);
        }
    }

    /// Lets the coordinator act, and does what it wants done.
    pub(super) fn settle_coordinator(&mut self) {
        let began = Instant::now();
        self.core.handle_timeout(self.now);
        let planning = Instant::now();
        let planned = self.core.poll_plan(self.now);
        let planned_for = planning.elapsed();
        if planned {
            let computing = &mut self.done.computing;
            self.done.plans += 1;
            computing.plans += planned_for;
            computing.worst_plan = computing.worst_plan.max(planned_for);
        }
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Message(session, message) => {
                    self.done.down.messages += 1;
                    self.done.down.bytes += message.encoded_len() as u64;
                    let host = host_of(session);
                    self.later(Event::Downward { host, message: Box::new(message) });
                }
                Output::Located(answer) => self.located(&answer),
                Output::Close(session) => self.wrong = Some(format!("session {session:?} is closed")),
                Output::Expired(coflow) => self.wrong = Some(format!("coflow {coflow} expired")),
                Output::Unregistered(_) | Output::Decided(_) => {}
                Output::Offered(_) | Output::Drained(_) => {}
            }
        }
        self.wake_coordinator();
        let other = began.elapsed().saturating_sub(if planned { planned_for } else { Default::default() });
        self.done.computing.coordinator += other;
    }

    /// A receiver hears who has its block, and asks there.
    fn located(&mut self, answer: &Answer) {
        let get = answer.token as usize;
        match answer.reply.holders.first() {
            Some(holder) => {
                let holder = holder.host;
                // The answer goes to the receiver, and its request to the holder.
                self.after(twice(self.settings.delay), Event::Request { get, holder });
            }
            None => self.wrong = Some(format!("no agent has the block of get {get}: {:?}", answer.reply)),
        }
    }

    pub(super) fn request(&mut self, get: usize, holder: u32) {
        let (job, index) = self.gets[get];
        let job = &self.jobs[job];
        let (flow, began) = (&job.flows[index], Instant::now());
        let request = Request {
            coflow: job.coflow.unwrap_or_default().0,
            offset: 0,
            destination: flow.destination.0,
            group: flow.group,
            identity: Identity::UNKNOWN,
            block: block_name(index),
        };
        let agent = &mut self.hosts[holder as usize].agent;
        match agent.handle_request(self.now, &request) {
            Ok(opened) => {
                // Bytes are a fluid: the agent paces flows, and is asked for no chunks.
                agent.handle_blocked(self.now, opened.flow);
                let ends = [holder, flow.destination.0];
                self.links.join(self.now, get, opened.flow, ends, flow.size.0);
            }
            Err(status) => self.wrong = Some(format!("get {get} is answered {status:?}")),
        }
        self.agents_act.insert(holder);
        self.done.computing.agents += began.elapsed();
    }

    pub(super) fn hear_coordinator(&mut self, host: u32, message: v1::CoordinatorMessage) {
        use v1::coordinator_message::Kind;
        if matches!(message.kind, Some(Kind::Plan(_) | Kind::Queues(_))) {
            // First what has moved: what the agent makes of a plan depends on what its flows have left.
            self.tell_moved(host);
        }
        let began = Instant::now();
        self.hosts[host as usize].agent.handle_coordinator(self.now, message);
        self.done.computing.agents += began.elapsed();
        self.agents_act.insert(host);
    }

    /// An agent is told what moved of its flows; those that are over leave.
    pub(super) fn tell_moved(&mut self, host: u32) {
        let began = Instant::now();
        let moved = self.links.moved(self.now, host);
        let agent = &mut self.hosts[host as usize].agent;
        let round_trip = twice(self.settings.delay);
        for moved in &moved {
            if moved.is_held_up {
                // A link holds the flow up: its socket counts as full.
                let crowd = Crowd { in_flight: u64::from(u32::MAX), round_trip, segment_bytes: 1_448 };
                agent.handle_crowded(self.now, moved.flow, crowd);
            }
            agent.handle_sent(self.now, moved.flow, moved.bytes);
        }
        self.done.computing.agents += began.elapsed();
        for moved in moved.iter().filter(|moved| moved.is_over) {
            if let Some(flow) = self.links.leave(moved.at) {
                self.later(Event::Received { get: flow.get, from: flow.from, flow: flow.flow });
            }
        }
    }

    /// Lets an agent act, and does what it wants done.
    pub(super) fn settle_agent(&mut self, host: u32) {
        if self.hosts[host as usize].agent.next_timeout().is_some_and(|next| next <= self.now) {
            self.tell_moved(host);
        }
        let (now, began) = (self.now, Instant::now());
        let agent = &mut self.hosts[host as usize].agent;
        agent.handle_timeout(now);
        if let Some(flow) = self.links.any_moving(host) {
            // Bytes move all the time: the next report is due an interval after the last one, whenever the agent is told of
            // bytes.
            agent.handle_sent(now, flow, 0);
        }
        if let Some(transmit) = agent.poll_transmit(now) {
            self.wrong = Some(format!("host {host} writes a chunk of flow {}", transmit.flow));
        }
        while let Some(output) = self.hosts[host as usize].agent.poll_output(now) {
            match output {
                AgentOutput::Message(message) => {
                    self.later(Event::Upward { host, message: Box::new(message) });
                }
                // Links alone hold flows up here, never receivers.
                AgentOutput::Suspect(flow) => {
                    self.hosts[host as usize].agent.handle_waited(now, flow, Span::ZERO);
                }
                AgentOutput::Abort(flow) => self.wrong = Some(format!("host {host} ends flow {flow}")),
                _ => {}
            }
        }
        let agent = &self.hosts[host as usize].agent;
        let flows: Vec<(usize, FlowNumber)> = self.links.of_host(host).collect();
        for (at, flow) in flows {
            let wanted = match agent.pacing(flow) {
                Some(Pacing::Rated(rate)) => rate.bytes_per_sec(),
                Some(Pacing::Unscheduled) => f64::INFINITY,
                Some(Pacing::Paused) | None => 0.0,
            };
            self.links.want(at, wanted);
        }
        self.wake_agent(host);
        self.done.computing.agents += began.elapsed();
    }

    /// A receiver has its last byte.
    pub(super) fn received(&mut self, get: usize, from: u32, flow: FlowNumber) {
        self.later(Event::Done { host: from, flow });
        let number = self.gets[get].0;
        let job = &mut self.jobs[number];
        job.left -= 1;
        if job.left == 0 {
            job.cct = self.now.since(job.begins);
            job.flows = Vec::new();
            self.left -= 1;
            self.later(Event::Call(Call::Unregister { job: number }));
        }
    }
}

fn block_name(index: usize) -> String {
    format!("b{index}")
}

fn twice(delay: Span) -> Span {
    Span::from_nanos(delay.nanos() * 2)
}

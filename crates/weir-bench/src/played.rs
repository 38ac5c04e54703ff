//! An agent of which only the control plane exists: its flows move exactly as plans say, and no byte does.

use std::collections::{BTreeMap, BTreeSet};
use weir_model::{Span, Time};
use weir_proto::v1;
use weir_proto::v1::agent_event::Kind;

/// Less than this is left of a flow by rounding only.
const NOTHING_BYTES: f64 = 0.5;

#[derive(Clone, Copy, Debug)]
struct PlayedFlow {
    coflow: u64,
    size: u64,
    /// Bytes left at `since`, and what moves per second: by its coflow's drain, and by a grant beside it.
    left: f64,
    since: Time,
    base: f64,
    grant: f64,
    /// Offset that the coordinator was told last.
    reported: u64,
}

impl PlayedFlow {
    fn settle(&mut self, now: Time) {
        self.left = (self.left - (self.base + self.grant) * now.since(self.since).as_secs()).max(0.0);
        self.since = now;
    }

    fn sent(&self) -> u64 {
        self.size - (self.left.ceil() as u64).min(self.size)
    }

    fn end(&self) -> Time {
        let rate = self.base + self.grant;
        if rate > 0.0 { self.since + Span::until_done(self.left / rate) } else { Time::MAX }
    }
}

#[derive(Debug)]
pub(super) struct PlayedAgent {
    host: u32,
    next_flow: u64,
    flows: BTreeMap<u64, PlayedFlow>,
    of_coflow: BTreeMap<u64, BTreeSet<u64>>,
}

fn event(kind: Kind) -> v1::AgentEvent {
    v1::AgentEvent { kind: Some(kind) }
}

impl PlayedAgent {
    pub(super) fn new(host: u32) -> PlayedAgent {
        PlayedAgent { host, next_flow: 1, flows: BTreeMap::new(), of_coflow: BTreeMap::new() }
    }

    /// It goes; the coflow of each flow that it served.
    pub(super) fn leave(&mut self) -> Vec<u64> {
        self.of_coflow.clear();
        std::mem::take(&mut self.flows).into_values().map(|flow| flow.coflow).collect()
    }

    pub(super) fn hello(&self) -> v1::Hello {
        let data_address = format!("127.0.0.1:{}", 10_000 + self.host % 50_000);
        v1::Hello { version: 1, host: self.host, data_address, ..v1::Hello::default() }
    }

    /// A receiver begins to read so many bytes.
    pub(super) fn open(&mut self, now: Time, coflow: u64, destination: u32, size: u64) -> v1::AgentEvent {
        let flow = self.next_flow;
        self.next_flow += 1;
        let left = size as f64;
        let played = PlayedFlow { coflow, size, left, since: now, base: 0.0, grant: 0.0, reported: 0 };
        self.flows.insert(flow, played);
        self.of_coflow.entry(coflow).or_default().insert(flow);
        let block = format!("{}-{flow}", self.host);
        event(Kind::FlowOpened(v1::FlowOpened {
            flow,
            coflow,
            block,
            destination,
            size,
            offset: 0,
            group: 0,
        }))
    }

    /// What the coordinator says counts from now on.
    pub(super) fn apply(&mut self, now: Time, message: &v1::CoordinatorMessage) -> Option<v1::AgentEvent> {
        use v1::coordinator_message::Kind;
        match &message.kind {
            Some(Kind::Plan(plan)) => self.apply_plan(now, plan),
            Some(Kind::CoflowsEnded(ended)) => {
                for range in &ended.ranges {
                    let over = self.of_coflow.range(range.first..=range.last).map(|(&coflow, _)| coflow);
                    for coflow in over.collect::<Vec<_>>() {
                        for flow in self.of_coflow.remove(&coflow).unwrap_or_default() {
                            self.flows.remove(&flow);
                        }
                    }
                }
            }
            Some(Kind::CoflowEnding(ending)) => {
                let settled = v1::CoflowSettled { coflow: ending.coflow };
                return Some(v1::AgentEvent { kind: Some(v1::agent_event::Kind::Settled(settled)) });
            }
            _ => {}
        }
        None
    }

    fn apply_plan(&mut self, now: Time, plan: &v1::Plan) {
        if plan.complete {
            for flow in self.flows.values_mut() {
                flow.settle(now);
                (flow.base, flow.grant) = (0.0, 0.0);
            }
        }
        for rate in &plan.coflows {
            let Some(flows) = self.of_coflow.get(&rate.coflow) else { continue };
            for id in flows.range(..=plan.latest_flow) {
                let Some(flow) = self.flows.get_mut(id) else { continue };
                flow.settle(now);
                flow.base = rate.drain_per_s * flow.left;
            }
        }
        for grant in &plan.grants {
            if let Some(flow) = self.flows.get_mut(&grant.flow) {
                flow.settle(now);
                flow.grant = grant.bytes_per_s;
            }
        }
    }

    /// When its next flow ends if plans stay as they are; never without a moving flow.
    pub(super) fn next_end(&self) -> Time {
        self.flows.values().map(PlayedFlow::end).min().unwrap_or(Time::MAX)
    }

    /// Ends the flows that have nothing left by now: their last bytes are reported, and acknowledged. Flows with
    /// their coflows.
    pub(super) fn take_ends(&mut self, now: Time) -> (Vec<v1::AgentEvent>, Vec<(u64, u64)>) {
        let ended = |flow: &PlayedFlow| {
            let mut flow = *flow;
            flow.settle(now);
            flow.left <= NOTHING_BYTES
        };
        let due = self.flows.iter().filter(|(_, flow)| ended(flow));
        let due: Vec<(u64, u64)> = due.map(|(&id, flow)| (id, flow.coflow)).collect();
        let mut progress = v1::Progress::default();
        let mut closed = Vec::new();
        for &(flow, _) in &due {
            let Some(played) = self.flows.remove(&flow) else { continue };
            if let Some(others) = self.of_coflow.get_mut(&played.coflow) {
                others.remove(&flow);
            }
            progress.flows.push(v1::FlowProgress { flow, sent: played.size });
            let end = v1::FlowClosed { flow, sent: played.size, done: true, again: false };
            closed.push(event(Kind::FlowClosed(end)));
        }
        if progress.flows.is_empty() {
            return (Vec::new(), due);
        }
        (std::iter::once(event(Kind::Progress(progress))).chain(closed).collect(), due)
    }

    /// What was said of a flow last, once more.
    pub(super) fn one_report(&self) -> Option<v1::AgentEvent> {
        let (&flow, played) = self.flows.iter().next()?;
        let flows = vec![v1::FlowProgress { flow, sent: played.reported }];
        Some(event(Kind::Progress(v1::Progress { flows })))
    }

    /// How far its flows came that moved since they were reported.
    pub(super) fn progress(&mut self, now: Time) -> Option<v1::AgentEvent> {
        let mut flows = Vec::new();
        for (&id, flow) in &mut self.flows {
            if flow.base + flow.grant <= 0.0 {
                continue;
            }
            flow.settle(now);
            let sent = flow.sent();
            // The last byte is told by the message that the flow has ended.
            if sent != flow.reported && sent < flow.size {
                flow.reported = sent;
                flows.push(v1::FlowProgress { flow: id, sent });
            }
        }
        (!flows.is_empty()).then(|| event(Kind::Progress(v1::Progress { flows })))
    }
}

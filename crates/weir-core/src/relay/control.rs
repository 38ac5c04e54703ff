//! What relay and controller say to each other, and what happens by the clock.

use super::facts::{HopId, Output};
use super::hop::HopState;
use super::state::{ALIVE_INTERVAL, PAUSE, Relay};
use crate::planted::{Defect, is_planted};
use std::collections::BTreeMap;
use weir_model::{Span, Time};
use weir_proto::relay::FlowKey;
use weir_proto::v1;
use weir_proto::v1::from_relay::Kind as Said;
use weir_proto::v1::to_relay::Kind as Heard;

/// How often the controller hears how far flows came.
const PROGRESS_INTERVAL: Span = Span::from_millis(100);
/// How often it hears how fast links are.
const SAMPLE_INTERVAL: Span = Span::from_millis(250);

/// A relay has fewer sessions in a millisecond than this, so that those after a restart are greater than all before it.
const SESSIONS_PER_MS: u64 = 1 << 20;

fn wire(key: FlowKey) -> v1::FlowKey {
    v1::FlowKey { coflow: key.coflow, reducer: key.reducer, mapper: key.mapper }
}

impl<P> Relay<P> {
    /// A session with a controller begins: what it must know comes first.
    pub fn handle_session_up(&mut self) {
        self.session = true;
        self.sessions = self.sessions.saturating_add(1);
        // Before the hello: rules that answer it have epochs of the new session.
        self.table.begin_session();
        self.forget_reports();
        // A flow is told of by the relay where it entered alone, so that the controller counts its
        // bytes once.
        let entered = self.flows.iter().filter(|(_, flow)| flow.entered);
        let hello = v1::RelayHello {
            version: 1,
            relay: self.config.name.clone(),
            site: self.config.site,
            data_address: self.config.address.to_string(),
            flows: entered
                .map(|(&key, flow)| v1::RelayFlowOpened {
                    key: Some(wire(key)),
                    source_site: flow.open.source_site,
                    destination_site: flow.open.destination_site,
                    bytes: flow.bytes,
                    bytes_moved: flow.moved,
                })
                .collect(),
            session: self.config.started_ms.saturating_mul(SESSIONS_PER_MS).saturating_add(self.sessions),
        };
        self.say(Said::Hello(hello));
    }

    /// The session ended. Rules stay in force.
    pub fn handle_session_lost(&mut self) {
        self.session = false;
        self.forget_reports();
    }

    /// The controller, or a file in its place, said something.
    pub fn handle_controller(&mut self, now: Time, message: &v1::ToRelay) {
        match &message.kind {
            Some(Heard::Relays(list)) => {
                let entry = |entry: &v1::RelayEntry| {
                    Some((entry.relay.clone(), (entry.site, entry.data_address.parse().ok()?)))
                };
                self.directory = list.relays.iter().filter_map(entry).collect();
                self.redial(now);
                self.reroute(now);
            }
            Some(Heard::Rules(rules)) => {
                if self.table.apply(rules) {
                    self.reroute(now);
                    self.report_misses();
                }
            }
            // Whether a controller is silent is for the session to see: rules hold on in any case.
            Some(Heard::Keepalive(_)) | None => {}
        }
    }

    /// Does what is due: keepalives, new attempts to connect, reports of progress.
    pub fn handle_timeout(&mut self, now: Time) {
        self.release(now);
        if self.next_alive <= now {
            if self.next_alive + PAUSE <= now {
                self.heard_since = now;
            }
            self.next_alive = now + ALIVE_INTERVAL;
            self.keep_alive(now);
            self.redial(now);
        }
        if self.next_progress <= now {
            self.next_progress = now + PROGRESS_INTERVAL;
            self.report_progress();
        }
    }

    /// When to call [`Relay::handle_timeout`], or to answer [`Relay::wants_samples`] or [`Relay::wants_look`], if nothing
    /// happens.
    pub fn next_timeout(&self) -> Option<Time> {
        let reports = self.next_progress.min(self.next_samples);
        let next = if self.session { self.next_alive.min(reports) } else { self.next_alive };
        Some(next.min(self.next_look()))
    }

    /// Whether it is time for [`Relay::handle_samples`].
    pub fn wants_samples(&self, now: Time) -> bool {
        self.session && self.next_samples <= now
    }

    /// How many bytes written to each neighbour its kernel has not acknowledged.
    pub fn handle_samples(&mut self, now: Time, unacknowledged: &BTreeMap<HopId, u64>) {
        self.next_samples = now + SAMPLE_INTERVAL;
        let mut sites: BTreeMap<u32, f64> = BTreeMap::new();
        for (id, hop) in &mut self.hops {
            let sample = hop.meter.take(now, unacknowledged.get(id).copied().unwrap_or(0));
            // The controller plans links between sites only.
            if let Some(rate) = sample.filter(|_| hop.site != self.config.site) {
                *sites.entry(hop.site).or_default() += rate;
            }
        }
        let sample = |(destination_site, bytes_per_s)| v1::LinkSample { destination_site, bytes_per_s };
        let links: Vec<_> = sites.into_iter().map(sample).collect();
        if !links.is_empty() {
            self.say(Said::Samples(v1::LinkSamples { links }));
        }
    }

    /// What a session that is over did not hear, the next one hears anew.
    fn forget_reports(&mut self) {
        self.outputs.retain(|output| !matches!(output, Output::Report(_)));
    }

    fn report_progress(&mut self) {
        if !self.session {
            return;
        }
        let moved = self.flows.iter_mut().filter(|(_, flow)| flow.entered && flow.moved != flow.told);
        let flows: Vec<_> = moved
            .map(|(&key, flow)| {
                flow.told = flow.moved;
                v1::RelayFlowProgress { key: Some(wire(key)), bytes_moved: flow.moved }
            })
            .collect();
        if !flows.is_empty() {
            self.say(Said::Progress(v1::RelayProgress { flows }));
        }
    }

    pub(super) fn report_opened(&mut self, key: FlowKey) {
        let Some(flow) = self.flows.get(&key) else { return };
        let opened = v1::RelayFlowOpened {
            key: Some(wire(key)),
            source_site: flow.open.source_site,
            destination_site: flow.open.destination_site,
            bytes: flow.bytes,
            bytes_moved: 0,
        };
        self.say(Said::FlowOpened(opened));
    }

    pub(super) fn report_ended(&mut self, key: FlowKey, bytes_moved: u64, complete: bool) {
        if is_planted(Defect::EndNotReported) {
            return;
        }
        self.say(Said::FlowEnded(v1::RelayFlowEnded { key: Some(wire(key)), bytes_moved, complete }));
    }

    /// Asks for a rule, if the flow has none.
    pub(super) fn report_miss(&mut self, key: FlowKey) {
        let Some(flow) = self.flows.get(&key).filter(|_| self.table.lookup(key).is_none()) else { return };
        let destination_site = flow.open.destination_site;
        self.say(Said::Miss(v1::RuleMiss { key: Some(wire(key)), destination_site }));
    }

    fn report_misses(&mut self) {
        let forwarded = self.flows.iter().filter(|(_, flow)| flow.forward().is_some());
        for key in forwarded.map(|(&key, _)| key).collect::<Vec<_>>() {
            self.report_miss(key);
        }
    }

    pub(super) fn report_hop(&mut self, id: HopId, up: bool) {
        let Some(hop) = self.hops.get(&id) else { return };
        debug_assert_eq!(up, hop.state == HopState::Up);
        if let Some(name) = self.name_of(hop.address).map(str::to_owned) {
            self.say(Said::NextHop(v1::NextHopState { relay: name, up }));
        }
    }

    fn say(&mut self, kind: Said) {
        if self.session {
            self.outputs.push_back(Output::Report(v1::FromRelay { kind: Some(kind) }));
        }
    }
}

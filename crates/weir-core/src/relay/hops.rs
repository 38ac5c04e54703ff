//! Neighbours, and which of them a flow goes to.

use super::facts::{HopId, Message, Output};
use super::flight::{Flight, UnderWay};
use super::flow::{Flow, Forward, Route, Way};
use super::hop::{Hop, HopState};
use super::meter::LinkMeter;
use super::queue::NextHopQueue;
use super::state::Relay;
use super::table::To;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use weir_model::{Span, Time};
use weir_proto::limits;
use weir_proto::relay::{FlowKey, Header, Kind};

/// A neighbour that failed is tried again after so long.
const RETRY: Span = Span::from_millis(1_000);
/// Class of flows without a rule: after all that have one.
const LAST_RANK: u64 = u64::MAX;

impl<P> Relay<P> {
    /// All connections to a neighbour are there.
    pub fn handle_hop_up(&mut self, now: Time, id: HopId) {
        let Some(hop) = self.hops.get_mut(&id) else { return };
        hop.state = HopState::Up;
        let flows: Vec<FlowKey> = hop.flows.iter().copied().collect();
        for key in flows {
            self.open_at(id, key);
        }
        // Flows that went another way while it was down come back to it, where their rules say so.
        self.report_hop(id, true);
        self.reroute(now);
    }

    /// A connection to a neighbour ended or was never made: the others go too. What was on its way there is lost,
    /// so flows that have sent there are given up; the others take another way.
    pub fn handle_hop_down(&mut self, now: Time, id: HopId) {
        let Some(hop) = self.hops.get_mut(&id) else { return };
        let was_up = hop.state == HopState::Up;
        hop.state = HopState::Down(now + RETRY);
        hop.meter.note_busy(now, false);
        // Of the connections that are gone; new ones may take another path.
        hop.flight = Flight::default();
        let flows: Vec<FlowKey> = hop.flows.iter().copied().collect();
        let (lost, left): (Vec<_>, Vec<_>) = flows.into_iter().partition(|&key| hop.queue.sent(key) > 0);
        for key in lost {
            self.give_up(key);
        }
        for &key in &left {
            if let Some(forward) = self.forward_of(key) {
                // A new connection to it knows of no flow, and is told again.
                forward.opened.remove(&id);
            }
            self.set_route(now, key);
            if self.forward_of(key).is_none_or(|forward| !forward.leads_to(id)) {
                self.leave_hop(id, key);
            }
        }
        if was_up {
            self.report_hop(id, false);
        }
    }

    /// A neighbour takes the bytes of a flow that are before `credit`.
    pub fn handle_credit(&mut self, id: HopId, key: FlowKey, credit: u64) {
        let Some(hop) = self.hops.get_mut(&id).filter(|hop| hop.flows.contains(&key)) else { return };
        hop.queue.set_credit(key, credit);
        self.grant(key, credit);
    }

    /// A neighbour gave a flow up.
    pub fn handle_hop_reset(&mut self, id: HopId, key: FlowKey) {
        if self.forward_of(key).is_some_and(|forward| forward.opened.contains(&id)) {
            self.give_up(key);
        }
    }

    /// Bytes were written to a neighbour; `waiting`: no connection to it took all that there was.
    pub fn handle_written(&mut self, now: Time, id: HopId, bytes: u64, waiting: bool) {
        if let Some(hop) = self.hops.get_mut(&id) {
            hop.meter.note_written(bytes);
            hop.flight.note_written(bytes);
            hop.meter.note_busy(now, waiting || hop.is_crowded());
        }
    }

    /// Whether [`Relay::handle_under_way`] is to come before the next message for this neighbour.
    pub fn wants_look(&self, now: Time, id: HopId) -> bool {
        self.hops.get(&id).is_some_and(|hop| hop.has_ready() && hop.flight.wants_look(now))
    }

    /// What is under way to a neighbour. A driver that never says so has no bound on it.
    pub fn handle_under_way(&mut self, now: Time, id: HopId, seen: UnderWay) {
        if let Some(hop) = self.hops.get_mut(&id) {
            hop.flight.look(now, seen);
        }
    }

    /// Whether a message for this neighbour may go.
    pub fn is_ready(&self, id: HopId) -> bool {
        self.hops.get(&id).is_some_and(|hop| hop.has_ready() && !hop.flight.is_held())
    }

    /// When the next neighbour is to be looked at.
    pub(super) fn next_look(&self) -> Time {
        self.hops.values().filter_map(|hop| hop.flight.held_until()).min().unwrap_or(Time::MAX)
    }

    /// Neighbours that nothing waits for need no look: a message that comes later has one of its own.
    pub(super) fn release(&mut self, now: Time) {
        for hop in self.hops.values_mut().filter(|hop| !hop.has_ready()) {
            hop.flight.release(now);
        }
    }

    fn forward_of(&mut self, key: FlowKey) -> Option<&mut Forward> {
        self.flows.get_mut(&key)?.forward_mut()
    }

    /// Gives a message to one of its flow's next hops. False if the flow has none.
    pub(super) fn assign(&mut self, message: Message<P>) -> bool {
        let (key, length) = (message.key, message.length);
        let Some(id) = self.forward_of(key).and_then(|forward| forward.assign(length)) else { return false };
        self.hops.get_mut(&id).is_some_and(|hop| hop.queue.push(message))
    }

    /// Finds the flow's way anew, and divides what waits of it. A flow that has none is given up.
    pub(super) fn set_route(&mut self, now: Time, key: FlowKey) {
        let Some(route) = self.find_route(now, key) else { return self.give_up(key) };
        let Some(flow) = self.flows.get_mut(&key) else { return };
        let before = match &mut flow.way {
            Way::Forward(forward) if forward.route == route => return,
            Way::Forward(forward) => {
                let opened = std::mem::take(&mut forward.opened);
                let before = std::mem::replace(forward, Forward::new(route.clone()));
                forward.opened = opened;
                before.route.next_hops
            }
            Way::Deliver(_) => {
                flow.way = Way::Forward(Forward::new(route.clone()));
                Vec::new()
            }
        };
        let mut waiting = Vec::new();
        for &(id, _) in &before {
            if let Some(hop) = self.hops.get_mut(&id) {
                waiting.extend(hop.queue.take_waiting(key));
            }
        }
        for &(id, _) in &route.next_hops {
            if let Some(hop) = self.hops.get_mut(&id) {
                hop.flows.insert(key);
                hop.queue.set_class(key, route.rank, route.weight);
            }
            self.open_at(id, key);
        }
        let forward = self.flows.get(&key).and_then(Flow::forward);
        // One that was told of the flow stays its neighbour: what it took is lost if it fails, and
        // with that the flow.
        let kept = |id: &HopId| forward.is_some_and(|way| way.opened.contains(id) || way.leads_to(*id));
        let left: Vec<HopId> = before.iter().map(|hop| hop.0).filter(|id| !kept(id)).collect();
        for id in left {
            self.leave_hop(id, key);
        }
        // From several next hops, each in order for itself; the first bytes are assigned first, as the receiver waits for them.
        waiting.sort_by_key(|message| message.offset);
        for message in waiting {
            if !self.assign(message) {
                return self.give_up(key);
            }
        }
    }

    /// By the longest rule, to those of its next hops that have not failed; else the direct way, even while its
    /// neighbour is tried again. `None` if that is down too.
    fn find_route(&mut self, now: Time, key: FlowKey) -> Option<Route> {
        let flow = self.flows.get(&key)?;
        let (direct, site) = (flow.open.destination, flow.open.destination_site);
        let rule = self.table.lookup(key);
        let (rank, weight) = rule.map_or((LAST_RANK, 1.0), |rule| (rule.rank, rule.weight));
        let of_flow = rule.filter(|rule| flow.entered || !rule.entering);
        let named: Vec<_> = of_flow.map_or(&[][..], |rule| &rule.next_hops).to_vec();
        let mut next_hops: Vec<(HopId, f64)> = Vec::new();
        for (to, weight) in named {
            let (site, address) = match to {
                To::Deliver => (site, direct),
                To::Relay(name) => match self.directory.get(&name) {
                    // A rule that names this relay itself would have it send to itself.
                    Some(&entry) if entry.1 != self.config.address => entry,
                    _ => continue,
                },
            };
            let Some(id) = self.reach(now, address, site) else { continue };
            // Asked for with `reach`, so that it is tried again, but not used before it is there: it failed last time.
            if self.hops.get(&id).is_some_and(|hop| hop.state == HopState::Retrying) {
                continue;
            }
            match next_hops.iter_mut().find(|hop| hop.0 == id) {
                // A rule may name one relay twice, or a relay and the direct way to it: one next hop with both weights.
                Some(hop) => hop.1 += weight,
                None => next_hops.push((id, weight)),
            }
        }
        if next_hops.is_empty() {
            next_hops.push((self.reach(now, direct, site)?, 1.0));
        }
        Some(Route { next_hops, rank, weight })
    }

    /// The neighbour at an address, connected to if need be. `None` while it is down.
    pub(super) fn reach(&mut self, now: Time, address: SocketAddr, site: u32) -> Option<HopId> {
        let id = match self.hop_ids.get(&address) {
            Some(&id) => id,
            None => return self.add_hop(now, address, site),
        };
        let hop = self.hops.get_mut(&id)?;
        match hop.state {
            HopState::Down(until) if until > now => None,
            HopState::Down(_) => {
                hop.state = HopState::Retrying;
                self.outputs.push_back(Output::Dial { hop: id, address, site: hop.site });
                Some(id)
            }
            HopState::Connecting | HopState::Up | HopState::Retrying => Some(id),
        }
    }

    fn add_hop(&mut self, now: Time, address: SocketAddr, site: u32) -> Option<HopId> {
        if self.hops.len() >= limits::MAX_NEXT_HOPS && !self.drop_idle_hop() {
            self.counters.refused = self.counters.refused.saturating_add(1);
            return None;
        }
        let id = HopId(self.next_hop_id);
        self.next_hop_id = self.next_hop_id.saturating_add(1);
        self.hop_ids.insert(address, id);
        let mut meter = LinkMeter::default();
        // Begins an interval now: the first sample must not count from time 0.
        let _ = meter.take(now, 0);
        let (queue, flight, flows) = (NextHopQueue::default(), Flight::default(), BTreeSet::new());
        self.hops.insert(id, Hop { address, site, state: HopState::Connecting, queue, meter, flight, flows });
        self.outputs.push_back(Output::Dial { hop: id, address, site });
        Some(id)
    }

    /// Makes room: hangs up on a neighbour that no list names and no flow needs. False if there is none.
    fn drop_idle_hop(&mut self) -> bool {
        let idle = |hop: &Hop<P>| hop.flows.is_empty() && self.name_of(hop.address).is_none();
        let Some((&id, hop)) = self.hops.iter().find(|(_, hop)| idle(hop)) else { return false };
        self.hop_ids.remove(&hop.address);
        self.hops.remove(&id);
        self.outputs.push_back(Output::Hangup(id));
        true
    }

    /// The name that the list of relays has for an address.
    pub(super) fn name_of(&self, address: SocketAddr) -> Option<&str> {
        self.directory.iter().find(|(_, entry)| entry.1 == address).map(|(name, _)| name.as_str())
    }

    /// Tells a neighbour of a flow, once it can be told.
    fn open_at(&mut self, id: HopId, key: FlowKey) {
        if self.hops.get(&id).is_none_or(|hop| hop.state != HopState::Up) {
            return;
        }
        let Some(flow) = self.flows.get_mut(&key) else { return };
        let (open, hop_limit, number) = (flow.open, flow.hop_limit, flow.bytes);
        let Some(forward) = flow.forward_mut() else { return };
        if forward.leads_to(id) && forward.opened.insert(id) {
            let length = weir_proto::relay::OPEN_BYTES as u32;
            let header = Header { kind: Kind::Open, hop_limit, length, key, number };
            self.outputs.push_back(Output::ToHop { hop: id, header, open: Some(open) });
        }
    }

    /// The flow has no place at a neighbour any more.
    pub(super) fn leave_hop(&mut self, id: HopId, key: FlowKey) {
        if let Some(hop) = self.hops.get_mut(&id) {
            hop.flows.remove(&key);
            hop.queue.remove(key);
        }
    }

    /// Rules, relays or neighbours changed: every flow's way is looked at again.
    pub(super) fn reroute(&mut self, now: Time) {
        let forwarded = self.flows.iter().filter(|(_, flow)| flow.forward().is_some());
        for key in forwarded.map(|(&key, _)| key).collect::<Vec<_>>() {
            self.set_route(now, key);
        }
    }

    /// Neighbours of the list that failed are tried again when it is time.
    pub(super) fn redial(&mut self, now: Time) {
        let listed: Vec<(u32, SocketAddr)> = self.directory.values().copied().collect();
        for (site, address) in listed {
            if address != self.config.address {
                self.reach(now, address, site);
            }
        }
    }
}

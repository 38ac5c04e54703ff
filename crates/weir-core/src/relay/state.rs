//! The relay's state machine: flows, from their opening to their end.

use super::facts::{HopId, Message, Output, RelayConfig, RelayCounters};
use super::facts::{SubscriberId, UpstreamId, UpstreamKind};
use super::flow::{Delivery, Flow, Incoming, Way};
use super::hop::Hop;
use super::reassembly::Reassembly;
use super::table::ForwardingTable;
use super::window::{Window, window_bytes};
use crate::planted::{Defect, is_planted};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use weir_model::{Span, Time};
use weir_proto::limits;
use weir_proto::relay::{FlowKey, HOP_LIMIT, Header, Kind, Open};

/// How often neighbours and receivers hear of a flow of which nothing moves.
pub const ALIVE_INTERVAL: Span = Span::from_millis(1_000);
/// A flow that its upstream has not been heard of for so long is given up: longer than what a slow link may hold
/// before an `Alive`.
pub const SILENCE_LIMIT: Span = Span::from_millis(10_000);
/// A receiver and its flow wait so long for each other.
pub const WAIT_LIMIT: Span = Span::from_millis(10_000);
/// A relay that looks at its flows every [`ALIVE_INTERVAL`] did not run for so long: what others said waits to be read.
pub(super) const PAUSE: Span = Span::from_millis(3_000);

/// A relay. `P` is a message's payload. Call order: see the crate's documentation. Whenever a connection to a next
/// hop or a receiver can take a message, ask [`Relay::poll_message`] or [`Relay::poll_delivery`] for it.
#[derive(Debug)]
pub struct Relay<P> {
    pub(super) config: RelayConfig,
    pub(super) table: ForwardingTable,
    pub(super) flows: BTreeMap<FlowKey, Flow<P>>,
    pub(super) hops: BTreeMap<HopId, Hop<P>>,
    pub(super) hop_ids: BTreeMap<SocketAddr, HopId>,
    pub(super) next_hop_id: u64,
    /// All relays, by name.
    pub(super) directory: BTreeMap<String, (u32, SocketAddr)>,
    upstreams: BTreeMap<UpstreamId, BTreeSet<FlowKey>>,
    /// What each receiver's connection asked for last.
    subscriptions: BTreeMap<SubscriberId, FlowKey>,
    /// Receivers whose flow has not come, and until when they wait.
    waiting: BTreeMap<FlowKey, (SubscriberId, Time)>,
    /// Bytes of all flows that wait here.
    pub(super) held: u64,
    /// Messages that went on from here.
    turn: u64,
    pub(super) outputs: VecDeque<Output>,
    pub(super) session: bool,
    /// Sessions with the controller that this process began so far.
    pub(super) sessions: u64,
    pub(super) counters: RelayCounters,
    pub(super) next_alive: Time,
    /// Silence before this counts against no peer: the process did not run.
    pub(super) heard_since: Time,
    pub(super) next_progress: Time,
    pub(super) next_samples: Time,
}

impl<P> Relay<P> {
    /// A relay that knows no other.
    pub fn new(config: RelayConfig) -> Relay<P> {
        Relay {
            config,
            table: ForwardingTable::default(),
            flows: BTreeMap::new(),
            hops: BTreeMap::new(),
            hop_ids: BTreeMap::new(),
            next_hop_id: 1,
            directory: BTreeMap::new(),
            upstreams: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            waiting: BTreeMap::new(),
            held: 0,
            turn: 0,
            outputs: VecDeque::new(),
            session: false,
            sessions: 0,
            counters: RelayCounters::default(),
            next_alive: Time::ZERO,
            heard_since: Time::ZERO,
            next_progress: Time::ZERO,
            next_samples: Time::ZERO,
        }
    }

    /// Protocol errors and refusals since the start, by kind.
    pub fn counters(&self) -> RelayCounters {
        let (stale_rules, bad_rules) = self.table.dropped();
        RelayCounters { stale_rules, bad_rules, ..self.counters }
    }

    /// How many rules hold.
    pub fn rules(&self) -> usize {
        self.table.rules()
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// An upstream opens a flow: `header` of an `Open`, and its body.
    pub fn handle_open(
        &mut self,
        now: Time,
        from: UpstreamId,
        kind: UpstreamKind,
        header: &Header,
        open: Open,
    ) {
        let key = header.key;
        let known = self.flows.get(&key);
        let another = known.is_some_and(|flow| flow.open != open || flow.bytes != header.number);
        let twice = known.is_some_and(|flow| kind == UpstreamKind::Host || flow.incoming.contains_key(&from));
        let full = known.is_none() && self.flows.len() >= limits::MAX_FLOWS_PER_RELAY;
        if another || twice || full || header.hop_limit == 0 || header.number == 0 {
            self.counters.refused = self.counters.refused.saturating_add(1);
            return self.tell_upstream(from, Header::about(key, Kind::Reset, 0));
        }
        let is_new = known.is_none();
        if is_new {
            self.begin(now, header, open, kind == UpstreamKind::Host);
        }
        self.upstreams.entry(from).or_default().insert(key);
        if let Some(flow) = self.flows.get_mut(&key) {
            let hops = if kind == UpstreamKind::Host { HOP_LIMIT } else { header.hop_limit };
            flow.incoming.insert(from, Incoming { kind, received: 0, heard: now, hops, ended: None });
            // Also to an upstream that comes second: it starts with what the first may send, as both send parts of one flow.
            let granted = flow.window.granted();
            self.tell_upstream(from, Header::about(key, Kind::Credit, granted));
        }
        if is_new {
            self.set_out(now, key);
        }
    }

    fn begin(&mut self, now: Time, header: &Header, open: Open, entered: bool) {
        let wait_until = now + WAIT_LIMIT;
        let reassembly = Reassembly::new(header.number);
        // Where it is for another relay, `set_out` finds the way.
        let way = Way::Deliver(Delivery { reassembly, subscriber: None, wait_until });
        let delivered = open.destination == self.config.address;
        let flow = Flow {
            open,
            bytes: header.number,
            hop_limit: header.hop_limit.saturating_sub(1),
            entered,
            incoming: BTreeMap::new(),
            window: Window::new(self.window_bytes(self.flows.len().saturating_add(1), delivered)),
            way,
            held: 0,
            turn: self.turn,
            moved: 0,
            told: 0,
        };
        self.flows.insert(header.key, flow);
        if entered {
            self.report_opened(header.key);
        }
    }

    fn window_bytes(&self, flows: usize, delivered: bool) -> u64 {
        window_bytes(flows, delivered).min(self.config.window_bytes)
    }

    /// Finds the way of a new flow.
    fn set_out(&mut self, now: Time, key: FlowKey) {
        let Some(flow) = self.flows.get_mut(&key) else { return };
        if flow.open.destination != self.config.address {
            self.report_miss(key);
            return self.set_route(now, key);
        }
        if let Some((subscriber, _)) =
            self.waiting.remove(&key).filter(|_| !is_planted(Defect::SubscriberForgotten))
            && let Some(delivery) = flow.delivery()
        {
            delivery.subscriber = Some(subscriber);
            self.outputs.extend(delivery.due().map(Output::Deliver));
        }
    }

    /// A message came: `header` of `Data`.
    pub fn handle_data(&mut self, now: Time, from: UpstreamId, header: &Header, payload: P) {
        let key = header.key;
        let opener = self.flows.get_mut(&key).filter(|flow| flow.incoming.contains_key(&from));
        let Some(flow) = opener else {
            // What was on its way when the flow was given up; or a peer that lies, whose connection no flow may wait for.
            if !self.has_flows(from) {
                self.tell_upstream(from, Header::about(key, Kind::Reset, 0));
            }
            return;
        };
        let most = flow.bytes.min(flow.window.granted());
        let within = header.number.checked_add(header.length.into()).is_some_and(|end| end <= most);
        let Some(incoming) = flow.incoming.get_mut(&from).filter(|_| within) else {
            return self.give_up_misplaced(key);
        };
        // A host sends every byte once. From a relay those that go in a circle come again, at every hop at most.
        let times = if incoming.kind == UpstreamKind::Host { 1 } else { u64::from(HOP_LIMIT) };
        incoming.heard = now;
        incoming.received = incoming.received.saturating_add(header.length.into());
        if incoming.received > most.saturating_mul(times) {
            return self.give_up_misplaced(key);
        }
        let Some(hop_limit) = header.hop_limit.checked_sub(1) else {
            self.counters.looped = self.counters.looped.saturating_add(1);
            return self.give_up(key);
        };
        let Header { number: offset, length, .. } = *header;
        // Only once it is known that a flow takes the bytes: a peer that lies makes no other flow go.
        self.make_room(length.into());
        let Some(flow) = self.flows.get_mut(&key) else { return };
        let message = Message { key, offset, length, hop_limit, payload };
        let taken = match &mut flow.way {
            Way::Deliver(delivery) => {
                let taken = delivery.reassembly.insert(message).is_ok();
                self.outputs.extend(delivery.due().map(Output::Deliver));
                taken
            }
            Way::Forward(_) => self.assign(message),
        };
        if !taken {
            return self.give_up_misplaced(key);
        }
        self.held = self.held.saturating_add(u64::from(length));
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.held = flow.held.saturating_add(u64::from(length));
        }
        self.finish_if_over(key);
    }

    /// Whether flows come from an upstream.
    pub fn has_flows(&self, upstream: UpstreamId) -> bool {
        self.upstreams.get(&upstream).is_some_and(|flows| !flows.is_empty())
    }

    /// Whether a receiver has a flow, or waits for one.
    pub fn is_subscribed(&self, subscriber: SubscriberId) -> bool {
        self.subscriptions.contains_key(&subscriber)
    }

    /// Whether it has no flow, and no receiver waits for one.
    pub fn is_idle(&self) -> bool {
        self.flows.is_empty() && self.waiting.is_empty() && self.held == 0
    }

    /// Bytes of all flows that wait here.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Makes room for a message: while what waits here is at its bound, the flow that went on least recently is given up.
    /// Its receiver asks again for what it has not; those whose receivers take their bytes stay.
    fn make_room(&mut self, length: u64) {
        while self.held.saturating_add(length) > limits::MAX_RELAY_HELD_BYTES {
            let holding = self.flows.iter().filter(|(_, flow)| flow.held > 0);
            let Some((&key, _)) = holding.min_by_key(|(key, flow)| (flow.turn, **key)) else { return };
            self.counters.crowded_out = self.counters.crowded_out.saturating_add(1);
            self.give_up(key);
        }
    }

    /// The upstream has the flow still, as it heard itself by so many relays that the header's hop limit is left.
    pub fn handle_alive(&mut self, now: Time, from: UpstreamId, header: &Header) {
        let flow = self.flows.get_mut(&header.key).filter(|_| header.hop_limit > 0);
        if let Some(incoming) = flow.and_then(|flow| flow.incoming.get_mut(&from)) {
            (incoming.heard, incoming.hops) = (now, header.hop_limit);
        }
    }

    /// The receiver has all of the flow, of which the upstream sent `bytes` here.
    pub fn handle_end(&mut self, from: UpstreamId, key: FlowKey, bytes: u64) {
        if let Some(incoming) = self.flows.get_mut(&key).and_then(|flow| flow.incoming.get_mut(&from)) {
            // A flow that came back to the upstream after it was over there counts from 0: what it sent before was said before.
            incoming.ended = incoming.ended.max(Some(bytes));
        }
        self.finish_if_over(key);
    }

    /// The upstream gave the flow up.
    pub fn handle_upstream_reset(&mut self, from: UpstreamId, key: FlowKey) {
        if self.flows.get(&key).is_some_and(|flow| flow.incoming.contains_key(&from)) {
            self.give_up(key);
        }
    }

    /// The upstream's connections ended. A host ends its flow like that once its receiver has all.
    pub fn handle_upstream_closed(&mut self, from: UpstreamId) {
        for key in self.upstreams.remove(&from).unwrap_or_default() {
            let Some(flow) = self.flows.get_mut(&key) else { continue };
            let Some(incoming) = flow.incoming.get_mut(&from) else { continue };
            if incoming.kind == UpstreamKind::Host && incoming.received == flow.bytes {
                incoming.ended = Some(flow.bytes);
            }
            let is_over = incoming.is_over();
            let is_host = incoming.kind == UpstreamKind::Host;
            if incoming.received == 0 && !is_over && !is_host && flow.incoming.len() > 1 {
                // Nothing was lost with it, and the flow comes by another way. What came by a host comes by no other upstream.
                flow.incoming.remove(&from);
            } else if !is_over {
                self.give_up(key);
            }
            self.finish_if_over(key);
        }
    }

    /// A receiver wants a flow. What it asked for before is over for it.
    pub fn handle_subscribe(&mut self, now: Time, subscriber: SubscriberId, key: FlowKey) {
        self.handle_subscriber_closed(subscriber);
        let reset = Output::ToSubscriber { subscriber, header: Header::about(key, Kind::Reset, 0) };
        match self.flows.get_mut(&key).map(Flow::delivery) {
            Some(Some(delivery)) if delivery.subscriber.is_none() => {
                delivery.subscriber = Some(subscriber);
                self.outputs.extend(delivery.due().map(Output::Deliver));
            }
            None if self.waiting.len() < limits::MAX_WAITING_RECEIVERS
                && !self.waiting.contains_key(&key) =>
            {
                self.waiting.insert(key, (subscriber, now + WAIT_LIMIT));
            }
            _ => return self.outputs.push_back(reset),
        }
        self.subscriptions.insert(subscriber, key);
    }

    /// A receiver's connection ended. A flow that it had not all of is given up.
    pub fn handle_subscriber_closed(&mut self, subscriber: SubscriberId) {
        let Some(key) = self.subscriptions.remove(&subscriber) else { return };
        if self.waiting.get(&key).is_some_and(|&(waiting, _)| waiting == subscriber) {
            self.waiting.remove(&key);
        }
        let Some(delivery) = self.flows.get_mut(&key).and_then(Flow::delivery) else { return };
        if delivery.subscriber != Some(subscriber) {
            return;
        }
        delivery.subscriber = None;
        if !delivery.reassembly.is_complete() {
            self.give_up(key);
        }
    }

    /// The next message for a next hop that can take one.
    pub fn poll_message(&mut self, hop: HopId) -> Option<Message<P>> {
        let hop = self.hops.get_mut(&hop).filter(|hop| !hop.flight.is_held())?;
        let message = hop.queue.pop()?;
        hop.flight.note_gone(message.length.into());
        self.note_gone(&message);
        Some(message)
    }

    /// Whether there is a message for this receiver.
    pub fn is_deliverable(&self, subscriber: SubscriberId) -> bool {
        let flow = self.subscriptions.get(&subscriber).and_then(|key| self.flows.get(key));
        flow.is_some_and(|flow| match &flow.way {
            Way::Deliver(delivery) => delivery.due() == Some(subscriber),
            Way::Forward(_) => false,
        })
    }

    /// The next message for a receiver that can take one.
    pub fn poll_delivery(&mut self, subscriber: SubscriberId) -> Option<Message<P>> {
        let key = self.subscriptions.get(&subscriber)?;
        let flow = self.flows.get_mut(key)?;
        let delivery = flow.delivery().filter(|delivery| delivery.subscriber == Some(subscriber))?;
        let message = delivery.reassembly.pop()?;
        self.note_gone(&message);
        Some(message)
    }

    /// A message left this relay: its flow may be over, or more of it may come.
    fn note_gone(&mut self, message: &Message<P>) {
        let end = message.offset.saturating_add(u64::from(message.length));
        let Some(flow) = self.flows.get_mut(&message.key) else { return };
        let bytes = u64::from(message.length);
        // A count of messages, not a time: which flow went on least recently must not depend on clocks.
        self.turn = self.turn.saturating_add(1);
        self.held = self.held.saturating_sub(bytes);
        flow.held = flow.held.saturating_sub(bytes);
        flow.turn = self.turn;
        flow.moved = flow.moved.saturating_add(bytes);
        // A receiver takes its flow in order.
        if flow.delivery().is_some() {
            self.grant(message.key, end);
        }
        self.finish_if_over(message.key);
    }

    /// What a flow goes on to takes all bytes before `taken`: upstreams may send so much, and a window more.
    pub(super) fn grant(&mut self, key: FlowKey, taken: u64) {
        let flows = self.flows.len();
        let Some(flow) = self.flows.get_mut(&key) else { return };
        let window =
            window_bytes(flows, flow.open.destination == self.config.address).min(self.config.window_bytes);
        let Some(granted) = flow.window.raise(taken, window, flow.bytes) else { return };
        if is_planted(Defect::CreditKept) {
            return;
        }
        let header = Header::about(key, Kind::Credit, granted);
        // An upstream that said that all is over has forgotten the flow.
        let upstreams = flow.incoming.iter().filter(|(_, incoming)| incoming.ended.is_none());
        self.outputs.extend(upstreams.map(|(&upstream, _)| Output::ToUpstream { upstream, header }));
    }

    /// Ends a flow of which nothing more comes and nothing is left here.
    fn finish_if_over(&mut self, key: FlowKey) {
        let Some(flow) = self.flows.get(&key).filter(|flow| flow.is_over()) else { return };
        match &flow.way {
            Way::Deliver(delivery) if delivery.reassembly.is_complete() => self.remove(key, true),
            // All came by another way, and was forgotten before this one was opened.
            Way::Deliver(delivery) if delivery.subscriber.is_none() && flow.is_untouched() => {
                self.remove(key, true);
            }
            Way::Deliver(delivery) if delivery.reassembly.has_hole() => self.give_up(key),
            Way::Deliver(_) => {}
            Way::Forward(forward) => {
                let left = |hop| self.hops.get(hop).is_some_and(|hop| hop.queue.holds(key));
                if forward.opened.iter().any(left) {
                    return;
                }
                let told = forward.opened.iter().filter(|_| !is_planted(Defect::EndKept));
                for &hop in told {
                    let sent = self.hops.get(&hop).map_or(0, |hop| hop.queue.sent(key));
                    let header = Header::about(key, Kind::End, sent);
                    self.outputs.push_back(Output::ToHop { hop, header, open: None });
                }
                self.remove(key, true);
            }
        }
    }

    fn give_up_misplaced(&mut self, key: FlowKey) {
        self.counters.misplaced = self.counters.misplaced.saturating_add(1);
        self.give_up(key);
    }

    /// Gives a flow up and says so to all who know it. Those who told us of it hear it too, and know it no more.
    pub(super) fn give_up(&mut self, key: FlowKey) {
        let Some(flow) = self.flows.get(&key) else { return };
        let header = Header::about(key, Kind::Reset, 0);
        self.counters.reset = self.counters.reset.saturating_add(1);
        let upstreams = flow.incoming.keys();
        self.outputs.extend(upstreams.map(|&upstream| Output::ToUpstream { upstream, header }));
        if let Some(forward) = flow.forward() {
            let hops = forward.opened.iter();
            self.outputs.extend(hops.map(|&hop| Output::ToHop { hop, header, open: None }));
        }
        if let Some(subscriber) = flow.subscriber() {
            self.outputs.push_back(Output::ToSubscriber { subscriber, header });
        }
        self.remove(key, false);
    }

    fn remove(&mut self, key: FlowKey, complete: bool) {
        let Some(flow) = self.flows.remove(&key) else { return };
        self.held = self.held.saturating_sub(flow.held);
        // Its receiver's connection is idle from now on: it may make room for another.
        if let Some(subscriber) = flow.subscriber()
            && self.subscriptions.get(&subscriber) == Some(&key)
        {
            self.subscriptions.remove(&subscriber);
        }
        for upstream in flow.incoming.keys() {
            if let Some(keys) = self.upstreams.get_mut(upstream) {
                keys.remove(&key);
            }
        }
        if let Some(forward) = flow.forward() {
            for (hop, _) in &forward.route.next_hops {
                self.leave_hop(*hop, key);
            }
            // Next hops of now and of earlier routes: bytes of the flow may have gone to either.
            for hop in &forward.opened {
                self.leave_hop(*hop, key);
            }
        }
        if flow.entered {
            self.report_ended(key, flow.moved, complete);
        }
    }

    pub(super) fn tell_upstream(&mut self, upstream: UpstreamId, header: Header) {
        self.outputs.push_back(Output::ToUpstream { upstream, header });
    }

    /// Keeps flows alive at those who know them; gives up what was not heard of, and what waits too long.
    pub(super) fn keep_alive(&mut self, now: Time) {
        let mut silent = Vec::new();
        let heard_since = self.heard_since;
        for (&key, flow) in &self.flows {
            let heard = |incoming: &Incoming| {
                let relayed = incoming.kind == UpstreamKind::Relay && incoming.ended.is_none();
                !relayed || now.since(incoming.heard.max(heard_since)) < SILENCE_LIMIT
            };
            let unwanted = match &flow.way {
                Way::Deliver(delivery) => {
                    let wanted = delivery.subscriber.is_some() || delivery.reassembly.is_complete();
                    !wanted && delivery.wait_until.max(heard_since + WAIT_LIMIT) <= now
                }
                Way::Forward(_) => false,
            };
            if unwanted || !flow.incoming.values().all(heard) {
                silent.push(key);
                continue;
            }
            let header = Header::about(key, Kind::Alive, 0);
            if let Some(subscriber) = flow.subscriber() {
                self.outputs.push_back(Output::ToSubscriber { subscriber, header });
            }
            let hops = flow.incoming.values().map(|incoming| incoming.hops).max().unwrap_or(0);
            let header = Header { hop_limit: hops.saturating_sub(1), ..header };
            let opened = flow.forward().into_iter().flat_map(|forward| &forward.opened);
            let opened = opened.filter(|_| header.hop_limit > 0);
            self.outputs.extend(opened.map(|&hop| Output::ToHop { hop, header, open: None }));
        }
        for key in silent {
            self.give_up(key);
        }
        let late =
            self.waiting.iter().filter(|(_, (_, until))| (*until).max(heard_since + WAIT_LIMIT) <= now);
        for (key, subscriber) in late.map(|(&key, &(subscriber, _))| (key, subscriber)).collect::<Vec<_>>() {
            self.waiting.remove(&key);
            self.subscriptions.remove(&subscriber);
            let header = Header::about(key, Kind::Reset, 0);
            self.outputs.push_back(Output::ToSubscriber { subscriber, header });
        }
    }
}

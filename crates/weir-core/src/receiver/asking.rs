//! Asking holders for what is missing, one after the other.

use super::facts::{Link, Output, ReceiverError, RelaysOfHost};
use super::relayed::RelayedFlow;
use super::stage::{Answering, Ask, Round, Source, Stage, Step, Way};
use super::state::Receiver;
use super::taken::Offer;
use super::timer::Timer;
use std::collections::VecDeque;
use std::net::SocketAddr;
use weir_model::{Span, Time};
use weir_proto::data::{Identity, RESPONSE_BYTES, Request, Response, Status};
use weir_proto::relay::{FlowKey, HELLO_BYTES, Header, Hello, Kind, RelayPath, Role};

/// How long connecting to a holder may take.
const CONNECT_LIMIT: Span = Span::from_millis(2_000);
/// How long connecting to a relay of the own site may take.
const RELAY_CONNECT_LIMIT: Span = Span::from_millis(1_000);
/// How long a holder may take to answer a request; it answers before its first byte is due.
const ANSWER_LIMIT: Span = Span::from_millis(12_000);
/// So much of the first frame is read with an answer, if it comes with it: a small block takes one read.
const AHEAD_BYTES: usize = 16 << 10;

/// Why a holder does not send what was asked for.
enum Refusal {
    /// It may answer otherwise later, or another one may.
    Again(String),
    /// No holder will send it, now or later.
    Final(ReceiverError),
    /// It did not answer in time: there is no use in asking it again at once.
    Silent,
    /// It has other bytes than those that the get began with.
    OtherBytes,
    /// Its file changed since it was put.
    Changed,
}

impl Receiver {
    /// Asks these holders, and the one that broke off.
    pub(super) fn begin_round(&mut self, now: Time, mut holders: Vec<SocketAddr>) {
        self.sort_holders(now, &mut holders);
        // The holder that sent the beginning may have found that its file changed, and is not located any more then.
        // Asked last, and once: the coordinator does not name it, so most likely it has nothing any more.
        let broke = self.broke.take().filter(|holder| !holders.contains(holder));
        holders.extend(broke);
        let queue = holders.iter().copied().collect();
        self.ask_next(now, queue, holders, broke);
    }

    fn ask_next(
        &mut self,
        now: Time,
        mut queue: VecDeque<SocketAddr>,
        holds: Vec<SocketAddr>,
        broke: Option<SocketAddr>,
    ) {
        (self.stage, self.timer) = (Stage::Paused, None);
        let Some(holder) = queue.pop_front() else { return self.end_round(now, holds, broke) };
        let ask = Ask { holder, way: None, pooled: false, step: Step::Describing };
        self.stage = Stage::Asking(Round { queue, holds, broke, ask });
        if self.direct {
            return self.connect_to_holder(now, true);
        }
        self.outputs.push_back(Output::Describe);
    }

    /// All were asked, and none sends it.
    fn end_round(&mut self, now: Time, mut holds: Vec<SocketAddr>, broke: Option<SocketAddr>) {
        holds.retain(|holder| !self.changed_at.contains(holder) && Some(*holder) != broke);
        // A list from before the change may leave out an agent at which the block was put meanwhile.
        let is_latest = self.looked_again || !self.config.holders.is_empty();
        match (holds.is_empty(), self.changed_at.is_empty()) {
            (true, true) => self.obstacle(now, "no host has put it yet".to_owned()),
            (true, false) if is_latest => self.end(ReceiverError::Gone),
            (true, false) => self.obstacle(now, "its file was changed or removed".to_owned()),
            (false, _) => self.obstacle(now, "no holder sends it".to_owned()),
        }
    }

    fn ask(&mut self) -> Option<&mut Ask> {
        match &mut self.stage {
            Stage::Asking(round) => Some(&mut round.ask),
            _ => None,
        }
    }

    /// The host's agent answered [`Output::Describe`]. `mapper`: a number drawn at random, which chooses the relay and
    /// keeps the bytes of earlier attempts from being taken for this one's.
    pub fn handle_described(&mut self, now: Time, relays: Option<&RelaysOfHost>, mapper: u32) {
        let Some(Ask { step: step @ Step::Describing, .. }) = self.ask() else { return };
        let path = relays.and_then(|relays| {
            let chosen = (mapper as usize).checked_rem(relays.addresses.len())?;
            let relay = *relays.addresses.get(chosen)?;
            Some(RelayPath { site: relays.site, mapper, relay })
        });
        let Some(path) = path else { return self.connect_to_holder(now, true) };
        *step = Step::ReachingRelay(path);
        self.timer = Some(Timer::new(now, RELAY_CONNECT_LIMIT));
        self.outputs.push_back(Output::Connect { link: Link::Relay, address: path.relay, pooled: true });
    }

    fn connect_to_holder(&mut self, now: Time, pooled: bool) {
        let Some(ask) = self.ask() else { return };
        (ask.step, ask.pooled) = (Step::Connecting, false);
        let address = ask.holder;
        self.timer = Some(Timer::new(now, CONNECT_LIMIT));
        self.outputs.push_back(Output::Connect { link: Link::Holder, address, pooled });
    }

    pub(super) fn connected_to_ask(&mut self, now: Time, link: Link, pooled: bool) {
        let Some(ask) = self.ask() else { return };
        match (&ask.step, link) {
            (&Step::ReachingRelay(path), Link::Relay) => {
                // The relay first, so that the request can name a way that is there.
                ask.way = Some(Way { path, broken: None });
                if !pooled {
                    self.outputs.push_back(Output::Write { link: Link::Relay, bytes: hello() });
                }
                self.connect_to_holder(now, true);
            }
            (Step::Connecting, Link::Holder) => {
                ask.pooled = pooled;
                self.request(now);
            }
            _ => {}
        }
    }

    /// Asks for the rest of what was begun.
    fn request(&mut self, now: Time) {
        let (offset, identity) = self.taken.missing();
        let request = Request {
            coflow: self.config.coflow.0,
            offset,
            destination: self.config.host.0,
            group: self.config.group,
            identity,
            block: self.config.block.clone(),
        };
        self.send_request(now, request);
    }

    /// Sends a request, with the way by relays before it.
    fn send_request(&mut self, now: Time, request: Request) {
        let Some(ask) = self.ask() else { return };
        let path = ask.way.as_ref().map(|way| way.path.encode());
        let bytes = [path.as_ref().map_or(&[][..], |path| &path[..]), &request.encode()].concat();
        ask.step = Step::Answering(Answering { request, filled: 0 });
        self.timer = Some(Timer::new(now, ANSWER_LIMIT));
        self.outputs.push_back(Output::Write { link: Link::Holder, bytes });
    }

    /// Room for an answer, and for what comes with it where the holder sends frames itself.
    pub(super) fn answer_room(&mut self) -> &mut [u8] {
        let Some(Ask { step: Step::Answering(answering), way, .. }) = self.ask() else { return &mut [] };
        let ahead = if way.is_some() { 0 } else { AHEAD_BYTES };
        let (from, end) = (answering.filled, RESPONSE_BYTES.saturating_add(ahead));
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        self.buffer.get_mut(from..end).unwrap_or_default()
    }

    pub(super) fn read_answer(&mut self, now: Time, count: usize) {
        let Some(Ask { step: Step::Answering(answering), .. }) = self.ask() else { return };
        answering.filled = answering.filled.saturating_add(count);
        if answering.filled < RESPONSE_BYTES {
            return;
        }
        let (mut request, filled) = (answering.request.clone(), answering.filled);
        let Some(bytes) = self.buffer.first_chunk() else { return };
        let response = match Response::decode(bytes) {
            Ok(response) => response,
            Err(error) => return self.refuse(now, Refusal::Again(error.to_string())),
        };
        let ahead = filled.saturating_sub(RESPONSE_BYTES);
        if response.status == Status::OtherBytes && request.offset > 0 {
            // For all of them then, to be compared with what was handed out.
            (request.offset, request.identity) = (0, Identity::UNKNOWN);
            self.send_request(now, request);
            // What came with the answer counts for the next one, as if it were read later.
            self.buffer.copy_within(RESPONSE_BYTES..filled, 0);
            return self.read_answer(now, ahead);
        }
        match self.judge(response.status) {
            Some(refusal) => self.refuse(now, refusal),
            None if response.status == Status::CoflowRefused => {
                let Some(ask) = self.ask() else { return };
                ask.step = Step::Explaining;
                self.timer = None;
                self.outputs.push_back(Output::Explain);
            }
            None => {
                self.take_offer(now, &request, response);
                self.take_ahead(now, ahead);
            }
        }
    }

    /// Takes what of the first frame came with the answer. No holder sends more than that before it is asked for more: what is
    /// beyond is dropped.
    fn take_ahead(&mut self, now: Time, ahead: usize) {
        let room =
            if matches!(self.stage, Stage::Receiving(_)) { self.frame_room(Link::Holder).len() } else { 0 };
        let count = ahead.min(room);
        if count > 0 {
            self.read_frame(now, Link::Holder, count);
        }
    }

    /// Why no frames follow, if none do. Why a coflow was refused is to be found out.
    fn judge(&mut self, status: Status) -> Option<Refusal> {
        let offered = self.ask().is_some_and(|ask| ask.way.is_some());
        let again = |why: &str| Some(Refusal::Again(why.to_owned()));
        match status {
            Status::Accepted | Status::CoflowRefused => None,
            Status::Relayed if offered => None,
            Status::Relayed => again("it answered by relays, unasked"),
            Status::NoSuchBlock => again("it does not hold the block"),
            Status::Busy => again("it serves as many connections as it may"),
            Status::Unreadable => again("it cannot read the block's file"),
            Status::Changed => Some(Refusal::Changed),
            Status::OtherBytes => Some(Refusal::OtherBytes),
            Status::CoflowEnded => Some(Refusal::Final(ReceiverError::CoflowEnded)),
            Status::BadRequest if offered => {
                // An agent that knows no relays.
                self.direct = true;
                again("it knows no relays")
            }
            Status::Forbidden => again("it wants a token, for a block"),
            Status::BadRequest => Some(Refusal::Final(ReceiverError::Refused("bad request"))),
        }
    }

    /// The coordinator answered [`Output::Explain`].
    pub fn handle_explained(&mut self, now: Time, reason: String) {
        if let Some(Ask { step: Step::Explaining, .. }) = self.ask() {
            self.refuse(now, Refusal::Final(ReceiverError::CoflowRefused(reason)));
        }
    }

    /// The holder accepted: frames come from it, or by the relay.
    fn take_offer(&mut self, now: Time, request: &Request, response: Response) {
        if self.taken.contradicts(response.size) {
            return self.refuse(now, Refusal::Final(self.taken.changed()));
        }
        let offer = Offer { size: response.size, offset: request.offset, identity: response.identity };
        let Some(ask) = self.ask() else { return };
        let Some(Way { path, broken }) = ask.way.as_ref().filter(|_| response.status == Status::Relayed)
        else {
            return self.receive(now, offer, None);
        };
        if let Some(why) = broken.clone() {
            return self.do_without_relay(now, why);
        }
        let subscribe = Header::about(FlowKey::of(request, path), Kind::Subscribe, 0);
        ask.step = Step::Subscribing(offer, subscribe.key);
        self.timer = None;
        let bytes = subscribe.encode().to_vec();
        self.outputs.push_back(Output::Write { link: Link::Relay, bytes });
    }

    pub(super) fn subscribed(&mut self, now: Time) {
        if let Some(&mut Ask { step: Step::Subscribing(offer, key), .. }) = self.ask() {
            self.receive(now, offer, Some(RelayedFlow::new(now, key)));
        }
    }

    fn do_without_relay(&mut self, now: Time, why: String) {
        self.direct = true;
        self.refuse(now, Refusal::Again(why));
    }

    /// The holder accepted the request: frames come from now on.
    fn receive(&mut self, now: Time, offer: Offer, relayed: Option<RelayedFlow>) {
        let Stage::Asking(round) = std::mem::replace(&mut self.stage, Stage::Paused) else { return };
        let Ask { holder, way, .. } = round.ask;
        if relayed.is_none() {
            self.leave_relay(way);
        }
        self.changed_at.clear();
        self.taken.accept(offer);
        self.filled = 0;
        self.tried.forget(&holder.to_string());
        self.stage = Stage::Receiving(Source::new(holder, relayed));
        self.go_on(now);
    }

    /// A way that was offered and not taken is left for a later get.
    fn leave_relay(&mut self, way: Option<Way>) {
        let link = Link::Relay;
        self.outputs.extend(way.map(|way| match way.broken {
            None => Output::GiveBack { link },
            Some(_) => Output::Close { link },
        }));
    }

    /// The holder does not send it: the next one is asked, unless it was asked on a connection that may have been dead.
    fn refuse(&mut self, now: Time, refusal: Refusal) {
        self.outputs.push_back(Output::Close { link: Link::Holder });
        let Some(ask) = self.ask() else { return };
        if let Some(broken) = ask.way.take_if(|way| way.broken.is_some()) {
            self.leave_relay(Some(broken));
        }
        let Some(ask) = self.ask() else { return };
        // The failure may be that of the old connection: only on a new one it counts against the holder.
        if ask.pooled && matches!(refusal, Refusal::Again(_) | Refusal::Final(_)) {
            return self.connect_to_holder(now, false);
        }
        let Stage::Asking(round) = std::mem::replace(&mut self.stage, Stage::Paused) else { return };
        let Round { queue, holds, broke, ask: Ask { holder, way, .. } } = round;
        self.leave_relay(way);
        match refusal {
            Refusal::Final(error) => return self.end(error),
            Refusal::Again(why) => self.tried.note(holder.to_string(), why),
            Refusal::Silent => {
                self.avoid(now, holder);
                self.tried.note(holder.to_string(), "it does not answer".to_owned());
            }
            Refusal::OtherBytes => {
                self.tried.note(holder.to_string(), "it has other bytes by now".to_owned());
            }
            Refusal::Changed => _ = self.changed_at.insert(holder),
        }
        self.ask_next(now, queue, holds, broke);
    }

    pub(super) fn lost_while_asking(&mut self, now: Time, link: Link, why: Option<String>) {
        let Some(ask) = self.ask() else { return };
        match (&ask.step, link) {
            (Step::ReachingRelay(_), Link::Relay) => self.connect_to_holder(now, true),
            (Step::Subscribing(..), Link::Relay) => {
                let why = why.unwrap_or_else(|| "the relay closed the connection".to_owned());
                if let Some(way) = &mut ask.way {
                    way.broken = Some(why.clone());
                }
                self.do_without_relay(now, why);
            }
            // Noted only: the holder may send the frames itself, and then no relay is needed.
            (_, Link::Relay) => {
                if let Some(way) = &mut ask.way {
                    way.broken = Some(why.unwrap_or_else(|| "the relay closed the connection".to_owned()));
                }
            }
            (Step::Describing | Step::ReachingRelay(_), _) => {}
            _ => self.refuse(now, Refusal::Again(why.unwrap_or_else(|| "early eof".to_owned()))),
        }
    }

    pub(super) fn asked_too_long(&mut self, now: Time) {
        match self.ask().map(|ask| &ask.step) {
            Some(Step::ReachingRelay(_)) => {
                self.outputs.push_back(Output::Close { link: Link::Relay });
                self.connect_to_holder(now, true);
            }
            Some(Step::Connecting) => {
                self.refuse(now, Refusal::Again("connecting took too long".to_owned()));
            }
            Some(Step::Answering(_)) => self.refuse(now, Refusal::Silent),
            Some(Step::Describing | Step::Explaining | Step::Subscribing(..)) | None => {}
        }
    }
}

/// What a receiver says first to a relay.
fn hello() -> Vec<u8> {
    let key = FlowKey { coflow: 0, reducer: 0, mapper: 0 };
    let header = Header { length: HELLO_BYTES as u32, ..Header::about(key, Kind::Hello, 0) };
    let hello = Hello { role: Role::Receiver, connections: 1, session: 0 };
    [&header.encode()[..], &hello.encode()].concat()
}

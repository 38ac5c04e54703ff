//! One connection: request in, frames out, acknowledgement in.

use super::sending::{Outlet, Payload, Range, Sending, Upload, Waiting, Write};
use crate::agent::OpenedFlow;
use crate::ids::FlowNumber;
use crate::planted::{Defect, is_planted};
use weir_model::{Span, Time};
use weir_proto::data::{ACK, DecodeError, Identity, Request, Response, Status, VERSION, decode_nak};
use weir_proto::gather::{GatherRequest, MAX_GATHER_BYTES};
use weir_proto::relay::{FlowKey, Open, PATH_BYTES, PATH_MAGIC, RelayPath};

/// Longest request for a block, and all that may be said ahead.
const INPUT_BYTES: usize = 512;
/// A connection that never asked for anything is closed after this time,
const SILENT_LIMIT: Span = Span::from_millis(10_000);
/// and one that asks for nothing more after this.
const IDLE_LIMIT: Span = Span::from_millis(60_000);
/// A receiver that was sent everything has this time to say that it has it.
const ACKNOWLEDGEMENT_LIMIT: Span = Span::from_millis(60_000);
/// A relay of the own site that is not reached within this time is avoided for a while.
const RELAY_LIMIT: Span = Span::from_millis(1_000);
/// A file that is not open after this time is answered for as unreadable.
const OPEN_LIMIT: Span = Span::from_millis(10_000);

/// What the receiver wants, as far as its bytes tell.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// Nothing more for now.
    Nothing,
    /// A whole request, and the way by relays that it may be answered by: [`Conversation::open`] or
    /// [`Conversation::refuse`] follows.
    Request(Request, Option<RelayPath>),
    /// A whole request for ranges of an executor's store, and the way that it may be answered by: [`Conversation::gather`] or
    /// [`Conversation::refuse`] follows.
    Gather(GatherRequest, Option<RelayPath>),
    /// All was received and verified; the connection takes another request.
    Acknowledged,
    /// A frame that the receiver got did not have its checksum. The connection is to be closed.
    Doubted(u64),
    /// It closed, or speaks something else: the connection is to be closed once what is to be written was.
    Ended,
}

/// What takes too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// The file of this flow is not open yet: it cannot be served.
    Opening(FlowNumber),
    /// The files of a gather are not found yet: it cannot be served.
    Gathering,
    /// The receiver: the connection is to be closed.
    Receiver,
}

/// A request that was accepted, and waits for its file.
#[derive(Debug)]
pub struct Opening {
    /// The flow and its block.
    pub opened: OpenedFlow,
    /// The request as it was decoded.
    pub request: Request,
    /// The way by relays that it may be answered by.
    pub path: Option<RelayPath>,
}

impl Opening {
    /// The way by relays that its bytes may take. There is none where none are left: relays carry flows that have bytes, and a
    /// receiver that waits for none acknowledges before one is reached.
    pub fn way(&self) -> Option<RelayPath> {
        self.path.filter(|_| self.opened.offset < self.opened.block.size)
    }
}

#[derive(Debug)]
enum State {
    /// A request is waited for.
    Idle,
    /// The file of one is being opened.
    Opening(Box<Opening>),
    /// The files of a gather are being found.
    Gathering { number: u64, gather: Box<(GatherRequest, Option<RelayPath>)> },
    /// A block is on its way.
    Serving { flow: FlowNumber, sending: Sending },
}

/// A data connection at the serving side. Call order: see the module.
#[derive(Debug)]
pub struct Conversation {
    input: Vec<u8>,
    has_ended: bool,
    path: Option<RelayPath>,
    /// Of the last request, which is that of the answer.
    version: u8,
    state: State,
    direct: Waiting,
    /// Where frames go, if not to the receiver.
    upload: Option<Upload>,
    /// When it last did something that counts.
    active: Time,
    /// Whether its receiver ever asked for anything.
    has_spoken: bool,
    /// Gathers that were begun: what was found for one is not for the next.
    gathers: u64,
}

impl Conversation {
    /// A connection that was just accepted.
    pub fn new(now: Time) -> Conversation {
        Conversation {
            input: Vec::new(),
            has_ended: false,
            path: None,
            version: VERSION,
            state: State::Idle,
            direct: Waiting::default(),
            upload: None,
            active: now,
            has_spoken: false,
            gathers: 0,
        }
    }

    /// The flow that it serves, or will once its file is open.
    pub fn flow(&self) -> Option<FlowNumber> {
        match &self.state {
            State::Idle | State::Gathering { .. } => None,
            State::Opening(opening) => Some(opening.opened.flow),
            State::Serving { flow, .. } => Some(*flow),
        }
    }

    /// Whether a file is being opened for it.
    pub fn is_opening(&self) -> bool {
        matches!(self.state, State::Opening(_))
    }

    /// Whether it waits for its receiver to ask for something.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// When it last did something that counts.
    pub fn active(&self) -> Time {
        self.active
    }

    /// The receiver said something.
    pub fn handle_input(&mut self, bytes: &[u8]) {
        // What is beyond the bound ends the connection, so no more of it is kept than tells so.
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = self.most_input().saturating_add(INPUT_BYTES).saturating_sub(self.input.len());
            let (taken, more) = rest.split_at(rest.len().min(room).min(INPUT_BYTES));
            if taken.is_empty() {
                return;
            }
            self.input.extend_from_slice(taken);
            rest = more;
        }
    }

    /// What may wait to be understood.
    fn most_input(&self) -> usize {
        let leads = self.path.is_none() && self.input.starts_with(&PATH_MAGIC);
        let request = self.input.get(if leads { PATH_BYTES } else { 0 }..).unwrap_or_default();
        let gathers = self.is_idle() && request.len() > 1 && GatherRequest::may_begin(request);
        if gathers { PATH_BYTES + MAX_GATHER_BYTES } else { INPUT_BYTES }
    }

    /// The receiver closed its side, or the connection broke. What it said before still counts: it may acknowledge, or say what
    /// was wrong, and leave with bytes unread.
    pub fn handle_end(&mut self) {
        self.has_ended = true;
    }

    /// What the receiver wants; to be asked until there is nothing more.
    pub fn poll_input(&mut self, now: Time) -> Input {
        let input = match self.next_input() {
            Input::Nothing if self.has_ended || self.input.len() > self.most_input() => Input::Ended,
            input => input,
        };
        if input != Input::Nothing {
            (self.active, self.has_spoken) = (now, true);
        }
        input
    }

    fn next_input(&mut self) -> Input {
        match &self.state {
            // Nothing is to be said before the answer.
            State::Opening(_) | State::Gathering { .. } if self.input.is_empty() => Input::Nothing,
            State::Opening(_) | State::Gathering { .. } => Input::Ended,
            State::Serving { .. } => match self.input.first() {
                None => Input::Nothing,
                Some(&ACK) if self.is_all_written() => {
                    self.input.remove(0);
                    if is_planted(Defect::AcknowledgementLost) {
                        return Input::Nothing;
                    }
                    (self.state, self.upload) = (State::Idle, None);
                    Input::Acknowledged
                }
                Some(_) => match decode_nak(&self.input) {
                    Some(Some(_)) if is_planted(Defect::DoubtIgnored) => Input::Ended,
                    Some(Some(frame)) => Input::Doubted(frame),
                    Some(None) => Input::Nothing,
                    None => Input::Ended,
                },
            },
            // A receiver that has not read its answer has nothing to ask. Answers to one that asks on and on, and reads none,
            // would pile up here.
            State::Idle if self.direct.left().is_some() => {
                if self.input.is_empty() {
                    Input::Nothing
                } else {
                    Input::Ended
                }
            }
            State::Idle => self.next_request().unwrap_or_else(|_| {
                self.refuse(Status::BadRequest);
                Input::Ended
            }),
        }
    }

    fn next_request(&mut self) -> Result<Input, DecodeError> {
        if self.path.is_none()
            && let Some(path) = RelayPath::decode(&self.input)?
        {
            let Some(path) = path else { return Ok(Input::Nothing) };
            self.input.drain(..PATH_BYTES);
            self.path = Some(path);
        }
        if self.input.len() > 1 && GatherRequest::may_begin(&self.input) {
            let Some((request, length)) = GatherRequest::decode(&self.input)? else {
                return Ok(Input::Nothing);
            };
            self.version = VERSION;
            self.input.drain(..length);
            return Ok(Input::Gather(request, self.path.take()));
        }
        let Some((request, length)) = Request::decode(&self.input)? else { return Ok(Input::Nothing) };
        self.version = Request::version(&self.input).unwrap_or(VERSION);
        self.input.drain(..length);
        Ok(Input::Request(request, self.path.take()))
    }

    /// The request is accepted; its file is being opened.
    pub fn open(&mut self, opening: Opening) {
        self.state = State::Opening(Box::new(opening));
    }

    /// The request whose file is being opened, if it is that of the flow. [`Conversation::open`], [`Conversation::serve`] or
    /// [`Conversation::refuse`] follows.
    pub fn take_opening(&mut self, flow: FlowNumber) -> Option<Opening> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Opening(opening) if opening.opened.flow == flow => Some(*opening),
            state => {
                self.state = state;
                None
            }
        }
    }

    /// The gather is accepted so far; its files are being found. Returns its number on this connection.
    pub fn gather(&mut self, request: GatherRequest, path: Option<RelayPath>) -> u64 {
        self.gathers = self.gathers.saturating_add(1);
        self.state = State::Gathering { number: self.gathers, gather: Box::new((request, path)) };
        self.gathers
    }

    /// The gather of this number, if its files are still being found; without a number, whichever there is.
    /// [`Conversation::serve`] or [`Conversation::refuse`] follows.
    pub fn take_gather(&mut self, wanted: Option<u64>) -> Option<(GatherRequest, Option<RelayPath>)> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Gathering { number, gather } if wanted.is_none_or(|wanted| wanted == number) => {
                Some(*gather)
            }
            state => {
                self.state = state;
                None
            }
        }
    }

    /// Answers a request with this status, and without bytes.
    pub fn refuse(&mut self, status: Status) {
        self.direct.push(&Response::refusal(status).encode_for(self.version));
    }

    /// Begins to serve these ranges; the answer says the size and identity of a block. `relay`: they go by way of one, whose
    /// connection has just been begun.
    pub fn serve(
        &mut self,
        now: Time,
        flow: FlowNumber,
        ranges: Vec<Range>,
        (size, identity): (u64, Identity),
        relay: Option<(FlowKey, Open)>,
    ) {
        self.upload = relay.map(|(key, open)| Upload::new(now, key, &open, &ranges));
        let status = if self.upload.is_some() { Status::Relayed } else { Status::Accepted };
        let response = Response { status, size, identity };
        self.direct.push(&response.encode_for(self.version));
        self.state = State::Serving { flow, sending: Sending::new(ranges, now) };
        self.active = now;
    }

    /// Whether an answer is to be written that may wait a moment for the first frame. Not so where none follows on this
    /// connection.
    pub fn owes_answer(&self) -> bool {
        let is_followed = match &self.state {
            State::Serving { sending, .. } => self.upload.is_none() && !sending.is_over(),
            State::Idle | State::Opening(_) | State::Gathering { .. } => false,
        };
        is_followed && self.direct.left().is_some()
    }

    /// The connection to the relay is there.
    pub fn handle_connected(&mut self) {
        if let Some(upload) = &mut self.upload {
            upload.is_connected = true;
        }
    }

    /// The connection to the relay failed.
    pub fn handle_relay_failed(&mut self) {
        if let Some(upload) = &mut self.upload {
            upload.has_failed = true;
        }
    }

    /// Whether a relay carries the flow, and could not be reached, or not in time: a receiver that leaves at once says nothing of it.
    pub fn is_relay_unreached(&self, now: Time) -> bool {
        let is_late = |begun: Time| now.since(begun) >= RELAY_LIMIT;
        self.upload
            .as_ref()
            .is_some_and(|upload| !upload.is_connected && (upload.has_failed || is_late(upload.begun)))
    }

    /// What is to be written next, with at most `most` bytes of payload.
    pub fn poll_write(&mut self, most: u64) -> Write<'_> {
        let State::Serving { sending, .. } = &mut self.state else {
            let left = self.direct.left();
            return left.map_or(Write::Nothing, |bytes| Write::Bytes {
                to: Outlet::Receiver,
                bytes,
                then: None,
            });
        };
        // What leads the first frame may go with the answer. Without permission the answer goes alone: the receiver knows at once
        // that it is served, though its first byte may have to wait.
        if most > 0
            && self.upload.is_none()
            && let Some((range, offset)) = sending.next_frame()
        {
            return Write::Frame { range, offset };
        }
        if self.direct.left().is_some() {
            let then = sending.next_payload(most).filter(|_| self.upload.is_none());
            let bytes = self.direct.left().unwrap_or_default();
            return Write::Bytes { to: Outlet::Receiver, bytes, then };
        }
        if self.upload.as_ref().is_some_and(|upload| !upload.is_connected) {
            return Write::Waits;
        }
        if most > 0 {
            sending.begin_piece(self.upload.as_mut());
            if let Some((range, offset)) = sending.next_frame() {
                return Write::Frame { range, offset };
            }
        }
        let payload = sending.next_payload(most);
        let to = if self.upload.is_some() { Outlet::Relay } else { Outlet::Receiver };
        if let Some(bytes) = self.upload.as_ref().and_then(|upload| upload.waiting.left()) {
            return Write::Bytes { to, bytes, then: payload };
        }
        let Some(Payload { range, offset, count }) = payload else { return Write::Nothing };
        Write::Payload { to, range, offset, count }
    }

    /// Some of the bytes of a [`Write::Bytes`] were written.
    pub fn handle_written(&mut self, to: Outlet, count: usize) {
        match (to, &mut self.upload) {
            (Outlet::Relay, Some(upload)) => upload.waiting.take(count),
            _ => self.direct.take(count),
        }
    }

    /// The checksum of the frame that [`Write::Frame`] asked for.
    pub fn handle_frame(&mut self, checksum: u32) {
        if let State::Serving { sending, .. } = &mut self.state {
            sending.begin_frame(checksum, &mut self.direct, self.upload.as_mut());
        }
    }

    /// Some of the bytes of a [`Write::Payload`] were written.
    pub fn handle_sent(&mut self, now: Time, count: u64) {
        if let State::Serving { sending, .. } = &mut self.state {
            sending.handle_sent(now, count);
        }
    }

    /// Whether a block was written whole: what is left is the receiver's.
    pub fn is_all_written(&self) -> bool {
        let outlet = self.upload.as_ref().map_or(&self.direct, |upload| &upload.waiting);
        let State::Serving { sending, .. } = &self.state else { return false };
        sending.is_over() && outlet.left().is_none()
    }

    /// What takes too long, if anything does; to be asked now and then.
    pub fn late(&self, now: Time) -> Option<Late> {
        let quiet = now.since(self.active);
        match &self.state {
            State::Opening(opening) => (quiet > OPEN_LIMIT).then_some(Late::Opening(opening.opened.flow)),
            State::Gathering { .. } => (quiet > OPEN_LIMIT).then_some(Late::Gathering),
            State::Serving { sending, .. } => {
                let waits = self.is_all_written() && now.since(sending.wrote) > ACKNOWLEDGEMENT_LIMIT;
                waits.then_some(Late::Receiver)
            }
            State::Idle => {
                let limit = if self.has_spoken { IDLE_LIMIT } else { SILENT_LIMIT };
                (quiet > limit).then_some(Late::Receiver)
            }
        }
    }
}

//! One data connection at the serving side: request in, frames out (on it, or to a relay), acknowledgement in.

use super::blocks::{Frame, Key, Served};
use super::jobs::Jobs;
use super::outlet::{Outlet, Upload};
use std::io::{self, Read};
use std::net::TcpStream;
use std::rc::Rc;
use weir_core::agent::{Crowd, OpenedFlow};
use weir_model::{Span, Time};
use weir_net::{SendOutcome, TcpPath};
use weir_proto::data::{
    ACK, DecodeError, FRAME_BYTES, FRAME_HEADER_BYTES, FrameHeader, Identity, Request, Response, Status,
    VERSION, decode_nak, frame_count, frame_length,
};
use weir_proto::relay::{PATH_BYTES, PIECE_BYTES, RelayPath};

/// Longest request, and all that is read ahead.
const INPUT_BYTES: usize = 512;

/// What the peer wants, as far as its bytes tell.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// Nothing more for now.
    Nothing,
    /// A whole request, and the way by relays that it may be answered by.
    Request(Request, Option<RelayPath>),
    /// All was received and verified.
    Acknowledged,
    /// A frame that the receiver got did not have its checksum.
    Doubted(u64),
    /// It closed, or speaks something else: end the connection.
    Ended,
}

/// A request that was accepted, and waits for its file.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) opened: OpenedFlow,
    pub(super) request: Request,
    pub(super) path: Option<RelayPath>,
}

/// The transfer under way.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) flow: u64,
    pub(super) block: Rc<Served>,
    offset: u64,
    frame_end: u64,
    /// End of what is written as one: a frame, or a message to a relay.
    piece_end: u64,
    /// The frame at hand, if it is not sent from the file.
    copy: Option<Rc<Vec<u8>>>,
    /// When bytes were written last.
    wrote: Time,
}

#[derive(Debug)]
pub(super) struct Connection {
    outlet: Outlet,
    input: Vec<u8>,
    path: Option<RelayPath>,
    /// Of the last request, which is that of the answer.
    version: u8,
    serving: Option<Serving>,
    /// A request whose file is being opened.
    opening: Option<Opening>,
    /// When it last did something that counts.
    pub(super) active: Time,
    /// Whether its peer ever asked for anything.
    pub(super) has_spoken: bool,
    /// Where frames go, if not to the peer.
    upload: Option<Upload>,
    scheduled: bool,
}

/// Result of a permission to write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrote {
    /// This many payload bytes.
    Bytes(u64),
    /// This many, and nothing more can be written until the socket takes more or the file was read.
    Blocked(u64),
}

impl Connection {
    pub(super) fn new(now: Time, stream: TcpStream) -> Connection {
        Connection {
            outlet: Outlet::new(stream),
            input: Vec::new(),
            path: None,
            version: VERSION,
            serving: None,
            opening: None,
            active: now,
            has_spoken: false,
            upload: None,
            scheduled: false,
        }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.outlet.stream
    }

    /// The connection that frames go by.
    pub(super) fn frame_stream(&self) -> &TcpStream {
        &self.upload.as_ref().map_or(&self.outlet, |upload| &upload.outlet).stream
    }

    pub(super) fn upload(&mut self) -> Option<&mut Upload> {
        self.upload.as_mut()
    }

    pub(super) fn flow(&self) -> Option<u64> {
        let opening = self.opening.as_ref().map(|opening| opening.opened.flow);
        self.serving.as_ref().map(|serving| serving.flow).or(opening)
    }

    /// The block that it serves.
    pub(super) fn block(&self) -> Option<&Rc<Served>> {
        self.serving.as_ref().map(|serving| &serving.block)
    }

    /// Whether it serves a block.
    pub(super) fn serves(&self, key: &Key) -> bool {
        self.serving.as_ref().is_some_and(|serving| serving.block.key == *key)
    }

    /// Waits for the file of a request.
    pub(super) fn open(&mut self, opening: Opening) {
        self.opening = Some(opening);
    }

    /// The request whose file is being opened, if it is that of the flow.
    pub(super) fn take_opening(&mut self, flow: u64) -> Option<Opening> {
        self.opening.take_if(|opening| opening.opened.flow == flow)
    }

    /// Whether a file is being opened for it.
    pub(super) fn is_opening(&self) -> bool {
        self.opening.is_some()
    }

    /// Sets how much the kernel may hold unsent, if that changed. A relay holds so much that it makes no difference.
    pub(super) fn set_scheduled(&mut self, scheduled: bool) {
        if self.upload.is_none() && self.scheduled != scheduled {
            self.scheduled = scheduled;
            let _ = weir_net::tune_scheduled(self.frame_stream(), scheduled);
        }
    }

    /// What is under way, if more than `limit` bytes are. Where the kernel does not tell, nothing is.
    pub(super) fn crowd(&self, limit: u64) -> Option<Crowd> {
        if limit == u64::MAX {
            return None;
        }
        let in_flight = weir_net::unacknowledged(self.frame_stream()).ok().filter(|&bytes| bytes > limit)?;
        let TcpPath { round_trip, segment_bytes, .. } = weir_net::tcp_path(self.frame_stream()).ok()?;
        Some(Crowd { in_flight, round_trip, segment_bytes })
    }

    /// How long, in all, whoever takes frames had no room for them.
    pub(super) fn waited(&self) -> Option<Span> {
        weir_net::tcp_path(self.frame_stream()).ok().map(|path| path.receiver_limited)
    }

    /// Reads what is there.
    pub(super) fn read(&mut self) -> Input {
        let mut chunk = [0; INPUT_BYTES];
        loop {
            match self.outlet.stream.read(&mut chunk) {
                Ok(0) => return self.last_input(),
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.next_input(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What came before still counts: a receiver may acknowledge, or say what was wrong, and leave with bytes unread.
                Err(_) => return self.last_input(),
            }
            if self.input.len() > INPUT_BYTES {
                return Input::Ended;
            }
        }
    }

    fn last_input(&mut self) -> Input {
        match self.next_input() {
            Input::Nothing => Input::Ended,
            input => input,
        }
    }

    fn next_input(&mut self) -> Input {
        if self.opening.is_some() {
            // Nothing is to be said before the answer.
            return if self.input.is_empty() { Input::Nothing } else { Input::Ended };
        }
        if self.serving.is_some() {
            return match self.input.first() {
                None => Input::Nothing,
                Some(&ACK) if self.finished() => {
                    self.input.remove(0);
                    (self.serving, self.upload) = (None, None);
                    Input::Acknowledged
                }
                Some(_) => match decode_nak(&self.input) {
                    Some(Some(frame)) => Input::Doubted(frame),
                    Some(None) => Input::Nothing,
                    None => Input::Ended,
                },
            };
        }
        self.next_request().unwrap_or_else(|_| {
            self.refuse(Status::BadRequest);
            Input::Ended
        })
    }

    fn next_request(&mut self) -> Result<Input, DecodeError> {
        if self.path.is_none()
            && let Some(path) = RelayPath::decode(&self.input)?
        {
            let Some(path) = path else { return Ok(Input::Nothing) };
            self.input.drain(..PATH_BYTES);
            self.path = Some(path);
        }
        let Some((request, length)) = Request::decode(&self.input)? else { return Ok(Input::Nothing) };
        self.version = Request::version(&self.input).unwrap_or(VERSION);
        self.input.drain(..length);
        Ok(Input::Request(request, self.path.take()))
    }

    /// Whether all was handed to the socket so long ago.
    pub(super) fn is_finished(&self, now: Time, ago: Span) -> bool {
        self.finished() && self.serving.as_ref().is_some_and(|serving| now.since(serving.wrote) > ago)
    }

    fn finished(&self) -> bool {
        let outlet = self.upload.as_ref().map_or(&self.outlet, |upload| &upload.outlet);
        outlet.output.is_empty()
            && self.serving.as_ref().is_some_and(|serving| serving.offset == serving.block.file.size())
    }

    /// Refuses a request. The few bytes of the answer go out at once or the peer is told nothing.
    pub(super) fn refuse(&mut self, status: Status) {
        self.outlet.output.extend_from_slice(&Response::refusal(status).encode_for(self.version));
        let _ = self.outlet.flush(false);
    }

    /// Begins to serve a block, by way of a relay if one is given.
    pub(super) fn serve(
        &mut self,
        flow: u64,
        block: Rc<Served>,
        offset: u64,
        upload: Option<Upload>,
        identity: Identity,
    ) {
        let size = block.file.size();
        let status = if upload.is_some() { Status::Relayed } else { Status::Accepted };
        let (frame_end, piece_end, wrote) = (offset, offset, self.active);
        self.serving = Some(Serving { flow, block, offset, frame_end, piece_end, copy: None, wrote });
        self.upload = upload;
        let response = Response { status, size, identity };
        self.outlet.output.extend_from_slice(&response.encode_for(self.version));
        // The receiver knows at once that it is served, though a plan may have its first byte wait. What the socket
        // does not take goes before the first frame.
        let _ = self.outlet.flush(false);
    }

    /// Writes at most `budget` payload bytes of the block.
    pub(super) fn write(&mut self, budget: u64, reading: &mut Reading<'_>) -> io::Result<Wrote> {
        if !self.outlet.flush(false)? || self.upload.as_ref().is_some_and(|upload| !upload.is_connected()) {
            return Ok(Wrote::Blocked(0));
        }
        let mut sent = 0;
        loop {
            if sent < budget
                && let Some(serving) = &mut self.serving
                && !serving.begin_piece(&mut self.outlet, self.upload.as_mut(), reading)
            {
                return Ok(Wrote::Blocked(sent));
            }
            let left = self.serving.as_ref().map_or(0, |serving| serving.piece_end - serving.offset);
            let count = left.min(budget - sent);
            let outlet = self.upload.as_mut().map_or(&mut self.outlet, |upload| &mut upload.outlet);
            if !outlet.flush(count > 0)? {
                return Ok(Wrote::Blocked(sent));
            }
            let Some(serving) = self.serving.as_mut().filter(|_| count > 0) else {
                return Ok(Wrote::Bytes(sent));
            };
            match serving.send(&outlet.stream, count)? {
                SendOutcome::Sent(count) => {
                    serving.offset += count;
                    serving.wrote = reading.now;
                    sent += count;
                }
                SendOutcome::WouldBlock => return Ok(Wrote::Blocked(sent)),
                SendOutcome::Truncated => {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter"));
                }
            }
        }
    }
}

impl Serving {
    /// Hands at most `count` bytes to a socket, all of them of the frame at hand.
    fn send(&self, stream: &TcpStream, count: u64) -> io::Result<SendOutcome> {
        let Some(copy) = &self.copy else { return self.block.file.send(stream, self.offset, count) };
        let at = (self.offset % FRAME_BYTES) as usize;
        let bytes = copy.get(at..).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(count as usize)];
        if bytes.is_empty() {
            return Ok(SendOutcome::Truncated);
        }
        let sent = weir_net::send(stream, bytes, false)?;
        Ok(sent.map_or(SendOutcome::WouldBlock, |sent| SendOutcome::Sent(sent as u64)))
    }

    /// At the end of a piece, puts what leads the next one into the output, or returns false if its frame must be read
    /// first: the frame's header where one begins, and before it the message's where it goes to a relay.
    fn begin_piece(
        &mut self,
        direct: &mut Outlet,
        upload: Option<&mut Upload>,
        reading: &mut Reading<'_>,
    ) -> bool {
        let size = self.block.file.size();
        if self.offset < self.piece_end || self.offset == size {
            return true;
        }
        let mut frame = None;
        if self.offset == self.frame_end {
            let length = frame_length(size, self.offset);
            let Some(Frame { checksum, copy }) = self.block.frame(reading, self.offset) else { return false };
            self.copy = copy;
            frame = Some(FrameHeader { length: length as u32, checksum }.encode());
            self.frame_end = self.offset + length;
        }
        let header = frame.as_ref().map_or(&[][..], |frame| &frame[..]);
        match upload {
            None => {
                self.piece_end = self.frame_end;
                direct.output.extend_from_slice(header);
            }
            Some(upload) => {
                self.piece_end = self.frame_end.min(self.offset - self.offset % PIECE_BYTES + PIECE_BYTES);
                upload.announce(header.len() as u64 + self.piece_end - self.offset);
                upload.outlet.output.extend_from_slice(header);
            }
        }
        true
    }
}

/// What it takes to read a frame.
pub(super) struct Reading<'a> {
    pub(super) now: Time,
    pub(super) jobs: &'a mut Jobs,
    /// Who waits for it.
    pub(super) connection: u64,
    /// Room for a frame.
    pub(super) buffer: &'a mut Vec<u8>,
}

/// Bytes of a flow that carries a block of `size` from `offset`: its frames and their headers.
pub(super) fn flow_bytes(size: u64, offset: u64) -> u64 {
    size - offset + (frame_count(size) - offset / FRAME_BYTES) * FRAME_HEADER_BYTES as u64
}

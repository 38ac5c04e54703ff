//! One data connection at the serving side: request in, frames out, acknowledgement in.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use weir_core::agent::Crowd;
use weir_net::{BlockFile, SendOutcome, TcpPath};
use weir_proto::data::{ACK, FrameHeader, Request, Response, Status, frame_length};

/// Longest request, and all that is read ahead.
const INPUT_BYTES: usize = 512;

/// What the peer wants, as far as its bytes tell.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// Nothing more for now.
    Nothing,
    /// A whole request.
    Request(Request),
    /// All was received and verified.
    Acknowledged,
    /// It closed, or speaks something else: end the connection.
    Ended,
}

/// The transfer under way.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) flow: u64,
    file: Rc<RefCell<BlockFile>>,
    offset: u64,
    frame_end: u64,
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    serving: Option<Serving>,
    scheduled: bool,
}

/// Result of a permission to write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrote {
    /// This many payload bytes.
    Bytes(u64),
    /// This many, and the socket takes no more.
    Blocked(u64),
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Connection {
        Connection {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            serving: None,
            scheduled: false,
        }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn flow(&self) -> Option<u64> {
        self.serving.as_ref().map(|serving| serving.flow)
    }

    /// Sets how much the kernel may hold unsent, if that changed.
    pub(super) fn set_scheduled(&mut self, scheduled: bool) {
        if self.scheduled != scheduled {
            self.scheduled = scheduled;
            let _ = weir_net::tune_scheduled(&self.stream, scheduled);
        }
    }

    /// What is under way, if more than `limit` bytes are. Where the kernel does not tell, nothing is.
    pub(super) fn crowd(&self, limit: u64) -> Option<Crowd> {
        if limit == u64::MAX {
            return None;
        }
        let in_flight = weir_net::unacknowledged(&self.stream).ok().filter(|&bytes| bytes > limit)?;
        let TcpPath { round_trip, segment_bytes } = weir_net::tcp_path(&self.stream).ok()?;
        Some(Crowd { in_flight, round_trip, segment_bytes })
    }

    /// Reads what is there.
    pub(super) fn read(&mut self) -> Input {
        let mut chunk = [0; INPUT_BYTES];
        loop {
            match self.stream.read(&mut chunk) {
                // What came before the end still counts: a receiver may acknowledge and exit.
                Ok(0) => {
                    return match self.next_input() {
                        Input::Nothing => Input::Ended,
                        input => input,
                    };
                }
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.next_input(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Input::Ended,
            }
            if self.input.len() > INPUT_BYTES {
                return Input::Ended;
            }
        }
    }

    fn next_input(&mut self) -> Input {
        if self.serving.is_some() {
            return match self.input.first() {
                None => Input::Nothing,
                Some(&ACK) if self.finished() => {
                    self.input.remove(0);
                    self.serving = None;
                    Input::Acknowledged
                }
                Some(_) => Input::Ended,
            };
        }
        match Request::decode(&self.input) {
            Ok(None) => Input::Nothing,
            Ok(Some((request, length))) => {
                self.input.drain(..length);
                Input::Request(request)
            }
            Err(_) => {
                self.answer(Status::BadRequest, 0);
                Input::Ended
            }
        }
    }

    fn finished(&self) -> bool {
        self.output.is_empty()
            && self.serving.as_ref().is_some_and(|serving| serving.offset == serving.file.borrow().size())
    }

    /// Refuses a request. The few bytes of the answer go out at once or the peer is told nothing.
    pub(super) fn answer(&mut self, status: Status, size: u64) {
        self.output.extend_from_slice(&Response { status, size }.encode());
        let _ = self.flush();
    }

    /// Begins to serve a block.
    pub(super) fn serve(&mut self, flow: u64, file: Rc<RefCell<BlockFile>>, offset: u64) {
        let size = file.borrow().size();
        self.serving = Some(Serving { flow, file, offset, frame_end: offset });
        self.output.extend_from_slice(&Response { status: Status::Accepted, size }.encode());
    }

    /// Writes at most `budget` payload bytes of the block.
    pub(super) fn write(&mut self, budget: u64, scratch: &mut Vec<u8>) -> io::Result<Wrote> {
        let mut sent = 0;
        loop {
            if sent < budget
                && let Some(serving) = &mut self.serving
            {
                serving.begin_frame(&mut self.output, scratch)?;
            }
            if !self.flush()? {
                return Ok(Wrote::Blocked(sent));
            }
            let Some(serving) = &mut self.serving else { return Ok(Wrote::Bytes(sent)) };
            let count = (serving.frame_end - serving.offset).min(budget - sent);
            if count == 0 {
                return Ok(Wrote::Bytes(sent));
            }
            match serving.file.borrow().send(&self.stream, serving.offset, count)? {
                SendOutcome::Sent(count) => {
                    serving.offset += count;
                    sent += count;
                }
                SendOutcome::WouldBlock => return Ok(Wrote::Blocked(sent)),
                SendOutcome::Truncated => {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter"));
                }
            }
        }
    }

    /// True if nothing is left to flush.
    fn flush(&mut self) -> io::Result<bool> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(true)
    }
}

impl Serving {
    /// At the end of a frame, puts the next one's header into `output`.
    fn begin_frame(&mut self, output: &mut Vec<u8>, scratch: &mut Vec<u8>) -> io::Result<()> {
        let mut file = self.file.borrow_mut();
        if self.offset < self.frame_end || self.offset == file.size() {
            return Ok(());
        }
        let length = frame_length(file.size(), self.offset);
        let checksum = file.frame_checksum(self.offset, scratch)?;
        output.extend_from_slice(&FrameHeader { length: length as u32, checksum }.encode());
        self.frame_end = self.offset + length;
        Ok(())
    }
}

//! One data connection at the serving side: the sockets of a [`Conversation`], and the block that it is about.

use super::blocks::{Frame, Reading, Served};
use super::upload::Upload;
use std::io::{self, Read};
use std::net::TcpStream;
use std::rc::Rc;
use weir_core::agent::Crowd;
use weir_core::ids::{BlockKey, FlowNumber};
use weir_core::serving::{Conversation, Input, Outlet, Range, Write};
use weir_model::{Span, Time};
use weir_net::{SendOutcome, TcpPath, Unsent};
use weir_proto::data::{FRAME_BYTES, Identity, Status};
use weir_proto::relay::{FlowKey, Open};

/// Bytes that are read at once: no request is longer.
const INPUT_BYTES: usize = 512;

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    pub(super) talk: Conversation,
    block: Option<Rc<Served>>,
    /// The frame at hand, if it is not sent from the file.
    copy: Option<Rc<Vec<u8>>>,
    /// Where frames go, if not to the receiver.
    upload: Option<Upload>,
    unsent: Unsent,
    /// The last read took all that was there; what comes later is another event.
    is_dry: bool,
    /// Its peer writes no more.
    has_ended: bool,
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
        let talk = Conversation::new(now);
        Connection {
            stream,
            talk,
            block: None,
            copy: None,
            upload: None,
            unsent: Unsent::Free,
            is_dry: false,
            has_ended: false,
        }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The connection that frames go by.
    pub(super) fn frame_stream(&self) -> &TcpStream {
        self.upload.as_ref().map_or(&self.stream, |upload| &upload.stream)
    }

    pub(super) fn upload(&self) -> Option<&Upload> {
        self.upload.as_ref()
    }

    /// The block that it serves.
    pub(super) fn block(&self) -> Option<&Rc<Served>> {
        self.block.as_ref()
    }

    /// Whether it serves a block.
    pub(super) fn serves(&self, key: &BlockKey) -> bool {
        self.block.as_ref().is_some_and(|block| block.key == *key)
    }

    /// Sets how much the kernel may hold unsent, if that changed. A relay holds so much that it makes no difference.
    pub(super) fn set_unsent(&mut self, unsent: Unsent) {
        if self.upload.is_none() && self.unsent != unsent {
            self.unsent = unsent;
            // Where it fails the kernel takes more than it should: frames wait there longer, and
            // all of them arrive.
            let _ = weir_net::tune_unsent(self.frame_stream(), unsent);
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

    /// How long, in all, the receiver or relay that takes frames had no room for them.
    pub(super) fn waited(&self) -> Option<Span> {
        weir_net::tcp_path(self.frame_stream()).ok().map(|path| path.receiver_limited)
    }

    /// Something is to be read. Where it `ended`, what is there is read to the end.
    pub(super) fn handle_readable(&mut self, ended: bool) {
        (self.is_dry, self.has_ended) = (false, self.has_ended || ended);
    }

    /// What the receiver wants, as far as what is there tells.
    pub(super) fn read(&mut self, now: Time) -> Input {
        let mut chunk = [0; INPUT_BYTES];
        loop {
            let input = self.talk.poll_input(now);
            match input {
                Input::Nothing => {}
                Input::Acknowledged => return input,
                input => {
                    self.flush();
                    return input;
                }
            }
            // Saves a read that would find nothing. After an end it is read on: no other event comes that tells of it.
            if self.is_dry && !self.has_ended {
                return Input::Nothing;
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => self.talk.handle_end(),
                Ok(count) => {
                    // Fewer bytes than there was room for: the socket's buffer was empty then.
                    self.is_dry = count < INPUT_BYTES;
                    self.talk.handle_input(&chunk[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Input::Nothing,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A reset ends the conversation as an end does: the receiver asks again in any
                // case.
                Err(_) => self.talk.handle_end(),
            }
        }
    }

    /// Writes what needs no permission, as far as the socket takes it. The few bytes of a refusal go out at once or the peer is
    /// told nothing.
    fn flush(&mut self) {
        while let Write::Bytes { to: Outlet::Receiver, bytes, .. } = self.talk.poll_write(0) {
            match weir_net::send(&self.stream, bytes, false) {
                Ok(Some(count)) => self.talk.handle_written(Outlet::Receiver, count),
                Ok(None) | Err(_) => return,
            }
        }
    }

    pub(super) fn refuse(&mut self, status: Status) {
        self.talk.refuse(status);
        self.flush();
    }

    /// Begins to serve a block, by way of a relay if one is given.
    pub(super) fn serve(
        &mut self,
        now: Time,
        (flow, offset): (FlowNumber, u64),
        identity: Identity,
        block: Rc<Served>,
        relay: Option<(Upload, FlowKey, Open)>,
    ) {
        let size = block.file.size();
        let ranges = vec![Range { offset, size }];
        let (upload, relay) = relay.map(|(upload, key, open)| (upload, (key, open))).unzip();
        self.talk.serve(now, flow, ranges, (size, identity), relay);
        (self.block, self.copy, self.upload) = (Some(block), None, upload);
    }

    /// What it does not serve any more, if it has stopped.
    pub(super) fn take_block(&mut self) -> Option<Rc<Served>> {
        (self.copy, self.upload) = (None, None);
        self.block.take()
    }

    /// Answers the receiver, though a plan has its first byte wait. What the socket does not take goes before the first frame.
    pub(super) fn answer(&mut self) {
        self.flush();
    }

    /// Something happened to the connection to a relay.
    pub(super) fn check_upload(&mut self) -> io::Result<()> {
        let Some(upload) = &mut self.upload else { return Ok(()) };
        match upload.check() {
            Ok(true) => self.talk.handle_connected(),
            Ok(false) => {}
            Err(error) => {
                self.talk.handle_relay_failed();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes at most `budget` payload bytes of the block.
    pub(super) fn write(&mut self, budget: u64, reading: &mut Reading<'_>) -> io::Result<Wrote> {
        let Connection { stream, talk, block, copy, upload, .. } = self;
        let stream_to = |to| match (to, &upload) {
            (Outlet::Relay, Some(upload)) => &upload.stream,
            _ => &*stream,
        };
        let (mut sent, mut at_hand) = (0, 0);
        loop {
            match talk.poll_write(budget - sent) {
                Write::Nothing => return Ok(Wrote::Bytes(sent)),
                Write::Waits => return Ok(Wrote::Blocked(sent)),
                Write::Bytes { to, bytes, then } => {
                    let frame = copy.as_ref().map_or(&reading.buffer[..at_hand], |copy| &copy[..]);
                    // Header and payload go together in one call where the payload's bytes are at hand.
                    let payload = then.map(|then| part(frame, then.offset, then.count)).unwrap_or_default();
                    let taken = if payload.is_empty() {
                        weir_net::send(stream_to(to), bytes, then.is_some())?
                    } else {
                        weir_net::send_both(stream_to(to), bytes, payload)?
                    };
                    let Some(taken) = taken else { return Ok(Wrote::Blocked(sent)) };
                    // What was taken beyond the header is payload.
                    let lead = taken.min(bytes.len());
                    talk.handle_written(to, lead);
                    if taken > lead {
                        talk.handle_sent(reading.now, (taken - lead) as u64);
                        sent += (taken - lead) as u64;
                    }
                }
                Write::Frame { offset, .. } => {
                    let frame = block.as_ref().and_then(|block| block.frame(reading, offset));
                    let Some(frame) = frame else { return Ok(Wrote::Blocked(sent)) };
                    let Frame { checksum, copy: read, at_hand: count } = frame;
                    (*copy, at_hand) = (read, count);
                    talk.handle_frame(checksum);
                }
                Write::Payload { to, offset, count, .. } => {
                    let Some(block) = block else { return Ok(Wrote::Blocked(sent)) };
                    match send(stream_to(to), block, copy.as_deref(), offset, count)? {
                        SendOutcome::Sent(count) => {
                            talk.handle_sent(reading.now, count);
                            sent += count;
                        }
                        SendOutcome::WouldBlock => return Ok(Wrote::Blocked(sent)),
                        SendOutcome::Truncated => {
                            return Err(io::Error::new(
                                io::ErrorKind::UnexpectedEof,
                                "the file became shorter",
                            ));
                        }
                    }
                }
            }
        }
    }
}

/// Hands at most `count` bytes to a socket, all of them of the frame at hand.
fn send(
    stream: &TcpStream,
    block: &Served,
    copy: Option<&Vec<u8>>,
    offset: u64,
    count: u64,
) -> io::Result<SendOutcome> {
    let Some(copy) = copy else { return block.file.send(stream, offset, count) };
    let bytes = part(copy, offset, count);
    if bytes.is_empty() {
        return Ok(SendOutcome::Truncated);
    }
    let sent = weir_net::send(stream, bytes, false)?;
    Ok(sent.map_or(SendOutcome::WouldBlock, |sent| SendOutcome::Sent(sent as u64)))
}

/// The bytes of a block from `offset` on, `count` at most, as far as they are of this frame's.
fn part(frame: &[u8], offset: u64, count: u64) -> &[u8] {
    let bytes = frame.get((offset % FRAME_BYTES) as usize..).unwrap_or_default();
    &bytes[..bytes.len().min(count as usize)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::{Shutdown, TcpListener};
    use weir_proto::data::{Identity, Request};

    #[test]
    fn a_connection_is_read_when_there_is_more_and_to_its_end_when_it_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut receiver = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut connection = Connection::new(Time::ZERO, stream);
        let (identity, block) = (Identity::UNKNOWN, "b".to_owned());
        let request = Request { coflow: 1, offset: 0, destination: 4, group: 0, identity, block };
        let bytes = request.encode();
        let arrive = |connection: &Connection, count: usize| {
            let mut into = [0; INPUT_BYTES];
            while connection.stream.peek(&mut into).unwrap_or(0) < count {
                std::thread::yield_now();
            }
        };
        receiver.write_all(&bytes[..10]).unwrap();
        arrive(&connection, 10);
        connection.handle_readable(false);
        assert_eq!(connection.read(Time::ZERO), Input::Nothing);
        receiver.write_all(&bytes[10..]).unwrap();
        arrive(&connection, bytes.len() - 10);
        assert_eq!(connection.read(Time::ZERO), Input::Nothing, "an event says that there is more");
        connection.handle_readable(false);
        assert_eq!(connection.read(Time::ZERO), Input::Request(request, None));
        assert_eq!(connection.read(Time::ZERO), Input::Nothing);
        // A part of another request, and the end, in one event.
        receiver.write_all(&bytes[..10]).unwrap();
        receiver.shutdown(Shutdown::Write).unwrap();
        arrive(&connection, 10);
        connection.handle_readable(true);
        while connection.read(Time::ZERO) == Input::Nothing {
            std::thread::yield_now();
        }
        assert_eq!(connection.read(Time::ZERO), Input::Ended);
    }
}

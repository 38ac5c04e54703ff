//! One connection of a relay: messages in, messages out, payloads in pipes between.

use std::io::{self, Read};
use std::net::TcpStream;
use weir_core::relay::Received;
use weir_net::{Filled, Payload, PipePool};
use weir_proto::relay::{HEADER_BYTES, HELLO_BYTES, Header, Hello, Kind, OPEN_BYTES, Open};

/// Bytes of messages without payload that may wait for a peer that takes none; more than that ends the connection.
const MAX_WAITING_BYTES: usize = 4 << 20;

/// How far writing came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// Bytes that the socket took.
    pub(super) bytes: u64,
    /// It takes no more for now, and there is more.
    pub(super) blocked: bool,
}

#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    /// The header that is being read, and then its body if that is not payload.
    head: [u8; HEADER_BYTES],
    head_filled: usize,
    header: Option<Header>,
    payload: Option<Payload>,
    /// Messages without payload, the header of the message that is being sent last.
    output: Vec<u8>,
    written: usize,
    sending: Option<Payload>,
    /// What waits for the end of the message that is being sent.
    later: Vec<u8>,
}

impl Link {
    pub(super) fn new(stream: TcpStream) -> Link {
        Link {
            stream,
            head: [0; HEADER_BYTES],
            head_filled: 0,
            header: None,
            payload: None,
            output: Vec::new(),
            written: 0,
            sending: None,
            later: Vec::new(),
        }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether the next byte read begins a message.
    pub(super) fn is_between_messages(&self) -> bool {
        self.head_filled == 0 && self.header.is_none()
    }

    /// The next whole message; `None` if it is not here yet. An end of the connection is an error.
    pub(super) fn read(&mut self, pool: &PipePool) -> io::Result<Option<Received<Payload>>> {
        let header = match self.header {
            Some(header) => header,
            None => {
                if !self.fill_head(HEADER_BYTES)? {
                    return Ok(None);
                }
                self.head_filled = 0;
                *self.header.insert(Header::decode(&self.head).map_err(invalid)?)
            }
        };
        let received = match header.kind {
            Kind::Data => {
                let payload = self.payload.get_or_insert_with(|| pool.payload());
                match payload.fill(&self.stream, header.length as usize)? {
                    Filled::All => {}
                    Filled::Waits => return Ok(None),
                    Filled::Ended => return Err(io::ErrorKind::UnexpectedEof.into()),
                }
                let Some(payload) = self.payload.take() else { return Ok(None) };
                Received::Data(header, payload)
            }
            Kind::Hello => match self.read_body::<HELLO_BYTES>()? {
                Some(body) => Received::Hello(Hello::decode(&body).map_err(invalid)?),
                None => return Ok(None),
            },
            Kind::Open => match self.read_body::<OPEN_BYTES>()? {
                Some(body) => Received::Open(header, Open::decode(&body).map_err(invalid)?),
                None => return Ok(None),
            },
            _ => Received::About(header),
        };
        self.header = None;
        Ok(Some(received))
    }

    fn read_body<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        // Bodies are read into the room of the header, which has been decoded by now.
        const { assert!(N <= HEADER_BYTES) };
        if !self.fill_head(N)? {
            return Ok(None);
        }
        self.head_filled = 0;
        let mut body = [0; N];
        body.copy_from_slice(&self.head[..N]);
        Ok(Some(body))
    }

    /// False if not all of `length` bytes are here yet.
    fn fill_head(&mut self, length: usize) -> io::Result<bool> {
        while self.head_filled < length {
            match self.stream.read(&mut self.head[self.head_filled..length]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.head_filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Says something without payload, after what is being said.
    pub(super) fn say(&mut self, header: &Header, body: &[u8]) {
        // Not into the middle of the message whose payload is being sent.
        let output = if self.sending.is_some() { &mut self.later } else { &mut self.output };
        output.extend_from_slice(&header.encode());
        output.extend_from_slice(body);
    }

    /// Whether more waits than may for a peer that takes nothing: credits and resets have no flow control of their own.
    pub(super) fn is_overfull(&self) -> bool {
        self.output.len() + self.later.len() > MAX_WAITING_BYTES
    }

    /// Whether a message with payload can be sent.
    pub(super) fn is_free(&self) -> bool {
        self.sending.is_none()
    }

    /// Bytes that the socket has not taken yet.
    pub(super) fn unwritten(&self) -> u64 {
        let payload = self.sending.as_ref().map_or(0, Payload::left);
        (self.output.len() - self.written + payload + self.later.len()) as u64
    }

    /// Sends a message with payload; only if the link is free.
    pub(super) fn send(&mut self, header: &Header, payload: Payload) {
        self.say(header, &[]);
        self.sending = Some(payload);
    }

    /// Writes what there is. `more`: another message follows at once.
    pub(super) fn flush(&mut self, more: bool) -> io::Result<Written> {
        let mut bytes = 0;
        loop {
            while self.written < self.output.len() {
                let left = &self.output[self.written..];
                // With more to follow the kernel keeps back a packet that is not full.
                match weir_net::send(&self.stream, left, more || self.sending.is_some())? {
                    Some(count) => {
                        self.written += count;
                        bytes += count as u64;
                    }
                    None => return Ok(Written { bytes, blocked: true }),
                }
            }
            self.output.clear();
            self.written = 0;
            if let Some(payload) = &mut self.sending {
                let (count, all) = payload.drain(&self.stream, more || !self.later.is_empty())?;
                bytes += count;
                if !all {
                    return Ok(Written { bytes, blocked: true });
                }
                self.sending = None;
            }
            if self.later.is_empty() {
                return Ok(Written { bytes, blocked: false });
            }
            // `output` is empty here: what was said while the payload went is next.
            std::mem::swap(&mut self.output, &mut self.later);
        }
    }
}

fn invalid(error: weir_proto::data::DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

//! A flow's connection to a relay.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use weir_model::{Span, Time};

/// A relay of the own site that is not reached within this time is avoided for a while.
const CONNECT_LIMIT: Span = Span::from_millis(1_000);

/// Closing it ends the flow there.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) stream: TcpStream,
    pub(super) relay: SocketAddr,
    /// What the poller calls it.
    pub(super) token: u64,
    connecting: bool,
    begun: Time,
    has_failed: bool,
}

impl Upload {
    /// Over a connection that was begun.
    pub(super) fn new(now: Time, stream: TcpStream, relay: SocketAddr, token: u64) -> Upload {
        Upload { stream, relay, token, connecting: true, begun: now, has_failed: false }
    }

    /// Whether its relay was not reached, and had the time for it: a receiver that leaves at once says nothing of the relay.
    pub(super) fn is_unreached(&self, now: Time) -> bool {
        self.connecting && (self.has_failed || now.since(self.begun) >= CONNECT_LIMIT)
    }

    /// Something happened to the connection; whether bytes can be written to it. A relay says nothing to a host but by closing
    /// it: that is an error.
    pub(super) fn check(&mut self) -> io::Result<bool> {
        if self.connecting {
            let connected = weir_net::connected(&self.stream);
            self.has_failed = connected.is_err();
            self.connecting = !connected?;
            return Ok(!self.connecting);
        }
        // One byte is enough: any byte is an error, and none means that the connection goes on.
        match self.stream.read(&mut [0; 1]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "a relay that says something to a host")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }
}

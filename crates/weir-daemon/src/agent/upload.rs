//! A flow's connection to a relay.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};

/// Closing it ends the flow there.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) stream: TcpStream,
    pub(super) relay: SocketAddr,
    /// What the poller calls it.
    pub(super) token: u64,
    connecting: bool,
}

impl Upload {
    /// Over a connection that was begun.
    pub(super) fn new(stream: TcpStream, relay: SocketAddr, token: u64) -> Upload {
        Upload { stream, relay, token, connecting: true }
    }

    /// Something happened to the connection; whether bytes can be written to it. A relay says nothing to a host but by closing
    /// it: that is an error.
    pub(super) fn check(&mut self) -> io::Result<bool> {
        if self.connecting {
            self.connecting = !weir_net::connected(&self.stream)?;
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

//! Where the bytes of a flow go: to its receiver, or to a relay.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use weir_proto::relay::{FlowKey, HELLO_BYTES, Header, Hello, Kind, OPEN_BYTES, Open, Role};

/// A socket, and what is to be written to it before anything else.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) stream: TcpStream,
    pub(super) output: Vec<u8>,
    written: usize,
}

impl Outlet {
    pub(super) fn new(stream: TcpStream) -> Outlet {
        Outlet { stream, output: Vec::new(), written: 0 }
    }

    /// True if nothing is left to flush. `more`: payload follows at once.
    pub(super) fn flush(&mut self, more: bool) -> io::Result<bool> {
        while self.written < self.output.len() {
            match weir_net::send(&self.stream, &self.output[self.written..], more)? {
                Some(count) => self.written += count,
                None => return Ok(false),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(true)
    }
}

/// A flow's connection to a relay. Closing it ends the flow there.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) outlet: Outlet,
    pub(super) relay: SocketAddr,
    /// What the poller calls it.
    pub(super) token: u64,
    pub(super) key: FlowKey,
    /// Bytes that messages announced so far.
    offset: u64,
    connecting: bool,
}

impl Upload {
    /// Over a connection that was begun, for a flow of `bytes` in all.
    pub(super) fn new(
        stream: TcpStream,
        relay: SocketAddr,
        token: u64,
        key: FlowKey,
        bytes: u64,
        open: &Open,
    ) -> Upload {
        let mut outlet = Outlet::new(stream);
        let hello = Hello { role: Role::Host, connections: 1, session: 0 };
        let lead = |kind, length, number| Header { length, ..Header::about(key, kind, number) }.encode();
        outlet.output.extend_from_slice(&lead(Kind::Hello, HELLO_BYTES as u32, 0));
        outlet.output.extend_from_slice(&hello.encode());
        outlet.output.extend_from_slice(&lead(Kind::Open, OPEN_BYTES as u32, bytes));
        outlet.output.extend_from_slice(&open.encode());
        Upload { outlet, relay, token, key, offset: 0, connecting: true }
    }

    /// Whether bytes can be written.
    pub(super) fn is_connected(&self) -> bool {
        !self.connecting
    }

    /// Something happened to the connection. A relay says nothing to a host but by closing it: that is an error.
    pub(super) fn check(&mut self) -> io::Result<()> {
        if self.connecting {
            self.connecting = !weir_net::connected(&self.outlet.stream)?;
            return Ok(());
        }
        match self.outlet.stream.read(&mut [0; 1]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "a relay that says something to a host")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Leads the next `length` bytes of the flow.
    pub(super) fn announce(&mut self, length: u64) {
        let header = Header::data(self.key, weir_proto::relay::HOP_LIMIT, self.offset, length as u32);
        self.offset += length;
        self.outlet.output.extend_from_slice(&header.encode());
    }
}

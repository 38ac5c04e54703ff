//! In place of the programs in the kernel, in builds that have none.

use std::io;
use std::net::TcpStream;
use weir_packet::Scenario;
use weir_packet::transport::{HostControl, OnHosts};
use weir_testbed::{Bed, Queues};
use weir_trace::FlowArrival;

/// Of the switch's ports.
pub(super) const QUEUES: Queues = Queues::One;

/// Programs of the kernel, of which this build has none.
pub(super) enum Programs {}

/// The kernel's name of a control: these builds have none of Weir's.
pub(super) fn name(_: HostControl) -> Result<&'static str, String> {
    Err("this build has no programs for the kernel, which are made with clang. Build with \
         `cargo build --release --features weir-cli/ebpf` where clang, libelf and zlib are"
        .to_owned())
}

impl Programs {
    pub(super) fn load(_: &Bed, _: &OnHosts, _: &Scenario) -> Result<Programs, anyhow::Error> {
        Err(anyhow::anyhow!("this build has no programs for the kernel"))
    }

    pub(super) fn connected(&self, _near: &TcpStream, _far: &TcpStream) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn begins(&self, _flow: &FlowArrival, _near: &TcpStream) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn marked(&self) -> Result<u64, anyhow::Error> {
        match *self {}
    }
}

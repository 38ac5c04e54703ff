//! Congestion controls of the kernel's TCP.

use crate::error::{ControlError, TagError};
use crate::mcp::McpConfig;
use crate::program::{load, map_of, open};
use crate::tagger::Tagger;
use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags, MapHandle, Object};
use std::io;
use std::os::fd::AsFd;

/// The programs, as clang has compiled them.
const DCTCP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/dctcp.bpf.o"));
const KARUNA: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/karuna.bpf.o"));

/// DCTCP (RFC 8257), which sockets of this machine can have as long as this is held: in all network namespaces, by the name
/// [`Dctcp::NAME`] for the socket option `TCP_CONGESTION`.
///
/// A process needs `CAP_NET_ADMIN` in its user namespace to choose it. **Both ends** have to: that which connects before it
/// does, that which listens on the socket that listens. Where the other end takes no ECN, a connection is one of Reno.
///
/// It goes when this is dropped, and when the process ends: no more sockets can have it then. Those that have it keep it
/// until they are closed, and the kernel keeps the program for them.
#[derive(Debug)]
pub struct Dctcp {
    /// Closing it takes the name away.
    _link: Link,
}

impl Dctcp {
    /// Its name in the kernel.
    pub const NAME: &str = "weir_dctcp";

    /// Loads the program and gives it its name.
    ///
    /// # Errors
    /// [`ControlError`] says what is missing. Nothing remains then.
    pub fn register() -> Result<Dctcp, ControlError> {
        Ok(Dctcp { _link: register(&mut load(DCTCP)?, Self::NAME)? })
    }
}

/// Karuna's control of an end host, by the name [`Karuna::NAME`]: flows that the tagger was told a deadline of
/// ([`weir_model::Hint::Deadline`]) go by MCP, and end a little before it with as little of the network as that takes; all others, and
/// those that cannot meet their deadline any more, go by DCTCP.
///
/// Everything that [`Dctcp`] says of both ends, of rights and of its end holds for it, too. A flow is hinted before its first byte.
#[derive(Debug)]
pub struct Karuna {
    settings: MapHandle,
    /// Closing it takes the name away.
    _link: Link,
}

impl Karuna {
    /// Its name in the kernel.
    pub const NAME: &str = "weir_karuna";

    /// Loads the program and gives it its name. It goes by what this tagger is told of sockets, also after the tagger is gone.
    ///
    /// # Errors
    /// [`ControlError`] says what is missing, or which number makes no sense. Nothing remains then.
    pub fn register(tagger: &Tagger, config: &McpConfig) -> Result<Karuna, ControlError> {
        config.check()?;
        let mut opened = open(KARUNA)?;
        let flows = opened.maps_mut().find(|map| map.name() == "weir_flows");
        let mut flows =
            flows.ok_or_else(|| TagError::os("find the table of flows")(io::ErrorKind::NotFound.into()))?;
        // Before loading: the program then has the tagger's table in place of one of its own.
        flows.reuse_fd(tagger.flows.as_fd()).map_err(TagError::bpf("share the table of flows"))?;
        let mut object = opened.load().map_err(TagError::bpf("load the program"))?;
        let settings = map_of(&object, "weir_mcp")?;
        write(&settings, config)?;
        Ok(Karuna { settings, _link: register(&mut object, Self::NAME)? })
    }

    /// Takes other numbers for all windows that follow.
    ///
    /// # Errors
    /// [`ControlError::Params`]; the numbers before hold on.
    pub fn set(&self, config: &McpConfig) -> Result<(), ControlError> {
        config.check()?;
        write(&self.settings, config)
    }
}

fn write(settings: &MapHandle, config: &McpConfig) -> Result<(), ControlError> {
    let written = settings.update(&0_u32.to_ne_bytes(), &config.to_bytes(), MapFlags::ANY);
    Ok(written.map_err(TagError::bpf("write settings"))?)
}

/// Gives a control its name.
fn register(object: &mut Object, name: &'static str) -> Result<Link, ControlError> {
    let map = object.maps_mut().find(|map| map.name() == name);
    let mut map = map.ok_or_else(|| TagError::os("find the own control")(io::ErrorKind::NotFound.into()))?;
    map.attach_struct_ops().map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => ControlError::Taken { name },
        _ => TagError::bpf("register the control")(error).into(),
    })
}

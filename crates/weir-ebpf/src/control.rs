//! Congestion controls of the kernel's TCP.

use crate::error::{ControlError, TagError};
use crate::program::load;
use libbpf_rs::{ErrorKind, Link, MapCore};
use std::io;

/// The program, as clang has compiled it.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/dctcp.bpf.o"));

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
        let mut object = load(PROGRAM)?;
        let map = object.maps_mut().find(|map| map.name() == Self::NAME);
        let mut map =
            map.ok_or_else(|| TagError::os("find the own control")(io::ErrorKind::NotFound.into()))?;
        let link = map.attach_struct_ops().map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => ControlError::Taken { name: Self::NAME },
            _ => TagError::bpf("register the control")(error).into(),
        })?;
        Ok(Dctcp { _link: link })
    }
}

//! Where a run happens.

use super::error::LiveError;
use crate::{Bed, BedError, Place, SiteBed};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command};

/// TCP port that each relay of a bed listens on.
const RELAY_PORT: u16 = 7072;

/// The hosts of a run.
#[derive(Debug)]
pub enum Network {
    /// Namespaces with shaped links.
    Bed(Box<Bed>),
    /// Namespaces at several sites, with shaped links between these.
    Sites(Box<SiteBed>),
    /// All hosts on this machine's loopback; only Weir's own pacing stands for the links.
    Loopback,
}

impl Network {
    /// Address of the control host.
    pub fn control_address(&self) -> IpAddr {
        match self {
            Network::Bed(bed) => bed.control_address().into(),
            Network::Sites(bed) => bed.address(Place::Control).into(),
            Network::Loopback => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Address of a host.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn address(&self, host: usize) -> IpAddr {
        match self {
            Network::Bed(bed) => bed.address(host).into(),
            Network::Sites(bed) => bed.address(Place::Host(host)).into(),
            Network::Loopback => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// A port: the given one where every host has its own address, otherwise a free one.
    pub(super) fn port(&self, port: u16) -> io::Result<u16> {
        match self {
            Network::Bed(_) | Network::Sites(_) => Ok(port),
            Network::Loopback => Ok(crate::free_address()?.port()),
        }
    }

    /// A command that will run at `place`, as [`Bed::command`].
    ///
    /// # Errors
    /// As there.
    pub fn command(&self, place: Place, program: &Path) -> Result<Command, BedError> {
        match self {
            Network::Bed(bed) => bed.command(place, program),
            Network::Sites(bed) => bed.command(place, program),
            Network::Loopback => {
                crate::process::command_here(program.as_os_str()).map_err(BedError::os("prepare a command"))
            }
        }
    }

    /// Starts a command made by [`Network::command`]; in a bed it ends with that at the latest.
    ///
    /// # Errors
    /// Those of [`Command::spawn`].
    pub fn spawn(&self, mut command: Command) -> io::Result<Child> {
        match self {
            Network::Bed(bed) => bed.spawn(command),
            Network::Sites(bed) => bed.spawn(command),
            Network::Loopback => command.spawn(),
        }
    }

    /// Runs `work` at the control host, as [`Bed::run_at`].
    ///
    /// # Errors
    /// As there.
    pub fn run_at_control<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, BedError> {
        match self {
            Network::Bed(bed) => bed.run_at(Place::Control, work),
            Network::Sites(bed) => bed.run_at(Place::Control, work),
            Network::Loopback => Ok(work()),
        }
    }
    /// The bed of sites, which relays need.
    pub(super) fn sites(&self) -> Result<&SiteBed, LiveError> {
        match self {
            Network::Sites(bed) => Ok(bed),
            Network::Bed(_) | Network::Loopback => Err(LiveError::NoSites),
        }
    }
}

/// The relay of each site.
pub fn relay_address(bed: &SiteBed, site: usize) -> SocketAddr {
    SocketAddr::from((bed.address(Place::Host(bed.first_host(site))), RELAY_PORT))
}

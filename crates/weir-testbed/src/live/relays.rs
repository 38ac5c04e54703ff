//! Runs on a bed of sites: a relay at the first host of each site, perhaps a controller, and rates that change.

use super::error::LiveError;
use super::network::{Network, relay_address};
use super::options::{LiveOptions, RateChange, RelaySetup};
use super::processes::{Processes, Role};
use crate::{Place, SiteBed};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_model::{Bytes, CoflowId, CoflowSpec, FlowSpec, HostId, Time};

/// Port of their controller.
const CONTROLLER_PORT: u16 = 7073;
/// The coflow that goes before all others.
const WARM_UP: CoflowId = CoflowId(u64::MAX);
/// Its flows from each site to each other.
const WARM_UP_FLOWS: u32 = 4;
/// Longest time until a change of rates sees that the run is over.
const CHANGE_STEP: Duration = Duration::from_millis(50);

/// What runs relays, not started yet: each with the address where it will serve.
#[derive(Debug)]
pub struct RelayCommands {
    /// The controller, at the control host.
    pub controller: Option<(Command, SocketAddr)>,
    /// The relay of each site, at its first host.
    pub relays: Vec<(Command, SocketAddr)>,
}

impl RelaySetup {
    /// How a binary of Weir runs them on a bed of sites.
    ///
    /// # Errors
    /// [`LiveError::NoSites`], and those of [`Network::command`].
    pub fn commands(&self, network: &Network, program: &Path) -> Result<RelayCommands, LiveError> {
        let bed = network.sites()?;
        let address = SocketAddr::new(network.control_address(), CONTROLLER_PORT);
        let controller = match &self.controller {
            Some(arguments) => {
                let mut command = network.command(Place::Control, program)?;
                command.args(["controller", "--listen", &address.to_string()]).args(arguments);
                command.stdin(Stdio::null());
                Some((command, address))
            }
            None => None,
        };
        let relay = |site: usize| {
            let mut command = network.command(Place::Host(bed.first_host(site)), program)?;
            command
                .args(["relay", "--name", &format!("site-{site}"), "--site", &site.to_string()])
                .args(["--listen", &relay_address(bed, site).to_string()])
                .args(["--connections", &self.connections.to_string()])
                .stdin(Stdio::null());
            if let Some(rates) = &self.connection_rates {
                let others = (0..bed.sites()).filter(|&to| to != site);
                let limits: Vec<String> =
                    others.map(|to| format!("{to}={}bit", rates[site][to].bits_per_sec())).collect();
                command.args(["--connection-rate", &limits.join(",")]);
            }
            if controller.is_some() {
                command.args(["--controller", &address.to_string()]);
            }
            Ok((command, relay_address(bed, site)))
        };
        let relays = (0..bed.sites()).map(relay).collect::<Result<_, LiveError>>()?;
        Ok(RelayCommands { controller, relays })
    }
}

impl Processes {
    /// Starts the controller, if there is one, and a relay at each site.
    pub(super) fn start_relays(&mut self, options: &LiveOptions, network: &Network) -> Result<(), LiveError> {
        let Some(setup) = &options.relays else { return Ok(()) };
        let RelayCommands { controller, relays } = setup.commands(network, &options.program)?;
        let mut addresses = Vec::new();
        if let Some((command, address)) = controller {
            self.spawn(network, Role::Coordinator, command)?;
            self.controller = Some(address);
            addresses.push(address);
        }
        for (command, address) in relays {
            self.spawn(network, Role::Agent, command)?;
            addresses.push(address);
        }
        addresses.into_iter().try_for_each(|address| wait_for(network, address))
    }
}

/// Waits until something listens there.
fn wait_for(network: &Network, address: SocketAddr) -> Result<(), LiveError> {
    let end = Instant::now() + super::processes::START_LIMIT;
    while network.run_at_control(|| TcpStream::connect(address))?.is_err() {
        if Instant::now() > end {
            return Err(LiveError::NotListening(address));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// So many bytes from every site to every other, in flows enough to keep every link busy.
pub(super) fn warm_up(bed: &SiteBed, size: Bytes) -> Option<CoflowSpec> {
    let host = |site: usize| HostId(bed.first_host(site) as u32);
    // `size` is what one site is to get from another, by all of its flows.
    let size = Bytes(size.0 / u64::from(WARM_UP_FLOWS));
    let flows_of = |(from, to): (usize, usize)| {
        let (source, destination) = (host(from), host(to));
        (0..WARM_UP_FLOWS).map(move |group| FlowSpec { source, destination, size, group })
    };
    let pairs = (0..bed.sites()).flat_map(|from| (0..bed.sites()).map(move |to| (from, to)));
    let flows: Vec<FlowSpec> = pairs.filter(|(from, to)| from != to).flat_map(flows_of).collect();
    (size.0 > 0).then(|| CoflowSpec::new(WARM_UP, Time::ZERO, flows))
}

/// Gives links the rates they are to have, when their time comes, until the run is over.
pub(super) fn follow_changes(
    bed: &SiteBed,
    changes: &[RateChange],
    over: &AtomicBool,
) -> Result<(), LiveError> {
    let start = Instant::now();
    for change in changes {
        let due = start + Duration::from_nanos(change.at.nanos());
        loop {
            if over.load(Ordering::Relaxed) {
                return Ok(());
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // In short steps: a run that ends earlier must not wait for the changes that are left.
            std::thread::sleep(left.min(CHANGE_STEP));
        }
        bed.set_rate(change.from, change.to, change.rate.bits_per_sec() as u64)?;
    }
    Ok(())
}

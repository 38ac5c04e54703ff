//! A bed of sites: hosts behind gateways, and a shaped pair of links between every two sites, whose rates may follow a
//! recorded sequence.
//!
//! ```text
//!   host 0 ---|           |==HTB==>            |           |--- host 2
//!   host 1 ---| gateway 0 |            <==HTB==| gateway 1 |--- host 3
//!             |           |== ... to every other gateway ==|
//!                 control host --- every gateway, not shaped
//! ```
//!
//! Links of hosts are not shaped: what limits is between sites. There is no delay besides that of queues, as on a
//! [`crate::Bed`]; long round trips, and what they make of slow start, are not modelled.

mod wiring;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::process::{Child, Command};

use crate::bed::port_counters;
use crate::error::BedError;
use crate::links::{MAX_SITES, check_rate};
use crate::namespace::Namespace;
use crate::place::Place;
use crate::place::{MAX_HOSTS, address};
use crate::places::Places;
use crate::queues::Queues;
use crate::shape;
use crate::tool::Tools;
use wiring::End;

/// What a bed of sites should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteBedConfig {
    /// Hosts of each site, at least one each; they count through the sites in order, [`MAX_HOSTS`] at most.
    pub hosts_per_site: Vec<usize>,
    /// Rate from each site to each other in bits per second, on the wire as in [`crate::Rates`]; the diagonal is
    /// ignored.
    pub rates_bps: Vec<Vec<u64>>,
}

/// Which hosts are where.
#[derive(Debug, Clone)]
pub(crate) struct Sites {
    /// First host of each site, and the number of hosts.
    first: Vec<usize>,
}

impl Sites {
    fn new(hosts_per_site: &[usize]) -> Sites {
        let mut first = vec![0];
        for hosts in hosts_per_site {
            first.push(first[first.len() - 1] + hosts);
        }
        Sites { first }
    }

    fn count(&self) -> usize {
        self.first.len() - 1
    }

    fn hosts(&self) -> usize {
        self.first[self.count()]
    }

    fn hosts_of(&self, site: usize) -> std::ops::Range<usize> {
        self.first[site]..self.first[site + 1]
    }

    fn others(&self, site: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.count()).filter(move |&other| other != site)
    }

    fn site_of(&self, host: usize) -> usize {
        self.first.partition_point(|&first| first <= host) - 1
    }
}

/// A live bed of sites; it ends as a [`crate::Bed`] does.
#[derive(Debug)]
pub struct SiteBed {
    config: SiteBedConfig,
    sites: Sites,
    tools: Tools,
    places: Places,
    gateways: Vec<Namespace>,
}

impl SiteBed {
    /// Makes a bed, after [`crate::Bed::sweep_stale`]. On an error nothing of it remains.
    ///
    /// # Errors
    /// [`BedError`] says what is missing: a tool, a right, a kernel feature.
    pub fn create(config: &SiteBedConfig) -> Result<SiteBed, BedError> {
        check(config)?;
        let tools = Tools::find()?;
        crate::Bed::sweep_stale();
        let sites = Sites::new(&config.hosts_per_site);
        let mut namespaces = Namespace::create_many(sites.hosts() + 1 + sites.count())?;
        // In this order: hosts and the control host, as `Places` has them, then gateways.
        let gateways = namespaces.split_off(sites.hosts() + 1);
        let places = Places::new(namespaces)?;
        let bed = SiteBed { config: config.clone(), sites, tools, places, gateways };
        bed.connect()?;
        Ok(bed)
    }

    /// Number of hosts, the control host not counted.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.sites.hosts()
    }

    /// Number of sites, each with a gateway of its own.
    #[must_use]
    pub fn sites(&self) -> usize {
        self.sites.count()
    }

    /// The site of a host.
    ///
    /// # Panics
    /// If there is no such host.
    #[must_use]
    pub fn site_of(&self, host: usize) -> usize {
        self.places.check(host);
        self.sites.site_of(host)
    }

    /// The first host of a site.
    ///
    /// # Panics
    /// If there is no such site.
    #[must_use]
    pub fn first_host(&self, site: usize) -> usize {
        assert!(site < self.sites(), "the bed has {} sites, there is no site {site}", self.sites());
        self.sites.hosts_of(site).start
    }

    /// IPv4 address of a host, or of the control host.
    ///
    /// # Panics
    /// If there is no such host.
    #[must_use]
    pub fn address(&self, place: Place) -> Ipv4Addr {
        if let Place::Host(host) = place {
            self.places.check(host);
        }
        address(place)
    }

    /// A command that will run at `place`, as [`crate::Bed::command`].
    ///
    /// # Errors
    /// [`BedError::NoSuchHost`]; [`BedError::Os`] if /proc cannot be read.
    pub fn command(&self, place: Place, program: impl AsRef<OsStr>) -> Result<Command, BedError> {
        self.places.command(place, program.as_ref())
    }

    /// Starts a command made by [`SiteBed::command`]; it lives until it ends, is killed, or the bed is dropped.
    ///
    /// # Errors
    /// Those of [`Command::spawn`].
    pub fn spawn(&self, command: Command) -> io::Result<Child> {
        self.places.spawn(command)
    }

    /// Runs `work` at `place` on a short-lived thread and waits for it, as [`crate::Bed::run_at`].
    ///
    /// # Errors
    /// [`BedError::NoSuchHost`]; [`BedError::Os`] if the thread cannot start or enter.
    pub fn run_at<T: Send>(&self, place: Place, work: impl FnOnce() -> T + Send) -> Result<T, BedError> {
        self.places.run_at(place, work)
    }

    /// Gives the link from one site to another a rate in bits per second. Queue and burst keep the bytes they were
    /// created with.
    ///
    /// # Errors
    /// [`BedError::Config`] for a rate out of range, or no such link; [`BedError::Tool`].
    pub fn set_rate(&self, from: usize, to: usize, rate_bps: u64) -> Result<(), BedError> {
        check_rate(rate_bps)?;
        self.check_link(from, to)?;
        let burst = shape::burst_bytes(self.config.rates_bps[from][to]);
        let lines = shape::change_rate(&wiring::site_port(to), rate_bps, burst, Queues::One);
        self.tools.tc.batch(&self.gateways[from], &format!("the gateway of site {from}"), &lines)
    }

    /// Bytes of Ethernet frames that went from one site to another since the bed was created, counted behind the
    /// shaper.
    ///
    /// # Errors
    /// [`BedError::Config`] if there is no such link; [`BedError::Os`] if the kernel's table cannot be read.
    pub fn sent_bytes(&self, from: usize, to: usize) -> Result<u64, BedError> {
        self.check_link(from, to)?;
        let failed = || format!("read the counters of the gateway of site {from}");
        let table = self.gateways[from].run(|| fs::read_to_string("/proc/thread-self/net/dev"));
        let table = table.and_then(|table| table).map_err(BedError::os(failed()))?;
        let counters = port_counters(&table, &wiring::site_port(to));
        // What the gateway sends is what a host would receive from a switch.
        let absent = || BedError::os(failed())(io::Error::from(io::ErrorKind::NotFound));
        counters.map(|counters| counters.received_bytes).ok_or_else(absent)
    }

    fn check_link(&self, from: usize, to: usize) -> Result<(), BedError> {
        if from == to || from.max(to) >= self.sites() {
            let last = self.sites() - 1;
            return Err(BedError::Config(format!(
                "no link from site {from} to site {to}; sites are 0 to {last}"
            )));
        }
        Ok(())
    }

    /// Links, addresses, routes and shapers, in empty namespaces.
    fn connect(&self) -> Result<(), BedError> {
        let path = |end: End| match end {
            End::Place(Place::Host(host)) => self.places.namespaces()[host].path(),
            End::Place(Place::Control) => self.places.namespaces()[self.hosts()].path(),
            End::Gateway(site) => self.gateways[site].path(),
        };
        let named = |site: usize| format!("the gateway of site {site}");
        for (site, gateway) in self.gateways.iter().enumerate() {
            let forward = gateway.run(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1"));
            forward.and_then(|done| done).map_err(BedError::os("let a gateway forward"))?;
            self.tools.ip.batch(gateway, &named(site), &wiring::links(&self.sites, site, path))?;
        }
        for (site, gateway) in self.gateways.iter().enumerate() {
            // In a second pass: a gateway makes the links to the sites before it alone, and routes
            // need all of them.
            self.tools.ip.batch(gateway, &named(site), &wiring::gateway_routes(&self.sites, site))?;
            let shapers = self.sites.others(site).flat_map(|other| {
                let rate = self.config.rates_bps[site][other];
                shape::shape(&wiring::site_port(other), rate, shape::queue_limit_bytes(rate), Queues::One)
            });
            self.tools.tc.batch(gateway, &named(site), &shapers.collect::<Vec<_>>())?;
        }
        for host in 0..self.hosts() {
            let place = Place::Host(host);
            let lines = wiring::host_routes(&self.sites, host);
            self.tools.ip.batch(self.places.namespace(place)?, &place.to_string(), &lines)?;
        }
        let control = self.places.namespace(Place::Control)?;
        self.tools.ip.batch(control, &Place::Control.to_string(), &wiring::control_routes(&self.sites))
    }
}

fn check(config: &SiteBedConfig) -> Result<(), BedError> {
    let sites = config.hosts_per_site.len();
    let hosts: usize = config.hosts_per_site.iter().sum();
    let refuse = |what: String| Err(BedError::Config(what));
    if !(2..=MAX_SITES).contains(&sites) {
        return refuse(format!("{sites} sites; 2 to {MAX_SITES} are possible"));
    }
    if config.hosts_per_site.contains(&0) || hosts > MAX_HOSTS {
        return refuse(format!("{hosts} hosts; every site needs one, and {MAX_HOSTS} in all are possible"));
    }
    if config.rates_bps.len() != sites || config.rates_bps.iter().any(|row| row.len() != sites) {
        return refuse(format!("rates between {sites} sites must be {sites} rows of {sites} values"));
    }
    let pairs = (0..sites).flat_map(|from| (0..sites).map(move |to| (from, to)));
    pairs.filter(|(from, to)| from != to).try_for_each(|(from, to)| check_rate(config.rates_bps[from][to]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_out_of_range_is_refused_before_anything_is_made() {
        let config = |hosts: &[usize], rate| SiteBedConfig {
            hosts_per_site: hosts.to_vec(),
            rates_bps: vec![vec![rate; hosts.len()]; hosts.len()],
        };
        let fast = 100_000_000;
        assert!(check(&config(&[1, 2], fast)).is_ok());
        for refused in
            [config(&[1], fast), config(&[1, 0], fast), config(&[MAX_HOSTS, 1], fast), config(&[1, 1], 1)]
        {
            assert!(check(&refused).is_err(), "{refused:?}");
        }
        let ragged = SiteBedConfig { rates_bps: vec![vec![fast; 2], vec![fast]], ..config(&[1, 1], fast) };
        assert!(check(&ragged).is_err());
    }

    #[test]
    fn hosts_count_through_the_sites() {
        let sites = Sites::new(&[2, 1, 3]);
        let site_of: Vec<usize> = (0..6).map(|host| sites.site_of(host)).collect();
        assert_eq!((sites.hosts(), site_of), (6, vec![0, 0, 1, 2, 2, 2]));
    }
}

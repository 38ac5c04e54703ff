//! The bed: created whole or not at all, used, and gone when dropped.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::Ipv4Addr;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::thread;

use crate::error::BedError;
use crate::links::{BedLinks, Rates, check_rate};
use crate::namespace::Namespace;
use crate::place::{Place, address};
use crate::places::Places;
use crate::process;
use crate::queues::Queues;
use crate::shape;
use crate::tool::Tools;
use crate::topology::{self, HOST_LINK};

/// Hosts are configured by this many threads at a time (each mostly waits for a tool).
const SETUP_THREADS: usize = 4;

/// What passed over a link since the bed was created, as its host or rack sees it. Counted behind the
/// shaper, in bytes of Ethernet frames; of segments sent in one piece only the first header counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkCounters {
    /// Bytes that the host or rack sent.
    pub sent_bytes: u64,
    /// Bytes that went towards it.
    pub received_bytes: u64,
}

/// A live bed. Dropping it kills every process inside and lets go of its namespaces, which the kernel then
/// removes in the background (up to half a second). If the owner is killed the same happens by itself,
/// except for grandchildren of the owner, which the next [`Bed::create`] sweeps away.
#[derive(Debug)]
pub struct Bed {
    links: BedLinks,
    tools: Tools,
    places: Places,
    switch: Namespace,
    /// `/proc/net/dev` of the switch; an open file of it stays with the namespace it was opened in.
    counters: Mutex<File>,
}

impl Bed {
    /// Makes a bed, after [`Bed::sweep_stale`]. On an error nothing of it remains.
    ///
    /// # Errors
    /// [`BedError`] says what is missing: a tool, a right, a kernel feature.
    pub fn create(links: &BedLinks) -> Result<Self, BedError> {
        links.check()?;
        let tools = Tools::find()?;
        Self::sweep_stale();
        // One for each host, one for the control host, and the last one for the switch.
        let mut namespaces = Namespace::create_many(links.hosts.len() + 2)?;
        let switch = namespaces.pop().expect("create_many made hosts + 2 >= 3");
        // Not `/proc/net`, which is that of the process's first thread: only the thread of `run` is
        // in the switch.
        let counters = switch
            .run(|| File::open("/proc/thread-self/net/dev"))
            .and_then(|file| file)
            .map_err(BedError::os("open the switch's link counters"))?;
        let (places, counters) = (Places::new(namespaces)?, Mutex::new(counters));
        let bed = Self { links: links.clone(), tools, switch, places, counters };
        bed.connect()?;
        Ok(bed)
    }

    /// Kills processes that were left over in beds whose owner is dead (grandchildren of an owner that was
    /// killed); their namespaces vanish with them. Processes of other users, and of beds in other pid
    /// namespaces, are left alone. Returns how many were killed. [`Bed::create`] calls it.
    pub fn sweep_stale() -> usize {
        process::sweep_stale()
    }

    /// Number of hosts, the control host not counted.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.links.hosts.len()
    }

    /// IPv4 address of a host.
    ///
    /// # Panics
    /// If there is no such host.
    #[must_use]
    pub fn address(&self, host: usize) -> Ipv4Addr {
        self.places.check(host);
        address(Place::Host(host))
    }

    /// IPv4 address of the control host.
    #[must_use]
    pub fn control_address(&self) -> Ipv4Addr {
        address(Place::Control)
    }

    /// A command that will run at `place`. It is killed when **the thread** that starts it ends (so that
    /// it dies with the owner); start it with [`Bed::spawn`] to tie it to the bed instead.
    ///
    /// # Errors
    /// [`BedError::NoSuchHost`]; [`BedError::Os`] if /proc cannot be read.
    pub fn command(&self, place: Place, program: impl AsRef<OsStr>) -> Result<Command, BedError> {
        self.places.command(place, program.as_ref())
    }

    /// Starts a command made by [`Bed::command`]; it lives until it ends, is killed, or the bed is dropped.
    ///
    /// # Errors
    /// Those of [`Command::spawn`].
    pub fn spawn(&self, command: Command) -> io::Result<Child> {
        self.places.spawn(command)
    }

    /// Runs `work` at `place` on a short-lived thread and waits for it. Sockets that `work` opens stay at
    /// `place` for ever, whichever thread uses them.
    ///
    /// # Errors
    /// [`BedError::NoSuchHost`]; [`BedError::Os`] if the thread cannot start or enter.
    pub fn run_at<T: Send>(&self, place: Place, work: impl FnOnce() -> T + Send) -> Result<T, BedError> {
        self.places.run_at(place, work)
    }

    /// Runs `work` in the network namespace of the switch, as [`Bed::run_at`] does at a place: for programs and settings of
    /// its ports.
    ///
    /// # Errors
    /// [`BedError::Os`] if the thread cannot start or enter.
    pub fn run_in_switch<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, BedError> {
        self.switch.run(work).map_err(BedError::os("enter the switch"))
    }

    /// Name of the switch's port to a host.
    ///
    /// # Panics
    /// If there is no such host.
    #[must_use]
    pub fn switch_port(&self, host: usize) -> String {
        self.places.check(host);
        topology::port(Place::Host(host))
    }

    /// Names of all ports of switches that are shaped: to hosts, between racks and cores, and between sites.
    #[must_use]
    pub fn switch_ports(&self) -> Vec<String> {
        topology::switch_ports(&self.links)
    }

    /// Gives both directions of a host's link another rate, in bits per second. The directions change one
    /// after the other, a few milliseconds apart. Queue and burst keep the bytes they were created with.
    ///
    /// # Errors
    /// [`BedError::NoSuchHost`]; [`BedError::Config`] for a rate out of range; [`BedError::Tool`].
    pub fn set_link_rate(&self, host: usize, link_rate_bps: u64) -> Result<(), BedError> {
        check_rate(link_rate_bps)?;
        let place = Place::Host(host);
        let namespace = self.places.namespace(place)?;
        let Rates { up_bps, down_bps } = self.links.hosts[host].rates;
        let lines = |device: &str, made_for: u64, queues: Queues| {
            shape::change_rate(device, link_rate_bps, shape::burst_bytes(made_for), queues)
        };
        self.tools.tc.batch(
            namespace,
            &place.to_string(),
            &lines(HOST_LINK, up_bps, self.links.host_queues),
        )?;
        let lines = lines(&topology::port(place), down_bps, self.links.queues);
        self.tools.tc.batch(&self.switch, "the switch", &lines)
    }

    /// What passed over a host's link so far.
    ///
    /// # Errors
    /// [`BedError::NoSuchHost`]; [`BedError::Os`] if the kernel's table cannot be read.
    pub fn link_counters(&self, host: usize) -> Result<LinkCounters, BedError> {
        self.places.namespace(Place::Host(host))?;
        self.counters(&topology::port(Place::Host(host)))
    }

    /// What passed over the link between a rack and the core so far.
    ///
    /// # Errors
    /// [`BedError::Config`]: there is no such rack; [`BedError::Os`] if the kernel's table cannot be read.
    pub fn rack_counters(&self, rack: usize) -> Result<LinkCounters, BedError> {
        let racks = self.links.racks.len();
        if rack >= racks {
            return Err(BedError::Config(format!("the bed has {racks} racks, there is no rack {rack}")));
        }
        self.counters(&topology::rack_port(rack))
    }

    fn counters(&self, port: &str) -> Result<LinkCounters, BedError> {
        let mut table = String::new();
        {
            let mut file = self.counters.lock().unwrap_or_else(|poison| poison.into_inner());
            // A file of /proc makes its content when it is read from the beginning.
            file.rewind()
                .and_then(|()| file.read_to_string(&mut table))
                .map_err(BedError::os("read the switch's link counters"))?;
        }
        port_counters(&table, port).ok_or_else(|| {
            BedError::os(format!("the switch has no port {port}"))(io::Error::from(io::ErrorKind::NotFound))
        })
    }

    /// Links, addresses and shapers, in empty namespaces.
    fn connect(&self) -> Result<(), BedError> {
        let links = &self.links;
        let paths: Vec<String> = self.places.namespaces().iter().map(Namespace::path).collect();
        let ends = topology::places(links.hosts.len()).zip(paths.iter().map(String::as_str));
        self.tools.ip.batch(&self.switch, "the switch", &topology::switch_links(links, ends))?;
        self.tools.bridge.batch(&self.switch, "the switch", &topology::switch_addresses(links))?;
        self.tools.tc.batch(&self.switch, "the switch", &topology::switch_shapes(links))?;

        let all: Vec<Place> = topology::places(links.hosts.len()).collect();
        thread::scope(|scope| {
            let shares = all.chunks(all.len().div_ceil(SETUP_THREADS));
            let workers: Vec<_> = shares
                .map(|share| scope.spawn(|| share.iter().try_for_each(|place| self.connect_host(*place))))
                .collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    fn connect_host(&self, place: Place) -> Result<(), BedError> {
        let namespace = self.places.namespace(place)?;
        let subject = place.to_string();
        let lines = topology::host_links(place, self.links.hosts.len(), self.links.segment_bytes);
        self.tools.ip.batch(namespace, &subject, &lines)?;
        match place {
            Place::Host(host) => {
                let rate = self.links.hosts[host].rates.up_bps;
                let lines = shape::shape(HOST_LINK, rate, shape::HOST_QUEUE_BYTES, self.links.host_queues);
                self.tools.tc.batch(namespace, &subject, &lines)
            }
            Place::Control => Ok(()),
        }
    }
}

/// Finds a port in `/proc/net/dev`. Columns after the name: eight about receiving, bytes first, then those
/// about sending, bytes first. What the switch receives is what the host sent.
pub(crate) fn port_counters(table: &str, port: &str) -> Option<LinkCounters> {
    // The colon right after the name keeps `p1` from being found in the line of `p12`.
    let columns = table.lines().find_map(|line| line.trim_start().strip_prefix(port)?.strip_prefix(':'))?;
    // Eight columns are of what the port received, which its host sent; behind them begin those of
    // what the port sent.
    let columns: Vec<u64> = columns.split_ascii_whitespace().filter_map(|text| text.parse().ok()).collect();
    Some(LinkCounters { sent_bytes: *columns.first()?, received_bytes: *columns.get(8)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_one_port_are_not_those_of_a_longer_name() {
        let table = "Inter-| Receive | Transmit\n face |bytes packets\n\
                     \x20  p12: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n\
                     \x20   p1: 100 2 0 0 0 0 0 0 300 4 0 0 0 0 0 0\n";
        let expected = LinkCounters { sent_bytes: 100, received_bytes: 300 };
        assert_eq!(port_counters(table, "p1"), Some(expected));
        assert_eq!(port_counters(table, "p2"), None);
    }
}

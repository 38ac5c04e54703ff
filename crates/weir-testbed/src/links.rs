//! What the links of a bed should be.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use crate::error::BedError;
use crate::place::{MAX_HOSTS, Place};
use crate::queues::Queues;
use crate::shape::{MAX_LINK_RATE_BPS, MIN_LINK_RATE_BPS};

/// Most sites: link-local addresses of gateways end in their number.
pub const MAX_SITES: usize = 32;

/// Most racks of a bed: names of devices have their number, and set-up work grows with hosts times racks.
pub const MAX_RACKS: usize = 64;

/// Bytes of the largest piece that a host may hand to its link: from a frame on, to the kernel's own limit. TCP sends at least
/// two frames in one piece.
pub const SEGMENT_BYTES: RangeInclusive<u32> = 1_514..=65_536;

/// Rates of a link's directions, in bits per second on the wire without preamble and frame gap (so TCP can use 1448/1514
/// of it, 95.6 %).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// From the host, or from the rack to the core.
    pub up_bps: u64,
    /// Towards the host, or from the core to the rack.
    pub down_bps: u64,
}

impl Rates {
    /// The same rate in both directions, in bits per second.
    #[must_use]
    pub fn both(bps: u64) -> Rates {
        Rates { up_bps: bps, down_bps: bps }
    }
}

/// A host's link, and where it is attached: below a rack, or to the core of a site, or to the one of no site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostLinks {
    /// Rates of the host's link, up and down.
    pub rates: Rates,
    /// An index into [`BedLinks::racks`].
    pub rack: Option<usize>,
    /// The site of a host without a rack, below [`BedLinks::sites`].
    pub site: Option<usize>,
}

/// A rack's links to and from the core of its site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RackLinks {
    /// Rates of the rack's link, up and down.
    pub rates: Rates,
    /// The rack's site, below [`BedLinks::sites`], if it is in one.
    pub site: Option<usize>,
}

/// What a [`crate::Bed`] should be. Each core carries whatever its racks and hosts send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BedLinks {
    /// Of hosts 0 and up, 1 to [`MAX_HOSTS`] of them, the control host not counted.
    pub hosts: Vec<HostLinks>,
    /// Of racks 0 and up, to the core; [`MAX_RACKS`] at most.
    pub racks: Vec<RackLinks>,
    /// `between[from][to]`: bits per second on the wire from one site to another; as many rows as there are sites,
    /// [`MAX_SITES`] at most. Between a site and what is in none nothing is shaped.
    pub between: Vec<Vec<u64>>,
    /// Of the switches' ports.
    pub queues: Queues,
    /// Of hosts' own links, as of a network card that serves classes one after the other.
    pub host_queues: Queues,
    /// Most bytes that a host hands to its link in one piece ([`SEGMENT_BYTES`]); the kernel's 64 kB if none. A piece is in a
    /// queue of the switch all at once, where frames of real links come one after the other. So queues that mark at
    /// less than some pieces want small ones, which cost more processor time.
    pub segment_bytes: Option<u32>,
}

impl BedLinks {
    /// Hosts around one switch, all links alike.
    #[must_use]
    pub fn equal(hosts: usize, link_rate_bps: u64) -> BedLinks {
        let host = HostLinks { rates: Rates::both(link_rate_bps), rack: None, site: None };
        BedLinks {
            hosts: vec![host; hosts],
            racks: Vec::new(),
            between: Vec::new(),
            queues: Queues::One,
            host_queues: Queues::One,
            segment_bytes: None,
        }
    }

    /// Number of sites; 0 on a bed that has none.
    #[must_use]
    pub fn sites(&self) -> usize {
        self.between.len()
    }

    /// The rate of all links, if they are alike and there are no racks and sites.
    #[must_use]
    pub fn one_rate_bps(&self) -> Option<u64> {
        let first = self.hosts.first()?;
        let equal = BedLinks {
            queues: self.queues,
            host_queues: self.host_queues,
            segment_bytes: self.segment_bytes,
            ..BedLinks::equal(self.hosts.len(), first.rates.up_bps)
        };
        (*self == equal).then_some(first.rates.up_bps)
    }

    /// The same as a topology for the coordinator, where hosts are called by their numbers.
    #[must_use]
    pub fn topology(&self) -> String {
        let mut text = String::new();
        let rates = |text: &mut String, rates: &Rates| {
            let _ = writeln!(text, "rate = \"{}bit\"\ndown_rate = \"{}bit\"", rates.up_bps, rates.down_bps);
        };
        let site = |text: &mut String, site: Option<usize>| {
            site.into_iter().for_each(|site| {
                let _ = writeln!(text, "site = \"site-{site}\"");
            });
        };
        for (from, row) in self.between.iter().enumerate() {
            let _ = writeln!(text, "[[site]]\nname = \"site-{from}\"");
            // Each pair once: a link of a topology has both directions.
            for (to, rate) in row.iter().enumerate().take(from) {
                let back = self.between[to][from];
                let _ = writeln!(
                    text,
                    "[[link]]\nfrom = \"site-{from}\"\nto = \"site-{to}\"\nrate = \"{rate}bit\"\nback_rate = \"{back}bit\""
                );
            }
        }
        for (number, rack) in self.racks.iter().enumerate() {
            let _ = writeln!(text, "[[rack]]\nname = \"rack-{number}\"");
            rates(&mut text, &rack.rates);
            site(&mut text, rack.site);
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let _ = writeln!(text, "[[host]]\nname = \"{number}\"");
            rates(&mut text, &host.rates);
            if let Some(rack) = host.rack {
                let _ = writeln!(text, "rack = \"rack-{rack}\"");
            }
            site(&mut text, host.site.filter(|_| host.rack.is_none()));
        }
        text
    }

    pub(crate) fn rack_of(&self, place: Place) -> Option<usize> {
        match place {
            Place::Host(host) => self.hosts[host].rack,
            Place::Control => None,
        }
    }

    pub(crate) fn site_of(&self, place: Place) -> Option<usize> {
        match place {
            Place::Host(host) => match self.hosts[host].rack {
                Some(rack) => self.racks[rack].site,
                None => self.hosts[host].site,
            },
            Place::Control => None,
        }
    }

    /// Refuses what no bed can be.
    pub(crate) fn check(&self) -> Result<(), BedError> {
        self.queues.check()?;
        self.host_queues.check()?;
        if let Some(bytes) = self.segment_bytes.filter(|bytes| !SEGMENT_BYTES.contains(bytes)) {
            let (least, most) = SEGMENT_BYTES.into_inner();
            return Err(BedError::Config(format!("pieces of {bytes} bytes; {least} to {most} are possible")));
        }
        let (hosts, racks) = (self.hosts.len(), self.racks.len());
        if hosts == 0 || hosts > MAX_HOSTS {
            return Err(BedError::Config(format!("{hosts} hosts; 1 to {MAX_HOSTS} are possible")));
        }
        if racks > MAX_RACKS {
            return Err(BedError::Config(format!("{racks} racks; {MAX_RACKS} at most are possible")));
        }
        for (number, host) in self.hosts.iter().enumerate() {
            if let Some(rack) = host.rack.filter(|&rack| rack >= racks) {
                return Err(BedError::Config(format!("host {number} is in rack {rack} of {racks}")));
            }
        }
        let sites = self.sites();
        if sites > MAX_SITES {
            return Err(BedError::Config(format!("{sites} sites; {MAX_SITES} at most are possible")));
        }
        if self.between.iter().any(|row| row.len() != sites) {
            return Err(BedError::Config(format!("links between {sites} sites are as many rows as columns")));
        }
        let of = self.hosts.iter().map(|host| host.site).chain(self.racks.iter().map(|rack| rack.site));
        if let Some(site) = of.flatten().find(|&site| site >= sites) {
            return Err(BedError::Config(format!("a host or a rack is in site {site} of {sites}")));
        }
        let rows = self.between.iter().enumerate();
        let between = rows.flat_map(|(from, row)| {
            row.iter().enumerate().filter(move |&(to, _)| to != from).map(|(_, &rate)| rate)
        });
        let all = self.hosts.iter().map(|host| host.rates).chain(self.racks.iter().map(|rack| rack.rates));
        all.flat_map(|rates| [rates.up_bps, rates.down_bps]).chain(between).try_for_each(check_rate)
    }
}

pub(crate) fn check_rate(link_rate_bps: u64) -> Result<(), BedError> {
    let (lowest, highest) = (MIN_LINK_RATE_BPS, MAX_LINK_RATE_BPS);
    if (lowest..=highest).contains(&link_rate_bps) {
        return Ok(());
    }
    Err(BedError::Config(format!("link rate {link_rate_bps} bit/s; {lowest} to {highest} are possible")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE_BPS: u64 = 100_000_000;

    #[test]
    fn links_out_of_range_are_refused_before_anything_is_made() {
        let equal = |hosts, rate| BedLinks::equal(hosts, rate).check().is_err();
        assert!(equal(0, RATE_BPS) && equal(MAX_HOSTS + 1, RATE_BPS));
        assert!(equal(2, 999_999) && equal(2, 10_000_000_001));
        assert!(!equal(MAX_HOSTS, RATE_BPS));
        let pieces = |bytes| BedLinks { segment_bytes: Some(bytes), ..BedLinks::equal(2, RATE_BPS) };
        assert!(pieces(1_513).check().is_err() && pieces(65_537).check().is_err());
        assert!(pieces(1_514).check().is_ok() && pieces(65_536).check().is_ok());
        let mut racks = BedLinks::equal(2, RATE_BPS);
        racks.hosts[1].rack = Some(0);
        assert!(racks.check().is_err(), "there is no rack 0");
        let rack = |up_bps, down_bps, site| RackLinks { rates: Rates { up_bps, down_bps }, site };
        racks.racks = vec![rack(RATE_BPS, 999, None)];
        assert!(racks.check().is_err());
        racks.racks = vec![rack(RATE_BPS, RATE_BPS, None); MAX_RACKS + 1];
        assert!(racks.check().is_err());
        racks.racks = vec![rack(RATE_BPS, RATE_BPS, Some(0))];
        assert!(racks.check().is_err(), "there is no site 0");
        racks.between = vec![vec![0, RATE_BPS], vec![RATE_BPS, 0]];
        assert!(racks.check().is_ok());
        racks.between[0][1] = 999;
        assert!(racks.check().is_err());
        racks.between = vec![vec![RATE_BPS; MAX_SITES + 1]; MAX_SITES + 1];
        assert!(racks.check().is_err());
        racks.between = vec![vec![0, RATE_BPS]];
        assert!(racks.check().is_err(), "not square");
    }

    #[test]
    fn only_equal_links_without_racks_and_sites_have_one_rate() {
        let mut links = BedLinks::equal(3, RATE_BPS);
        assert_eq!(links.one_rate_bps(), Some(RATE_BPS));
        links.queues = Queues::ByDscp([1, 2, 3, 4, 5, 6, 7, 8]);
        links.segment_bytes = Some(3000);
        assert_eq!(links.one_rate_bps(), Some(RATE_BPS));
        links.hosts[2].rates.down_bps += 1;
        assert_eq!(links.one_rate_bps(), None);
        let rack = RackLinks { rates: Rates::both(RATE_BPS), site: None };
        let racks = BedLinks { racks: vec![rack], ..BedLinks::equal(3, RATE_BPS) };
        assert_eq!(racks.one_rate_bps(), None);
        let sites = BedLinks { between: vec![vec![0]], ..BedLinks::equal(3, RATE_BPS) };
        assert_eq!(sites.one_rate_bps(), None);
    }
}

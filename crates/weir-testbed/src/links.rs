//! What the links of a bed should be.

use std::fmt::Write as _;

use crate::error::BedError;
use crate::places::Place;
use crate::shape::{MAX_LINK_RATE_BPS, MIN_LINK_RATE_BPS};
use crate::topology::MAX_HOSTS;

/// Most racks of a bed: names of devices have their number, and set-up work grows with hosts times racks.
pub const MAX_RACKS: usize = 64;

/// Rates of a link's directions, in bits per second on the wire without preamble and frame gap (so TCP can use 1448/1514
/// of it, 95.6 %).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// From the host, or from the rack to the core.
    pub up_bps: u64,
    /// Towards it.
    pub down_bps: u64,
}

impl Rates {
    /// Both directions alike.
    #[must_use]
    pub fn both(bps: u64) -> Rates {
        Rates { up_bps: bps, down_bps: bps }
    }
}

/// A host's link, and which of the racks it is below; without one it is attached to the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostLinks {
    /// Its rates.
    pub rates: Rates,
    /// An index into [`BedLinks::racks`].
    pub rack: Option<usize>,
}

/// What a [`crate::Bed`] should be. The core carries whatever racks and hosts send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BedLinks {
    /// Of hosts 0 and up, 1 to [`MAX_HOSTS`] of them, the control host not counted.
    pub hosts: Vec<HostLinks>,
    /// Of racks 0 and up, to the core; [`MAX_RACKS`] at most.
    pub racks: Vec<Rates>,
}

impl BedLinks {
    /// Hosts around one switch, all links alike.
    #[must_use]
    pub fn equal(hosts: usize, link_rate_bps: u64) -> BedLinks {
        let host = HostLinks { rates: Rates::both(link_rate_bps), rack: None };
        BedLinks { hosts: vec![host; hosts], racks: Vec::new() }
    }

    /// The rate of all links, if they are alike and there are no racks.
    #[must_use]
    pub fn one_rate_bps(&self) -> Option<u64> {
        let first = self.hosts.first()?;
        (self.racks.is_empty() && *self == BedLinks::equal(self.hosts.len(), first.rates.up_bps))
            .then_some(first.rates.up_bps)
    }

    /// The same as a topology for the coordinator, where hosts are called by their numbers.
    #[must_use]
    pub fn topology(&self) -> String {
        let mut text = String::new();
        let rates = |text: &mut String, rates: &Rates| {
            let _ = writeln!(text, "rate = \"{}bit\"\ndown_rate = \"{}bit\"", rates.up_bps, rates.down_bps);
        };
        for (number, rack) in self.racks.iter().enumerate() {
            let _ = writeln!(text, "[[rack]]\nname = \"rack-{number}\"");
            rates(&mut text, rack);
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let _ = writeln!(text, "[[host]]\nname = \"{number}\"");
            rates(&mut text, &host.rates);
            if let Some(rack) = host.rack {
                let _ = writeln!(text, "rack = \"rack-{rack}\"");
            }
        }
        text
    }

    pub(crate) fn rack_of(&self, place: Place) -> Option<usize> {
        match place {
            Place::Host(host) => self.hosts[host].rack,
            Place::Control => None,
        }
    }

    /// Refuses what no bed can be.
    pub(crate) fn check(&self) -> Result<(), BedError> {
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
        let all = self.hosts.iter().map(|host| host.rates).chain(self.racks.iter().copied());
        all.flat_map(|rates| [rates.up_bps, rates.down_bps]).try_for_each(check_rate)
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
        let mut racks = BedLinks::equal(2, RATE_BPS);
        racks.hosts[1].rack = Some(0);
        assert!(racks.check().is_err(), "there is no rack 0");
        racks.racks = vec![Rates { up_bps: RATE_BPS, down_bps: 999 }];
        assert!(racks.check().is_err());
        racks.racks = vec![Rates::both(RATE_BPS); MAX_RACKS + 1];
        assert!(racks.check().is_err());
    }

    #[test]
    fn only_equal_links_without_racks_have_one_rate() {
        let mut links = BedLinks::equal(3, RATE_BPS);
        assert_eq!(links.one_rate_bps(), Some(RATE_BPS));
        links.hosts[2].rates.down_bps += 1;
        assert_eq!(links.one_rate_bps(), None);
        let racks = BedLinks { racks: vec![Rates::both(RATE_BPS)], ..BedLinks::equal(3, RATE_BPS) };
        assert_eq!(racks.one_rate_bps(), None);
    }
}

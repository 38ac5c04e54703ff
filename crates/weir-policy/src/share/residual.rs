//! Capacity that is not given away yet while a plan is made.

use crate::bits::BitSet;
use weir_model::{Fabric, HostId, LinkId, LinkKind};

/// A link with less than this share of its capacity left has nothing left. It swallows the dust of
/// floating-point sums; results do not depend on it (a test moves it by a factor of 100 either way).
const DUST_SHARE: f64 = 1e-9;

/// What is left of every link.
#[derive(Clone, Debug)]
pub struct Residual {
    dust_share: f64,
    capacity: Vec<f64>,
    left: Vec<f64>,
    dust: Vec<f64>,
    kinds: Vec<LinkKind>,
    shape: u64,
    /// Whether every path is the source's uplink and the destination's downlink.
    is_switch: bool,
    saturated: BitSet,
    free_sources: BitSet,
    free_destinations: BitSet,
    racks: Racks,
}

/// Which hosts can be reached as far as links of racks are concerned.
#[derive(Clone, Debug, Default)]
struct Racks {
    /// Per host, its rack; the number of racks where it has none.
    of: Vec<u32>,
    members: Vec<BitSet>,
    /// Per rack, whether its link to the core has something left.
    can_leave: Vec<bool>,
    /// Hosts without a rack, and those whose rack's link from the core has something left.
    can_be_entered: BitSet,
}

impl Racks {
    fn of(fabric: &Fabric) -> Racks {
        let (racks, hosts) = (fabric.rack_count(), fabric.hosts());
        let of: Vec<u32> = (0..hosts).map(|host| fabric.rack_of(HostId(host)).unwrap_or(racks)).collect();
        // The last entry stands for hosts without a rack: it has no members, and hosts "in" it can always leave it.
        let mut members = vec![BitSet::new(hosts as usize); racks as usize + 1];
        for (host, &rack) in of.iter().enumerate().filter(|&(_, &rack)| rack < racks) {
            members[rack as usize].insert(host);
        }
        Racks { of, members, can_leave: Vec::new(), can_be_entered: BitSet::new(hosts as usize) }
    }

    fn reset(&mut self) {
        self.can_leave.clear();
        self.can_leave.resize(self.members.len(), true);
        self.can_be_entered.fill(self.of.len());
    }

    fn cannot_enter(&mut self, rack: u32) {
        let words = self.can_be_entered.words_mut().iter_mut();
        words.zip(self.members[rack as usize].words()).for_each(|(word, members)| *word &= !members);
    }
}

/// What is left of the links of a switch: of host h's uplink at 2h, of its downlink at 2h + 1.
pub(super) struct HostLinks<'a> {
    pub(super) left: &'a mut [f64],
    pub(super) dust: &'a [f64],
    pub(super) free_sources: &'a mut [u64],
    pub(super) free_destinations: &'a mut [u64],
}

impl Default for Residual {
    fn default() -> Residual {
        Residual::with_dust_share(DUST_SHARE)
    }
}

impl Residual {
    /// With another share of its capacity below which a link counts as full.
    pub fn with_dust_share(dust_share: f64) -> Residual {
        Residual {
            dust_share,
            capacity: Vec::new(),
            left: Vec::new(),
            dust: Vec::new(),
            kinds: Vec::new(),
            shape: 0,
            is_switch: false,
            saturated: BitSet::default(),
            free_sources: BitSet::default(),
            free_destinations: BitSet::default(),
            racks: Racks::default(),
        }
    }

    /// Starts a plan: every link is free.
    pub fn reset(&mut self, fabric: &Fabric) {
        if !self.knows(fabric) {
            let links = fabric.links();
            self.shape = fabric.shape();
            self.capacity = links.iter().map(|link| link.capacity.bytes_per_sec()).collect();
            self.dust = self.capacity.iter().map(|capacity| capacity * self.dust_share).collect();
            self.kinds = links.iter().map(|link| link.kind).collect();
            self.saturated = BitSet::new(links.len());
            self.free_sources = BitSet::new(fabric.hosts() as usize);
            self.free_destinations = self.free_sources.clone();
            self.is_switch = fabric.is_switch();
            self.racks = Racks::of(fabric);
        }
        self.left.clone_from(&self.capacity);
        self.saturated.clear();
        self.free_sources.fill(fabric.hosts() as usize);
        self.free_destinations.fill(fabric.hosts() as usize);
        self.racks.reset();
    }

    /// Starts a plan, or a part of one, with so much of every link left.
    pub fn reset_to(&mut self, fabric: &Fabric, left: &[f64]) {
        self.reset(fabric);
        self.left.copy_from_slice(left);
        for (link, left) in (0u32..).zip(left) {
            if *left <= self.dust[link as usize] {
                self.saturate(LinkId(link));
            }
        }
    }

    /// The links of hosts, where every path is the source's uplink and the destination's downlink. What
    /// is taken through it does not enter [`Residual::saturated`].
    #[inline]
    pub(super) fn host_links(&mut self) -> Option<HostLinks<'_>> {
        self.is_switch.then(|| HostLinks {
            left: &mut self.left,
            dust: &self.dust,
            free_sources: self.free_sources.words_mut(),
            free_destinations: self.free_destinations.words_mut(),
        })
    }

    /// Bytes per second left on a link; exactly 0 once it is saturated.
    #[inline]
    pub fn left(&self, link: LinkId) -> f64 {
        self.left[link.index()]
    }

    /// Links with nothing left.
    #[inline]
    pub fn saturated(&self) -> &BitSet {
        &self.saturated
    }

    /// Hosts that may still send as far as their own link is concerned.
    #[inline]
    pub fn free_sources(&self) -> &BitSet {
        &self.free_sources
    }

    /// Hosts that may still receive as far as their own link is concerned.
    #[inline]
    pub fn free_destinations(&self) -> &BitSet {
        &self.free_destinations
    }

    /// Of hosts that may still receive, those of a word of the set that a source reaches as far as links of racks are
    /// concerned.
    #[inline]
    pub(super) fn reachable(&self, source: usize, word: usize) -> u64 {
        let rack = self.racks.of[source] as usize;
        let beyond = if self.racks.can_leave[rack] { self.racks.can_be_entered.words()[word] } else { 0 };
        // Paths inside a rack cross no link of the core, so hosts of the source's own rack stay
        // reachable when its rack's links are full.
        (beyond | self.racks.members[rack].words()[word]) & self.free_destinations.words()[word]
    }

    /// Least capacity left on a path; infinite on a path without links.
    #[inline]
    pub fn least(&self, path: &[LinkId]) -> f64 {
        path.iter().map(|link| self.left[link.index()]).fold(f64::INFINITY, f64::min)
    }

    /// Gives away all that a path has left, and says how much that was: 0 where one of its links is full.
    pub(super) fn take_all(&mut self, path: &[LinkId]) -> f64 {
        let rate = self.least(path);
        if rate > 0.0 {
            path.iter().for_each(|&link| self.take(link, rate));
        }
        rate
    }

    /// Gives away `rate` bytes per second of a link.
    #[inline]
    pub fn take(&mut self, link: LinkId, rate: f64) {
        let left = &mut self.left[link.index()];
        *left -= rate;
        if *left <= self.dust[link.index()] {
            self.saturate(link);
        }
    }

    /// Number of links of the fabric.
    pub fn links(&self) -> usize {
        self.capacity.len()
    }

    /// Bytes per second of a link when nothing is given away.
    #[inline]
    pub fn capacity(&self, link: LinkId) -> f64 {
        self.capacity[link.index()]
    }

    /// Whether so little left of a link is nothing.
    #[inline]
    pub fn is_dust(&self, link: LinkId, left: f64) -> bool {
        left <= self.dust[link.index()]
    }

    /// Whether the network is that of the last plan: its hosts, links, paths and capacities.
    pub fn knows(&self, fabric: &Fabric) -> bool {
        let links = fabric.links();
        // The shape first: it is one number, and covers hosts and paths, which the capacities below do not.
        fabric.shape() == self.shape
            && links.len() == self.capacity.len()
            && links.iter().zip(&self.capacity).all(|(link, known)| link.capacity.bytes_per_sec() == *known)
    }

    /// Declares a link full.
    #[inline]
    pub fn saturate(&mut self, link: LinkId) {
        self.left[link.index()] = 0.0;
        self.saturated.insert(link.index());
        match self.kinds[link.index()] {
            LinkKind::Uplink(host) => self.free_sources.remove(host.index()),
            LinkKind::Downlink(host) => self.free_destinations.remove(host.index()),
            LinkKind::RackUplink(rack) => self.racks.can_leave[rack as usize] = false,
            LinkKind::RackDownlink(rack) => self.racks.cannot_enter(rack),
            // No set of hosts stands for links between sites: `least` on the path of each flow
            // finds them full.
            LinkKind::Site { .. } => {}
        }
    }
}

//! What a walk came to: its grants in order, and where it filled each link.

use crate::share::residual::HostLinks;
use crate::{FlowRef, Grant, Slot};

/// A place that a walk never reaches.
pub(super) const NEVER: Place = Place(u64::MAX);
const HOST_BITS: u32 = 20;
/// More hosts or coflows than this have no places.
const MOST: usize = 1 << HOST_BITS;

/// Where the walk looks at the flows of a coflow from a source to a destination: places rise as it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u64);

impl Place {
    /// Before the places of all flows.
    pub(super) const BEGIN: Place = Place(0);

    #[inline]
    pub(super) fn new(rank: usize, source: usize, destination: usize) -> Place {
        // Ranks from 1, so that the first place is behind `BEGIN`, where MADD filled links.
        Place((rank as u64 + 1) << (2 * HOST_BITS) | (source as u64) << HOST_BITS | destination as u64)
    }

    /// Rank of the coflow, source and destination.
    #[inline]
    pub(super) fn parts(self) -> (usize, usize, usize) {
        let host = |number: u64| number as usize & (MOST - 1);
        ((self.0 >> (2 * HOST_BITS)) as usize - 1, host(self.0 >> HOST_BITS), host(self.0))
    }

    #[inline]
    pub(super) fn next(self) -> Place {
        Place(self.0.saturating_add(1))
    }
}

/// A grant of the walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) place: Place,
    pub(super) flow: FlowRef,
    pub(super) bytes_per_sec: f64,
}

/// The walk over the hosts of a switch. Links are numbered as there: 2h is the uplink of host h, 2h + 1 its downlink.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// 0 while there is no walk to go on from.
    hosts: usize,
    words: usize,
    /// Per slot, the rank of its coflow.
    ranks: Vec<u32>,
    granted: Vec<Granted>,
    spare: Vec<u32>,
    /// Per link, its grants by place.
    on_link: Vec<Vec<(Place, u32)>>,
    /// Per link, where it was filled: at the beginning by MADD, at a place, or never.
    pub(super) filled: Vec<Place>,
    /// Per rank, the hosts whose links are not full when its turn comes: words of sources, of destinations.
    open: [Vec<u64>; 2],
    ranks_open: usize,
}

impl Walk {
    /// There is nothing to go on from.
    pub(super) fn forget(&mut self) {
        self.hosts = 0;
    }

    pub(super) fn is_known(&self) -> bool {
        self.hosts > 0
    }

    #[inline]
    pub(super) fn hosts(&self) -> usize {
        self.hosts
    }

    #[inline]
    pub(super) fn ranks(&self) -> usize {
        self.ranks_open
    }

    pub(super) fn rank(&self, slot: Slot) -> usize {
        self.ranks[slot.0 as usize] as usize
    }

    /// Whether a coflow has a turn.
    pub(super) fn has_rank(&self, slot: Slot) -> bool {
        self.ranks[slot.0 as usize] != u32::MAX
    }

    /// Begins a walk over coflows in this order.
    pub(super) fn begin(&mut self, order: &[Slot], slots: usize, links: &HostLinks<'_>) {
        let hosts = links.left.len() / 2;
        // Beyond 2^20 hosts or coflows a place would not fit into 64 bits: no walk is remembered, and every plan is made anew.
        self.hosts = if hosts.max(order.len()) < MOST { hosts } else { 0 };
        self.words = links.free_sources.len();
        self.ranks.clear();
        self.ranks.resize(slots, u32::MAX);
        for (rank, slot) in (0u32..).zip(order) {
            self.ranks[slot.0 as usize] = rank;
        }
        self.granted.clear();
        self.spare.clear();
        self.on_link.resize_with(2 * hosts, Vec::new);
        self.on_link.iter_mut().for_each(Vec::clear);
        self.filled.clear();
        let of_link = |&left: &f64| if left > 0.0 { NEVER } else { Place::BEGIN };
        self.filled.extend(links.left.iter().map(of_link));
        self.open.iter_mut().for_each(Vec::clear);
        self.ranks_open = 0;
    }

    /// The next coflow's turn.
    pub(super) fn enter_rank(&mut self, links: &HostLinks<'_>) {
        self.open[0].extend_from_slice(links.free_sources);
        self.open[1].extend_from_slice(links.free_destinations);
        self.ranks_open += 1;
    }

    /// A grant was made, the next of the plan.
    #[inline]
    pub(super) fn note(&mut self, rank: usize, flow: FlowRef, ends: [usize; 2], filled: [bool; 2]) {
        if self.hosts == 0 {
            return;
        }
        let place = Place::new(rank, ends[0], ends[1]);
        let at = self.granted.len() as u32;
        // The rate follows with `take_rates`, once the drain of the coflow is part of it.
        self.granted.push(Granted { place, flow, bytes_per_sec: 0.0 });
        for (link, filled) in [2 * ends[0], 2 * ends[1] + 1].into_iter().zip(filled) {
            self.on_link[link].push((place, at));
            if filled {
                self.filled[link] = place;
            }
        }
    }

    /// Takes over the rates of a walk's grants, in the order in which they were noted.
    pub(super) fn take_rates(&mut self, grants: &[Grant]) {
        for (granted, grant) in self.granted.iter_mut().zip(grants) {
            granted.bytes_per_sec = grant.bytes_per_sec;
        }
    }

    /// The grants on a link by place.
    pub(super) fn on_link(&self, link: usize) -> impl Iterator<Item = &Granted> {
        self.on_link[link].iter().map(|&(_, at)| &self.granted[at as usize])
    }

    /// The grant at a place.
    pub(super) fn find(&mut self, link: usize, place: Place) -> Option<&mut Granted> {
        let at = self.on_link[link].iter().find(|(other, _)| *other == place)?.1;
        Some(&mut self.granted[at as usize])
    }

    /// The place of the first grant on a link after a place.
    pub(super) fn next_on_link(&self, link: usize, after: Place) -> Place {
        self.on_link[link].iter().find(|(place, _)| *place > after).map_or(NEVER, |&(place, _)| place)
    }

    pub(super) fn insert(&mut self, links: [usize; 2], granted: Granted) {
        let at = self.spare.pop().unwrap_or_else(|| {
            self.granted.push(granted);
            self.granted.len() as u32 - 1
        });
        self.granted[at as usize] = granted;
        for link in links {
            let list = &mut self.on_link[link];
            let index = list.partition_point(|(place, _)| *place < granted.place);
            list.insert(index, (granted.place, at));
        }
    }

    pub(super) fn remove(&mut self, links: [usize; 2], place: Place) {
        for (step, link) in links.into_iter().enumerate() {
            let list = &mut self.on_link[link];
            if let Some(index) = list.iter().position(|(other, _)| *other == place) {
                let (_, at) = list.remove(index);
                // A grant is listed on two links and its memory freed once.
                if step == 0 {
                    self.spare.push(at);
                }
            }
        }
    }

    /// The hosts whose uplink (side 0) or downlink (side 1) is not full when the coflow's turn comes.
    #[inline]
    pub(super) fn open(&self, side: usize, rank: usize) -> &[u64] {
        &self.open[side][rank * self.words..(rank + 1) * self.words]
    }

    /// Corrects the turns at which a link is open after the place where it is filled has moved.
    pub(super) fn move_filled(&mut self, link: usize, from: Place, to: Place) {
        // The first turn at which the link is full.
        let turn = |place: Place| match place {
            Place::BEGIN => 0,
            NEVER => self.ranks_open,
            _ => place.parts().0 + 1,
        };
        let (before, now) = (turn(from), turn(to));
        let (side, host) = (link % 2, link / 2);
        let bit = 1 << (host % 64);
        for rank in before.min(now)..before.max(now) {
            let word = &mut self.open[side][rank * self.words + host / 64];
            *word = if now > before { *word | bit } else { *word & !bit };
        }
    }
}

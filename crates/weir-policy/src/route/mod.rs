//! Which way bytes between sites go: directly, or through one relay site.
//!
//! [`SiteDemand`] says what there is to move and over which links, [`Routes`] how it is split. A [`Rule`]
//! of water-filling splits; the optimum it is measured against is a linear program, in `weir-lp`. Orders of coflows and rates
//! are not decided here.

mod network;
mod water_filling;

pub use network::{Pair, SiteNetwork};
pub use water_filling::Rule;

use weir_model::{Bytes, Rate};

/// Decides which bytes between sites go directly, and which by way of a third site.
pub trait Router: Send + Sync {
    /// Splits a demand over direct links and detours.
    fn route(&self, demand: &SiteDemand) -> Routes;
}

/// Most sites: tables of routes grow with the third power.
pub const MAX_SITES: usize = 128;

/// Why a demand cannot be routed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// No traffic between sites without two of them; too many would not fit into memory.
    #[error("{0} sites; between 2 and {MAX_SITES} can be routed")]
    SiteCount(usize),
    /// A row is missing, or a value in a row.
    #[error("{what} between {sites} sites must be {sites} rows of {sites} values")]
    NotSquare {
        /// Which of both tables: capacities or demands.
        what: &'static str,
        /// Number of sites, which is that of the rows of capacities.
        sites: usize,
    },
    /// A link without capacity, or with one that is not a number.
    #[error("the capacity from site {from} to site {to} must be a finite number above 0")]
    BadCapacity {
        /// Number of the sending site.
        from: usize,
        /// Number of the receiving site.
        to: usize,
    },
}

/// What has to go from each site to each other, and the capacity of the link between the two. Sites count from 0, as
/// in [`weir_model::SiteSpec`]. Traffic inside a site crosses no link and is not part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteDemand {
    sites: usize,
    /// By sending, then receiving site; bytes per second. 0 on the diagonal, and where others have taken all of it.
    capacity: Vec<f64>,
    /// Bytes that have to go, indexed as `capacity`.
    bytes: Vec<f64>,
}

impl SiteDemand {
    /// A demand from `capacity[from][to]` and `bytes[from][to]`; diagonals are ignored.
    ///
    /// # Errors
    /// There are fewer than 2 sites or more than [`MAX_SITES`], a table is not square, or a capacity between two sites is not finite and above 0.
    pub fn new(capacity: &[Vec<Rate>], bytes: &[Vec<Bytes>]) -> Result<SiteDemand, RouteError> {
        let sites = capacity.len();
        if !(2..=MAX_SITES).contains(&sites) {
            return Err(RouteError::SiteCount(sites));
        }
        if capacity.iter().any(|row| row.len() != sites) {
            return Err(RouteError::NotSquare { what: "capacities", sites });
        }
        if bytes.len() != sites || bytes.iter().any(|row| row.len() != sites) {
            return Err(RouteError::NotSquare { what: "demands", sites });
        }
        let mut demand =
            SiteDemand { sites, capacity: vec![0.0; sites * sites], bytes: vec![0.0; sites * sites] };
        for (from, to) in pairs(sites) {
            let rate = capacity[from][to].bytes_per_sec();
            if !(rate.is_finite() && rate > 0.0) {
                return Err(RouteError::BadCapacity { from, to });
            }
            demand.capacity[from * sites + to] = rate;
            demand.bytes[from * sites + to] = bytes[from][to].0 as f64;
        }
        Ok(demand)
    }

    /// Number of sites, counted from 0 in tables.
    pub fn sites(&self) -> usize {
        self.sites
    }

    /// All ordered pairs of different sites, by sending then receiving site.
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        pairs(self.sites)
    }

    /// Capacity of the link between two different sites.
    pub fn capacity(&self, from: usize, to: usize) -> Rate {
        Rate::from_bytes_per_sec(self.capacity[from * self.sites + to])
    }

    /// Bytes that have to go between all sites.
    pub fn total_bytes(&self) -> f64 {
        self.bytes.iter().sum()
    }

    /// Bytes that have to go from one site to another, whatever the way.
    pub fn bytes(&self, from: usize, to: usize) -> Bytes {
        Bytes(self.bytes[from * self.sites + to] as u64)
    }
}

fn pairs(sites: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..sites).flat_map(move |from| (0..sites).filter(move |&to| to != from).map(move |to| (from, to)))
}

/// How many bytes of each pair of sites take which path, and what that puts on every link. Bytes are fractional here:
/// a split is a share of a stream.
///
/// A path of a pair is named by its next hop: the receiving site itself for the direct link, a relay otherwise. No two
/// paths of one pair have a link in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Routes {
    demand: SiteDemand,
    /// By sending site, receiving site, next hop.
    split: Vec<f64>,
    /// Bytes over the link, by sending, then receiving site.
    load: Vec<f64>,
}

impl Routes {
    /// All traffic on the direct link.
    pub fn direct(demand: &SiteDemand) -> Routes {
        let sites = demand.sites;
        let mut split = vec![0.0; sites * sites * sites];
        for (from, to) in demand.pairs() {
            split[(from * sites + to) * sites + to] = demand.bytes[from * sites + to];
        }
        Routes { demand: demand.clone(), split, load: demand.bytes.clone() }
    }

    /// Another demand between the same sites, each pair of it split as this one's is; directly where this one has
    /// nothing.
    pub fn applied_to(&self, demand: SiteDemand) -> Routes {
        let mut routes = Routes::direct(&demand);
        for (from, to) in demand.pairs() {
            let bytes = demand.bytes[from * self.demand.sites + to];
            let routed = self.demand.bytes[from * self.demand.sites + to];
            for hop in (0..self.demand.sites).filter(|&hop| hop != from && hop != to && routed > 0.0) {
                // Divided first: the share is at most 1, so the product is never more than `bytes`.
                routes.shift((from, to), to, hop, bytes * (self.split_bytes(from, to, hop) / routed));
            }
        }
        routes
    }

    /// The demand that these routes are of.
    pub fn demand(&self) -> &SiteDemand {
        &self.demand
    }

    /// Bytes from one site to another that go by this next hop.
    pub fn split_bytes(&self, from: usize, to: usize, next_hop: usize) -> f64 {
        self.split[self.index(from, to, next_hop)]
    }

    /// Bytes over the link from one site to another, those relayed included.
    pub fn link_bytes(&self, from: usize, to: usize) -> f64 {
        self.load[from * self.demand.sites + to]
    }

    /// Seconds that the link from one site to another needs for its bytes; infinite where it has bytes and carries
    /// nothing.
    pub fn link_time_s(&self, from: usize, to: usize) -> f64 {
        let link = from * self.demand.sites + to;
        if self.load[link] > 0.0 { self.load[link] / self.demand.capacity[link] } else { 0.0 }
    }

    /// Seconds until the last link is done, when no link is ever idle before.
    pub fn makespan_s(&self) -> f64 {
        self.demand.pairs().map(|(from, to)| self.link_time_s(from, to)).fold(0.0, f64::max)
    }

    /// Bytes that go through a relay.
    pub fn relayed_bytes(&self) -> f64 {
        let mut relayed = 0.0;
        for (from, to) in self.demand.pairs() {
            let hops = (0..self.demand.sites).filter(|&hop| hop != to && hop != from);
            relayed += hops.map(|hop| self.split_bytes(from, to, hop)).sum::<f64>();
        }
        relayed
    }

    /// Moves bytes of a pair from one path to another, at most what is there. Says how many were moved.
    pub fn shift(&mut self, pair: (usize, usize), old_hop: usize, new_hop: usize, bytes: f64) -> f64 {
        let (from, to) = pair;
        let (old, new) = (self.index(from, to, old_hop), self.index(from, to, new_hop));
        let moved = bytes.clamp(0.0, self.split[old]);
        self.split[old] -= moved;
        self.split[new] += moved;
        for (hop, change) in [(old_hop, -moved), (new_hop, moved)] {
            for (start, end) in links(pair, hop) {
                let load = &mut self.load[start * self.demand.sites + end];
                // What is left of a difference of equals may be a little below 0.
                *load = (*load + change).max(0.0);
            }
        }
        moved
    }

    fn index(&self, from: usize, to: usize, next_hop: usize) -> usize {
        (from * self.demand.sites + to) * self.demand.sites + next_hop
    }
}

/// The links of the path of a pair of sites by a next hop, in order: one where that is the receiving site, else two.
pub fn links((from, to): (usize, usize), next_hop: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
    [(from, next_hop), (next_hop, to)].into_iter().take(if next_hop == to { 1 } else { 2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(rows: &[&[f64]]) -> Vec<Vec<Rate>> {
        rows.iter().map(|row| row.iter().copied().map(Rate::from_bytes_per_sec).collect()).collect()
    }

    fn sizes(rows: &[&[u64]]) -> Vec<Vec<Bytes>> {
        rows.iter().map(|row| row.iter().copied().map(Bytes).collect()).collect()
    }

    fn three_sites() -> SiteDemand {
        let rate: &[f64] = &[10.0; 3];
        SiteDemand::new(&rates(&[rate; 3]), &sizes(&[&[9, 100, 20], &[0, 9, 0], &[0, 0, 9]])).unwrap()
    }

    #[test]
    fn traffic_inside_a_site_is_no_part_of_a_demand() {
        let demand = three_sites();
        assert_eq!((demand.bytes(0, 0), demand.total_bytes()), (Bytes(0), 120.0));
        assert_eq!(Routes::direct(&demand).makespan_s(), 10.0);
    }

    #[test]
    fn a_shift_loads_both_links_of_the_detour_and_can_be_taken_back() {
        let demand = three_sites();
        let mut routes = Routes::direct(&demand);
        assert_eq!(routes.shift((0, 1), 1, 2, 30.0), 30.0);
        // 100 - 30, 20 + 30, 0 + 30.
        assert_eq!(
            [(0, 1), (0, 2), (2, 1)].map(|(from, to)| routes.link_bytes(from, to)),
            [70.0, 50.0, 30.0]
        );
        assert_eq!((routes.makespan_s(), routes.relayed_bytes()), (7.0, 30.0));
        // No more than is there, and not less than nothing.
        assert_eq!(routes.shift((0, 1), 1, 2, -5.0), 0.0);
        assert_eq!(routes.shift((0, 1), 2, 1, 1e9), 30.0);
        assert_eq!(routes, Routes::direct(&demand));
    }

    #[test]
    fn impossible_demands_are_refused_with_a_reason() {
        let said = |capacity: &[&[f64]], bytes: &[&[u64]]| {
            SiteDemand::new(&rates(capacity), &sizes(bytes)).unwrap_err().to_string()
        };
        let (rate, none): (&[f64], &[u64]) = (&[1.0; 2], &[0; 2]);
        assert!(said(&[&[1.0]], &[&[0]]).starts_with("1 sites"));
        assert!(said(&[rate, &[1.0]], &[none; 2]).starts_with("capacities between 2 sites"));
        assert!(said(&[rate; 2], &[none]).starts_with("demands between 2 sites"));
        assert!(said(&[rate; 2], &[none, &[0]]).starts_with("demands between 2 sites"));
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(said(&[rate, &[bad, 1.0]], &[none; 2]).contains("from site 1 to site 0"), "{bad}");
        }
        let rate: &[f64] = &[1.0; MAX_SITES + 1];
        assert!(said(&[rate; MAX_SITES + 1], &[none]).starts_with("129 sites"));
    }
}

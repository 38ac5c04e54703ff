//! Max-min fairness within a tier of coflows, on what tiers before it left.
//!
//! # Problem
//! Schedulers that know no sizes serve coflows in tiers: one coflow, or several side by side, shares every
//! link equally among its flows, and the next tier gets what is left. Done anew for every flow at every event
//! this costs as much as all flows together.
//!
//! # Approach
//! Progressive filling, flow by flow, of one tier at a time. A tier whose flows are those of the last plan, on
//! links that have as much left for it as then (or at least enough where it is not limited), needs no filling:
//! it takes what it took.
//!
//! # Terminology
//! * tier: coflows whose flows share links as equals, or by their sizes.
//! * level of a link: the rate of the flows (or per byte of their size) that it limits.
//! * open flow: one whose rate is not decided yet.
//!
//! # Pseudo-code
//! ```text
//! open = flows of the tier that cross no full link; the others get nothing
//! while there are open flows:
//!     link = least left / weight of its open flows
//!     level of link = that; its open flows get it times their weight, which other links lose
//!     link is full
//! ```
//!
//! # Properties
//! * No flow of a tier could be faster without one of the tier that is not faster becoming slower, and no tier
//!   without one before it: every flow crosses a full link.
//! * Levels rise in the order of filling, so a flow's rate is the least level on its path.
//! * Cost of a filling: one visit per flow and link of the tier, and (links that limit somebody) times links.
//!
//! # Departures
//! None: this is Bertsekas and Gallager's progressive filling (Data Networks, section 6.5.2) per tier.

mod hosts;
mod listed;

use super::Residual;
use crate::{CoflowTable, Share, Slot};
use hosts::OpenHosts;
use listed::Listed;
use weir_model::LinkId;

/// A link that is not in a tier.
const NO_LINK: u32 = u32::MAX;

/// How flows of a tier weigh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weigh {
    /// All the same.
    Equally,
    /// By their size.
    BySize,
}

/// A tier as last filled.
#[derive(Debug, Default)]
struct Tier {
    members: Vec<Member>,
    links: Vec<LinkId>,
    /// Its flows, unless it is one coflow on a switch, whose sets of hosts say all.
    listed: Option<Listed>,
    /// Per link: what was left for the tier, what it took, and the level.
    offered: Vec<f64>,
    taken: Vec<f64>,
    levels: Vec<f64>,
    version: u64,
}

/// A coflow of a tier, and what tells whether its flows are still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    slot: Slot,
    coflow: u64,
    raises: u64,
    live: usize,
}

/// How the flows of a tier have changed since it was filled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flows {
    Same,
    Fewer,
    Others,
}

/// Fills tiers, one at a time, and remembers each by its first coflow. A coflow is in one tier at most.
#[derive(Debug, Default)]
pub struct Fill {
    /// Per slot of a first coflow.
    tiers: Vec<Tier>,
    versions: u64,
    changed: Vec<(usize, f64)>,
    scratch: Scratch,
}

/// Memory of one filling; says nothing between two.
#[derive(Debug, Default)]
struct Scratch {
    /// Per link of the fabric, its place in the tier at hand.
    place: Vec<u32>,
    weights: Vec<f64>,
    open: Vec<bool>,
    /// Number of hosts where every path is the source's uplink and the destination's downlink, else 0.
    switch_hosts: usize,
    hosts: OpenHosts,
    by_hosts: hosts::Links,
}

impl Member {
    fn of(view: &CoflowTable, slot: Slot) -> Member {
        let coflow = view.coflow(slot);
        Member { slot, coflow: coflow.id().0, raises: coflow.raises(), live: coflow.live_flows() }
    }
}

impl Tier {
    /// Takes over the flows of a tier.
    fn update(&mut self, view: &CoflowTable, coflows: &[Slot], weigh: Weigh, scratch: &mut Scratch) -> Flows {
        let members = coflows.iter().map(|&slot| Member::of(view, slot));
        if self.members.iter().copied().eq(members.clone()) {
            return Flows::Same;
        }
        let but_ends = |member: Member| Member { live: 0, ..member };
        let fewer = self.members.iter().copied().map(but_ends).eq(members.clone().map(but_ends));
        self.members.clear();
        self.members.extend(members);
        let live: usize = self.members.iter().map(|member| member.live).sum();
        let listed = self.listed.as_ref().map_or(live, Listed::len);
        if !fewer || live * 2 < listed {
            self.enter(view, coflows, weigh, scratch);
        }
        if fewer { Flows::Fewer } else { Flows::Others }
    }

    fn enter(&mut self, view: &CoflowTable, coflows: &[Slot], weigh: Weigh, scratch: &mut Scratch) {
        let place = &mut scratch.place;
        self.links.clear();
        for link in coflows.iter().flat_map(|&slot| view.coflow(slot).links()) {
            if place[link.index()] == NO_LINK {
                place[link.index()] = self.links.len() as u32;
                self.links.push(*link);
            }
        }
        let alone = coflows.len() == 1 && weigh == Weigh::Equally && scratch.switch_hosts > 0;
        let by_hosts = alone && hosts::has_one_flow_per_pair(view.coflow(coflows[0]));
        self.listed = (!by_hosts).then(|| Listed::new(view, coflows, weigh, place, self.links.len()));
        self.links.iter().for_each(|link| place[link.index()] = NO_LINK);
    }

    /// Takes over what is left of every link for this tier; whether that is something else on any, with what
    /// it was then in `changed`.
    fn take_offers(&mut self, residual: &Residual, changed: &mut Vec<(usize, f64)>) -> bool {
        changed.clear();
        self.offered.resize(self.links.len(), f64::NAN);
        for (at, (&link, offered)) in self.links.iter().zip(&mut self.offered).enumerate() {
            let before = std::mem::replace(offered, residual.left(link));
            if before != *offered {
                changed.push((at, before));
            }
        }
        !changed.is_empty()
    }

    /// Whether rates may be others after offers have changed. They are not where a changed link limits nobody
    /// and still has what is taken of it: every flow has its limit where it had it. Nor where a link opens
    /// and all its flows cross other full ones.
    fn is_moved(&self, view: &CoflowTable, changed: &[(usize, f64)], open: &OpenHosts) -> bool {
        let has_open = |link: usize| match &self.listed {
            Some(listed) => listed.has_open(view, link, &self.offered),
            None => hosts::has_open(view.coflow(self.members[0].slot), self.links[link], open),
        };
        changed.iter().any(|&(link, before)| {
            let limits = self.taken[link] > 0.0 && self.levels[link].is_finite();
            limits || self.taken[link] > self.offered[link] || (before == 0.0 && has_open(link))
        })
    }
}

impl Fill {
    /// Gives a tier what it can use of what is left, and takes that away. What [`Fill::version`] says of its
    /// first coflow changes just when a rate in the tier does, or its flows are others.
    pub fn take(&mut self, view: &CoflowTable, coflows: &[Slot], weigh: Weigh, residual: &mut Residual) {
        let Some(first) = coflows.first().map(|slot| slot.0 as usize) else { return };
        self.scratch.place.resize(residual.links(), NO_LINK);
        self.scratch.switch_hosts = residual.switch_hosts();
        self.tiers.resize_with(self.tiers.len().max(first + 1), Tier::default);
        let mut tier = std::mem::take(&mut self.tiers[first]);
        let flows = tier.update(view, coflows, weigh, &mut self.scratch);
        let moved = tier.take_offers(residual, &mut self.changed);
        if tier.listed.is_none() {
            self.scratch.hosts.set(&tier.links, &tier.offered, self.scratch.switch_hosts);
        }
        let stale =
            flows != Flows::Same || (moved && tier.is_moved(view, &self.changed, &self.scratch.hosts));
        if stale && (self.fill(view, &mut tier) || flows == Flows::Others) {
            self.versions += 1;
            tier.version = self.versions;
        }
        for (&link, &taken) in tier.links.iter().zip(&tier.taken) {
            if taken > 0.0 {
                residual.take(link, taken);
            }
        }
        self.tiers[first] = tier;
    }

    /// What distinguishes the rates of the tier with this first coflow from all others it ever had.
    pub fn version(&self, first: Slot) -> u64 {
        self.tiers[first.0 as usize].version
    }

    /// A coflow's share of the tier with this first coflow.
    pub fn share(&self, first: Slot, coflow: Slot, weigh: Weigh) -> Share {
        let tier = &self.tiers[first.0 as usize];
        let levels = tier.links.iter().copied().zip(tier.levels.iter().copied()).collect();
        Share { coflow, by_size: weigh == Weigh::BySize, levels }
    }

    /// Computes the levels of a tier; whether they are others.
    fn fill(&mut self, view: &CoflowTable, tier: &mut Tier) -> bool {
        let before = std::mem::take(&mut tier.levels);
        let Tier { members, links, listed, offered, taken, levels, .. } = tier;
        levels.extend(offered.iter().map(|&left| if left > 0.0 { f64::INFINITY } else { 0.0 }));
        taken.clone_from(offered);
        match listed {
            Some(listed) => listed.fill(view, taken, levels, &mut self.scratch),
            None => hosts::fill(view.coflow(members[0].slot), links, taken, levels, &mut self.scratch),
        }
        // What is left of each link so far.
        taken.iter_mut().zip(offered).for_each(|(taken, offered)| *taken = *offered - taken.max(0.0));
        before != *levels
    }
}

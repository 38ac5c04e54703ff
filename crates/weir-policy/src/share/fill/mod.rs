//! Max-min fairness within a tier of coflows, on what tiers before it left.
//!
//! # Problem
//! Schedulers that know no sizes serve coflows in tiers: one coflow, or several side by side, shares every
//! link equally among its flows, and the next tier gets what is left. Done anew for every flow at every event
//! this costs as much as all flows together.
//!
//! # Approach
//! Progressive filling of one tier at a time. A tier whose flows are those of the last plan, on links that have
//! as much left for it as then (or at least enough where it is not limited), needs no filling: it takes what it
//! took. Where paths are of two links, all flows between the same two are one, and what is known of them is kept
//! from one plan to the next ([`pairs`]); else flows stand in a list ([`listed`]).
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
//! * Cost of a filling: one visit per link of the tier, one per pair of links of which one limits the other's
//!   flows, and searches in a heap of links; on longer paths one visit per flow and link.
//!
//! # Departures
//! None: this is Bertsekas and Gallager's progressive filling (Data Networks, section 6.5.2) per tier.

mod candidates;
mod listed;
mod pairs;

use super::Residual;
use crate::{CoflowTable, FlowRef, Share, Slot};
use candidates::Candidates;
use listed::Listed;
use pairs::Pairs;
use weir_model::LinkId;

/// A link that is not in a tier.
const NO_LINK: u32 = u32::MAX;

/// How flows of a tier weigh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weigh {
    /// Every flow weighs the same.
    Equally,
    /// A flow weighs its size in bytes.
    BySize,
}

impl Weigh {
    /// The weight of a flow, a whole number.
    fn of(self, view: &CoflowTable, at: FlowRef) -> f64 {
        match self {
            Weigh::Equally => 1.0,
            // The size when whole, not what is left: it does not change as the flow moves, so a tier needs no filling meanwhile.
            Weigh::BySize => view.flow(at).size().0 as f64,
        }
    }
}

/// The flows of a tier.
#[derive(Debug)]
enum Members {
    /// Where all paths are of two links.
    Pairs(Pairs),
    Listed(Listed),
}

impl Default for Members {
    fn default() -> Members {
        Members::Pairs(Pairs::default())
    }
}

/// A tier as last filled.
#[derive(Debug, Default)]
struct Tier {
    coflows: Vec<Member>,
    links: Vec<LinkId>,
    flows: Members,
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
    candidates: Candidates,
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
        if self.coflows.iter().copied().eq(members.clone()) {
            return Flows::Same;
        }
        // The same but for the number of live flows: nothing joined, so the lists can be thinned in place of built anew.
        let but_ends = |member: Member| Member { live: 0, ..member };
        let fewer = self.coflows.iter().copied().map(but_ends).eq(members.clone().map(but_ends));
        let live = |coflows: &[Member]| coflows.iter().map(|member| member.live).sum::<usize>();
        let before = live(&self.coflows);
        self.coflows.clear();
        self.coflows.extend(members);
        if !fewer || !self.leave(view, before - live(&self.coflows), weigh, &mut scratch.place) {
            self.enter(view, coflows, weigh, &mut scratch.place);
        }
        if fewer { Flows::Fewer } else { Flows::Others }
    }

    /// Takes out so many flows, which have ended since the last plan; whether they are all that is known to have
    /// ended, and enough are left for the tier to be kept.
    fn leave(&mut self, view: &CoflowTable, number: usize, weigh: Weigh, place: &mut [u32]) -> bool {
        match &mut self.flows {
            Members::Listed(listed) => {
                listed.leave(number);
                !listed.is_thin()
            }
            Members::Pairs(pairs) => {
                let of_tier = |at: &&FlowRef| self.coflows.iter().any(|member| member.slot == at.coflow);
                let gone = view.changes().gone.iter().filter(of_tier);
                // Flows that left in another way than the changes of this plan say: the sums cannot be corrected, and are built anew.
                if gone.clone().count() != number {
                    return false;
                }
                (0u32..).zip(&self.links).for_each(|(at, link)| place[link.index()] = at);
                gone.for_each(|&at| pairs.end(view, at, weigh, place));
                self.links.iter().for_each(|link| place[link.index()] = NO_LINK);
                !pairs.is_thin()
            }
        }
    }

    fn enter(&mut self, view: &CoflowTable, coflows: &[Slot], weigh: Weigh, place: &mut [u32]) {
        self.links.clear();
        for link in coflows.iter().flat_map(|&slot| view.coflow(slot).links()) {
            if place[link.index()] == NO_LINK {
                place[link.index()] = self.links.len() as u32;
                self.links.push(*link);
            }
        }
        let links = self.links.len();
        self.flows = match Pairs::new(view, coflows, weigh, place, links) {
            Some(pairs) => Members::Pairs(pairs),
            None => Members::Listed(Listed::new(view, coflows, weigh, place, links)),
        };
        self.links.iter().for_each(|link| place[link.index()] = NO_LINK);
    }

    /// Takes over what is left of every link for this tier; whether that is something else on any, with what
    /// it was then in `changed`.
    fn take_offers(&mut self, residual: &Residual, changed: &mut Vec<(usize, f64)>) -> bool {
        changed.clear();
        // NaN differs from everything, so a link that was offered nothing yet counts as changed.
        self.offered.resize(self.links.len(), f64::NAN);
        for (at, (&link, offered)) in self.links.iter().zip(&mut self.offered).enumerate() {
            let before = std::mem::replace(offered, residual.left(link));
            if before != *offered {
                changed.push((at, before));
            }
        }
        !changed.is_empty()
    }

    /// Corrects the levels of links that became full, or are full no more, though no rate is another for it: senders
    /// take them for what receivers have for them. Whether there were any.
    fn relabel(&mut self, changed: &[(usize, f64)]) -> bool {
        let mut any = false;
        for &(link, before) in changed {
            let is_full = self.offered[link] <= 0.0;
            if is_full != (before <= 0.0) {
                self.levels[link] = if is_full { 0.0 } else { f64::INFINITY };
                any = true;
            }
        }
        any
    }

    /// Whether rates may be others after offers have changed. They are not where a changed link limits no flow
    /// and still has what is taken of it: every flow has its limit where it had it. Nor where a link opens
    /// and all its flows cross other full ones.
    fn is_moved(&self, view: &CoflowTable, changed: &[(usize, f64)]) -> bool {
        let has_open = |link: usize| match &self.flows {
            Members::Listed(listed) => listed.has_open(view, link, &self.offered),
            Members::Pairs(pairs) => pairs.has_open(link, &self.offered),
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
        self.tiers.resize_with(self.tiers.len().max(first + 1), Tier::default);
        // Taken out while it is filled, which needs the scratch memory of `self` too; it goes back below.
        let mut tier = std::mem::take(&mut self.tiers[first]);
        let flows = tier.update(view, coflows, weigh, &mut self.scratch);
        let moved = tier.take_offers(residual, &mut self.changed);
        let stale = flows != Flows::Same || (moved && tier.is_moved(view, &self.changed));
        let is_new = if stale {
            self.fill(view, &mut tier) || flows == Flows::Others
        } else {
            tier.relabel(&self.changed)
        };
        if is_new {
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
        let Tier { flows, offered, taken, levels, .. } = tier;
        levels.extend(offered.iter().map(|&left| if left > 0.0 { f64::INFINITY } else { 0.0 }));
        taken.clone_from(offered);
        match flows {
            Members::Listed(listed) => listed.fill(view, taken, levels, &mut self.scratch),
            Members::Pairs(pairs) => pairs.fill(taken, levels, &mut self.scratch),
        }
        // What is left of each link so far.
        taken.iter_mut().zip(offered).for_each(|(taken, offered)| *taken = *offered - taken.max(0.0));
        before != *levels
    }
}

//! Going on from the last walk where only flows with a grant have ended.
//!
//! # Problem
//! Between two arrivals of coflows, thousands of flows end one by one, and each time the walk would hand
//! out hundreds of grants of which it changes a few.
//!
//! # Approach
//! While nothing but time passes, every rate stays what it is: a flow with a grant moves faster than its
//! coflow's drain would have it, so on its links MADD needs less of the capacity and leaves more, by just
//! what keeps the sum of drain and extra the same; the bottlenecks of MADD are full and carry no grants.
//! So when flows end, the new walk is the last one but for the places that follow from those ends. They
//! are visited in the order of the walk, as a ripple that goes from link to link.
//!
//! # Terminology
//! * place: where the walk looks at a (coflow, source, destination).
//! * stirred link: one on which a grant before the current place is not what it was.
//!
//! # Pseudo-code
//! ```text
//! places = those of grants whose flow has ended
//! while there are places: take the first
//!     extra = least left over the two links; grant it to the first live flow of the pair
//!     for link of the two:
//!         if it was and is filled just here: what follows on it is as before
//!         else it is stirred, and its next place is the first of
//!             the next grant of the last walk on it
//!             if it is not full, the next live flow after the place where it was filled whose other link
//!             is not full there either
//! ```
//! Before the place where a link was filled, a flow on it without a grant had its other link full. If that
//! one is open now, it is stirred, and the place is found from there.
//!
//! # Properties
//! * The grants are those of a walk from the beginning (a test compares).
//! * Cost: about 20 places where the whole walk has 200 (Facebook trace).
//! * What is left of a link is computed anew from capacity, demand and grants whenever it is stirred, so
//!   rounding does not pile up.

use super::walk::{Granted, NEVER, Place, Walk};
use super::{Backfill, Residual};
use crate::bits::members;
use crate::{CoflowTable, FlowRef, Grant, Plan, Slot};
use weir_model::LinkId;

/// A link on which an earlier grant is not what it was.
#[derive(Clone, Copy, Debug)]
struct Stirred {
    link: usize,
    /// What is left of it after the last place visited on it.
    left: f64,
    /// Where the last walk filled it.
    filled_before: Place,
    next: Place,
}

/// What is under way while the walk goes on; empty in between.
#[derive(Debug, Default)]
pub(super) struct Ripple {
    stirred: Vec<Stirred>,
    /// Per link, its place in `stirred` + 1.
    stirred_at: Vec<u32>,
    /// Hosts with a stirred link that is not full: words of sources, of destinations.
    open: [Vec<u64>; 2],
    ended: Vec<Place>,
}

impl Backfill {
    /// Adds to a plan that continues the last one the grants that change because flows ended when their
    /// grant had moved all they had. False if there is no walk to go on from. `reserved` is what was taken of each
    /// link, beside what the coflows in order move by; none where it is empty.
    pub fn go_on(
        &mut self,
        view: &CoflowTable,
        order: &[Slot],
        residual: &Residual,
        reserved: &[f64],
        plan: &mut Plan,
    ) -> bool {
        if !self.walk.is_known() {
            return false;
        }
        let words = self.walk.hosts().div_ceil(64);
        self.ripple.stirred_at.resize(2 * self.walk.hosts(), 0);
        // Coflows out of the order move within what is reserved.
        for (slot, drain) in view.drains() {
            self.drains[slot.0 as usize] = if self.walk.has_rank(slot) { drain } else { 0.0 };
        }
        self.ripple.open.iter_mut().for_each(|open| open.resize(words, 0));
        for &at in &view.changes().ended {
            let Some(class) = view.flow(at).class() else { continue };
            let class = &view.classes()[class.index()];
            let (source, destination) = (class.source().index(), class.destination().index());
            self.ripple.ended.push(Place::new(self.walk.rank(at.coflow), source, destination));
        }
        // Falling, so that the first place of the walk is popped from the end.
        self.ripple.ended.sort_unstable_by(|a, b| b.cmp(a));
        let (walk, ripple, drains) = (&mut self.walk, &mut self.ripple, &self.drains);
        GoOn { view, order, residual, reserved, drains, walk, ripple, plan }.run();
        true
    }
}

/// One continuation of a walk.
struct GoOn<'a> {
    view: &'a CoflowTable,
    order: &'a [Slot],
    residual: &'a Residual,
    reserved: &'a [f64],
    /// Drain per slot, now.
    drains: &'a [f64],
    walk: &'a mut Walk,
    ripple: &'a mut Ripple,
    plan: &'a mut Plan,
}

impl GoOn<'_> {
    fn run(&mut self) {
        loop {
            let stirred = self.ripple.stirred.iter().map(|stirred| stirred.next).min();
            let ended = self.ripple.ended.last().copied();
            // The ripple may reach a place at which a flow has ended as well: it is visited once
            // for both.
            let place = stirred.unwrap_or(NEVER).min(ended.unwrap_or(NEVER));
            if place == NEVER {
                return;
            }
            if ended == Some(place) {
                self.ripple.ended.pop();
            }
            self.visit(place);
        }
    }

    /// Makes the grant at a place as the walk would now.
    fn visit(&mut self, place: Place) {
        let (rank, source, destination) = place.parts();
        let links = [2 * source, 2 * destination + 1];
        let before = self.walk.find(links[0], place).copied();
        let open = links.iter().all(|&link| self.walk.filled[link] > place);
        if before.is_none() && !open {
            // A link was filled since this place was found.
            links.into_iter().for_each(|link| self.find_next(link, place));
            return;
        }
        let slot = self.order[rank];
        let coflow = self.view.coflow(slot);
        let before = before.map(|before| (before, self.view.flow(before.flow).live()));
        if let Some((before, true)) = before
            && self.stays(&before, links)
        {
            links.into_iter().for_each(|link| self.find_next(link, place));
            return;
        }
        // The coflow may have other live flows between the two hosts than the one that ended.
        let live = coflow.destinations_of(source)[destination / 64] >> (destination % 64) & 1 == 1;
        let mut left = links.map(|link| self.left_before(link, place));
        // What is left is a difference of sums, and may be a little below 0.
        let extra = if live { left[0].min(left[1]).max(0.0) } else { 0.0 };
        let same = before.is_some_and(|(before, live)| live && self.is_same(&before, extra, links));
        if same {
            // Links that are not stirred stay so.
        } else if extra > 0.0 {
            let flow = FlowRef { coflow: slot, flow: coflow.row(source).0.first(destination) };
            let bytes_per_sec = extra + self.drained(flow);
            let granted = Granted { place, flow, bytes_per_sec };
            match self.walk.find(links[0], place) {
                Some(entry) => *entry = granted,
                None => self.walk.insert(links, granted),
            }
            self.plan.grants.push(Grant { flow, bytes_per_sec });
        } else if let Some((before, still_live)) = before {
            self.walk.remove(links, place);
            if still_live {
                // A plan that continues the last one names changes only: without a word the flow would keep its grant.
                self.plan.grants.push(Grant { flow: before.flow, bytes_per_sec: 0.0 });
            }
        }
        for (left, link) in left.iter_mut().zip(links) {
            *left -= extra;
            if self.residual.is_dust(LinkId(link as u32), *left) {
                *left = 0.0;
            }
            if !same || self.stirred(link).is_some() {
                self.stir(link, place, *left);
            }
        }
        links.into_iter().for_each(|link| self.find_next(link, place));
    }

    /// Whether a live flow is to get what it gets beside its drain, but for the rounding of sums: what was
    /// taken from its links upstream has been given back.
    fn is_same(&self, granted: &Granted, extra: f64, links: [usize; 2]) -> bool {
        let change = (extra - (granted.bytes_per_sec - self.drained(granted.flow))).abs();
        links.iter().all(|&link| self.residual.is_dust(LinkId(link as u32), change))
    }

    /// Whether a grant stays what it was, because it fills a link that is not stirred and the other has
    /// more than that left; takes it from the other.
    fn stays(&mut self, granted: &Granted, links: [usize; 2]) -> bool {
        let at = links.map(|link| self.ripple.stirred_at[link] as usize);
        let (at, other) = match at {
            [0, 0] => return false,
            [0, at] => (at - 1, links[0]),
            [at, 0] => (at - 1, links[1]),
            _ => return false,
        };
        if self.walk.filled[other] != granted.place {
            return false;
        }
        let stirred = &self.ripple.stirred[at];
        let left = stirred.left - (granted.bytes_per_sec - self.drained(granted.flow));
        if self.residual.is_dust(LinkId(stirred.link as u32), left) {
            return false;
        }
        self.ripple.stirred[at].left = left;
        true
    }

    /// What the drain of its coflow gives a flow.
    #[inline]
    fn drained(&self, flow: FlowRef) -> f64 {
        match self.drains[flow.coflow.0 as usize] {
            // Without a drain what is left of the flow need not be computed.
            0.0 => 0.0,
            drain => drain * self.view.remaining(flow),
        }
    }

    /// What is left of a link before a place whose walk so far is the new one.
    fn left_before(&self, link: usize, place: Place) -> f64 {
        if let Some(stirred) = self.stirred(link) {
            return stirred.left;
        }
        let id = LinkId(link as u32);
        let mut left = self.residual.capacity(id) - self.reserved.get(link).unwrap_or(&0.0);
        // Drains of all coflows, whatever their rank: MADD has served all of them before the walk
        // begins.
        for (slot, _) in self.view.drains() {
            left -= self.drains[slot.0 as usize] * self.view.demand(slot, id);
        }
        for granted in self.walk.on_link(link).take_while(|granted| granted.place < place) {
            left -= granted.bytes_per_sec - self.drained(granted.flow);
        }
        if self.residual.is_dust(id, left) { 0.0 } else { left }
    }

    #[inline]
    fn stirred(&self, link: usize) -> Option<&Stirred> {
        self.ripple.stirred.get((self.ripple.stirred_at[link] as usize).wrapping_sub(1))
    }

    /// Notes what is left of a link after a place.
    fn stir(&mut self, link: usize, place: Place, left: f64) {
        let now = if left == 0.0 { place } else { NEVER };
        match self.ripple.stirred_at[link] {
            0 if self.walk.filled[link] == place && now == place => return,
            0 => {
                let filled_before = std::mem::replace(&mut self.walk.filled[link], NEVER);
                self.ripple.stirred.push(Stirred { link, left, filled_before, next: NEVER });
                self.ripple.stirred_at[link] = self.ripple.stirred.len() as u32;
            }
            at => self.ripple.stirred[at as usize - 1].left = left,
        }
        // Once full it stays full; it was filled where that was first seen.
        self.walk.filled[link] = self.walk.filled[link].min(now);
        self.set_open(link, left > 0.0);
    }

    fn set_open(&mut self, link: usize, open: bool) {
        let (side, host) = (link % 2, link / 2);
        let (word, bit) = (&mut self.ripple.open[side][host / 64], 1 << (host % 64));
        *word = if open { *word | bit } else { *word & !bit };
    }

    /// Finds the next place of a link just visited, if it is stirred. Without one it is as it will be.
    fn find_next(&mut self, link: usize, place: Place) {
        let at = self.ripple.stirred_at[link] as usize;
        if at == 0 {
            return;
        }
        let stirred = self.ripple.stirred[at - 1];
        let mut next = self.walk.next_on_link(link, place);
        if stirred.left > 0.0 {
            let from = place.max(stirred.filled_before).next();
            next = next.min(self.next_open(link, from, next));
        }
        self.ripple.stirred[at - 1].next = next;
        if next == NEVER {
            self.settle(at - 1);
        }
    }

    /// A stirred link on which nothing more changes is as it will be.
    fn settle(&mut self, at: usize) {
        // The last stirred link takes this place, and `stirred_at` must follow.
        let stirred = self.ripple.stirred.swap_remove(at);
        self.ripple.stirred_at[stirred.link] = 0;
        if let Some(moved) = self.ripple.stirred.get(at) {
            self.ripple.stirred_at[moved.link] = at as u32 + 1;
        }
        self.set_open(stirred.link, false);
        self.walk.move_filled(stirred.link, stirred.filled_before, self.walk.filled[stirred.link]);
    }

    /// The first place from `from` on and before `until` of a live flow on a link whose other link is not
    /// full there.
    fn next_open(&self, link: usize, from: Place, until: Place) -> Place {
        if from >= until {
            return NEVER;
        }
        let (side, host) = (link % 2, link / 2);
        let (first, _, _) = from.parts();
        let other = 1 - side;
        for rank in first..self.walk.ranks() {
            if Place::new(rank, 0, 0) >= until {
                return NEVER;
            }
            let coflow = self.view.coflow(self.order[rank]);
            let live = if side == 0 { coflow.destinations_of(host) } else { coflow.sources_of(host) };
            let open = self.walk.open(other, rank).iter().zip(&self.ripple.open[other]);
            for (word, (live, (open, stirred))) in live.iter().zip(open).enumerate() {
                for bit in members(live & (open | stirred)) {
                    let peer = word * 64 + bit;
                    let (source, destination) = if side == 0 { (host, peer) } else { (peer, host) };
                    let place = Place::new(rank, source, destination);
                    if place >= from && self.walk.filled[2 * peer + other] > place {
                        return place;
                    }
                }
            }
        }
        NEVER
    }
}

//! Tiers as lists of flows: any number of coflows, any weights, any paths.

use super::{NO_LINK, Scratch, Weigh};
use crate::{CoflowTable, FlowRef, Slot};
use weir_model::MAX_PATH_LINKS;

/// A flow, and where its links stand among those of its tier.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: FlowRef,
    weight: f64,
    links: [u32; MAX_PATH_LINKS],
}

impl Entry {
    fn links(&self) -> impl Iterator<Item = usize> + use<> {
        self.links.into_iter().take_while(|&link| link != NO_LINK).map(|link| link as usize)
    }
}

/// The flows of a tier; some may have ended since.
#[derive(Debug)]
pub(super) struct Listed {
    entries: Vec<Entry>,
    /// Per link, where its entries begin in `crossing`.
    begins: Vec<u32>,
    crossing: Vec<u32>,
    /// How many of the flows are live.
    live: usize,
}

impl Listed {
    /// All live flows of some coflows; `place` says where in the tier a link of the fabric stands.
    pub(super) fn new(
        view: &CoflowTable,
        coflows: &[Slot],
        weigh: Weigh,
        place: &[u32],
        links: usize,
    ) -> Listed {
        let begins = vec![0; links + 1];
        let mut listed = Listed { entries: Vec::new(), begins, crossing: Vec::new(), live: 0 };
        for &slot in coflows {
            for (flow, known) in (0u32..).zip(view.coflow(slot).flows()).filter(|(_, flow)| flow.live()) {
                let Some(class) = known.class() else { continue };
                let mut links = [NO_LINK; MAX_PATH_LINKS];
                let path = view.classes()[class.index()].path().iter();
                path.zip(&mut links).for_each(|(link, at)| *at = place[link.index()]);
                let at = FlowRef { coflow: slot, flow };
                listed.entries.push(Entry { at, weight: weigh.of(view, at), links });
            }
        }
        listed.sort_by_link();
        listed.live = listed.entries.len();
        listed
    }

    /// Notes that so many of the flows have ended.
    pub(super) fn leave(&mut self, number: usize) {
        self.live = self.live.saturating_sub(number);
    }

    /// Whether most of the flows that it was made of have ended.
    pub(super) fn is_thin(&self) -> bool {
        self.live * 2 < self.entries.len()
    }

    /// Lists the entries of every link.
    fn sort_by_link(&mut self) {
        for entry in &self.entries {
            // A counting sort by link: numbers per link first, then their sums as the ends of groups.
            entry.links().for_each(|link| self.begins[link] += 1);
        }
        let mut sum = 0;
        for begin in &mut self.begins {
            sum += *begin;
            *begin = sum;
        }
        self.crossing.resize(sum as usize, 0);
        // From the last entry to the first, each link's mark walks down to where its entries begin.
        for (at, entry) in self.entries.iter().enumerate().rev() {
            for link in entry.links() {
                self.begins[link] -= 1;
                self.crossing[self.begins[link] as usize] = at as u32;
            }
        }
    }

    fn entries_on(&self, link: usize) -> &[u32] {
        &self.crossing[self.begins[link] as usize..self.begins[link + 1] as usize]
    }

    fn is_open(&self, view: &CoflowTable, entry: &Entry, offered: &[f64]) -> bool {
        entry.links().all(|link| offered[link] > 0.0) && view.flow(entry.at).live()
    }

    /// Whether a flow on a link crosses no full one.
    pub(super) fn has_open(&self, view: &CoflowTable, link: usize, offered: &[f64]) -> bool {
        self.entries_on(link).iter().any(|&at| self.is_open(view, &self.entries[at as usize], offered))
    }

    /// Fills: takes from what is left of every link, and sets the levels of those that limit flows.
    pub(super) fn fill(
        &self,
        view: &CoflowTable,
        left: &mut [f64],
        levels: &mut [f64],
        scratch: &mut Scratch,
    ) {
        let Scratch { weights, open, candidates, .. } = scratch;
        weights.clear();
        weights.resize(left.len(), 0.0);
        open.clear();
        for entry in &self.entries {
            let is_open = self.is_open(view, entry, left);
            open.push(is_open);
            if is_open {
                entry.links().for_each(|link| weights[link] += entry.weight);
            }
        }
        // Weights are whole numbers: what is left of their sum is 0 or at least 1.
        let share = |left: f64, weight: f64| (weight > 0.5).then(|| left.max(0.0) / weight);
        candidates.start(left.iter().zip(&*weights).map(|(&left, &weight)| share(left, weight)));
        while let Some((link, level)) = candidates.next(|link| share(left[link], weights[link])) {
            levels[link] = level;
            // No weight: the heap drops the link when it meets it again.
            (left[link], weights[link]) = (0.0, 0.0);
            for &at in self.entries_on(link) {
                if !std::mem::take(&mut open[at as usize]) {
                    continue;
                }
                let entry = &self.entries[at as usize];
                for other in entry.links().filter(|&other| other != link) {
                    left[other] -= level * entry.weight;
                    weights[other] -= entry.weight;
                }
            }
        }
    }
}

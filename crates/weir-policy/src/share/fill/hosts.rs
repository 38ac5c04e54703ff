//! A tier of one coflow on a switch, with at most one flow between two hosts: its sets of hosts say who shares
//! what with whom, and no list of flows is needed.

use super::Scratch;
use crate::Coflow;
use crate::bits::members;
use weir_model::LinkId;

/// Hosts whose own link is not full: words of sources, of destinations.
#[derive(Debug, Default)]
pub(super) struct OpenHosts {
    hosts: usize,
    sources: Vec<u64>,
    destinations: Vec<u64>,
}

impl OpenHosts {
    /// Those that links have something left for.
    pub(super) fn set(&mut self, links: &[LinkId], offered: &[f64], hosts: usize) {
        self.hosts = hosts;
        for words in [&mut self.sources, &mut self.destinations] {
            words.clear();
            words.resize(hosts.div_ceil(64), 0);
        }
        for (link, _) in links.iter().zip(offered).filter(|(_, offered)| **offered > 0.0) {
            let (words, host) = self.side(link.index());
            words[host / 64] |= 1 << (host % 64);
        }
    }

    fn side(&mut self, link: usize) -> (&mut [u64], usize) {
        match link.checked_sub(self.hosts) {
            None => (&mut self.sources, link),
            Some(host) => (&mut self.destinations, host),
        }
    }

    fn close(&mut self, link: usize) {
        let (words, host) = self.side(link);
        words[host / 64] &= !(1 << (host % 64));
    }

    /// The other ends of a coflow's open flows on a link, as words, and the link of the first of all hosts.
    fn others<'a>(&'a self, coflow: &'a Coflow, link: usize) -> (impl Iterator<Item = u64> + 'a, usize) {
        let (ends, open, first) = match link.checked_sub(self.hosts) {
            None => (coflow.destinations_of(link), &self.destinations, self.hosts),
            Some(host) => (coflow.sources_of(host), &self.sources, 0),
        };
        (ends.iter().zip(open).map(|(ends, open)| ends & open), first)
    }
}

/// Whether no two live flows of a coflow have the same ends.
pub(super) fn has_one_flow_per_pair(coflow: &Coflow) -> bool {
    let of_source =
        |source| coflow.row(source).1.iter().map(|word| word.count_ones() as usize).sum::<usize>();
    coflow.sources().iter().map(of_source).sum::<usize>() == coflow.live_flows()
}

/// Whether a flow on a link crosses no full one.
pub(super) fn has_open(coflow: &Coflow, link: LinkId, open: &OpenHosts) -> bool {
    open.others(coflow, link.index()).0.any(|word| word != 0)
}

/// What is known of the links of the switch while a tier is filled.
#[derive(Debug, Default)]
pub(super) struct Links {
    left: Vec<f64>,
    /// Open flows.
    flows: Vec<f64>,
    /// Links that may limit somebody: where they stand in the tier, and a lower bound of their share.
    candidates: Vec<u32>,
    bounds: Vec<f64>,
}

/// Fills: takes from what is left of every link, and sets the levels of those that limit somebody. Open hosts
/// are set for what is left.
pub(super) fn fill(
    coflow: &Coflow,
    links: &[LinkId],
    left: &mut [f64],
    levels: &mut [f64],
    scratch: &mut Scratch,
) {
    let Scratch { hosts: open, by_hosts: known, .. } = scratch;
    known.left.resize(2 * open.hosts, 0.0);
    known.flows.resize(2 * open.hosts, 0.0);
    known.candidates.clear();
    known.bounds.clear();
    for (at, link) in (0u32..).zip(links.iter().map(|link| link.index())) {
        known.left[link] = left[at as usize];
        known.flows[link] = open.others(coflow, link).0.map(|word| f64::from(word.count_ones())).sum();
        if left[at as usize] > 0.0 && known.flows[link] > 0.5 {
            known.candidates.push(at);
            known.bounds.push(known.left[link] / known.flows[link]);
        }
    }
    while let Some((at, level)) = known.next_level(links) {
        let link = links[at].index();
        levels[at] = level;
        let (words, first) = open.others(coflow, link);
        for (word, base) in words.zip((first..).step_by(64)) {
            let end = known.left.len().min(base + 64);
            let (left, flows) = (&mut known.left[base..end], &mut known.flows[base..end]);
            for other in members(word) {
                left[other] -= level;
                flows[other] -= 1.0;
            }
        }
        known.left[link] = 0.0;
        open.close(link);
    }
    links.iter().zip(left).for_each(|(link, left)| *left = known.left[link.index()]);
}

impl Links {
    /// Takes out the candidate with the least share: where it stands in the tier, and its share. A share only
    /// grows while others are taken.
    fn next_level(&mut self, links: &[LinkId]) -> Option<(usize, f64)> {
        loop {
            let less = |least: f64, &bound: &f64| if bound < least { bound } else { least };
            let least = self.bounds.iter().fold(f64::INFINITY, less);
            let best = self.bounds.iter().position(|&bound| bound == least)?;
            let at = self.candidates[best] as usize;
            let link = links[at].index();
            let share = self.left[link].max(0.0) / self.flows[link];
            if self.flows[link] > 0.5 && share > least {
                self.bounds[best] = share;
                continue;
            }
            self.candidates.swap_remove(best);
            self.bounds.swap_remove(best);
            if self.flows[link] > 0.5 {
                return Some((at, share));
            }
        }
    }
}

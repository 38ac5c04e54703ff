//! Links by the share they have for each of their open flows, least first.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// A link of a tier, and a lower bound of its share: a share only grows while other links, with lesser ones,
/// are taken.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    bound: f64,
    at: u32,
}

impl Candidate {
    fn key(&self, other: &Candidate) -> Ordering {
        self.bound.total_cmp(&other.bound).then(self.at.cmp(&other.at))
    }
}
impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.key(other).is_eq()
    }
}
impl Eq for Candidate {}
impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.key(other)
    }
}

/// Links that may limit flows of the tier.
#[derive(Debug, Default)]
pub(super) struct Candidates(BinaryHeap<Reverse<Candidate>>);

impl Candidates {
    /// Starts with the shares of all links of a tier; none where a link has no open flow or nothing left.
    pub(super) fn start(&mut self, shares: impl Iterator<Item = Option<f64>>) {
        let mut links = std::mem::take(&mut self.0).into_vec();
        links.clear();
        let some =
            (0u32..).zip(shares).filter_map(|(at, bound)| Some(Reverse(Candidate { bound: bound?, at })));
        links.extend(some);
        self.0 = BinaryHeap::from(links);
    }

    /// Takes out the link with the least share: where it stands in the tier, and its share. `share_of` says what
    /// that is by now; none without open flows.
    pub(super) fn next(&mut self, share_of: impl Fn(usize) -> Option<f64>) -> Option<(usize, f64)> {
        loop {
            let mut least = self.0.peek_mut()?;
            let Candidate { bound, at } = least.0;
            match share_of(at as usize) {
                // Stale: `PeekMut` sifts the link down when it is dropped, and the next least is looked at.
                Some(share) if share > bound => least.0.bound = share,
                share => {
                    PeekMut::pop(least);
                    if let Some(share) = share {
                        return Some((at as usize, share));
                    }
                }
            }
        }
    }
}

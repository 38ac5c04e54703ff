//! Minimum Remaining Time First: the coflow that its slowest link would be done with soonest, by what bandwidth is
//! estimated to be (Siphon, USENIX ATC 2018, section 3.1, which compares with it).
//!
//! With capacities that never change it is SEBF. Where they do, the estimate decides, and a new coflow is not put
//! behind others because a link is slow just now: see [`Estimate`].

use super::bandwidth::{Bandwidths, Estimate};
use super::{Keyed, Order};
use crate::{CoflowTable, Slot};
use weir_model::{Fabric, LinkId};

/// The order, with what was seen of links.
pub struct MinimumRemainingTime {
    by: Estimate,
    bandwidths: Bandwidths,
    /// Per link, one over the estimate.
    inverse: Vec<f64>,
    keyed: Keyed,
}

impl MinimumRemainingTime {
    /// The order by this estimate of the links' bandwidths.
    pub fn new(by: Estimate) -> MinimumRemainingTime {
        MinimumRemainingTime {
            by,
            bandwidths: Bandwidths::default(),
            inverse: Vec::new(),
            keyed: Keyed::default(),
        }
    }
}

impl Order for MinimumRemainingTime {
    fn set_fabric(&mut self, fabric: &Fabric) {
        self.bandwidths.observe(fabric);
        let links = (0..fabric.links().len() as u32).map(LinkId);
        self.inverse = links.map(|link| 1.0 / self.bandwidths.estimate(link, self.by)).collect();
    }

    fn sort(&mut self, view: &CoflowTable, sorted: &mut Vec<Slot>) {
        let inverse = &self.inverse;
        self.keyed.sort(view, sorted, |slot, coflow| {
            let secs = |&link: &LinkId| view.demand(slot, link) * inverse[link.index()];
            coflow.links().iter().map(secs).fold(0.0, f64::max)
        });
    }
}

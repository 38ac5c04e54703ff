//! Smallest effective bottleneck first, where a coflow may take every way there is.
//!
//! SEBF asks how long a coflow would need with the network to itself; between sites that time is not that of direct
//! links but of the best routes (`route/`). Links of hosts, which every way crosses, count as in SEBF, and so does all of
//! a fabric without sites. Ties break by (arrival, id).

use super::{Keyed, Order};
use crate::route::{Router, SiteNetwork};
use crate::{CoflowTable, Slot};
use std::sync::Arc;
use weir_model::Fabric;

/// The order, with the links of the last fabric.
pub struct RoutedBottleneck {
    router: Arc<dyn Router>,
    network: SiteNetwork,
    inverse_capacity: Vec<f64>,
    keyed: Keyed,
}

impl RoutedBottleneck {
    /// The order by the makespan of this router's routes.
    pub fn new(router: Arc<dyn Router>) -> RoutedBottleneck {
        RoutedBottleneck {
            router,
            network: SiteNetwork::default(),
            inverse_capacity: Vec::new(),
            keyed: Keyed::default(),
        }
    }
}

impl Order for RoutedBottleneck {
    fn set_fabric(&mut self, fabric: &Fabric) {
        self.network = SiteNetwork::of(fabric);
        let inverse = fabric.links().iter().map(|link| 1.0 / link.capacity.bytes_per_sec());
        self.inverse_capacity = inverse.collect();
    }

    fn sort(&mut self, view: &CoflowTable, sorted: &mut Vec<Slot>) {
        let RoutedBottleneck { router, network, inverse_capacity, keyed } = self;
        keyed.sort(view, sorted, |slot, coflow| {
            let others = coflow.links().iter().filter(|&&link| !network.is_between_sites(link));
            let secs = others.map(|&link| view.demand(slot, link) * inverse_capacity[link.index()]);
            let between = network.demand(view, slot);
            secs.fold(between.map_or(0.0, |demand| router.route(&demand).makespan_s()), f64::max)
        });
    }
}

//! Which coflow goes first.

mod ancestry;
pub mod attained;
pub mod bandwidth;
pub mod branches;
pub mod classes;
mod critical_path;
mod fifo;
pub mod graph;
pub mod left;
pub mod monte_carlo;
mod mrtf;
mod open_shop;
mod routed;
mod sebf;
pub mod simulation;
pub mod tally;
pub mod whole;

use crate::{Coflow, CoflowTable, Slot};
use weir_model::Fabric;

pub use ancestry::AncestorsFirst;
pub use critical_path::CriticalPath;
pub use fifo::ByArrival;
pub use mrtf::MinimumRemainingTime;
pub use open_shop::OpenShop;
pub use routed::RoutedBottleneck;
pub use sebf::Sebf;

/// An order of the live coflows.
pub trait Order: Send {
    /// Replaces `sorted` by all live coflows, first to be served first. Ties break by (arrival, id).
    fn sort(&mut self, view: &CoflowTable, sorted: &mut Vec<Slot>);

    /// Says what the links of the fabric are, before the first order and whenever their capacities are not
    /// what they were.
    fn set_fabric(&mut self, fabric: &Fabric) {
        let _ = fabric;
    }
}

/// Sorts coflows by a number, ties by (arrival, id); keeps its memory.
#[derive(Default)]
struct Keyed(Vec<(f64, u32, Slot)>);

impl Keyed {
    fn sort(
        &mut self,
        view: &CoflowTable,
        sorted: &mut Vec<Slot>,
        mut key: impl FnMut(Slot, &Coflow) -> f64,
    ) {
        self.0.clear();
        let ranked = (0u32..).zip(view.coflows());
        self.0.extend(ranked.map(|(rank, (slot, coflow))| (key(slot, coflow), rank, slot)));
        // `total_cmp`, as a key that is not a number must not make the order depend on the sort; the rank stands for (arrival, id).
        self.0.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        sorted.clear();
        sorted.extend(self.0.iter().map(|&(_, _, slot)| slot));
    }
}

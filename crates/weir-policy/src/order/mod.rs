//! Which coflow goes first.

mod fifo;
mod sebf;

use crate::{CoflowTable, Slot};
use weir_model::Fabric;

pub use fifo::ByArrival;
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

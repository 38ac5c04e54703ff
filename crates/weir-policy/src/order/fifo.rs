//! First come, first served.

use super::Order;
use crate::{CoflowTable, Slot};

/// Coflows by (arrival, id), the order of the table itself.
pub struct ByArrival;

impl Order for ByArrival {
    fn sort(&mut self, view: &CoflowTable, sorted: &mut Vec<Slot>) {
        sorted.clear();
        sorted.extend_from_slice(view.slots());
    }
}

//! Coflows that come behind their bookings.
//!
//! # Problem
//! In a simulator every coflow moves as it was booked. In a running system it may have moved less, or a link may
//! have lost capacity: then bookings together ask for more than there is, and the last piece of one ends before
//! the coflow does.
//!
//! # Approach
//! No coflow is turned away for it. A coflow whose last piece is over goes on as fast as it can, for a while, and
//! coflows give way to those that are due before them, so that lost time is made up by coflows with time to spare.
//!
//! # Properties
//! * No link is given more than its capacity.
//! * Coflows that move as booked are not touched: their drains fit.
//!
//! # Departures
//! Varys, section 5.4, has the rates of admitted coflows follow what they have left and does not say what happens
//! when that no longer fits; this is ours.

use super::{Admission, Booking, drain_within};
use crate::{CoflowTable, Slot};
use weir_model::{Fabric, Span, Time};

/// A coflow that should have ended is to do so within this time, if its links let it,
const SOON: Span = Span::from_millis(20);
/// and goes before others until it is late by this share of its time.
const GRACE: f64 = 0.1;
/// Drains that exceed what is left by less than this share fit: rounding.
const ROUNDING: f64 = 1e-6;

impl Booking {
    /// The least drain of a coflow that has no piece now: none between pieces, all it can have after the last.
    pub(super) fn drain_when_late(&self, now: Time) -> f64 {
        // Between two pieces a coflow is in time, and its drain is 0.
        let over = self.pieces.last().is_some_and(|piece| piece.until <= now);
        let allowed = self.due.since(self.arrival).as_secs();
        let gives_up = self.due + Span::from_secs_ceil(allowed * GRACE);
        if over && now < gives_up { drain_within(SOON) } else { 0.0 }
    }
}

impl Admission {
    /// Lowers drains that do not fit, those of coflows due last first.
    pub(super) fn fit_drains(&mut self, fabric: &Fabric, view: &CoflowTable) {
        let mut order: Vec<(Time, usize, Slot)> = Vec::new();
        for (rank, &slot) in view.slots().iter().enumerate() {
            if self.drains.get(slot.0 as usize).is_some_and(|&drain| drain > 0.0) {
                // Due first keeps its drain; where the sum does not fit, the one with the most time left can make up for it later.
                order.push((view.due(slot).unwrap_or(Time::MAX), rank, slot));
            }
        }
        order.sort_unstable();
        let mut left: Vec<f64> = fabric.links().iter().map(|link| link.capacity.bytes_per_sec()).collect();
        for (_, _, slot) in order {
            let drain = &mut self.drains[slot.0 as usize];
            let links = view.coflow(slot).links();
            let share = |link: &weir_model::LinkId| left[link.index()] / (view.demand(slot, *link) * *drain);
            let share = links.iter().map(share).fold(f64::INFINITY, f64::min);
            // One factor for all of the coflow, that of its scarcest link: its flows go on ending
            // together.
            if share < 1.0 - ROUNDING {
                *drain *= share;
            }
            for &link in links {
                // A rest below 0, by rounding, would make the next coflow's factor and drain
                // negative.
                left[link.index()] = (left[link.index()] - view.demand(slot, link) * *drain).max(0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, CoflowId, CoflowSpec, FlowId, FlowSpec, HostId, Rate};

    /// Two coflows of 1 MB each from host 0 to host 1 at 1 MB/s, due after 1.5 s and 2 s, both let in.
    fn both() -> (Fabric, CoflowTable, Admission, [Slot; 2]) {
        let fabric = Fabric::big_switch(2, Rate::from_bytes_per_sec(1e6)).unwrap();
        let (mut table, mut admission) = (CoflowTable::new(&fabric), Admission::default());
        let insert = |(id, due_ms): (u64, u64), table: &mut CoflowTable| {
            let size = Bytes(1_000_000);
            let flow = FlowSpec { source: HostId(0), destination: HostId(1), size, group: 0 };
            let spec = CoflowSpec::new(CoflowId(id), Time::ZERO, vec![flow]);
            let spec = CoflowSpec { deadline: Some(Span::from_millis(due_ms)), ..spec };
            table.insert(&spec, FlowId(id), &fabric)
        };
        let slots = [(1, 1500), (2, 2000)].map(|coflow| insert(coflow, &mut table));
        admission.judge(Time::ZERO, &fabric, &table);
        assert!(admission.refusals().is_empty());
        table.adopt(&crate::Plan::default());
        (fabric, table, admission, slots)
    }

    #[test]
    fn a_coflow_behind_its_booking_goes_on_before_one_that_is_due_later() {
        let (fabric, mut table, mut admission, [first, second]) = both();
        // At 1 s the first should be done, and 0.1 MB of it are left: all of the link until then.
        let flow = table.find_flow(FlowId(1)).unwrap();
        table.set_remaining(flow, 100_000.0);
        let now = Time::from_millis(1000);
        admission.judge(now, &fabric, &table);
        assert!(admission.refusals().is_empty() && admission.is_admitted(first));
        let drains = admission.least_drains(now, &fabric, &table);
        assert!((drains[first.0 as usize] - 10.0).abs() < 1e-6, "0.1 MB at 1 MB/s: {drains:?}");
        assert!(drains[second.0 as usize] < 1e-6, "nothing is left for it: {drains:?}");
    }

    #[test]
    fn a_coflow_that_stays_late_gives_up_its_place() {
        let (fabric, table, mut admission, [first, second]) = both();
        // Nothing has moved. The first was due at 1.5 s, and a tenth of its time is over at 1.65 s.
        let at = Time::from_millis(1700);
        let drains = admission.least_drains(at, &fabric, &table);
        assert_eq!(drains[first.0 as usize], 0.0);
        assert!((drains[second.0 as usize] - 1.0).abs() < 1e-6, "1 MB at 1 MB/s: {drains:?}");
    }
}

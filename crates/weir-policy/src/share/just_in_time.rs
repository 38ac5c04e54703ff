//! Coflows with deadlines end just before them, and leave the rest to others (Karuna, SIGCOMM 2016).
//!
//! # Problem
//! A coflow that ends long before its deadline is worth no more than one that ends just before it, and what it took meanwhile
//! others had to wait for.
//!
//! # Approach
//! A coflow gets the rates by which all its flows end a moment before it is due. Where links do not carry that for all, those that
//! are due first get it; the others are as coflows without a deadline.
//!
//! # Pseudo-code
//! ```text
//! for coflow with a deadline, the one that is due first:
//!     drain = 1 / (due - now)
//!     if bytes left * drain fits into what is left of every link: each flow gets bytes left * drain
//! ```
//!
//! # Properties
//! * The rates of a coflow stay the same until it ends, unless one comes that is due before it.
//! * None gets more than ends it [`BEFORE`] its deadline, also where links are idle.
//!
//! # Departures
//! Karuna's flows find their rates by marks (`weir_endhost::mcp`), and know nothing of others; this is what they come to where all
//! can be met. Where not all can be, MCP yields in between; here the one that is due last gets nothing for its deadline.

use super::Residual;
use crate::bits::BitSet;
use crate::{CoflowTable, FlowRef, Grant, Plan, Slot};
use weir_model::{Span, Time};

/// How long before its deadline a coflow ends.
const BEFORE: Span = Span::from_nanos(1_000);
/// Ends are whole nanoseconds: what was rounded away may be missing of a link that has nothing to spare.
const ROUNDING: f64 = 1e-6;

/// The coflows that will meet their deadlines.
#[derive(Debug, Default)]
pub struct JustInTime {
    by_due: Vec<(Time, Slot)>,
    met: Vec<Slot>,
    is_met: BitSet,
}

impl JustInTime {
    /// Gives coflows with a deadline what they need of what is left, flow by flow.
    pub fn allocate(&mut self, now: Time, view: &CoflowTable, residual: &mut Residual, plan: &mut Plan) {
        self.by_due.clear();
        self.by_due.extend(view.slots().iter().filter_map(|&slot| Some((view.due(slot)?, slot))));
        self.by_due.sort_by_key(|&(due, slot)| (due, view.coflow(slot).arrival(), view.coflow(slot).id()));
        self.met.clear();
        self.is_met = BitSet::new(view.slot_bound());
        for &(due, slot) in &self.by_due {
            let Some(drain) = drain(due.since(now), view, slot, residual) else { continue };
            let coflow = view.coflow(slot);
            coflow.links().iter().for_each(|&link| residual.take(link, view.demand(slot, link) * drain));
            for (flow, state) in (0u32..).zip(coflow.flows()) {
                let flow = FlowRef { coflow: slot, flow };
                if state.live() && state.class().is_some() {
                    plan.grants.push(Grant { flow, bytes_per_sec: view.remaining(flow) * drain });
                }
            }
            self.met.push(slot);
            self.is_met.insert(slot.0 as usize);
        }
    }

    /// The coflows that were given what they need, those that are due first before others.
    pub fn met(&self) -> &[Slot] {
        &self.met
    }

    /// Whether a coflow is among them.
    pub fn meets(&self, slot: Slot) -> bool {
        self.is_met.contains(slot.0 as usize)
    }
}

/// Per second of what each flow has left, where links have that much to spare.
fn drain(left: Span, view: &CoflowTable, slot: Slot, residual: &Residual) -> Option<f64> {
    let (secs, aims) =
        (left.as_secs(), Span::from_nanos(left.nanos().saturating_sub(BEFORE.nanos())).as_secs());
    // Within the last microsecond `aims` is 0 and the drain infinite; the links below bound it.
    let mut drain = 1.0 / aims;
    for &link in view.coflow(slot).links() {
        let (demand, free) = (view.demand(slot, link), residual.left(link));
        if demand > free * secs * (1.0 + ROUNDING) {
            return None;
        }
        if demand > 0.0 {
            // Ending `BEFORE` the deadline asks for slightly more than the check above allows for.
            drain = drain.min(free / demand);
        }
    }
    (drain > 0.0 && drain.is_finite()).then_some(drain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, CoflowId, CoflowSpec, Fabric, FlowId, FlowSpec, HostId, Rate};

    /// Coflows of one flow each from host 0 to host 1, of 1 MB/s: megabytes and milliseconds until due, 0 for no deadline.
    fn allocated(coflows: &[(u64, u64)], now: Time) -> (Vec<f64>, Vec<u32>) {
        let fabric = Fabric::big_switch(2, Rate::from_bytes_per_sec(1e6)).unwrap();
        let mut table = CoflowTable::new(&fabric);
        for (id, &(megabytes, due)) in (0..).zip(coflows) {
            let size = Bytes(megabytes * 1_000_000);
            let flow = FlowSpec { source: HostId(0), destination: HostId(1), size, group: 0 };
            let deadline = (due > 0).then(|| Span::from_millis(due));
            let spec = CoflowSpec::new(CoflowId(id), Time::ZERO, vec![flow]);
            table.insert(&CoflowSpec { deadline, ..spec }, FlowId(id), &fabric);
        }
        let (mut residual, mut plan, mut just) =
            (Residual::default(), Plan::default(), JustInTime::default());
        residual.reset(&fabric);
        just.allocate(now, &table, &mut residual, &mut plan);
        let rates = plan.grants.iter().map(|grant| (grant.bytes_per_sec / 1e4).round() / 100.0).collect();
        (rates, just.met().iter().map(|slot| slot.0).collect())
    }

    #[test]
    fn each_gets_what_ends_it_in_time_those_that_are_due_first() {
        assert_eq!(allocated(&[(1, 4_000), (1, 0), (1, 2_000)], Time::ZERO), (vec![0.5, 0.25], vec![2, 0]));
        // 1 MB within 1.5 s leaves a third of the link, which is not enough for 2 MB within 4 s.
        assert_eq!(allocated(&[(2, 4_000), (1, 1_500)], Time::ZERO), (vec![0.67], vec![1]));
    }

    #[test]
    fn a_deadline_that_leaves_just_the_time_is_met_and_one_that_has_passed_is_not() {
        assert_eq!(allocated(&[(1, 1_000)], Time::ZERO), (vec![1.0], vec![0]));
        assert_eq!(allocated(&[(1, 999)], Time::ZERO), (vec![], vec![]));
        assert_eq!(allocated(&[(1, 1_000)], Time::from_nanos(1_000_000_000)), (vec![], vec![]));
        assert_eq!(allocated(&[(1, 1_000)], Time::from_nanos(5_000_000_000)), (vec![], vec![]));
    }
}

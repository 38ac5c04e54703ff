//! `virtual-cluster`: bandwidth reserved for whole coflows, as Varys (SIGCOMM 2014, section 7.3) compares with.
//!
//! # Problem
//! Deadlines can be guaranteed without looking at coflows at all: by reserving bandwidth for a group of hosts,
//! as Oktopus (SIGCOMM 2011) does with its virtual cluster, hosts of equal rate at one virtual switch (the hose
//! model).
//!
//! # Approach
//! A coflow reserves what its busiest host needs to meet the deadline, for every one of its hosts and for its
//! whole life. It is let in if every link has that much unreserved.
//!
//! # Terminology
//! * B: bytes of the host that sends or receives most, over the time allowed.
//! * members of a link: the lesser of the number of senders and receivers of the coflow's flows across it.
//!
//! # Pseudo-code
//! ```text
//! on arrival: B = max over hosts of max(bytes sent, bytes received) / time allowed
//!     for link: reservation = B * members of the link, or with `reserve=links` its bytes / time allowed
//!     let it in if all reservations fit beside those that exist, else refuse it
//! rates: every flow what it has left over the time left; what is reserved beyond that idles
//! ```
//!
//! # Properties
//! * Coflows that were let in end when they are due, and never sooner.
//! * With `reserve=links` a coflow that fits alone fits: no link needs more than the busiest one has.
//! * Not work-conserving: reservations are held to the end, and no other coflow may use them.
//!
//! # Departures
//! The papers leave open, and here it is so: a coflow moves in proportion to its flows (any rates within the
//! hose would do, for the busiest host needs all of B until the deadline); across links inside the fabric B is
//! reserved for as many hosts as can use it at once, which is what Oktopus reserves below a virtual switch;
//! placement of virtual machines, the other half of Oktopus, has no place here, hosts are given. Coflows without
//! a deadline share what is not reserved as under `varys`. Flows that join a coflow later than its arrival move
//! by the same rule, and the reservation is not enlarged for them.

use super::settings::{Parameter, ParameterKind};
use super::{Claims, Policy, PolicyInfo};
use crate::Refusal;
use crate::admit::{drain_within, noise_share};
use crate::order::{Order, Sebf};
use crate::share::{Backfill, Madd, Residual};
use crate::{Coflow, CoflowTable, Plan, Slot};
use std::collections::BTreeSet;
use weir_model::{CoflowId, Fabric, LinkId, Rate, Span, Time};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "virtual-cluster",
    summary: "every coflow with a deadline reserves what its busiest host needs, at all its hosts, to its end",
    paper: "Ballani et al., Oktopus, SIGCOMM 2011, as the reservations of Varys section 7.3",
    claims: Claims { work_conserving: false, starvation_free: false },
    between_sites: false,
    local: None,
    parameters: &[Parameter {
        name: "reserve",
        kind: ParameterKind::Choice { of: &["hosts", "links"], expected: "`hosts` or `links`" },
        default: "hosts",
        about: "what a coflow reserves: what its busiest host needs, for each of its hosts; or on every link what its flows \
                need there (Varys, Pseudocode 2: size over deadline)",
    }],
    make: |from| {
        let per_link = from.choice("reserve") == "links";
        Box::new(VirtualCluster { per_link, ..VirtualCluster::default() })
    },
};

/// The time that a coflow gets which is not complete when it is due.
const OVERDUE: Span = Span::from_millis(1000);

/// A coflow with a deadline.
#[derive(Clone, Debug)]
struct Cluster {
    coflow: CoflowId,
    /// Per link, bytes per second; none if it was refused.
    reserved: Option<Vec<(LinkId, f64)>>,
}

#[derive(Default)]
struct VirtualCluster {
    /// Every link is reserved for what crosses it, not for the busiest host.
    per_link: bool,
    clusters: Vec<Option<Cluster>>,
    sebf: Sebf,
    by_sebf: Vec<Slot>,
    last_by_sebf: Vec<Slot>,
    /// Per link, what clusters reserve of it.
    reserved: Vec<f64>,
    /// When a cluster is due that was not when the last plan was made.
    next_due: Option<Time>,
    overdue: bool,
    residual: Residual,
    madd: Madd,
    backfill: Backfill,
    known: bool,
}

/// What a coflow's flows need on each of their links.
fn needs(view: &CoflowTable, coflow: &Coflow, fabric: &Fabric, within: Span) -> Vec<(LinkId, f64)> {
    let mut bytes = vec![0.0; fabric.links().len()];
    for flow in coflow.flows().iter().filter(|flow| flow.live()) {
        let Some(class) = flow.class().map(|class| &view.classes()[class.index()]) else { continue };
        class.path().iter().for_each(|link| bytes[link.index()] += flow.size().0 as f64);
    }
    // At least a nanosecond, the resolution of times: a deadline that is now must not divide by 0.
    let within = within.as_secs().max(1e-9);
    let of_link = (0u32..).zip(bytes).map(|(link, bytes)| (LinkId(link), bytes / within));
    of_link.filter(|&(_, rate)| rate > 0.0).collect()
}

/// What a coflow would reserve on each of its links, as a virtual cluster.
fn reservation(view: &CoflowTable, coflow: &Coflow, fabric: &Fabric, within: Span) -> Vec<(LinkId, f64)> {
    let hosts = fabric.hosts() as usize;
    let mut bytes = vec![0.0; 2 * hosts];
    let mut ends: Vec<[BTreeSet<u32>; 2]> = vec![Default::default(); fabric.links().len()];
    for flow in coflow.flows().iter().filter(|flow| flow.live()) {
        let Some(class) = flow.class().map(|class| &view.classes()[class.index()]) else { continue };
        bytes[class.source().index()] += flow.size().0 as f64;
        bytes[hosts + class.destination().index()] += flow.size().0 as f64;
        for link in class.path().iter() {
            ends[link.index()][0].insert(class.source().0);
            ends[link.index()][1].insert(class.destination().0);
        }
    }
    let per_host = bytes.into_iter().fold(0.0, f64::max) / within.as_secs().max(1e-9);
    let members = |ends: &[BTreeSet<u32>; 2]| ends[0].len().min(ends[1].len()) as f64;
    let of_link = (0u32..).zip(&ends).map(|(link, ends)| (LinkId(link), per_host * members(ends)));
    of_link.filter(|&(_, rate)| rate > 0.0).collect()
}

impl VirtualCluster {
    fn judge(&mut self, now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        self.clusters.resize(view.slot_bound(), None);
        // Slots are used again, also by the same coflow: it is judged anew after it left.
        for slot in view.changes().arrived.iter().chain(&view.changes().departed) {
            self.clusters[slot.0 as usize] = None;
        }
        for (slot, coflow) in view.coflows() {
            let Some(due) = view.due(slot) else { continue };
            let cluster = &self.clusters[slot.0 as usize];
            if cluster.as_ref().is_some_and(|cluster| cluster.coflow == coflow.id()) {
                continue;
            }
            let within = due.since(now);
            let wanted = if self.per_link {
                needs(view, coflow, fabric, within)
            } else {
                reservation(view, coflow, fabric, within)
            };
            let refusal = self.lacking(fabric, &wanted, within).map(|(link, needed, left)| Refusal {
                coflow: slot,
                link: fabric.links()[link.index()].kind,
                needed: Rate::from_bytes_per_sec(needed),
                left: Rate::from_bytes_per_sec(left),
                within,
            });
            // A refused coflow is noted as well, without a reservation, so that later plans do not
            // judge it again.
            let reserved = refusal.is_none().then_some(wanted);
            self.clusters[slot.0 as usize] = Some(Cluster { coflow: coflow.id(), reserved });
            plan.refused.extend(refusal);
        }
    }

    /// A link that has less left than wanted: the link, what is wanted, what is left.
    fn lacking(&self, fabric: &Fabric, wanted: &[(LinkId, f64)], within: Span) -> Option<(LinkId, f64, f64)> {
        let mut left: Vec<f64> = fabric.links().iter().map(|link| link.capacity.bytes_per_sec()).collect();
        for &(link, rate) in self.clusters.iter().flatten().filter_map(|one| one.reserved.as_ref()).flatten()
        {
            left[link.index()] -= rate;
        }
        let lacks = |&&(link, rate): &&(LinkId, f64)| {
            // Below 0 where rounding of earlier reservations, or a link that lost capacity,
            // overdrew the link.
            let lacking = rate - left[link.index()].max(0.0);
            lacking > noise_share(within) * fabric.capacity(link).bytes_per_sec()
        };
        let found = wanted.iter().find(lacks)?;
        Some((found.0, found.1, left[found.0.index()].max(0.0)))
    }

    /// Takes reservations out of what is left and lets their coflows move.
    fn serve_clusters(&mut self, now: Time, view: &CoflowTable, plan: &mut Plan) {
        self.reserved.clear();
        self.reserved.resize(self.residual.links(), 0.0);
        (self.next_due, self.overdue) = (None, false);
        for &slot in view.slots() {
            let Some(Some(cluster)) = self.clusters.get(slot.0 as usize) else { continue };
            let Some(reserved) = &cluster.reserved else { continue };
            for &(link, rate) in reserved {
                // The whole reservation, not what the drain uses of it: what is beyond idles, as under Oktopus.
                self.residual.take(link, rate);
                self.reserved[link.index()] += rate;
            }
            let due = view.due(slot).unwrap_or(now);
            // Past its due only because of what joined it later, or of a report: slowly, within the reservation.
            let within = if due > now { due - now } else { OVERDUE };
            self.overdue |= due <= now;
            self.next_due = [self.next_due, (due > now).then_some(due)].into_iter().flatten().min();
            if !view.coflow(slot).links().is_empty() {
                plan.drains.push((slot, drain_within(within)));
            }
        }
    }
}

impl VirtualCluster {
    /// Whether the drains of the last plan stay what they are. What is left over the time left is so, until the time
    /// has passed.
    fn goes_on(&mut self, now: Time, view: &CoflowTable) -> bool {
        self.known
            && !view.changes().disturbed
            && !self.overdue
            && self.next_due.is_none_or(|due| now < due)
            && self.by_sebf == self.last_by_sebf
            && self.madd.goes_on(view)
    }
}

impl Policy for VirtualCluster {
    fn plan(&mut self, now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        plan.clear();
        if !self.residual.knows(fabric) {
            self.sebf.set_fabric(fabric);
            self.known = false;
        }
        if !self.known || view.changes().disturbed {
            self.judge(now, fabric, view, plan);
        }
        std::mem::swap(&mut self.by_sebf, &mut self.last_by_sebf);
        self.sebf.sort(view, &mut self.by_sebf);
        // Coflows with a deadline move by their reservation, or not at all if they were refused.
        self.by_sebf.retain(|&slot| view.due(slot).is_none());
        if self.goes_on(now, view)
            && self.backfill.go_on(view, &self.by_sebf, &self.residual, &self.reserved, plan)
        {
            plan.continues = true;
            return;
        }
        self.known = true;
        self.residual.reset(fabric);
        self.serve_clusters(now, view, plan);
        self.madd.allocate(view, &self.by_sebf, &mut self.residual, plan);
        self.backfill.allocate(view, &self.by_sebf, &mut self.residual, plan);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlowRef;
    use proptest::prelude::*;
    use weir_model::{Bytes, CoflowSpec, FlowId, FlowSpec, HostId};

    const HOSTS: u32 = 6;

    /// Coflows with and without a deadline, of flows of few sizes.
    fn coflows() -> impl Strategy<Value = Vec<CoflowSpec>> {
        let flow = (0..HOSTS, 0..HOSTS, 1u64..5).prop_map(|(source, destination, size)| FlowSpec {
            source: HostId(source),
            destination: HostId(destination),
            size: Bytes(size * 10_000_000),
            group: 0,
        });
        let coflow = (prop::option::of(1u64..30), prop::collection::vec(flow, 1..20));
        prop::collection::vec(coflow, 1..8).prop_map(|all| {
            let spec = |(id, (secs, flows)): (u64, (Option<u64>, Vec<FlowSpec>))| CoflowSpec {
                deadline: secs.map(|secs| Span::from_millis(1000 * secs)),
                ..CoflowSpec::new(CoflowId(id), Time::from_millis(id), flows)
            };
            (1u64..).zip(all).map(spec).collect()
        })
    }

    fn rates(plan: &Plan, table: &CoflowTable) -> Vec<(FlowRef, f64)> {
        let mut rates = Vec::new();
        plan.for_each_rate(table, |at, rate| rates.push((at, rate.bytes_per_sec())));
        rates
    }

    /// To the next end; false if nothing moves.
    fn step(table: &mut CoflowTable, plan: &Plan, now: &mut Time) -> bool {
        let Some(span) = table.next_end() else { return false };
        table.advance(plan, span);
        *now = *now + span;
        let (mut coflows, mut flows) = (Vec::new(), Vec::new());
        table.take_ends(&mut coflows, &mut flows);
        coflows.into_iter().for_each(|slot| table.remove(slot));
        for at in flows {
            table.finish_flow(at);
            if table.coflow(at.coflow).live_flows() == 0 {
                table.remove(at.coflow);
            }
        }
        true
    }

    proptest! {
        #[test]
        fn plans_that_go_on_beside_reservations_are_plans_from_the_beginning(
            coflows in coflows(), pause in 1usize..9
        ) {
            let fabric = Fabric::big_switch(HOSTS, Rate::from_bytes_per_sec(1.25e8)).expect("a fabric");
            let mut table = CoflowTable::new(&fabric);
            let (mut goes_on, mut anew) = (VirtualCluster::default(), VirtualCluster::default());
            let (mut now, mut waiting) = (Time::from_millis(100), coflows.iter());
            for event in 0.. {
                if event % pause == 0 && let Some(spec) = waiting.next() {
                    let first = FlowId(spec.id.0 * 100);
                    table.insert(&CoflowSpec { arrival: now, ..spec.clone() }, first, &fabric);
                }
                // An order that is not the last one makes a plan from the beginning.
                anew.by_sebf = vec![Slot(u32::MAX)];
                let (mut plan, mut expected, mut copy) = (Plan::default(), Plan::default(), table.clone());
                goes_on.plan(now, &fabric, &table, &mut plan);
                anew.plan(now, &fabric, &copy, &mut expected);
                table.adopt(&plan);
                copy.adopt(&expected);
                prop_assert!(!expected.continues);
                for ((at, rate), (_, expected)) in rates(&plan, &table).into_iter().zip(rates(&expected, &copy)) {
                    // Of the last bytes before an end no more than the rounding of sums may be left.
                    let close = (rate - expected).abs() <= 1e-6 * 1.25e8 || table.remaining(at) < 10.0;
                    prop_assert!(close, "{at:?} at {rate}, from the beginning {expected}");
                }
                plan.refused.iter().for_each(|refusal| table.remove(refusal.coflow));
                if !step(&mut table, &plan, &mut now) && waiting.len() == 0 {
                    break;
                }
            }
        }
    }
}

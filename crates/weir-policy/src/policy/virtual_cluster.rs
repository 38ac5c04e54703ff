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
//!     for link: reservation = B * members of the link
//!     let it in if all reservations fit beside those that exist, else refuse it
//! rates: every flow what it has left over the time left; what is reserved beyond that idles
//! ```
//!
//! # Properties
//! * Coflows that were let in end when they are due, and never sooner.
//! * Not work-conserving: reservations are held to the end, and nobody else may use them.
//!
//! # Departures
//! The papers leave open, and here it is so: a coflow moves in proportion to its flows (any rates within the
//! hose would do, for the busiest host needs all of B until the deadline); across links inside the fabric B is
//! reserved for as many hosts as can use it at once, which is what Oktopus reserves below a virtual switch;
//! placement of virtual machines, the other half of Oktopus, has no place here, hosts are given. Coflows without
//! a deadline share what is not reserved as under `varys`. Flows that join a coflow later than its arrival move
//! by the same rule, and the reservation is not enlarged for them.

use super::{Claims, Policy, PolicyInfo};
use crate::admit::{Refusal, drain_within, noise_share};
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
    parameters: &[],
    make: |_| Box::new(VirtualCluster::default()),
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
    clusters: Vec<Option<Cluster>>,
    sebf: Sebf,
    by_sebf: Vec<Slot>,
    residual: Residual,
    madd: Madd,
    backfill: Backfill,
    known: bool,
}

/// What a coflow would reserve on each of its links.
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
            let wanted = reservation(view, coflow, fabric, within);
            let refusal = self.lacking(fabric, &wanted, within).map(|(link, needed, left)| Refusal {
                coflow: slot,
                link: fabric.links()[link.index()].kind,
                needed: Rate::from_bytes_per_sec(needed),
                left: Rate::from_bytes_per_sec(left),
                within,
            });
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
            let lacking = rate - left[link.index()].max(0.0);
            lacking > noise_share(within) * fabric.capacity(link).bytes_per_sec()
        };
        let found = wanted.iter().find(lacks)?;
        Some((found.0, found.1, left[found.0.index()].max(0.0)))
    }

    /// Takes reservations out of what is left and lets their coflows move.
    fn serve_clusters(&mut self, now: Time, view: &CoflowTable, plan: &mut Plan) {
        for &slot in view.slots() {
            let Some(Some(cluster)) = self.clusters.get(slot.0 as usize) else { continue };
            let Some(reserved) = &cluster.reserved else { continue };
            reserved.iter().for_each(|&(link, rate)| self.residual.take(link, rate));
            let left = view.due(slot).map_or(Span::ZERO, |due| due.since(now));
            // Past its due only because of what joined it later, or of a report: slowly, within the reservation.
            let within = if left > Span::ZERO { left } else { OVERDUE };
            if !view.coflow(slot).links().is_empty() {
                plan.drains.push((slot, drain_within(within)));
            }
        }
    }
}

impl Policy for VirtualCluster {
    fn plan(&mut self, now: Time, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        plan.clear();
        if !self.residual.knows(fabric) {
            self.sebf.set_fabric(fabric);
            self.known = false;
        }
        self.residual.reset(fabric);
        if !self.known || view.changes().disturbed {
            self.judge(now, fabric, view, plan);
        }
        self.known = true;
        self.serve_clusters(now, view, plan);
        self.sebf.sort(view, &mut self.by_sebf);
        self.by_sebf.retain(|&slot| view.due(slot).is_none());
        self.madd.allocate(view, &self.by_sebf, &mut self.residual, plan);
        self.backfill.allocate(view, &self.by_sebf, &mut self.residual, plan);
    }
}

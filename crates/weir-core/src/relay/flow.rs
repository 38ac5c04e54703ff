//! One flow at a relay.

use super::facts::{HopId, SubscriberId, UpstreamId, UpstreamKind};
use super::reassembly::Reassembly;
use super::window::Window;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::Time;
use weir_proto::relay::Open;

#[derive(Debug)]
pub(super) struct Flow<P> {
    pub(super) open: Open,
    /// Its bytes in all.
    pub(super) bytes: u64,
    pub(super) hop_limit: u8,
    /// It comes from a host of this site: this relay tells the controller of it.
    pub(super) entered: bool,
    pub(super) incoming: BTreeMap<UpstreamId, Incoming>,
    /// What upstreams may send.
    pub(super) window: Window,
    pub(super) way: Way<P>,
    /// Bytes that wait here.
    pub(super) held: u64,
    /// When it went on last, counted in messages that went on from the relay.
    pub(super) turn: u64,
    /// Bytes that went on from here, and as last told to the controller.
    pub(super) moved: u64,
    pub(super) told: u64,
}

/// What one upstream sends of a flow.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) kind: UpstreamKind,
    /// Bytes that came from there.
    pub(super) received: u64,
    /// When it was heard of last.
    pub(super) heard: Time,
    /// Relays that word of it may still go through: one less at each of them, so that word of a flow that no host sends any more
    /// does not go in a circle for ever.
    pub(super) hops: u8,
    /// Once the upstream said that the receiver has all: what it sent here in all.
    pub(super) ended: Option<u64>,
}

impl Incoming {
    /// Whether nothing more comes from there.
    pub(super) fn is_over(&self) -> bool {
        self.ended == Some(self.received)
    }
}

/// Where a flow goes from here.
#[derive(Debug)]
pub(super) enum Way<P> {
    Deliver(Delivery<P>),
    Forward(Forward),
}

#[derive(Debug)]
pub(super) struct Delivery<P> {
    pub(super) reassembly: Reassembly<P>,
    pub(super) subscriber: Option<SubscriberId>,
    /// When it is given up if no receiver has asked for it.
    pub(super) wait_until: Time,
}

impl<P> Delivery<P> {
    /// The receiver, if there is something for it.
    pub(super) fn due(&self) -> Option<SubscriberId> {
        self.subscriber.filter(|_| self.reassembly.is_ready())
    }
}

#[derive(Debug)]
pub(super) struct Forward {
    pub(super) route: Route,
    /// What each next hop was assigned since the route was made, divided by its weight.
    pub(super) assigned: Vec<f64>,
    /// Next hops that were told of the flow.
    pub(super) opened: BTreeSet<HopId>,
}

/// Next hops with their weights, and the flow's class there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Route {
    pub(super) next_hops: Vec<(HopId, f64)>,
    pub(super) rank: u64,
    pub(super) weight: f64,
}

impl Forward {
    pub(super) fn new(route: Route) -> Forward {
        Forward { assigned: vec![0.0; route.next_hops.len()], route, opened: BTreeSet::new() }
    }

    /// Whether it is one of the next hops.
    pub(super) fn leads_to(&self, hop: HopId) -> bool {
        self.route.next_hops.iter().any(|next| next.0 == hop)
    }

    /// The next hop that has had the least for its weight takes `bytes` more. `None` if there is none.
    pub(super) fn assign(&mut self, bytes: u32) -> Option<HopId> {
        let after = |at: &usize| self.assigned[*at] + f64::from(bytes) / self.route.next_hops[*at].1;
        let least = (0..self.assigned.len()).min_by(|one, other| after(one).total_cmp(&after(other)))?;
        self.assigned[least] = after(&least);
        Some(self.route.next_hops[least].0)
    }
}

impl<P> Flow<P> {
    pub(super) fn delivery(&mut self) -> Option<&mut Delivery<P>> {
        match &mut self.way {
            Way::Deliver(delivery) => Some(delivery),
            Way::Forward(_) => None,
        }
    }

    pub(super) fn forward(&self) -> Option<&Forward> {
        match &self.way {
            Way::Deliver(_) => None,
            Way::Forward(forward) => Some(forward),
        }
    }

    pub(super) fn forward_mut(&mut self) -> Option<&mut Forward> {
        match &mut self.way {
            Way::Deliver(_) => None,
            Way::Forward(forward) => Some(forward),
        }
    }

    pub(super) fn subscriber(&self) -> Option<SubscriberId> {
        match &self.way {
            Way::Deliver(delivery) => delivery.subscriber,
            Way::Forward(_) => None,
        }
    }

    /// Whether nothing of it came here.
    pub(super) fn is_untouched(&self) -> bool {
        self.incoming.values().all(|incoming| incoming.received == 0)
    }

    /// Whether the receiver has all, or wants no more, and nothing more comes from the upstreams that said so. Where it goes to
    /// its receiver every upstream must have: else, what is still on its way decides whether it is whole. Elsewhere one is
    /// enough: rules may lead a flow in a circle, where each waits for the one before it to say so.
    pub(super) fn is_over(&self) -> bool {
        let mut upstreams = self.incoming.values();
        match &self.way {
            Way::Deliver(_) => upstreams.all(Incoming::is_over),
            Way::Forward(_) => upstreams.any(Incoming::is_over),
        }
    }
}

//! What passed a host's interface, and what of it was Weir's own.
//!
//! A byte handed to a socket has not left the host yet: for an unscheduled flow, megabytes may wait there.
//! So a byte counts as Weir's own traffic once its receiver's kernel has acknowledged it, which is a round trip
//! after it passed the interface.

use super::state::Agent;
use crate::ids::{FlowNumber, HostNumber};
use std::collections::BTreeMap;
use weir_model::{Span, Time};
use weir_proto::v1;

/// How often the interface is looked at while there is a session.
const INTERFACE_INTERVAL: Span = Span::from_millis(250);

/// Bytes that passed an interface since it exists, headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceBytes {
    /// Bytes that the host sent through the interface.
    pub sent: u64,
    /// Bytes that the host received through the interface.
    pub received: u64,
}

#[derive(Debug, Default)]
pub(super) struct Meter {
    last: Option<(Time, InterfaceBytes)>,
    /// By destination, payload bytes handed to sockets since the last look,
    handed: BTreeMap<HostNumber, u64>,
    /// and those that were not acknowledged at the last look.
    under_way: BTreeMap<HostNumber, u64>,
}

impl Agent {
    /// When the interface is to be looked at again, if it is looked at.
    pub(super) fn interface_due(&self) -> Option<Time> {
        if !self.config.measures_interface || !self.session {
            return None;
        }
        Some(self.meter.last.map_or(Time::ZERO, |(at, _)| at + INTERFACE_INTERVAL))
    }

    /// Whether [`Agent::handle_interface`] is due.
    pub fn wants_interface(&self, now: Time) -> bool {
        self.interface_due().is_some_and(|due| due <= now)
    }

    /// A look at the interface, and at how much of each flow is unacknowledged.
    pub fn handle_interface(
        &mut self,
        now: Time,
        bytes: InterfaceBytes,
        unacknowledged: &BTreeMap<FlowNumber, u64>,
    ) {
        let mut under_way: BTreeMap<HostNumber, u64> = BTreeMap::new();
        for (flow, bytes) in unacknowledged {
            if let Some(flow) = self.flows.get(flow) {
                let sum = under_way.entry(flow.destination).or_default();
                *sum = sum.saturating_add(*bytes);
            }
        }
        let mut own = std::mem::take(&mut self.meter.handed);
        // Acknowledged since the last look: handed over since, and under way then, less what is under way now.
        for (host, bytes) in std::mem::replace(&mut self.meter.under_way, under_way) {
            let sum = own.entry(host).or_default();
            *sum = sum.saturating_add(bytes);
        }
        for (host, bytes) in &self.meter.under_way {
            // More than was handed over can be under way only by the headers of frames.
            let left = own.entry(*host).or_default();
            *left = left.saturating_sub(*bytes);
        }
        // What stays within the host passes no interface.
        own.remove(&self.config.host);
        let Some((at, before)) = self.meter.last.replace((now, bytes)) else { return };
        self.send(v1::agent_event::Kind::Interface(v1::InterfaceReport {
            interval_ns: now.since(at).nanos(),
            sent: bytes.sent.saturating_sub(before.sent),
            received: bytes.received.saturating_sub(before.received),
            own: own.into_iter().map(|(host, bytes)| v1::HostBytes { host: host.0, bytes }).collect(),
        }));
    }

    /// `bytes` payload bytes were handed to a socket.
    pub(super) fn meter_handed(&mut self, destination: HostNumber, bytes: u64) {
        if self.config.measures_interface && bytes > 0 {
            let sum = self.meter.handed.entry(destination).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }

    /// What passes while there is no session is not told later.
    pub(super) fn forget_interface(&mut self) {
        self.meter = Meter::default();
    }
}

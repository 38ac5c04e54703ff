//! Flows of coflows that a coordinator decides about, beside others under another transport.

use super::{Network, Sending, Setup, Transport};
use crate::time::Picos;
use weir_trace::{FlowArrival, FlowKind};

/// What a coordinator decides of flows.
pub trait Guide: Send + Sync {
    /// How flow `number` of those that it decides about is sent, which begins now; else it would be sent as `sending` says, in classes
    /// up to `last`.
    fn guide(&self, number: u32, now: Picos, sending: Sending, last: u8, network: &Network) -> Sending;
}

/// Flows of the kind `Planned` go as a guide has it; all others as another transport does.
pub struct Beside<G> {
    guide: G,
    others: Box<dyn Transport>,
}

impl<G> Beside<G> {
    pub(super) fn with(guide: G, others: Box<dyn Transport>) -> Beside<G> {
        Beside { guide, others }
    }
}

impl<G: Guide> Transport for Beside<G> {
    fn prepare(&mut self, network: &Network) {
        self.others.prepare(network);
    }
    fn setup(&self, network: &Network) -> Setup {
        self.others.setup(network)
    }
    fn last_class(&self) -> u8 {
        self.others.last_class()
    }
    fn sending(&self, flow: &FlowArrival, network: &Network) -> Sending {
        let sending = self.others.sending(flow, network);
        match flow.kind {
            FlowKind::Planned(number) => {
                self.guide.guide(number, flow.arrival.into(), sending, self.last_class(), network)
            }
            _ => sending,
        }
    }
}

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

/// A network for tests of guides.
#[cfg(test)]
pub(super) mod one_flow {
    use super::*;
    use crate::observer::Observer;
    use crate::scenario::Scenario;
    use crate::simulation::Simulation;
    use weir_model::{Bytes, HostId, Time};

    /// Seconds that a flow of 1 MB takes between two hosts at 1 Gbit/s, the first that a coordinator decides about.
    pub(crate) fn seconds(transport: impl Transport + 'static, observer: Option<&mut dyn Observer>) -> f64 {
        let text = "name = \"x\"\n[network]\ntopology = \"single-switch\"\nhosts = 2\nrate = \"1gbit\"\n\
                    [[flow]]\nsource = 0\ndestination = 1\nsize = \"1MB\"\n";
        let scenario = Scenario::from_text(text).unwrap();
        let topology = scenario.topology().unwrap();
        let flow = FlowArrival {
            arrival: Time::ZERO,
            source: HostId(0),
            destination: HostId(1),
            size: Bytes(1_000_000),
            kind: FlowKind::Planned(0),
        };
        let (network, flows) = (scenario.network(&topology), std::iter::once(flow));
        let mut simulation = Simulation::new(&topology, Box::new(transport), network, flows);
        if let Some(observer) = observer {
            simulation.observe(observer);
        }
        let mut done = Vec::new();
        simulation.run(Picos::MAX, &mut |record| done.push(record.completion().as_secs()));
        assert_eq!(done.len(), 1);
        done[0]
    }
}

//! Flows of coflows at rates that a coordinator says anew as things happen, beside others under another transport.

use super::{Network, Sending, Setup, Transport};
use crate::control::{ByToldRate, ToldRate};
use crate::time::Picos;
use weir_endhost::tagging::ClassLaw;
use weir_trace::{FlowArrival, FlowKind};

/// Asked for the rate of a planned flow, by its number, as it begins. None: it goes as the others.
pub type RateTold = Box<dyn Fn(u32, Picos) -> Option<ToldRate> + Send + Sync>;

/// Flows of the kind `Planned` go at the rates that are said of them, in the last class; all others as another transport has it.
pub struct Rated {
    told: RateTold,
    others: Box<dyn Transport>,
}

impl Rated {
    /// In the last class of the others' transport.
    pub fn new(told: RateTold, others: Box<dyn Transport>) -> Rated {
        Rated { told, others }
    }
}

impl Transport for Rated {
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
        let FlowKind::Planned(number) = flow.kind else { return sending };
        let Some(told) = (self.told)(number, flow.arrival.into()) else { return sending };
        let control = Box::new(ByToldRate::new(told, network.round_trip));
        Sending { control, tagging: ClassLaw::Fixed(self.others.last_class()).into(), ..sending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::Observer;
    use crate::scenario::Scenario;
    use crate::simulation::Simulation;
    use crate::transport::named;
    use weir_model::{Bytes, HostId, Rate, Time};

    /// Says another rate once half of it is there.
    struct Says(ToldRate, u64);

    impl Observer for Says {
        fn delivered(&mut self, _: u64, bytes: u32, now: Picos) {
            self.1 += u64::from(bytes);
            if self.1 >= 500_000 {
                self.0.say(now, Rate::from_bytes_per_sec(1e8));
            }
        }
    }

    /// 0.5 MB at 50 MB/s, then as much at 100 MB/s: 15 ms.
    #[test]
    fn a_flow_has_the_rate_that_was_said_last() {
        let text = "name = \"x\"\n[network]\ntopology = \"single-switch\"\nhosts = 2\nrate = \"1gbit\"\n\
                    [[flow]]\nsource = 0\ndestination = 1\nsize = \"1MB\"\n";
        let scenario = Scenario::from_text(text).unwrap();
        let topology = scenario.topology().unwrap();
        let told = ToldRate::default();
        told.say(Picos::ZERO, Rate::from_bytes_per_sec(5e7));
        let said = told.clone();
        let rated = Rated::new(Box::new(move |_, _| Some(said.clone())), named("karuna").unwrap());
        let flow = FlowArrival {
            arrival: Time::ZERO,
            source: HostId(0),
            destination: HostId(1),
            size: Bytes(1_000_000),
            kind: FlowKind::Planned(0),
        };
        let (mut says, mut done) = (Says(told, 0), Vec::new());
        let network = scenario.network(&topology);
        let mut simulation = Simulation::new(&topology, Box::new(rated), network, std::iter::once(flow));
        simulation.observe(&mut says);
        simulation.run(Picos::MAX, &mut |record| done.push(record.completion().as_secs()));
        assert_eq!(done.len(), 1);
        // Heard up to a millisecond later, at half of the rate.
        assert!((0.0149..0.0157).contains(&done[0]), "{done:?}");
    }
}

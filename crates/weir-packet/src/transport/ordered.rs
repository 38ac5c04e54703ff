//! Flows of coflows in the classes that a coordinator says, beside others under another transport: order alone, and no rates.

use super::beside::{Beside, Guide};
use super::{Network, Sending, Transport};
use crate::tagging::{Tagging, ToldClass};
use crate::time::Picos;

/// Asked for the class of a planned flow, by its number, as it begins. None: it goes as the others.
pub type Told = Box<dyn Fn(u32, Picos) -> Option<ToldClass> + Send + Sync>;

/// Classes are said by a coordinator in the simulation, through this.
pub struct ByTold(Told);

/// Flows of the kind `Planned` go under another transport, in the class that is said of them; until then, and all others, as that has it.
pub type Ordered = Beside<ByTold>;

impl Ordered {
    /// Over the classes of the others' transport, which has to have as many as are said.
    pub fn new(told: Told, others: Box<dyn Transport>) -> Ordered {
        Beside::with(ByTold(told), others)
    }
}

impl Guide for ByTold {
    fn guide(&self, number: u32, now: Picos, sending: Sending, _: u8, _: &Network) -> Sending {
        let Some(told) = (self.0)(number, now) else { return sending };
        match sending.tagging {
            Tagging::Class(law) => Sending { tagging: Tagging::Told(told, law), ..sending },
            // Ranks are not classes.
            _ => sending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use crate::simulation::Simulation;
    use crate::transport::named;
    use weir_model::{Bytes, HostId, Span, Time};
    use weir_trace::{FlowArrival, FlowKind};

    /// Two flows of 2 MB to one host at 1 Gbit/s, of which the second begins 2 ms later; when each is complete, in milliseconds. The
    /// classes are those when the second begins.
    fn ends(classes: [u8; 2]) -> [f64; 2] {
        let text = "name = \"x\"\n[network]\ntopology = \"single-switch\"\nhosts = 3\nrate = \"1gbit\"\n\
                    [[flow]]\nsource = 0\ndestination = 1\nsize = \"1MB\"\n";
        let scenario = Scenario::from_text(text).unwrap();
        let topology = scenario.topology().unwrap();
        let told = [ToldClass::default(), ToldClass::default()];
        let said = told.clone();
        let begins = move |number: u32, _: Picos| {
            if number == 1 {
                said[0].say(classes[0]);
                said[1].say(classes[1]);
            }
            Some(said[number as usize].clone())
        };
        let transport = Box::new(Ordered::new(Box::new(begins), named("pias").unwrap()));
        let flow = |number: u32| FlowArrival {
            arrival: Time::ZERO + Span::from_millis(2 * u64::from(number)),
            source: HostId(2 * number),
            destination: HostId(1),
            size: Bytes(2_000_000),
            kind: FlowKind::Planned(number),
        };
        let network = scenario.network(&topology);
        let mut simulation = Simulation::new(&topology, transport, network, [flow(0), flow(1)].into_iter());
        let mut ends = [0.0; 2];
        simulation.run(Picos::MAX, &mut |record| {
            ends[record.number as usize] = 1e3 * record.finish.as_secs();
        });
        ends
    }

    /// Alone, each takes 17 ms, and 33 ms are what the link needs for both. What the first has in the queue of its size's class when it is
    /// told to go behind, as it begins fast, still goes ahead: less than 2 ms.
    #[test]
    fn a_flow_that_is_told_to_go_behind_waits_for_the_other_one() {
        let [first, second] = ends([3, 2]);
        assert!((18.5..21.0).contains(&second) && (32.9..34.0).contains(&first), "{first} {second}");
        let [first, second] = ends([2, 3]);
        assert!((16.4..17.5).contains(&first) && (32.9..34.0).contains(&second), "{first} {second}");
    }

    #[test]
    fn flows_of_one_class_share() {
        let [first, second] = ends([4, 4]);
        assert!(first > 27.0 && second > 31.0, "{first} {second}");
    }
}

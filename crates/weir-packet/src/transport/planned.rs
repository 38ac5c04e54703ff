//! Flows of coflows at planned rates, beside others under another transport: how Weir's halves share a network.

use super::beside::{Beside, Guide};
use super::{Network, Sending, Transport};
use crate::control::ByPlan;
use crate::time::Picos;
use std::sync::Arc;
use weir_endhost::tagging::ClassLaw;
use weir_model::Rate;

/// What a coordinator planned for a flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RatePlan {
    /// From when on the flow has which rate (of payload), in order; before the first it waits.
    pub steps: Vec<(Picos, Rate)>,
    /// When the flow was to be complete. What is left then goes as flows of the other transport do, in the class of
    /// plans: a coordinator would have planned anew, and a plan that lapses leaves a flow to the network.
    pub end: Picos,
}

/// Steps of a plan, shared with the flow that follows it.
type Steps = Arc<[(Picos, Rate)]>;

/// Plans by number of a flow.
pub struct Plans(Vec<(Steps, Picos)>);

/// Flows of the kind `Planned` go by plans, in the last class; all others, and those without a plan, as another transport has it.
pub type Planned = Beside<Plans>;

impl Planned {
    /// Plans by number; their flows go in the last class of the others' transport.
    pub fn new(plans: Vec<RatePlan>, others: Box<dyn Transport>) -> Planned {
        let plans = plans.into_iter().map(|plan| (Steps::from(plan.steps), plan.end)).collect();
        Beside::with(Plans(plans), others)
    }
}

impl Guide for Plans {
    fn guide(&self, number: u32, _: Picos, sending: Sending, last: u8, network: &Network) -> Sending {
        let Some((steps, end)) = self.0.get(number as usize) else { return sending };
        let control = Box::new(ByPlan::new(Arc::clone(steps), *end, network.round_trip, sending.control));
        Sending { control, tagging: ClassLaw::Fixed(last).into(), ..sending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::beside::one_flow;
    use crate::transport::named;

    /// 1 MB at nothing until 10 ms, then at 50 MB/s until 20 ms (half of it), then at 100 MB/s: 5 ms more.
    #[test]
    fn a_flow_follows_its_plan() {
        let rate = Rate::from_bytes_per_sec;
        let steps = vec![
            (Picos::ZERO, Rate::ZERO),
            (Picos::from_millis(10), rate(50e6)),
            (Picos::from_millis(20), rate(100e6)),
        ];
        let plans = vec![RatePlan { steps, end: Picos::from_millis(30) }];
        let took = one_flow::seconds(Planned::new(plans, named("karuna").unwrap()), None);
        // The way of a packet is 40 us.
        assert!((0.0249..0.0252).contains(&took), "{took}");
    }
}

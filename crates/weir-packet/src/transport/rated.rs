//! Flows of coflows at rates that a coordinator says anew as things happen, beside others under another transport.

use super::beside::{Beside, Guide};
use super::{Network, Sending, Transport};
use crate::control::{ByToldRate, ToldRate};
use crate::time::Picos;
use weir_endhost::tagging::ClassLaw;

/// Asked for the rate of a planned flow, by its number, as it begins. None: it goes as the others.
pub type RateTold = Box<dyn Fn(u32, Picos) -> Option<ToldRate> + Send + Sync>;

/// Rates are said by a coordinator in the simulation, through this.
pub struct ByRateTold(RateTold);

/// Flows of the kind `Planned` go at the rates that are said of them, in the last class; all others as another transport has it.
pub type Rated = Beside<ByRateTold>;

impl Rated {
    /// In the last class of the others' transport.
    pub fn new(told: RateTold, others: Box<dyn Transport>) -> Rated {
        Beside::with(ByRateTold(told), others)
    }
}

impl Guide for ByRateTold {
    fn guide(&self, number: u32, now: Picos, sending: Sending, last: u8, network: &Network) -> Sending {
        let Some(told) = (self.0)(number, now) else { return sending };
        let control = Box::new(ByToldRate::new(told, network.round_trip));
        Sending { control, tagging: ClassLaw::Fixed(last).into(), ..sending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::Observer;
    use crate::transport::beside::one_flow;
    use crate::transport::named;
    use weir_model::Rate;

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
        let told = ToldRate::default();
        told.say(Picos::ZERO, Rate::from_bytes_per_sec(5e7));
        let said = told.clone();
        let rated = Rated::new(Box::new(move |_, _| Some(said.clone())), named("karuna").unwrap());
        let took = one_flow::seconds(rated, Some(&mut Says(told, 0)));
        // Heard up to a millisecond later, at half of the rate.
        assert!((0.0149..0.0157).contains(&took), "{took}");
    }
}

//! pFabric's rate control (Alizadeh et al., SIGCOMM 2013, section 4.2): begin at the rate of the link, and give way only
//! where loss persists.

use super::reno::Reno;
use super::{Acked, Allowance, Control, Loss};
use crate::time::Picos;

/// Begins with the bandwidth-delay product, is limited to it, and restarts in slow start after a timeout. Duplicate
/// acknowledgements say nothing: packets are dropped by priority.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineRate {
    reno: Reno,
    most: f64,
}

impl LineRate {
    /// `most` segments fill a path that is empty.
    pub(crate) fn new(most: f64) -> LineRate {
        LineRate { reno: Reno::new(most), most }
    }
}

impl Control for LineRate {
    fn allowance(&self) -> Allowance {
        Allowance { window: self.reno.window.min(self.most), gap: Picos::ZERO }
    }
    fn on_ack(&mut self, acked: &Acked) {
        self.reno.grow(acked.segments);
        self.reno.window = self.reno.window.min(self.most);
    }
    fn on_loss(&mut self, _: &Loss) {}
    fn on_timeout(&mut self, lost: &Loss, first: bool) {
        self.reno.restart(lost.flight, first);
    }
}

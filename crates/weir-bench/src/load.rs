//! Coflows to load a coordinator with: square shuffles between hosts drawn from a seed.

use rand::seq::index::sample;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Sizes of coflows spread over so many powers of two.
const OCTAVES: f64 = 6.0;

/// One flow of a coflow.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadFlow {
    pub(super) source: u32,
    pub(super) destination: u32,
    pub(super) bytes: u64,
}

/// Makes coflows one after the other.
pub(super) struct Load {
    random: ChaCha8Rng,
    ports: u32,
    /// Flows of a coflow, at least 1.
    width: usize,
    /// Bytes of a flow of the smallest coflows.
    least_bytes: f64,
}

impl Load {
    pub(super) fn new(seed: u64, ports: u32, width: usize, least_bytes: f64) -> Load {
        Load { random: ChaCha8Rng::seed_from_u64(seed), ports, width: width.max(1), least_bytes }
    }

    /// Coflows from now on are of so many hosts.
    pub(super) fn set_ports(&mut self, ports: u32) {
        self.ports = ports;
    }

    /// The flows of the next coflow, `width` of them: senders and receivers are as many as each other, as far
    /// as the width lets them, and every pair has one flow.
    pub(super) fn next(&mut self) -> Vec<LoadFlow> {
        let ends = ((self.width as f64).sqrt().ceil() as u32).min(self.ports);
        let mut draw = || sample(&mut self.random, self.ports as usize, ends as usize).into_vec();
        let (senders, receivers) = (draw(), draw());
        // Drawn as an exponent, so that each doubling of the size is as likely as any other.
        let scale = self.least_bytes * 2f64.powf(self.random.random_range(0.0..OCTAVES));
        let pairs =
            senders.iter().flat_map(|&from| receivers.iter().map(move |&to| (from as u32, to as u32)));
        let mut flows = Vec::with_capacity(self.width);
        // A coflow of more flows than pairs of hosts has several between two.
        for (source, destination) in pairs.cycle().take(self.width) {
            let bytes = (scale * self.random.random_range(0.5..1.5)).ceil() as u64;
            flows.push(LoadFlow { source, destination, bytes });
        }
        flows
    }
}

//! What is known of links whose capacities change: a distribution learned from what was seen.
//!
//! No measurement tells what a link will carry. Each capacity that a link was seen to have is a sample; what it has now is
//! the last one.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use weir_model::{Fabric, LinkId, Rate};

/// Samples kept per link at most; the oldest goes first.
const MOST_SAMPLES: usize = 1000;

/// What is taken for a link's bandwidth to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimate {
    /// The mean of the samples that are kept.
    Mean,
    /// The median of the samples that are kept.
    Median,
    /// The last sample of a link, and no earlier one.
    Last,
}

/// The samples of every link, in bytes per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bandwidths(Vec<Samples>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Samples {
    /// A ring once it is full; `next` is where the next one goes.
    seen: Vec<f64>,
    next: usize,
    last: f64,
    sum: f64,
}

impl Samples {
    fn add(&mut self, sample: f64) {
        if self.seen.len() < MOST_SAMPLES {
            self.seen.push(sample);
        } else {
            self.sum -= self.seen[self.next];
            self.seen[self.next] = sample;
        }
        self.next = (self.next + 1) % MOST_SAMPLES;
        self.sum += sample;
        self.last = sample;
    }

    fn median(&self) -> f64 {
        let mut sorted = self.seen.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
    }
}

impl Bandwidths {
    /// What measurements say of links, oldest first; a measurement that is not a rate above 0 does not count. A link
    /// without any that does is taken to have `unknown`, which must be above 0.
    pub fn measured<'a>(links: impl IntoIterator<Item = &'a [f64]>, unknown: Rate) -> Bandwidths {
        let of_link = |measured: &[f64]| {
            let mut samples = Samples::default();
            let counting = measured.iter().copied().filter(|sample| sample.is_finite() && *sample > 0.0);
            counting.for_each(|sample| samples.add(sample));
            if samples.seen.is_empty() {
                samples.add(unknown.bytes_per_sec());
            }
            samples
        };
        Bandwidths(links.into_iter().map(of_link).collect())
    }

    /// Number of links that samples are kept of.
    pub fn links(&self) -> usize {
        self.0.len()
    }

    /// Per link, one over the bytes per second that it is taken to have.
    pub fn inverse(&self, by: Estimate) -> Vec<f64> {
        (0..self.0.len() as u32).map(|link| 1.0 / self.estimate(LinkId(link), by)).collect()
    }

    /// Draws a bandwidth for every link, as one over bytes per second.
    pub fn draw_inverse(&self, random: &mut ChaCha8Rng, inverse: &mut Vec<f64>) {
        inverse.clear();
        inverse.extend((0..self.0.len() as u32).map(|link| 1.0 / self.draw(LinkId(link), random)));
    }

    /// Adds a sample for every link whose capacity is not what it was.
    pub fn observe(&mut self, fabric: &Fabric) {
        self.0.resize_with(fabric.links().len(), Samples::default);
        for (link, samples) in fabric.links().iter().zip(&mut self.0) {
            let capacity = link.capacity.bytes_per_sec();
            if capacity != samples.last {
                samples.add(capacity);
            }
        }
    }

    /// Bytes per second that a link is taken to have; above 0 for every link of a fabric that was observed.
    pub fn estimate(&self, link: LinkId, by: Estimate) -> f64 {
        let samples = &self.0[link.index()];
        match by {
            Estimate::Mean => samples.sum / samples.seen.len() as f64,
            Estimate::Median => samples.median(),
            Estimate::Last => samples.last,
        }
    }
}

impl Bandwidths {
    /// Any of the samples of a link, each as likely; above 0.
    pub fn draw(&self, link: LinkId, random: &mut ChaCha8Rng) -> f64 {
        let seen = &self.0[link.index()].seen;
        // Multiplying and shifting needs no division; its bias of at most one in 2^64 / samples is too small to change a decision.
        seen[((u128::from(random.next_u64()) * seen.len() as u128) >> 64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_of_all_capacities_seen_and_old_ones_are_forgotten() {
        let mut fabric = Fabric::big_switch(1, Rate::from_bytes_per_sec(10.0)).expect("a fabric");
        let (link, mut bandwidths) = (LinkId(0), Bandwidths::default());
        bandwidths.observe(&fabric);
        for rate in [40.0, 40.0, 16.0] {
            fabric.set_capacity(link, Rate::from_bytes_per_sec(rate)).expect("a capacity");
            bandwidths.observe(&fabric);
        }
        let estimates = |bandwidths: &Bandwidths| {
            [Estimate::Mean, Estimate::Median, Estimate::Last].map(|by| bandwidths.estimate(link, by))
        };
        // Seen: 10, 40, 16. The second time that 40 was looked at it was nothing new.
        assert_eq!(estimates(&bandwidths), [22.0, 16.0, 16.0]);
        for sample in 0..MOST_SAMPLES {
            let rate = if sample % 2 == 0 { 1.0 } else { 3.0 };
            fabric.set_capacity(link, Rate::from_bytes_per_sec(rate)).expect("a capacity");
            bandwidths.observe(&fabric);
        }
        assert_eq!(estimates(&bandwidths), [2.0, 2.0, 3.0]);
    }

    #[test]
    fn measurements_that_are_no_rates_do_not_count() {
        let measured: [&[f64]; 2] = [&[4.0, f64::NAN, -1.0, 0.0, f64::INFINITY, 8.0], &[f64::NAN]];
        let bandwidths = Bandwidths::measured(measured, Rate::from_bytes_per_sec(5.0));
        assert_eq!(bandwidths.inverse(Estimate::Mean), [1.0 / 6.0, 1.0 / 5.0]);
    }
}

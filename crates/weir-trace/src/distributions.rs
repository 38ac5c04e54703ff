//! How length, width, skew, ends and size of coflows are distributed: the curves of Figure 4 of the Varys paper.

use crate::coflow_benchmark::MEGABYTE;
use crate::statistics::skew;
use std::collections::BTreeSet;
use weir_model::{CoflowSpec, HostId};

/// Where curves over bytes are read; a megabyte is the public trace's, 2^20 bytes, and others are powers of ten of it.
const SIZES: [(&str, f64); 7] = [
    ("1 MB", 1.0),
    ("10 MB", 1e1),
    ("100 MB", 1e2),
    ("1 GB", 1e3),
    ("10 GB", 1e4),
    ("100 GB", 1e5),
    ("1 TB", 1e6),
];
const WIDTHS: [(&str, f64); 7] =
    [("1", 1.0), ("10", 1e1), ("50", 50.0), ("100", 1e2), ("1000", 1e3), ("10 000", 1e4), ("100 000", 1e5)];
const SKEWS: [(&str, f64); 5] = [("0", 0.0), ("0.5", 0.5), ("1", 1.0), ("2", 2.0), ("4", 4.0)];
const RATIOS: [(&str, f64); 7] =
    [("0.01", 0.01), ("0.1", 0.1), ("0.5", 0.5), ("1", 1.0), ("2", 2.0), ("10", 1e1), ("100", 1e2)];

/// Rounding of a deviation that is 0.
const ROUNDING: f64 = 1e-9;

/// A curve that rises from 0 to 1 over some property of coflows.
#[derive(Clone, Debug)]
pub struct Curve {
    /// What the property is.
    pub name: &'static str,
    /// Where it is read.
    bounds: &'static [(&'static str, f64)],
    /// Weight of the coflows up to each bound, and of all.
    up_to: Vec<f64>,
    all: f64,
}

impl Curve {
    fn new(name: &'static str, bounds: &'static [(&'static str, f64)]) -> Curve {
        Curve { name, bounds, up_to: vec![0.0; bounds.len()], all: 0.0 }
    }

    fn add(&mut self, value: f64, weight: f64) {
        self.all += weight;
        for (sum, (_, bound)) in self.up_to.iter_mut().zip(self.bounds) {
            if value <= bound + ROUNDING {
                *sum += weight;
            }
        }
    }

    /// Every bound as people write it, and the share (0 to 1) of what is not above it.
    pub fn shares(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let share = |sum: f64| if self.all > 0.0 { sum / self.all } else { 0.0 };
        self.bounds.iter().zip(&self.up_to).map(move |(&(label, _), &sum)| (label, share(sum)))
    }
}

/// The six curves, filled one coflow at a time.
#[derive(Clone, Debug)]
pub struct Distributions([Curve; 6]);

impl Default for Distributions {
    fn default() -> Distributions {
        Distributions([
            Curve::new("length", &SIZES),
            Curve::new("width", &WIDTHS),
            Curve::new("skew", &SKEWS),
            Curve::new("senders per receiver", &RATIOS),
            Curve::new("size", &SIZES),
            Curve::new("bytes", &SIZES),
        ])
    }
}

impl Distributions {
    /// Counts a coflow in. One without flows has none of the properties.
    pub fn add(&mut self, coflow: &CoflowSpec) {
        if coflow.flows.is_empty() {
            return;
        }
        let hosts = |end: fn(&weir_model::FlowSpec) -> HostId| {
            coflow.flows.iter().map(end).collect::<BTreeSet<_>>().len() as f64
        };
        let (senders, receivers) = (hosts(|flow| flow.source), hosts(|flow| flow.destination));
        let megabytes = |bytes: u64| bytes as f64 / MEGABYTE as f64;
        let size = megabytes(coflow.bytes().0);
        let Distributions([length, width, skewness, ends, sizes, bytes]) = self;
        length.add(megabytes(coflow.length().0), 1.0);
        width.add(coflow.width() as f64, 1.0);
        skewness.add(skew(coflow), 1.0);
        ends.add(senders / receivers, 1.0);
        sizes.add(size, 1.0);
        bytes.add(size, size);
    }

    /// Figure 4 a to f: of coflows by largest flow, flows, coefficient of variation of flow sizes (rounded up to 1 MB),
    /// sending hosts over receiving ones, and bytes; and of bytes by the bytes of the coflow that they are of.
    pub fn curves(&self) -> &[Curve] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, CoflowId, FlowSpec, Time};

    fn share(distributions: &Distributions, name: &str, at: &str) -> f64 {
        let curve = distributions.curves().iter().find(|curve| curve.name == name).expect("a curve");
        curve.shares().find(|(label, _)| *label == at).expect("a bound").1
    }

    #[test]
    fn curves_count_coflows_and_their_bytes_up_to_a_bound() {
        let coflow = |id, flows: &[(u32, u32, u64)]| {
            let flow = |&(source, destination, megabytes): &(u32, u32, u64)| FlowSpec {
                source: HostId(source),
                destination: HostId(destination),
                size: Bytes(megabytes * MEGABYTE),
                group: 0,
            };
            CoflowSpec::new(CoflowId(id), Time::ZERO, flows.iter().map(flow).collect())
        };
        let mut distributions = Distributions::default();
        // One sender for two receivers: 1 and 3 MB, mean 2, deviation 1.
        distributions.add(&coflow(1, &[(0, 1, 1), (0, 2, 3)]));
        // 12 MB from two senders to one receiver, alike.
        distributions.add(&coflow(2, &[(0, 1, 6), (2, 1, 6)]));
        // Exactly 1 MB.
        distributions.add(&coflow(3, &[(0, 1, 1)]));
        distributions.add(&coflow(4, &[]));
        let of = |name, at| share(&distributions, name, at);
        assert_eq!((of("length", "1 MB"), of("length", "10 MB")), (1.0 / 3.0, 1.0));
        assert_eq!((of("width", "1"), of("width", "10")), (1.0 / 3.0, 1.0));
        assert_eq!((of("skew", "0"), of("skew", "0.5")), (2.0 / 3.0, 1.0));
        let ratio = |at| of("senders per receiver", at);
        assert_eq!((ratio("0.1"), ratio("0.5"), ratio("1"), ratio("2")), (0.0, 1.0 / 3.0, 2.0 / 3.0, 1.0));
        assert_eq!(
            (of("size", "1 MB"), of("size", "10 MB"), of("size", "100 MB")),
            (1.0 / 3.0, 2.0 / 3.0, 1.0)
        );
        assert_eq!((of("bytes", "1 MB"), of("bytes", "10 MB")), (1.0 / 17.0, 5.0 / 17.0));
    }
}

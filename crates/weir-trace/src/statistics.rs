//! What a workload looks like, in the terms of section 4 and Table 4 of the Varys paper.

use crate::coflow_benchmark::MEGABYTE;
use weir_model::CoflowSpec;

/// Share of the coflows and share of the bytes, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Fraction of all coflows, 0 to 1.
    pub coflows: f64,
    /// Fraction of all bytes, 0 to 1.
    pub bytes: f64,
}

/// Lower bounds of the width classes over which skew is averaged: 2-10, 11-50, 51-1000, more flows.
pub const WIDTH_CLASSES: [usize; 4] = [2, 11, 51, 1001];

/// Flow sizes are rounded up to this before skew is computed, as for the paper's Figure 4c.
const SKEW_UNIT: u64 = MEGABYTE;
const GB: u64 = 1_000_000_000;

/// Counts over coflows, one at a time.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    hosts: usize,
    coflows: usize,
    flows: u64,
    bytes: u64,
    last_arrival_s: f64,
    widest: usize,
    bins: [(usize, u64); 4],
    over_1_gb: (usize, u64),
    over_10_gb: (usize, u64),
    length_1_mb: usize,
    narrow: usize,
    sender_bound: usize,
    fewer_senders: usize,
    skews: [(usize, f64); 4],
    sent: Vec<u64>,
    received: Vec<u64>,
}

impl Statistics {
    /// Nothing counted yet; every flow's ends will be below `hosts`.
    pub fn new(hosts: u32) -> Statistics {
        Statistics {
            hosts: hosts as usize,
            sent: vec![0; hosts as usize],
            received: vec![0; hosts as usize],
            ..Statistics::default()
        }
    }

    /// Counts a coflow in.
    pub fn add(&mut self, coflow: &CoflowSpec) {
        let (bytes, width) = (coflow.bytes().0, coflow.width());
        self.coflows += 1;
        self.flows += width as u64;
        self.bytes += bytes;
        self.last_arrival_s = self.last_arrival_s.max(coflow.arrival.as_secs());
        self.widest = self.widest.max(width);
        let note = |count: &mut (usize, u64)| *count = (count.0 + 1, count.1 + bytes);
        note(&mut self.bins[usize::from(coflow.bin()) - 1]);
        if bytes > GB {
            note(&mut self.over_1_gb);
        }
        if bytes > 10 * GB {
            note(&mut self.over_10_gb);
        }
        self.length_1_mb += usize::from(coflow.length().0 <= MEGABYTE);
        self.narrow += usize::from(width <= 50);
        self.note_ends(coflow);
        if let Some(class) = WIDTH_CLASSES.iter().rposition(|&least| width >= least) {
            let (count, sum) = &mut self.skews[class];
            *count += 1;
            *sum += skew(coflow);
        }
    }

    fn note_ends(&mut self, coflow: &CoflowSpec) {
        for flow in &coflow.flows {
            self.sent[flow.source.index()] += flow.size.0;
            self.received[flow.destination.index()] += flow.size.0;
        }
        let busiest = |sums: &[u64]| sums.iter().copied().max().unwrap_or(0);
        let ends = |sums: &[u64]| sums.iter().filter(|&&sum| sum > 0).count();
        self.sender_bound += usize::from(busiest(&self.sent) > busiest(&self.received));
        self.fewer_senders += usize::from(ends(&self.sent) < ends(&self.received));
        for flow in &coflow.flows {
            // Only what this coflow set: to clear all of both arrays would cost the number of hosts
            // for every coflow.
            self.sent[flow.source.index()] = 0;
            self.received[flow.destination.index()] = 0;
        }
    }

    fn of_coflows(&self, count: usize) -> f64 {
        if self.coflows == 0 { 0.0 } else { count as f64 / self.coflows as f64 }
    }

    fn share(&self, (count, bytes): (usize, u64)) -> Share {
        let bytes = if self.bytes == 0 { 0.0 } else { bytes as f64 / self.bytes as f64 };
        Share { coflows: self.of_coflows(count), bytes }
    }

    /// Number of hosts of the workload, idle ones included.
    pub fn hosts(&self) -> usize {
        self.hosts
    }
    /// Number of coflows counted so far.
    pub fn coflows(&self) -> usize {
        self.coflows
    }
    /// Number of flows of all coflows counted so far.
    pub fn flows(&self) -> u64 {
        self.flows
    }
    /// Bytes of all flows.
    pub fn bytes(&self) -> weir_model::Bytes {
        weir_model::Bytes(self.bytes)
    }
    /// Seconds to the last arrival.
    pub fn last_arrival_s(&self) -> f64 {
        self.last_arrival_s
    }
    /// Flows of the widest coflow.
    pub fn widest(&self) -> usize {
        self.widest
    }
    /// A bin of Table 4, 1 to 4.
    pub fn bin(&self, bin: u8) -> Share {
        self.share(self.bins[usize::from(bin) - 1])
    }
    /// Coflows of more than 10^9 bytes.
    pub fn over_1_gb(&self) -> Share {
        self.share(self.over_1_gb)
    }
    /// Coflows of more than 10^10 bytes.
    pub fn over_10_gb(&self) -> Share {
        self.share(self.over_10_gb)
    }
    /// Share of coflows whose largest flow has at most 2^20 bytes (the megabyte of the public trace).
    pub fn length_up_to_1_mb(&self) -> f64 {
        self.of_coflows(self.length_1_mb)
    }
    /// Share of coflows with at most 50 flows.
    pub fn narrow(&self) -> f64 {
        self.of_coflows(self.narrow)
    }
    /// Share of coflows whose busiest sender has more bytes than its busiest receiver.
    pub fn sender_bound(&self) -> f64 {
        self.of_coflows(self.sender_bound)
    }
    /// Share of coflows with fewer sending hosts than receiving ones.
    pub fn fewer_senders(&self) -> f64 {
        self.of_coflows(self.fewer_senders)
    }
    /// Mean coefficient of variation of flow sizes (rounded up to 1 MB) per class of
    /// [`WIDTH_CLASSES`]; none where the class is empty.
    pub fn skew_by_width(&self) -> [Option<f64>; 4] {
        self.skews.map(|(count, sum)| (count > 0).then(|| sum / count as f64))
    }
}

/// Coefficient of variation (standard deviation / mean) of flow sizes rounded up to 1 MB.
pub(crate) fn skew(coflow: &CoflowSpec) -> f64 {
    let rounded = || coflow.flows.iter().map(|flow| flow.size.0.div_ceil(SKEW_UNIT) as f64);
    let count = coflow.width() as f64;
    let mean = rounded().sum::<f64>() / count;
    let variance = rounded().map(|size| (size - mean) * (size - mean)).sum::<f64>() / count;
    variance.sqrt() / mean
}

/// What the Varys paper says of its own trace, where it says it.
pub mod published {
    use super::Share;

    /// Table 4, bins 1 to 4.
    pub const BINS: [Share; 4] = [
        Share { coflows: 0.52, bytes: 0.0001 },
        Share { coflows: 0.16, bytes: 0.0067 },
        Share { coflows: 0.15, bytes: 0.0022 },
        Share { coflows: 0.17, bytes: 0.9910 },
    ];
    /// Coflows of more than 1 GB: section 4.2.
    pub const OVER_1_GB: Share = Share { coflows: 0.15, bytes: 0.996 };
    /// Coflows of more than 10 GB: section 4.2.
    pub const OVER_10_GB: Share = Share { coflows: 0.08, bytes: 0.98 };
    /// Section 4.1: "more than".
    pub const LENGTH_UP_TO_1_MB: f64 = 0.40;
    /// Section 4.1: "more than".
    pub const NARROW: f64 = 0.60;
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, CoflowId, FlowSpec, HostId, Time};

    #[test]
    fn shares_count_coflows_and_bytes() {
        let coflow = |id, flows: &[(u32, u32, u64)]| {
            let flow = |&(source, destination, size): &(u32, u32, u64)| FlowSpec {
                source: HostId(source),
                destination: HostId(destination),
                size: Bytes(size),
                group: 0,
            };
            CoflowSpec::new(CoflowId(id), Time::ZERO, flows.iter().map(flow).collect())
        };
        let mut statistics = Statistics::new(3);
        // Host 0 sends 4 + 2 MB: bound by a sender, sizes 4 and 2 have mean 3 and deviation 1.
        statistics.add(&coflow(1, &[(0, 1, 4 << 20), (0, 2, (1 << 20) + 1)]));
        // 2 GB into host 1 from two: bound by the receiver, no skew.
        statistics.add(&coflow(2, &[(0, 1, GB), (2, 1, GB)]));
        assert_eq!((statistics.sender_bound(), statistics.fewer_senders()), (0.5, 0.5));
        assert_eq!(statistics.bin(1).coflows, 0.5);
        assert_eq!(statistics.over_1_gb().coflows, 0.5);
        assert!((statistics.over_1_gb().bytes - 2e9 / (2e9 + 5.0 * 1048576.0 + 1.0)).abs() < 1e-12);
        assert_eq!(statistics.skew_by_width(), [Some((1.0 / 3.0 + 0.0) / 2.0), None, None, None]);
        assert_eq!(statistics.length_up_to_1_mb(), 0.0);
    }
}

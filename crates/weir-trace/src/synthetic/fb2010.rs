//! A workload true to what the Varys paper publishes of its Facebook trace.
//!
//! # Problem
//! The paper (Chowdhury, Zhong, Stoica, SIGCOMM 2014, section 4 and Table 4) tells shares and tails of a
//! task-level trace that is not public; the public hour is another one: rack-level, with equal parts per
//! reducer and other shares.
//!
//! # Approach
//! Coflows come in seven kinds: the four bins of Table 4, the long ones divided where the paper divides
//! the tail, at 1 GB and 10 GB. How many of each kind there are is fixed ([`KINDS`]), so that a seed decides
//! which and when, never how many. Sizes of long coflows are spread over octaves between the bounds of
//! their kind and bent until the kind carries its share of the bytes; short coflows are made from the
//! length of their largest flow instead. Width is spread over octaves and independent of length where the
//! bin allows it. Flows differ within a coflow, more in wide ones. A coflow whose busiest end is on the
//! wrong side is transposed, so that senders are the bottleneck of exactly the share asked for.
//!
//! # Departures
//! * Hosts stand for machines with at most a few tasks of one coflow each, so nothing has millions of flows.
//! * **Total bytes.** 7 % of the coflows lie between 1 and 10 GB and carry 1.6 % of all bytes. At the public
//!   hour's 71 GB per coflow these would average 71 GB * 0.016 / 0.07 = 16 GB, which cannot be; only the far
//!   end of rounding (8 % and 0.9 %) would fit. 38 GB per coflow is used here, 20 TB in 526 coflows: a load
//!   of 30 % of 150 links of 1 Gbit/s over the hour, where the public hour has 55 %.
//! * Arrivals are independent and uniform over the time; the paper publishes no more. Whole milliseconds.

use super::draw::{Draw, with_mean};
use crate::Workload;
use weir_model::{Bytes, CoflowId, CoflowSpec, FlowSpec, HostId, Pattern, Time};

/// What to make. The defaults are the size of the public hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fb2010 {
    /// Number of hosts, at least 1.
    pub hosts: u32,
    /// Number of coflows, each a job of its own.
    pub coflows: usize,
    /// All coflows arrive within this time.
    pub seconds: u64,
    /// Everything else follows from it.
    pub seed: u64,
}

impl Default for Fb2010 {
    fn default() -> Fb2010 {
        Fb2010 { hosts: 150, coflows: 526, seconds: 3600, seed: 1 }
    }
}

const MB: f64 = 1e6;
const GB: f64 = 1e9;

/// Mean bytes of a coflow; see Departures.
const MEAN_BYTES: f64 = 38.0 * GB;
/// Most flows of a narrow coflow.
const NARROW: u64 = 50;
/// A coflow is long if its largest flow has at least this.
const LONG: f64 = 5.0 * MB;
/// Share of coflows whose busiest sender is busier than its busiest receiver: "almost a third".
const SENDER_BOUND: f64 = 0.32;
/// A coflow gets enough senders and receivers that this is what each moves on average, where hosts allow
/// it: half a minute at 1 Gbit/s.
const BYTES_PER_END: f64 = 4.0 * GB;
/// Tasks of one side of a coflow, at most, where there are fewer hosts than this.
const FEWEST_ENDS: u64 = 16;

struct Kind {
    /// Coflows of this kind among 100.
    coflows: f64,
    wide: bool,
    size: Size,
}

enum Size {
    /// Largest flow under 5 MB: `shortest` to 1 MB for a `tiny` share, at least `others` for the rest.
    Short { tiny: f64, shortest: f64, others: f64 },
    /// Largest flow at least 5 MB; size between bounds, and share of all bytes in percent.
    Long { low: f64, high: f64, bytes: f64 },
}

/// Coflows sum to 100. Bytes: bin 1 about 0.01, bin 3 about 0.2 (what their lengths give), bin 2
/// 0.12 + 0.55 = 0.67, bin 4 0.09 + 0.69 + 98.32 = 99.10. Over 1 GB: 3 + 4 + 8 = 15 coflows with
/// 99.56 % of the bytes; over 10 GB 8 with 98.32 %. The bounds keep away from 1 GB and 10 GB on both
/// sides, so that it does not matter whether a GB is 10^9 or 2^30 bytes.
const KINDS: [Kind; 7] = [
    Kind {
        coflows: 52.0,
        wide: false,
        size: Size::Short { tiny: 0.77, shortest: 0.2 * MB, others: 3.0 * MB },
    },
    Kind {
        coflows: 15.0,
        wide: true,
        size: Size::Short { tiny: 0.12, shortest: 0.5 * MB, others: 3.5 * MB },
    },
    Kind { coflows: 13.0, wide: false, size: Size::Long { low: 0.006 * GB, high: 0.95 * GB, bytes: 0.12 } },
    Kind { coflows: 3.0, wide: false, size: Size::Long { low: 1.1 * GB, high: 9.5 * GB, bytes: 0.55 } },
    Kind { coflows: 5.0, wide: true, size: Size::Long { low: 0.35 * GB, high: 0.95 * GB, bytes: 0.09 } },
    Kind { coflows: 4.0, wide: true, size: Size::Long { low: 1.1 * GB, high: 9.5 * GB, bytes: 0.69 } },
    Kind { coflows: 8.0, wide: true, size: Size::Long { low: 11.0 * GB, high: 3000.0 * GB, bytes: 98.32 } },
];
/// Largest size of a short coflow; longer lengths are cut to it.
const SHORT_SIZE: f64 = 0.95 * GB;

/// A coflow before it has a place and a time.
struct Sketch {
    senders: u64,
    receivers: u64,
    /// By receiver, then sender.
    sizes: Vec<u64>,
}

impl Fb2010 {
    /// Draws all coflows; the same parameters and seed give the same workload.
    pub fn generate(&self) -> Workload {
        let mut draw = Draw::new(self.seed);
        let ends = u64::from(self.hosts).max(FEWEST_ENDS);
        let mut sketches = Vec::with_capacity(self.coflows);
        for (kind, count) in KINDS.iter().zip(quotas(self.coflows)) {
            match kind.size {
                Size::Short { tiny, shortest, others } => {
                    for rank in 0..count {
                        let tiny = (rank as f64) < tiny * count as f64;
                        let (low, high) = if tiny { (shortest, MB) } else { (others, 4.9 * MB) };
                        let length = draw.octaves(low, high);
                        sketches.push(short(&mut draw, kind.wide, length, ends));
                    }
                }
                Size::Long { low, high, bytes } => {
                    // Per cent over per cent: the share of all bytes over the share of all coflows.
                    let mean = MEAN_BYTES * bytes / kind.coflows;
                    for size in with_mean(&mut draw, count, low, high, mean) {
                        sketches.push(long(&mut draw, kind.wide, size, ends));
                    }
                }
            }
        }
        draw.shuffle(&mut sketches);
        let bound = (SENDER_BOUND * self.coflows as f64).round() as usize;
        turn_ends(&mut draw, &mut sketches, bound);
        self.place(&mut draw, sketches)
    }

    /// Gives every sketch an arrival and hosts.
    fn place(&self, draw: &mut Draw, sketches: Vec<Sketch>) -> Workload {
        let mut arrivals: Vec<u64> = sketches.iter().map(|_| draw.below(self.seconds * 1000)).collect();
        // Ids rise with arrivals. Sketches were shuffled before, so that kinds are spread over the
        // time.
        arrivals.sort_unstable();
        let mut hosts: Vec<u32> = (0..self.hosts).collect();
        let mut coflows = Vec::with_capacity(sketches.len());
        for ((id, sketch), arrival) in (1..).zip(sketches).zip(arrivals) {
            // More tasks than hosts: the hosts come again in the same order.
            let mut ends = |count: u64| -> Vec<HostId> {
                draw.shuffle(&mut hosts);
                hosts.iter().cycle().take(count as usize).map(|&host| HostId(host)).collect()
            };
            let (senders, receivers) = (ends(sketch.senders), ends(sketch.receivers));
            let pairs = (0u32..).zip(receivers).flat_map(|(group, destination)| {
                senders.iter().map(move |&source| (source, destination, group))
            });
            let flow = |((source, destination, group), size)| FlowSpec {
                source,
                destination,
                size: Bytes(size),
                group,
            };
            let flows = pairs.zip(sketch.sizes).map(flow).collect();
            let mut coflow = CoflowSpec::new(CoflowId(id), Time::from_millis(arrival), flows);
            coflow.pattern = Pattern::Shuffle;
            coflows.push(coflow);
        }
        Workload::from_coflows("synthetic:fb2010", self.hosts, coflows)
    }
}

/// Coflows of each kind: whole parts first, then one more where most was cut off.
fn quotas(coflows: usize) -> Vec<usize> {
    let exact = |kind: &Kind| kind.coflows / 100.0 * coflows as f64;
    let mut counts: Vec<usize> = KINDS.iter().map(|kind| exact(kind) as usize).collect();
    let mut order: Vec<usize> = (0..KINDS.len()).collect();
    let cut = |kind: &usize| exact(&KINDS[*kind]) - counts[*kind] as f64;
    order.sort_by(|a, b| cut(b).total_cmp(&cut(a)));
    let left = coflows - counts.iter().sum::<usize>();
    for &kind in order.iter().cycle().take(left) {
        counts[kind] += 1;
    }
    counts
}

/// Senders and receivers whose product lies between `least` and `most` where `ends` allows it, each at
/// least `fewest`.
fn draw_ends(draw: &mut Draw, least: u64, most: u64, fewest: u64, ends: u64) -> (u64, u64) {
    let most = most.min(ends * ends);
    let width = draw.whole_octaves(least.min(most), most);
    // One side has up to 16 times as many tasks as a square would give it, the other as few.
    let lean = draw.octaves(1.0, 16.0);
    let larger = (f64::sqrt(width as f64) * lean) as u64;
    let larger = larger.min(width).clamp(fewest.max(1), ends.max(fewest));
    let mut smaller = (width / larger).clamp(fewest.max(1), ends);
    while larger * smaller > most && smaller > 1 {
        smaller -= 1;
    }
    while larger * smaller < least && smaller < ends {
        smaller += 1;
    }
    if draw.below(2) == 0 { (larger, smaller) } else { (smaller, larger) }
}

fn short(draw: &mut Draw, wide: bool, length: f64, ends: u64) -> Sketch {
    let (senders, receivers) =
        if wide { draw_ends(draw, NARROW + 1, 22_500, 1, ends) } else { draw_ends(draw, 1, NARROW, 1, ends) };
    let weights = weights(draw, senders * receivers);
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let sum: f64 = weights.iter().sum();
    let scale = (length / largest).min(SHORT_SIZE / sum);
    Sketch { senders, receivers, sizes: sizes(&weights, scale) }
}

fn long(draw: &mut Draw, wide: bool, size: f64, ends: u64) -> Sketch {
    // No more flows than keep the average flow long: then the largest is long, too.
    let most = (size / LONG) as u64;
    let fewest = ((size / BYTES_PER_END).ceil() as u64).min(ends);
    let (senders, receivers) = if wide {
        draw_ends(draw, (NARROW + 1).max(fewest * fewest), most, fewest, ends)
    } else {
        draw_ends(draw, 1, most.min(NARROW), 1, ends)
    };
    let weights = weights(draw, senders * receivers);
    let scale = size / weights.iter().sum::<f64>();
    Sketch { senders, receivers, sizes: sizes(&weights, scale) }
}

fn sizes(weights: &[f64], scale: f64) -> Vec<u64> {
    weights.iter().map(|weight| ((weight * scale).round() as u64).max(1)).collect()
}

/// Relative sizes of the flows of a coflow: 1 / (e + u) with u uniform, whose coefficient of variation
/// rises as e falls: 0.7 at 1/10, 1.5 at 1/50, 2.2 at 1/137. 1 / e grows with the cube of the width's bits:
/// about 3 for 10 flows, 50 for 1000, 137 for 10,000, times a factor of the coflow's own.
fn weights(draw: &mut Draw, width: u64) -> Vec<f64> {
    let bits = f64::from(u64::BITS - width.leading_zeros());
    let spread = bits * bits * bits / 20.0 * draw.between(0.3, 1.5);
    (0..width).map(|_| 1.0 / (1.0 / spread + draw.unit())).collect()
}

impl Sketch {
    /// Bytes of the busiest sender and of the busiest receiver.
    fn busiest(&self) -> (u64, u64) {
        let mut sent = vec![0; self.senders as usize];
        let mut received = 0;
        for row in self.sizes.chunks(self.senders as usize) {
            received = received.max(row.iter().sum());
            sent.iter_mut().zip(row).for_each(|(sum, size)| *sum += size);
        }
        (sent.into_iter().max().unwrap_or(0), received)
    }

    /// Senders become receivers and the other way round.
    fn transpose(&mut self) {
        let (senders, receivers) = (self.senders as usize, self.receivers as usize);
        let at = |index: usize| self.sizes[(index % receivers) * senders + index / receivers];
        self.sizes = (0..senders * receivers).map(at).collect();
        std::mem::swap(&mut self.senders, &mut self.receivers);
    }
}

/// Makes exactly `bound` coflows limited by a sender (as far as that many have a busier side); the others
/// by a receiver, or by both alike.
fn turn_ends(draw: &mut Draw, sketches: &mut [Sketch], bound: usize) {
    let mut order: Vec<usize> = (0..sketches.len()).collect();
    draw.shuffle(&mut order);
    let mut wanted = bound;
    for index in order {
        let (sent, received) = sketches[index].busiest();
        // The other way round it would be limited by both sides again.
        if sent == received {
            continue;
        }
        if (sent > received) != (wanted > 0) {
            sketches[index].transpose();
        }
        wanted = wanted.saturating_sub(1);
    }
}

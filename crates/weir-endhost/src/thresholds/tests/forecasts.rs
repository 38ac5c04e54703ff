//! Forecasts: by hand, by known figures, and by a simulated queue.

use super::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use weir_model::{Bytes, Rate};

fn packets(text: &str) -> FlowSizes {
    let line = |line: &str| match line.split_once(' ') {
        Some((packets, share)) => format!("{} {share}\n", packets.parse::<u64>().unwrap() * PACKET as u64),
        None => String::new(),
    };
    FlowSizes::from_text("test", &text.lines().map(line).collect::<String>()).unwrap()
}

fn near(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-9 * right.abs().max(1.0)
}

/// Half of the flows have 1 packet, half 3.
fn one_or_three() -> FlowSizes {
    packets("1 0\n1 0.5\n3 0.5\n3 1")
}

#[test]
fn one_level_is_the_queue_of_pollaczek_and_khinchine() {
    // M/D/1 at load 0.5: 0.5 / (2 * 0.5) packets of waiting, and 1.
    let none = Thresholds::none();
    assert!(near(traffic(packets("1 1"), 0.5, 0.0, 0.0, Urgent::Paced).mean(&none).0, 1.5));
    // Half of the load has deadlines. A link of 0.75: 4/3 each, load 1/3, waiting 4/3 * (1/3) / (2 * 2/3) = 1/3.
    assert!(near(traffic(packets("1 1"), 0.5, 0.5, 0.0, Urgent::Paced).mean(&none).0, 5.0 / 3.0));
    // As bursts: 0.5 / (2 * 0.75 * 0.5) = 2/3 of waiting, and 1 / 0.75.
    assert!(near(traffic(packets("1 1"), 0.5, 0.5, 0.0, Urgent::Bursts).mean(&none).0, 2.0));
    // Those with a deadline are two packets each: S = 0.25 * 2 + 0.25, and (0.75 + 1) / 0.75.
    let size = Some(Bytes(2 * weir_trace::PACKET_PAYLOAD.0));
    let mix = Mix { deadline_bytes: 0.5, deadline_size: size, ..Mix::UNKNOWN };
    let of_two = Traffic::new(packets("1 1"), 0.5, &mix, Urgent::Bursts).unwrap();
    assert!(near(of_two.mean(&none).0, 7.0 / 3.0));
    // 1500 bytes of wire at 12 Mbit/s are a millisecond.
    assert!(near(PacketTimes(2.0).secs(Rate::from_bits_per_sec(12e6)), 0.002));
}

#[test]
fn two_levels_agree_with_sums_by_hand() {
    let at_one = Thresholds::same(vec![Bytes(1460)]);
    let mean = |known| traffic(one_or_three(), 0.5, 0.0, known, Urgent::Paced).forecast(&at_one);
    // 0.25 flows a packet time. Known: sigma_1 = S_1 = 0.125, R_1 = 0.125 / 1.75; S_2 = 0.25 * 5, R_2 = 1.25.
    let known = mean(1.0);
    assert!(near(known.mean.0, 0.5 * (0.125 / 1.75 + 1.0) + 0.5 * 4.25 / 0.875));
    assert_eq!((known.unknown, known.known), (None, Some(known.mean)));
    // Unknown: the first packets of all flows are in the first level, sigma_1 = S_1 = 0.25, R_1 = 1/6.
    let unknown = mean(0.0);
    assert!(near(unknown.mean.0, 0.5 * (7.0 / 6.0) + 0.5 * 4.25 / 0.75));
    // Half of each: sigma_1 = S_1 = 0.1875.
    let both = mean(0.5);
    let (first, second) = (0.1875 / 1.625 + 1.0, 4.25 / 0.8125);
    assert!(near(both.mean.0, 0.5 * (first + second)));
    let [one, two] = both.levels[..] else { panic!("two levels") };
    assert!(near(one.load, 0.1875) && near(two.load, 0.5) && near(one.flows, 0.5) && near(two.flows, 0.5));
    assert!(near(one.mean.unwrap().0, first) && near(two.mean.unwrap().0, second));
}

/// PIAS's figures with one queue and with its own thresholds of 8 levels.
#[test]
fn the_model_gives_the_figures_known_for_it() {
    for (sizes, one, published) in
        [("web-search-packets", 15_678.0, 5724.0), ("data-mining-packets", 671_859.0, 34_830.0)]
    {
        let traffic = unknown(sizes, 0.8);
        let theirs = pias(sizes, 0.8).unwrap();
        for (thresholds, wanted) in [(Thresholds::none(), one), (theirs, published)] {
            let mean = traffic.mean(&thresholds).0;
            assert!((mean - wanted).abs() < 1.0, "{sizes}: {mean} instead of {wanted}");
        }
    }
}

/// Flows through one server that serves by (level, arrival of the flow).
struct Queue<'a> {
    sizes: &'a FlowSizes,
    load: f64,
    known: f64,
    thresholds: &'a Thresholds,
}

struct Waiting {
    arrival: f64,
    size: f64,
    sent: f64,
    known: bool,
}

impl Queue<'_> {
    fn level(&self, flow: &Waiting) -> usize {
        // At a threshold the next byte is of the next level.
        let (ends, at) = match flow.known {
            true => (self.thresholds.splitting(), flow.size - 0.5),
            false => (self.thresholds.demotion(), flow.sent + 0.5),
        };
        ends.partition_point(|end| (end.0 as f64) < at)
    }

    fn flow(&self, arrival: f64, random: &mut ChaCha8Rng) -> Waiting {
        let size = self.sizes.draw(random).0 as f64;
        Waiting { arrival, size, sent: 0.0, known: random.random::<f64>() < self.known }
    }

    /// Mean completion time of so many flows, in packet times.
    fn mean(&self, flows: u64, seed: u64) -> f64 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let gap = self.sizes.mean() / self.load;
        let mut waiting: BTreeMap<(usize, u64), Waiting> = BTreeMap::new();
        let (mut now, mut arrival, mut arrived, mut sum) = (0.0, 0.0, 0, 0.0);
        while arrived < flows || !waiting.is_empty() {
            let arrives = if arrived < flows { arrival } else { f64::INFINITY };
            let mut until = arrives;
            if let Some((key, mut flow)) = waiting.pop_first() {
                let end = match self.thresholds.demotion().get(key.0) {
                    Some(end) if !flow.known => flow.size.min(end.0 as f64),
                    _ => flow.size,
                };
                until = (now + end - flow.sent).min(arrives);
                flow.sent = if until < arrives { end } else { flow.sent + until - now };
                if flow.sent >= flow.size {
                    sum += until - flow.arrival;
                } else {
                    waiting.insert((self.level(&flow), key.1), flow);
                }
            }
            now = until;
            if now >= arrives {
                let flow = self.flow(now, &mut random);
                waiting.insert((self.level(&flow), arrived), flow);
                arrived += 1;
                arrival -= gap * (1.0 - random.random::<f64>()).ln();
            }
        }
        sum / flows as f64 / PACKET
    }
}

#[test]
fn a_simulated_queue_agrees_with_the_model() {
    let sizes = packets("1 0\n1 0.4\n4 0.6\n4 0.8\n30 1");
    let cuts = |values: [u64; 2]| values.map(|packets| Bytes(packets * PACKET as u64)).to_vec();
    let thresholds = Thresholds::new(cuts([2, 6]), cuts([3, 10])).unwrap();
    for known in [0.0, 0.5, 1.0] {
        let model = traffic(sizes.clone(), 0.7, 0.0, known, Urgent::Paced).mean(&thresholds).0;
        let queue = Queue { sizes: &sizes, load: 0.7, known, thresholds: &thresholds };
        let seen = queue.mean(400_000, 1);
        // Runs with ten other seeds lie within 1.1 % of the model.
        assert!((seen / model - 1.0).abs() < 0.02, "known {known}: {seen} instead of {model}");
    }
}

#[test]
fn what_is_no_traffic_or_no_thresholds_is_refused_with_the_reason() {
    let refused = |load, deadline, known| {
        let mix = Mix { deadline_bytes: deadline, known, ..Mix::UNKNOWN };
        Traffic::new(packets("1 1"), load, &mix, Urgent::Paced).unwrap_err().to_string()
    };
    assert!(refused(1.0, 0.0, 0.0).contains("the load is 1: it must be above 0 and below 1"));
    assert!(refused(f64::NAN, 0.0, 0.0).contains("the load is NaN"));
    assert!(refused(0.5, -0.5, 0.0).contains("the share of deadline bytes is -0.5"));
    assert!(refused(0.5, 0.0, 2.0).contains("the share of known sizes is 2"));
    assert!(refused(0.5, 1.0, 0.0).contains("all bytes are of flows with a deadline"));
    let error = Thresholds::new(vec![Bytes(1)], Vec::new()).unwrap_err().to_string();
    assert!(error.starts_with("1 demotion and 0 splitting thresholds"), "{error}");
    let error = Thresholds::new(vec![Bytes(1), Bytes(2)], vec![Bytes(5), Bytes(4)]).unwrap_err().to_string();
    assert_eq!(error, "splitting threshold 2 is 4 bytes, less than the 5 before it");
}

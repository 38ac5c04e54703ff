//! Levels that share: by hand, by a simulated queue, and the search against its promises.

use super::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::num::NonZeroUsize;
use weir_model::Bytes;

const EIGHT: NonZeroUsize = NonZeroUsize::new(8).unwrap();

fn shared(sizes: FlowSizes, load: f64, deadline: f64, known: f64) -> Traffic {
    traffic(sizes, load, deadline, known, Urgent::Paced).served(Service::Shared)
}

fn named(name: &str) -> FlowSizes {
    FlowSizes::named(name).unwrap()
}

/// Of 1 packet, of 4, and of up to 30.
fn small() -> FlowSizes {
    FlowSizes::from_text("test", "1460 0\n1460 0.4\n5840 0.6\n5840 0.8\n43800 1").unwrap()
}

#[test]
fn one_level_that_shares_takes_the_size_over_what_is_free() {
    for known in [0.0, 0.5, 1.0] {
        // Processor sharing: x / (1 - 0.8), whatever the distribution; 1 711 250 bytes on average.
        let mean = shared(named("web-search"), 0.8, 0.0, known).mean(&Thresholds::none()).0;
        assert!((mean * PACKET * 0.2 / 1_711_250.0 - 1.0).abs() < 1e-9, "{mean}");
        // A quarter of the load has deadlines, paced: a link of 0.8 with 0.6 on it.
        let mean = shared(named("web-search"), 0.8, 0.25, known).mean(&Thresholds::none()).0;
        assert!((mean * PACKET * 0.2 / 1_711_250.0 - 1.0).abs() < 1e-9, "{mean}");
    }
}

/// Exponential sizes, for which the equation of a level has a solution in closed form.
#[test]
fn a_level_of_exponential_sizes_costs_what_the_closed_form_says() {
    // P(X > x) = e^(-x / 100 000), in steps of a fiftieth of the mean, up to twenty times the mean.
    let share = |step: u64| 1.0 - (-(step as f64) / 50.0).exp();
    let lines = (0..1000).map(|step| format!("{} {}\n", step * 2000, share(step)));
    let text = lines.chain(["2000000 1".to_owned()]).collect::<String>();
    let sizes = FlowSizes::from_text("test", &text).unwrap();
    let (mean, load) = (sizes.mean(), 0.8);
    // Two levels, at the mean. Sizes beyond it are exponential again. In the time that the first level leaves, flows
    // that share with batches of n others stay for m / (1 - rho) + n m / (2 (1 - rho)) on average (M^X/M/1).
    let cut = Bytes(100_000);
    let rate = load / mean;
    let (first, squares) = (rate * sizes.mean_capped(cut), rate * sizes.mean_square_capped(cut));
    let (free, longer) = (1.0 - first, 1.0 - sizes.cdf(cut));
    let wait = (squares / 2.0 / free + 100_000.0) / free;
    let others = 2.0 * rate * longer * wait;
    let stay = (1.0 + others / 2.0) * mean / (1.0 - load);
    let forecast = shared(sizes, load, 0.0, 0.0).forecast(&Thresholds::same(vec![cut]));
    let seen = forecast.levels[1].mean.unwrap().0 * PACKET;
    assert!((seen / (wait + stay) - 1.0).abs() < 0.005, "{seen} instead of {}", wait + stay);
}

/// Flows through one server that serves the highest level with anyone in it, all in it at the same rate.
struct SharedQueue<'a> {
    sizes: &'a FlowSizes,
    load: f64,
    known: f64,
    thresholds: &'a Thresholds,
}

struct Present {
    arrival: f64,
    size: f64,
    sent: f64,
    known: bool,
}

impl SharedQueue<'_> {
    fn level(&self, flow: &Present) -> usize {
        // Half a byte on, so that sums of rates that are a little short of a threshold have passed it.
        let (ends, at) = match flow.known {
            true => (self.thresholds.splitting(), flow.size - 0.5),
            false => (self.thresholds.demotion(), flow.sent + 0.5),
        };
        ends.partition_point(|end| (end.0 as f64) < at)
    }

    /// What a flow sends until it leaves its level.
    fn to_send(&self, flow: &Present) -> f64 {
        let end = match self.thresholds.demotion().get(self.level(flow)) {
            Some(end) if !flow.known => flow.size.min(end.0 as f64),
            _ => flow.size,
        };
        (end - flow.sent).max(0.0)
    }

    /// Mean completion time of so many flows, in packet times.
    fn mean(&self, flows: u64, seed: u64) -> f64 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let gap = self.sizes.mean() / self.load;
        let mut present: Vec<Present> = Vec::new();
        let (mut now, mut arrival, mut arrived, mut sum) = (0.0, 0.0, 0, 0.0);
        while arrived < flows || !present.is_empty() {
            let highest = present.iter().map(|flow| self.level(flow)).min();
            let served: Vec<usize> =
                (0..present.len()).filter(|&at| Some(self.level(&present[at])) == highest).collect();
            let least = served.iter().map(|&at| self.to_send(&present[at])).fold(f64::INFINITY, f64::min);
            let sharing = served.len().max(1) as f64;
            let arrives = if arrived < flows { arrival } else { f64::INFINITY };
            let until = arrives.min(now + least * sharing);
            for at in served {
                present[at].sent += (until - now) / sharing;
            }
            now = until;
            present.retain(|flow| {
                let ended = flow.sent > flow.size - 0.5;
                sum += if ended { now - flow.arrival } else { 0.0 };
                !ended
            });
            if now >= arrives {
                let size = self.sizes.draw(&mut random).0 as f64;
                let known = random.random::<f64>() < self.known;
                present.push(Present { arrival, size, sent: 0.0, known });
                arrived += 1;
                arrival -= gap * (1.0 - random.random::<f64>()).ln();
            }
        }
        sum / flows as f64 / PACKET
    }
}

#[test]
fn a_simulated_queue_that_shares_agrees_with_the_model() {
    let sizes = small();
    let cuts = |values: [u64; 2]| values.map(|packets| Bytes(packets * PACKET as u64)).to_vec();
    let thresholds = Thresholds::new(cuts([2, 6]), cuts([3, 10])).unwrap();
    for known in [0.0, 0.5, 1.0] {
        let model = shared(sizes.clone(), 0.7, 0.0, known).mean(&thresholds).0;
        let queue = SharedQueue { sizes: &sizes, load: 0.7, known, thresholds: &thresholds };
        let seen = queue.mean(400_000, 1);
        // With this seed within 0.2 % of the model.
        assert!((seen / model - 1.0).abs() < 0.02, "known {known}: {seen} instead of {model}");
    }
}

/// The sum over heavy tails is off by per cents in any run of this length; what thresholds change in the same arrivals is not.
#[test]
fn what_thresholds_change_in_a_queue_that_shares_is_what_the_model_says() {
    for (name, known) in [("web-search", 0.0), ("data-mining", 0.0), ("web-search", 0.5)] {
        let (sizes, load) = (named(name), 0.5);
        let traffic = shared(sizes.clone(), load, 0.0, known);
        let theirs = pias(name, load).unwrap();
        let ours = optimise(&traffic, EIGHT, 1).thresholds;
        let seen =
            |thresholds: &Thresholds| SharedQueue { sizes: &sizes, load, known, thresholds }.mean(100_000, 1);
        let one = (seen(&Thresholds::none()), traffic.mean(&Thresholds::none()).0);
        assert!((one.0 / one.1 - 1.0).abs() < 0.1, "{name}: {one:?}");
        for thresholds in [&theirs, &ours] {
            // Within 0.5 % in all six.
            let (seen, model) = (seen(thresholds) / one.0, traffic.mean(thresholds).0 / one.1);
            assert!((seen / model - 1.0).abs() < 0.01, "{name} {known}: {seen} instead of {model}");
        }
    }
}

#[test]
fn more_points_of_a_level_change_nothing_that_matters() {
    // Solved with 32 points, against 600 by a program that shares no code with this one.
    for (name, load, thresholds, wanted) in [
        ("web-search", 0.8, vec![200_000, 5_000_000], 5206.2),
        ("data-mining", 0.8, vec![400_000, 100_000_000], 42_560.8),
        ("data-mining", 0.5, vec![400_000, 100_000_000], 17_064.1),
    ] {
        let thresholds = Thresholds::same(thresholds.into_iter().map(Bytes).collect());
        let mean = shared(named(name), load, 0.0, 0.0).mean(&thresholds).0;
        assert!((mean / wanted - 1.0).abs() < 1e-3, "{name} {load}: {mean} instead of {wanted}");
    }
}

#[test]
fn thresholds_for_levels_that_share_beat_those_published_and_those_for_first_come_first_served() {
    for name in FlowSizes::names() {
        for load in PIAS_LOADS {
            let (traffic, fifo) = (shared(named(name), load, 0.0, 0.0), unknown(name, load));
            let (found, theirs) = (optimise(&traffic, EIGHT, 1), pias(name, load).unwrap());
            assert_eq!(found.mean, traffic.mean(&found.thresholds));
            let for_fifo = optimise(&fifo, EIGHT, 1).thresholds;
            for other in [&theirs, &for_fifo] {
                let other = traffic.mean(other);
                assert!(found.mean < other, "{name} {load}: {found:?} {other:?}");
            }
            // Nor are those published better where levels are first come, first served.
            let [ours, theirs] = [&found.thresholds, &theirs].map(|thresholds| fifo.mean(thresholds));
            assert!(ours < theirs, "{name} {load}: {ours:?} {theirs:?}");
        }
    }
}

#[test]
fn thresholds_of_both_kinds_for_levels_that_share_are_no_worse_than_the_same_for_both() {
    let traffic = shared(named("web-search"), 0.8, 0.2, 0.5);
    let seven = NonZeroUsize::new(7).unwrap();
    let found = optimise(&traffic, seven, 1);
    let same = Thresholds::same(found.thresholds.demotion().to_vec());
    assert!(found.mean <= traffic.mean(&same));
    assert!(
        found.mean < traffic.mean(&Thresholds::none())
            && found.mean < traffic.mean(&even_split(&traffic, seven))
    );
    assert_eq!(found, optimise(&traffic, seven, 2));
}

//! The search: by known figures, by shortest paths over a grid, and by its promises.

use super::*;
use proptest::prelude::*;
use std::num::NonZeroUsize;
use weir_model::Bytes;

fn levels(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

/// The least mean completion times known for 8 levels.
#[test]
fn the_search_finds_the_figures_known_for_it() {
    for (sizes, best) in [("web-search-packets", 4464.0), ("data-mining-packets", 17_446.0)] {
        let mean = optimise(&unknown(sizes, 0.8), levels(8), 1).mean.0;
        assert!((mean - best).abs() < 1.0, "{sizes}: {mean} instead of {best}");
    }
}

/// The best thresholds of one kind over a grid of sizes, the other kind's given: level by level the cost depends on
/// two neighbouring thresholds alone, so the least sum is a shortest path. Only for one kind is it all there is.
struct Grid<'a> {
    sizes: &'a FlowSizes,
    load: f64,
    known: f64,
    /// The thresholds of the other kind, with 0 before them and the largest size after.
    others: Vec<Bytes>,
    /// Whether known sizes are sought.
    seeks_known: bool,
}

impl Grid<'_> {
    fn cost(&self, level: usize, from: Bytes, to: Bytes) -> f64 {
        let (before, end) = (self.others[level], self.others[level + 1]);
        let [(k0, k1), (u0, u1)] =
            if self.seeks_known { [(from, to), (before, end)] } else { [(before, end), (from, to)] };
        let rate = self.load / self.sizes.mean();
        let (known, unknown) = (rate * self.known, rate * (1.0 - self.known));
        let sizes = self.sizes;
        let load = |k: Bytes, u: Bytes| known * sizes.below(k).first + unknown * sizes.mean_capped(u);
        let squares = known * sizes.below(k1).second + unknown * sizes.mean_square_capped(u1);
        let work = squares / 2.0 / (1.0 - load(k1, u1));
        let part = |low: Bytes, high: Bytes| {
            let (low, high) = (sizes.below(low), sizes.below(high));
            (high.share - low.share) * work + high.first - low.first
        };
        let sum = self.known * part(k0, k1) + (1.0 - self.known) * part(u0, u1);
        sum / (1.0 - load(k0, u0)) / PACKET
    }

    fn least(&self, steps: u32) -> f64 {
        let most = self.sizes.largest();
        let even =
            (1..steps).map(|step| (f64::from(step) / f64::from(steps) * (most.0 as f64).ln()).exp() as u64);
        let bends = self.sizes.points().flat_map(|size| [size.0.saturating_sub(1), size.0]);
        let mut grid: Vec<u64> = even.chain(bends).filter(|size| *size > 0).collect();
        grid.sort_unstable();
        grid.dedup();
        let last = self.others.len() - 2;
        let mut least: Vec<f64> = grid.iter().map(|&to| self.cost(0, Bytes(0), Bytes(to))).collect();
        for level in 1..=last {
            let reach = |to: usize| {
                let from = |from: usize| least[from] + self.cost(level, Bytes(grid[from]), Bytes(grid[to]));
                (0..=to).map(from).fold(f64::INFINITY, f64::min)
            };
            least = (0..grid.len()).map(reach).collect();
        }
        least[grid.len() - 1]
    }
}

fn framed(thresholds: &[Bytes], sizes: &FlowSizes) -> Vec<Bytes> {
    [&[Bytes(0)], thresholds, &[sizes.largest()]].concat()
}

#[test]
fn no_thresholds_of_unknown_sizes_on_a_grid_are_better_than_those_found() {
    for name in FlowSizes::names() {
        for load in [0.5, 0.8] {
            let sizes = FlowSizes::named(name).unwrap();
            let found = optimise(&unknown(name, load), levels(8), 1).mean.0;
            let others = framed(&[sizes.largest(); 7], &sizes);
            let grid = Grid { sizes: &sizes, load, known: 0.0, others, seeks_known: false };
            let least = grid.least(150);
            // Sizes between the points of the grid may be better, and the search may miss a ten-thousandth.
            assert!(found <= least * 1.0001, "{name} {load}: {found} found, {least} on the grid");
            // The grid has the bends, and is not far off anywhere.
            assert!(found >= least * 0.99, "{name} {load}: {found} found, {least} on the grid");
        }
    }
}

#[test]
fn neither_kind_of_thresholds_can_be_bettered_alone() {
    let sizes = FlowSizes::named("web-search").unwrap();
    let found = optimise(&traffic(sizes.clone(), 0.8, 0.0, 0.5, Urgent::Paced), levels(8), 1);
    for (seeks_known, others) in [(true, found.thresholds.demotion()), (false, found.thresholds.splitting())]
    {
        let others = framed(others, &sizes);
        let least = Grid { sizes: &sizes, load: 0.8, known: 0.5, others, seeks_known }.least(150);
        assert!(found.mean.0 <= least * (1.0 + 1e-6), "{seeks_known}: {} found, {least}", found.mean.0);
    }
}

#[test]
fn the_start_brings_levels_evenly_towards_saturation() {
    let traffic = traffic(FlowSizes::named("web-search").unwrap(), 0.8, 0.25, 0.5, Urgent::Paced);
    let start = even_split(&traffic, levels(7));
    let loads: Vec<f64> = traffic.forecast(&start).levels.iter().map(|level| 1.0 - level.load).collect();
    // From 0.8, what deadlines leave, to 0.2 in 7 equal factors.
    let factor = f64::powf(0.25, 1.0 / 7.0);
    for (level, free) in (1..).zip(loads) {
        assert!((free - 0.8 * factor.powi(level)).abs() < 1e-4, "{level}: {free}");
    }
}

/// Descent alone ended with 12 levels a sixth of a percent above 8: no threshold alone could bring a level elsewhere.
#[test]
fn spare_levels_are_no_loss_where_kinds_depend_on_each_other() {
    let traffic = traffic(FlowSizes::named("web-search").unwrap(), 0.8, 0.0, 0.5, Urgent::Paced);
    let [eight, twelve] = [8, 12].map(|count| optimise(&traffic, levels(count), 1).mean.0);
    assert!(twelve <= eight * 1.0001, "{eight} {twelve}");
}

#[test]
fn published_thresholds_are_never_better() {
    for name in FlowSizes::names() {
        for load in PIAS_LOADS {
            let (traffic, theirs) = (unknown(name, load), pias(name, load).unwrap());
            assert!(optimise(&traffic, levels(8), 1).mean < traffic.mean(&theirs), "{name} {load}");
        }
    }
}

#[test]
fn knowing_sizes_helps_and_deadlines_hurt() {
    let sizes = || FlowSizes::named("web-search").unwrap();
    let mean = |deadline, known, urgent| {
        optimise(&traffic(sizes(), 0.7, deadline, known, urgent), levels(7), 1).mean
    };
    let by_known = [0.0, 0.5, 1.0].map(|known| mean(0.0, known, Urgent::Paced));
    assert!(by_known[0] > by_known[1] && by_known[1] > by_known[2], "{by_known:?}");
    // At the same load, paced flows disturb less than others would, bursts more than paced ones.
    let (paced, bursts) = (mean(0.3, 0.5, Urgent::Paced), mean(0.3, 0.5, Urgent::Bursts));
    assert!(paced < bursts, "{paced:?} {bursts:?}");
}

#[test]
fn thresholds_for_other_traffic_cost_something() {
    let traffics = [("web-search", 0.8), ("web-search", 0.5), ("data-mining", 0.8)]
        .map(|(name, load)| unknown(name, load));
    let table = robustness(&traffics, levels(8), 1);
    for (row, ratios) in table.ratios.iter().enumerate() {
        assert_eq!(ratios[row], 1.0);
        assert!(ratios.iter().all(|ratio| *ratio >= 1.0 - 1e-6), "{ratios:?}");
    }
    // Another workload is worse than another load.
    assert!(table.ratios[0][2] > table.ratios[0][1], "{:?}", table.ratios);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_is_found_rises_repeats_and_is_no_worse_than_the_start(
        (name, load, deadline) in (0usize..4, 0.05f64..0.97, 0.0f64..0.8),
        (known, count, bursts, seed) in (prop::sample::select(vec![0.0, 0.2, 0.7, 1.0]), 1usize..10, any::<bool>(), any::<u64>()),
    ) {
        let sizes = FlowSizes::named(FlowSizes::names().nth(name).unwrap()).unwrap();
        let traffic = traffic(sizes, load, deadline, known, if bursts { Urgent::Bursts } else { Urgent::Paced });
        let found = optimise(&traffic, levels(count), seed);
        prop_assert_eq!(&found, &optimise(&traffic, levels(count), seed));
        prop_assert_eq!(found.thresholds.levels(), count);
        prop_assert!(found.thresholds.demotion().is_sorted() && found.thresholds.splitting().is_sorted());
        prop_assert_eq!(found.mean, traffic.mean(&found.thresholds));
        prop_assert!(found.mean <= traffic.mean(&even_split(&traffic, levels(count))));
        prop_assert!(found.mean.0 <= traffic.mean(&Thresholds::none()).0 * (1.0 + 1e-9));
        // One level more is no loss, but for the little that the search may miss.
        let more = optimise(&traffic, levels(count + 1), seed);
        prop_assert!(more.mean.0 <= found.mean.0 * 1.001, "{} {}", found.mean.0, more.mean.0);
    }
}

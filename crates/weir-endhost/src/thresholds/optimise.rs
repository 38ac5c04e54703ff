//! Thresholds with the least mean completion time the model forecasts.
//!
//! # Problem
//! [`Traffic::mean`] over demotion and splitting thresholds: up to 2 (K - 1) numbers, rising within a kind. It has many
//! local minima: a threshold likes to sit where the distribution of sizes bends, and can hop from bend to bend only
//! over worse ground.
//!
//! # Approach
//! 1. Start where every level takes as much of the way to saturation as the others, `1 - sigma_j` falling
//!    geometrically from `1 - rho1` to `1 - rho`: [`even_split`].
//! 2. Differential evolution (Storn, Price 1997; rand/1/bin and best/1/bin in turn) over the logarithms of the
//!    thresholds, from points scattered around the start and over all sizes. A trial is sorted before it is judged.
//! 3. Coordinate descent from its best, from the start and from a single level: one threshold at a time between its
//!    neighbours, first over bends of the distribution and evenly spaced logarithms, then ever closer around the best
//!    of these; until a round improves nothing.
//! 4. The boundaries that matter least are tried between any two others, and descent goes on from the best place.
//!
//! A forecast of levels that share ([`Service::Shared`]) costs two hundred times as much, and bends matter less. There, in
//! place of all this: the best thresholds on a grid of logarithms and bends ([`super::paths`]), the same for both kinds,
//! then on a finer grid around these; with flows of both kinds descent goes on from there.
//!
//! PIAS and Karuna solve relaxations of the same problem; that global search is affordable, and these four steps, are
//! ours.
//!
//! # Properties
//! Never worse than the start, nor than a single level. Best thresholds often lie together, or at the largest size:
//! levels between them stay empty, because where sizes are distributed evenly, sharing a level is better than to
//! overtake. A seed gives the same thresholds. The work is bounded: about [`GENERATIONS`] times the
//! population, and from each of three points [`MAX_ROUNDS`] times as many rounds of descent.

use super::paths::least_path;
use super::theory::{Ends, PacketTimes, Service, Thresholds, Traffic};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::num::NonZeroUsize;
use weir_model::Bytes;
use weir_trace::PACKET_PAYLOAD;

/// Most levels; switches have 8, and the search slows down with the square of the number.
pub const MAX_LEVELS: usize = 64;
/// Generations of differential evolution.
const GENERATIONS: usize = 400;
/// Points per dimension, and bounds of their number.
const POINTS_PER_DIMENSION: usize = 8;
const FEWEST_POINTS: usize = 40;
const MOST_POINTS: usize = 160;
/// Probability that a trial takes a number from the mutant, and range of the factor of differences.
const CROSSOVER: f64 = 0.8;
const FACTOR: (f64, f64) = (0.4, 0.9);
/// Rounds of coordinate descent, and of giving boundaries other places.
const MAX_ROUNDS: usize = 100;
/// How many boundaries are tried elsewhere, and where between two others.
const RELOCATED: usize = 3;
const INSERTED: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];
/// A round that gains less than this share of the mean is the last.
const LEAST_GAIN: f64 = 1e-7;
/// Evenly spaced logarithms tried between two neighbours, and steps of closing in on the best.
const TRIED: usize = 24;
const CLOSER: usize = 24;

/// Levels that share: sizes of the grid, from so many bytes on; and how many steps finer the second one is.
const GRID: usize = 96;
const GRID_FROM: f64 = 100.0;
const FINER: i32 = 4;
/// Their forecasts are not exact to more than this.
const LEAST_GAIN_SHARED: f64 = 1e-4;

/// Thresholds that [`optimise`] found, and the times that they were judged by.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimum {
    /// The best thresholds met.
    pub thresholds: Thresholds,
    /// Their mean completion time.
    pub mean: PacketTimes,
    /// That of the closed-form start.
    pub start: PacketTimes,
    /// How many thresholds were judged.
    pub judged: u64,
}

/// Thresholds, the same for both kinds, at which `1 - load` falls by the same factor from level to level:
/// `1 - sigma_j = (1 - rho1)^(1 - j/K) (1 - rho)^(j/K)`. `levels` above [`MAX_LEVELS`] count as that many.
pub fn even_split(traffic: &Traffic, levels: NonZeroUsize) -> Thresholds {
    let levels = levels.get().min(MAX_LEVELS);
    let (free, left) = (1.0 - traffic.deadline_load(), 1.0 - traffic.load());
    let at = |level: usize| {
        let load = 1.0 - free * (left / free).powf(level as f64 / levels as f64);
        let (mut below, mut enough) = (0, traffic.sizes().largest().0.max(1));
        // The load up to `below` is too little, up to `enough` it suffices: ends at the least size
        // that does.
        while enough - below > 1 {
            let middle = below + (enough - below) / 2;
            if traffic.load_up_to(Bytes(middle)) < load { below = middle } else { enough = middle }
        }
        Bytes(enough)
    };
    Thresholds::same((1..levels).map(at).collect())
}

/// Searches for the best thresholds of `levels` levels ([`MAX_LEVELS`] at most). If all flows are of one kind, the
/// other kind's thresholds, which no flow needs then, are the same.
pub fn optimise(traffic: &Traffic, levels: NonZeroUsize, seed: u64) -> Optimum {
    let start = even_split(traffic, levels);
    let mut search = Search::new(traffic, start.levels() - 1);
    let start_mean = search.judge(&search.encode(&start));
    let mut best = (search.encode(&start), start_mean);
    if search.cuts > 0 && traffic.service() == Service::Shared {
        let mut found = search.shortest_path();
        if search.both {
            found = search.descend(found);
        }
        if found.1 < best.1 {
            best = found;
        }
    } else if search.cuts > 0 {
        let evolved = search.evolve(&best.0, &mut ChaCha8Rng::seed_from_u64(seed));
        let mut single = vec![search.most; best.0.len()];
        search.tidy(&mut single);
        let single_mean = search.judge(&single);
        for from in [evolved, best.clone(), (single, single_mean)] {
            let found = search.settle(from);
            if found.1 < best.1 {
                best = found;
            }
        }
    }
    Optimum {
        thresholds: search.decode(&best.0),
        mean: PacketTimes(best.1),
        start: PacketTimes(start_mean),
        judged: search.judged,
    }
}

/// Thresholds as logarithms of bytes: those of one kind, then those of the other, each rising.
type Point = Vec<f64>;
/// A point and its mean completion time in packet times.
type Judged = (Point, f64);

struct Search<'a> {
    traffic: &'a Traffic,
    /// Thresholds of one kind.
    cuts: usize,
    /// Whether there are flows of both kinds.
    both: bool,
    /// Logarithms of the largest size, and of the sizes where the distribution bends.
    most: f64,
    bends: Vec<f64>,
    judged: u64,
    /// Of levels that share, as last judged: where each begins and ends, and what it adds to the mean.
    levels: Vec<(Ends, Ends, f64)>,
}

impl Search<'_> {
    fn new(traffic: &Traffic, cuts: usize) -> Search<'_> {
        let sizes = traffic.sizes();
        let mut bends: Vec<f64> = sizes
            .points()
            .filter(|size| size.0 > 0)
            // Where the distribution jumps, a threshold just below the size and one at it differ by all flows of that size.
            .flat_map(|size| [size.0.max(2) - 1, size.0])
            .map(|bytes| (bytes as f64).ln())
            .collect();
        bends.dedup();
        let both = traffic.known() > 0.0 && traffic.known() < 1.0;
        let most = (sizes.largest().0.max(1) as f64).ln();
        Search { traffic, cuts, both, most, bends, judged: 0, levels: Vec::new() }
    }

    fn encode(&self, thresholds: &Thresholds) -> Point {
        let log = |size: &Bytes| (size.0.max(1) as f64).ln();
        let splitting = if self.both { thresholds.splitting() } else { &[] };
        thresholds.demotion().iter().chain(splitting).map(log).collect()
    }

    fn decode(&self, point: &Point) -> Thresholds {
        let bytes = |log: &f64| Bytes((log.exp().round() as u64).max(1));
        let (one, other) = point.split_at(self.cuts);
        let demotion: Vec<Bytes> = one.iter().map(bytes).collect();
        let splitting = if self.both { other.iter().map(bytes).collect() } else { demotion.clone() };
        Thresholds::rising(demotion, splitting)
    }

    fn judge(&mut self, point: &Point) -> f64 {
        self.judged += 1;
        let thresholds = self.decode(point);
        match self.traffic.service() {
            Service::Fifo => self.traffic.mean(&thresholds).0,
            Service::Shared => self.judge_shared(&thresholds),
        }
    }

    /// [`Traffic::mean`] of levels that share, where only those levels are forecast that have changed since the last time.
    fn judge_shared(&mut self, thresholds: &Thresholds) -> f64 {
        let (mut above, mut bytes) = (Ends::both(Bytes(0)), 0.0);
        self.levels.resize(thresholds.levels(), (above, above, 0.0));
        for (last, end) in self.levels.iter_mut().zip(thresholds.ends(self.traffic.sizes().largest())) {
            if (last.0, last.1) != (above, end) {
                *last = (above, end, self.traffic.shared_cost(above, end));
            }
            bytes += last.2;
            above = end;
        }
        bytes / PACKET_PAYLOAD.0 as f64
    }

    /// Keeps to the sizes there are, and brings each kind's thresholds into order.
    fn tidy(&self, point: &mut Point) {
        for log in point.iter_mut() {
            *log = log.clamp(0.0, self.most);
        }
        for kind in point.chunks_mut(self.cuts) {
            kind.sort_by(f64::total_cmp);
        }
    }

    /// The best point of two grids, with the same thresholds for both kinds.
    fn shortest_path(&mut self) -> Judged {
        let low = GRID_FROM.ln().min(self.most);
        let step = (self.most - low) / GRID as f64;
        let even = (0..=GRID).map(|number| low + step * number as f64);
        let first: Vec<f64> = even.chain(self.bends.iter().copied()).collect();
        let mut path = self.path_on(&first);
        let around = (-FINER..=FINER).map(|number| step * f64::from(number) / f64::from(FINER));
        let finer: Vec<f64> = around
            .flat_map(|off| path.iter().map(move |log| log + off).collect::<Vec<_>>())
            .chain(path.iter().copied())
            .collect();
        path = self.path_on(&finer);
        if self.both {
            path.extend_from_within(..);
        }
        let mean = self.judge(&path);
        (path, mean)
    }

    /// The best thresholds of one kind among these logarithms and the largest size.
    fn path_on(&mut self, logs: &[f64]) -> Point {
        let bytes = |log: f64| Bytes((log.clamp(0.0, self.most).exp().round() as u64).max(1));
        let mut grid: Vec<Bytes> = logs.iter().map(|&log| bytes(log)).chain([bytes(self.most)]).collect();
        grid.sort_unstable();
        grid.dedup();
        let (path, judged) = least_path(self.traffic, self.cuts, &grid);
        self.judged += judged;
        path.iter().map(|size| (size.0 as f64).ln()).collect()
    }

    /// The best point of differential evolution.
    fn evolve(&mut self, start: &Point, random: &mut ChaCha8Rng) -> Judged {
        let count = (start.len() * POINTS_PER_DIMENSION).clamp(FEWEST_POINTS, MOST_POINTS);
        let mut all: Vec<Judged> = Vec::with_capacity(count);
        for number in 0..count {
            let scatter = |log: &f64, random: &mut ChaCha8Rng| match number % 3 {
                // Around the start, on any size, on a bend.
                _ if number == 0 => *log,
                0 => log + 4.0 * (random.random::<f64>() - 0.5),
                1 => self.most * random.random::<f64>(),
                _ => self.bends[random.random_range(0..self.bends.len())],
            };
            let mut point: Point = start.iter().map(|log| scatter(log, random)).collect();
            self.tidy(&mut point);
            let mean = self.judge(&point);
            all.push((point, mean));
        }
        for generation in 0..GENERATIONS {
            let best = least(&all);
            for target in 0..count {
                let base = if generation % 2 == 0 { random.random_range(0..count) } else { best };
                // Storn and Price draw different points. Where these are the same their difference
                // is 0, and the trial a crossover with the base alone.
                let (one, two) = (random.random_range(0..count), random.random_range(0..count));
                let factor = FACTOR.0 + (FACTOR.1 - FACTOR.0) * random.random::<f64>();
                let sure = random.random_range(0..start.len());
                let mut trial = all[target].0.clone();
                for (number, log) in trial.iter_mut().enumerate() {
                    // `sure`: at least one number comes from the mutant, or the trial would be the target itself (Storn and Price's `jrand`).
                    if number == sure || random.random::<f64>() < CROSSOVER {
                        *log = all[base].0[number] + factor * (all[one].0[number] - all[two].0[number]);
                    }
                }
                self.tidy(&mut trial);
                let mean = self.judge(&trial);
                // `<=`: on level ground the population must be able to move on.
                if mean <= all[target].1 {
                    all[target] = (trial, mean);
                }
            }
        }
        let best = least(&all);
        all.swap_remove(best)
    }

    /// Descends, gives the boundary that matters least a better place, and so on, until nothing helps.
    fn settle(&mut self, from: Judged) -> Judged {
        let mut found = self.descend(from);
        for _ in 0..MAX_ROUNDS {
            match self.relocate(&found) {
                Some(better) => found = self.descend(better),
                None => break,
            }
        }
        found
    }

    /// A better point in which one of the boundaries that matter least lies between two others. A boundary is the
    /// thresholds of both kinds at the end of a level: one of them alone would shift all levels after it.
    fn relocate(&mut self, (point, mean): &Judged) -> Option<Judged> {
        let mut without: Vec<Judged> = Vec::with_capacity(self.cuts);
        for boundary in 0..self.cuts {
            let mut rest = point.clone();
            for kind in rest.chunks_mut(self.cuts) {
                // At the largest size the boundary ends an empty level: it is as if it were not
                // there.
                kind[boundary..].rotate_left(1);
                kind[self.cuts - 1] = self.most;
            }
            let mean = self.judge(&rest);
            without.push((rest, mean));
        }
        without.sort_by(|one, other| one.1.total_cmp(&other.1));
        let mut best: Option<Judged> = None;
        for (rest, _) in without.iter().take(RELOCATED) {
            for gap in 0..self.cuts {
                for trial in self.inserted(rest, gap) {
                    let tried = self.judge(&trial);
                    if tried < best.as_ref().map_or(mean * (1.0 - LEAST_GAIN), |best| best.1) {
                        best = Some((trial, tried));
                    }
                }
            }
        }
        best
    }

    /// `rest`, whose last boundary is spare, with that boundary before the one at `gap`, in several ways.
    fn inserted(&self, rest: &Point, gap: usize) -> Vec<Point> {
        let mut points = vec![rest.clone()];
        for kind in 0..rest.len() / self.cuts {
            let first = kind * self.cuts;
            let low = if gap == 0 { 0.0 } else { rest[first + gap - 1] };
            let high = rest[first + gap];
            let even = INSERTED.iter().map(|share| low + share * (high - low));
            // With both kinds the bends would be squared; the descent that follows finds them.
            let bends = self.bends.iter().copied().filter(|bend| !self.both && (low..high).contains(bend));
            let places: Vec<f64> = even.chain(bends).collect();
            let put = |point: &Point, place: f64| {
                let mut point = point.clone();
                point[first + gap..first + self.cuts].rotate_right(1);
                point[first + gap] = place;
                point
            };
            points = points.iter().flat_map(|point| places.iter().map(|&place| put(point, place))).collect();
        }
        points
    }

    /// Coordinate descent from a point.
    fn descend(&mut self, (mut point, mut mean): Judged) -> Judged {
        let least_gain = match self.traffic.service() {
            Service::Fifo => LEAST_GAIN,
            Service::Shared => LEAST_GAIN_SHARED,
        };
        for _ in 0..MAX_ROUNDS {
            let before = mean;
            for number in 0..point.len() {
                mean = self.improve(&mut point, number, mean);
            }
            if before - mean <= least_gain * before {
                break;
            }
        }
        (point, mean)
    }

    /// Moves one threshold between its neighbours to where it is best; gives the mean then.
    fn improve(&mut self, point: &mut Point, number: usize, mut mean: f64) -> f64 {
        let first = number.is_multiple_of(self.cuts);
        let last = number % self.cuts + 1 == self.cuts;
        let low = if first { 0.0 } else { point[number - 1] };
        let high = if last { self.most } else { point[number + 1] };
        let step = (high - low) / (TRIED - 1) as f64;
        let even = (0..TRIED).map(|tried| low + step * tried as f64);
        let bends = self.bends.iter().copied().filter(|bend| (low..=high).contains(bend));
        // The whole range between its neighbours first: to close in on the best place at once would stay in the nearest minimum.
        let candidates: Vec<f64> = even.chain(bends).collect();
        let mut best = point[number];
        for candidate in candidates {
            self.try_at(point, number, candidate, (&mut best, &mut mean));
        }
        let mut reach = step;
        for _ in 0..CLOSER {
            for candidate in [best - reach, best + reach] {
                self.try_at(point, number, candidate.clamp(low, high), (&mut best, &mut mean));
            }
            reach /= 2.0;
        }
        point[number] = best;
        mean
    }

    fn try_at(&mut self, point: &mut Point, number: usize, log: f64, (best, mean): (&mut f64, &mut f64)) {
        point[number] = log;
        let tried = self.judge(point);
        if tried < *mean {
            (*best, *mean) = (log, tried);
        }
    }
}

/// Index of the point with the least mean; the first of equals.
fn least(all: &[Judged]) -> usize {
    let mut best = 0;
    for (number, (_, mean)) in all.iter().enumerate() {
        if *mean < all[best].1 {
            best = number;
        }
    }
    best
}

//! Monte Carlo simulation of orders (Siphon, USENIX ATC 2018, section 3.1), and its deterministic sibling, lookahead.
//!
//! # Problem
//! What a link between sites will carry is not known, only how it was distributed so far. An order that is best at the
//! mean bandwidth need not be the one that is best most often, nor best on average.
//!
//! # Approach
//! Draw a bandwidth for every link, find out what every order would cost, and do that many times.
//!
//! # Terminology
//! * branch, cost: see [`super::branches`].
//! * round: one draw of all links, the same for all branches: what they differ in is their order, not their luck.
//! * win: being the cheapest branch of a round.
//!
//! # Pseudo-code
//! ```text
//! for each round:
//!     bandwidth of each link = any of the capacities it was seen to have, each as likely
//!     cost of each branch; the cheapest wins
//!     after 50 rounds: branches without a win that cost 5 % more than the best on average are out
//!     if the best two are apart by 1.96 standard errors: stop
//! the branch with most wins (or the least mean cost) is the order
//! ```
//! Done at every plan.
//!
//! # Properties
//! * Lookahead takes the cheapest branch at the mean bandwidth. If links were seen to have one bandwidth only, both are
//!   the same.
//! * Ties go to the branch that comes first, which is nearest to minimum remaining time.
//! * One seed, one result: draws depend on it and on which coflows are live, not on what was drawn before.
//!
//! # Departures
//! The paper leaves open whether bandwidth is drawn per flow or per link and whether wins or means decide. Per link and
//! shared by all branches of a round, since flows on a link have the same bandwidth; either decides, as chosen.

use super::bandwidth::{Bandwidths, Estimate};
use super::branches::{Branches, Reach, links};
use super::{Keyed, Order};
use crate::{CoflowTable, Slot};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use weir_model::{CoflowId, Fabric, LinkId};

/// Rounds before branches are given up, and before the best is compared with the second.
const FIRST_ROUNDS: u32 = 50;
/// Who costs so much more than the best on average and has never won is out.
const HOPELESS: f64 = 1.05;
/// Standard errors that the best two are apart to be told from each other: 95 %.
const APART: f64 = 1.96;

/// Numbers that differ by less than this share are equal.
const ROUNDING: f64 = 1e-9;

/// What decides between branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decide {
    /// The number of rounds won.
    Wins,
    /// The mean cost.
    Mean,
}

/// How bandwidth is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// As the mean of what was seen.
    Mean,
    /// As any of what was seen, this many times.
    Rounds {
        /// How often at most.
        rounds: u32,
        /// What decides then.
        decide: Decide,
        /// Seed of the draws.
        seed: u64,
    },
}

/// The order, with what was seen of links.
pub struct Lookahead {
    reach: Reach,
    draw: Draw,
    bandwidths: Bandwidths,
    links: usize,
    keyed: Keyed,
    branches: Branches,
}

/// What rounds have said of a branch.
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    wins: u32,
    sum: f64,
    squares: f64,
}

impl Lookahead {
    /// Branches of this reach.
    pub fn new(reach: Reach, draw: Draw) -> Lookahead {
        Lookahead {
            reach,
            draw,
            bandwidths: Bandwidths::default(),
            links: 0,
            keyed: Keyed::default(),
            branches: Branches::default(),
        }
    }

    fn inverse(&self, by: Estimate) -> Vec<f64> {
        links(self.links).map(|link| 1.0 / self.bandwidths.estimate(link, by)).collect()
    }

    fn best_at_the_mean(&mut self) -> usize {
        let mut costs = vec![0.0; self.branches.count()];
        let skip = vec![false; costs.len()];
        self.branches.costs(&self.inverse(Estimate::Mean), &skip, &mut costs);
        first_least(costs.iter().copied())
    }

    fn best_of_rounds(&mut self, rounds: u32, decide: Decide, random: &mut ChaCha8Rng) -> usize {
        let branches = self.branches.count();
        let (mut costs, mut out) = (vec![0.0; branches], vec![false; branches]);
        let mut scores = vec![Score::default(); branches];
        let mut inverse = vec![0.0; self.links];
        for round in 1..=rounds {
            for (link, inverse) in links(self.links).zip(&mut inverse) {
                *inverse = 1.0 / self.bandwidths.draw(link, random);
            }
            self.branches.costs(&inverse, &out, &mut costs);
            let still_in = |at: usize| if out[at] { f64::INFINITY } else { costs[at] };
            scores[first_least((0..branches).map(still_in))].wins += 1;
            for (score, &cost) in
                scores.iter_mut().zip(&costs).zip(&out).filter(|(_, out)| !**out).map(|of| of.0)
            {
                score.sum += cost;
                score.squares += cost * cost;
            }
            if round == FIRST_ROUNDS {
                let best = scores.iter().map(|score| score.sum).fold(f64::INFINITY, f64::min);
                let hopeless = |score: &Score| score.wins == 0 && score.sum > best * HOPELESS;
                out.iter_mut().zip(&scores).for_each(|(out, score)| *out = hopeless(score));
            }
            if round >= FIRST_ROUNDS && is_clear(&scores, &out, decide, round) {
                break;
            }
        }
        let key = |at: usize| if out[at] { f64::INFINITY } else { scores[at].key(decide) };
        first_least((0..branches).map(key))
    }
}

impl Score {
    /// Less is better.
    fn key(&self, decide: Decide) -> f64 {
        match decide {
            Decide::Wins => -f64::from(self.wins),
            Decide::Mean => self.sum,
        }
    }
}

/// Whether the best branch is told from the second.
fn is_clear(scores: &[Score], out: &[bool], decide: Decide, rounds: u32) -> bool {
    let still_in = scores.iter().zip(out).filter(|(_, out)| !**out).map(|(score, _)| score);
    let mut best: [Option<&Score>; 2] = [None; 2];
    for score in still_in {
        if best[0].is_none_or(|first| score.key(decide) < first.key(decide)) {
            best = [Some(score), best[0]];
        } else if best[1].is_none_or(|second| score.key(decide) < second.key(decide)) {
            best[1] = Some(score);
        }
    }
    let [Some(first), Some(second)] = best else { return true };
    match decide {
        Decide::Wins => {
            let (first, second) = (f64::from(first.wins), f64::from(second.wins));
            first - second > APART * (first + second).sqrt()
        }
        Decide::Mean => {
            let rounds = f64::from(rounds);
            let variance =
                |score: &Score| (score.squares - score.sum * score.sum / rounds).max(0.0) / (rounds - 1.0);
            let error = ((variance(first) + variance(second)) / rounds).sqrt();
            (second.sum - first.sum) / rounds > APART * error
        }
    }
}

/// Where the least number first stands; of numbers that differ by rounding the first counts.
fn first_least(numbers: impl Iterator<Item = f64>) -> usize {
    let least = |least: (usize, f64), of: (usize, f64)| {
        if of.1 < least.1 - ROUNDING * of.1.abs() { of } else { least }
    };
    numbers.enumerate().fold((0, f64::INFINITY), least).0
}

impl Order for Lookahead {
    fn set_fabric(&mut self, fabric: &Fabric) {
        self.bandwidths.observe(fabric);
        self.links = fabric.links().len();
    }

    fn sort(&mut self, view: &CoflowTable, sorted: &mut Vec<Slot>) {
        let medians = self.inverse(Estimate::Median);
        self.keyed.sort(view, sorted, |slot, coflow| {
            let secs = |&link: &LinkId| view.demand(slot, link) * medians[link.index()];
            coflow.links().iter().map(secs).fold(0.0, f64::max)
        });
        self.branches.set(view, sorted, self.links, self.reach);
        if self.branches.count() < 2 {
            return;
        }
        let best = match self.draw {
            Draw::Mean => self.best_at_the_mean(),
            Draw::Rounds { rounds, decide, seed } => {
                let live = view.coflows().map(|(_, coflow)| coflow.id());
                self.best_of_rounds(rounds, decide, &mut random_of(seed, live))
            }
        };
        self.branches.order(best, sorted);
    }
}

/// A generator for a decision on these coflows.
fn random_of(seed: u64, live: impl Iterator<Item = CoflowId>) -> ChaCha8Rng {
    // Any mixing of the numbers does: 0x9E37... is the golden ratio's fraction, as in Fibonacci hashing.
    let mix = |sum: u64, id: CoflowId| (sum ^ id.0).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    ChaCha8Rng::seed_from_u64(live.fold(seed, mix))
}

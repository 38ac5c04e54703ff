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
//! Done at every plan, from nothing: a policy with a history plans as one without. What a decision maker of the live system
//! keeps from event to event is [`super::simulation`]'s.
//!
//! # Properties
//! * Lookahead takes the cheapest branch at the mean bandwidth. If links were seen to have one bandwidth only, both are
//!   the same.
//! * Ties go to the branch that comes first, which is nearest to minimum remaining time.
//! * Whatever coflows a completion or an arrival leaves, their order is that of a policy that sees them for the first time.
//! * One seed, one result: draws depend on it and on which coflows are live, not on what was drawn before.
//!
//! # Departures
//! The paper leaves open whether bandwidth is drawn per flow or per link and whether wins or means decide. Per link and
//! shared by all branches of a round, since flows on a link have the same bandwidth; either decides, as chosen.

use super::bandwidth::{Bandwidths, Estimate};
use super::branches::{Branches, Reach};
use super::tally::{Decide, FIRST_ROUNDS, Tally, first_least};
use super::{Keyed, Order};
use crate::{CoflowTable, Slot};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use weir_model::{CoflowId, Fabric, LinkId};

/// Which bandwidth links are taken to have when branches are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// The mean of the capacities that each link was seen to have.
    Mean,
    /// One of the capacities that each link was seen to have, drawn anew in every round.
    Rounds {
        /// Number of rounds at most.
        rounds: u32,
        /// What decides between branches after the rounds.
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
    keyed: Keyed,
    branches: Branches,
}

impl Lookahead {
    /// The order by branches of this reach, and bandwidths taken like this.
    pub fn new(reach: Reach, draw: Draw) -> Lookahead {
        Lookahead {
            reach,
            draw,
            bandwidths: Bandwidths::default(),
            keyed: Keyed::default(),
            branches: Branches::default(),
        }
    }

    fn best_at_the_mean(&mut self) -> usize {
        cheapest(&mut self.branches, &self.bandwidths.inverse(Estimate::Mean))
    }

    fn best_of_rounds(&mut self, rounds: u32, decide: Decide, random: &mut ChaCha8Rng) -> usize {
        let branches = self.branches.count();
        let (mut costs, mut out) = (vec![0.0; branches], vec![false; branches]);
        let (mut tally, mut inverse) = (Tally::new(branches), Vec::new());
        for round in 1..=rounds {
            self.bandwidths.draw_inverse(random, &mut inverse);
            self.branches.costs(&inverse, &out, &mut costs);
            tally.note(&costs, &out);
            if round == FIRST_ROUNDS {
                tally.give_up(&mut out);
            }
            if round >= FIRST_ROUNDS && tally.is_clear(&out, decide) {
                break;
            }
        }
        tally.best(&out, decide)
    }
}

/// The cheapest branch at these bandwidths, each as one over bytes per second.
pub(super) fn cheapest(branches: &mut Branches, inverse: &[f64]) -> usize {
    let mut costs = vec![0.0; branches.count()];
    let skip = vec![false; costs.len()];
    branches.costs(inverse, &skip, &mut costs);
    first_least(costs.iter().copied())
}

impl Order for Lookahead {
    fn set_fabric(&mut self, fabric: &Fabric) {
        self.bandwidths.observe(fabric);
    }

    fn sort(&mut self, view: &CoflowTable, sorted: &mut Vec<Slot>) {
        let medians = self.bandwidths.inverse(Estimate::Median);
        self.keyed.sort(view, sorted, |slot, coflow| {
            let secs = |&link: &LinkId| view.demand(slot, link) * medians[link.index()];
            coflow.links().iter().map(secs).fold(0.0, f64::max)
        });
        self.branches.set_from(view, sorted, self.bandwidths.links(), self.reach);
        if self.branches.count() < 2 {
            return;
        }
        let best = match self.draw {
            Draw::Mean => self.best_at_the_mean(),
            Draw::Rounds { rounds, decide, seed } => {
                // Seeded by the ids of live coflows, not by a count of plans: another plan in between must not change this decision.
                let live = view.coflows().map(|(_, coflow)| coflow.id());
                self.best_of_rounds(rounds, decide, &mut random_of(seed, live))
            }
        };
        let by_rank = std::mem::take(sorted);
        sorted.extend(self.branches.order(best).map(|rank| by_rank[rank]));
    }
}

/// A generator for a decision on these coflows.
fn random_of(seed: u64, live: impl Iterator<Item = CoflowId>) -> ChaCha8Rng {
    // Any mixing of the numbers does: 0x9E37... is the golden ratio's fraction, as in Fibonacci hashing.
    let mix = |sum: u64, id: CoflowId| (sum ^ id.0).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    ChaCha8Rng::seed_from_u64(live.fold(seed, mix))
}

//! Monte Carlo simulation by a decision maker that lives on from event to event (Siphon, USENIX ATC 2018, section 3.1:
//! online incremental simulation). [`super::monte_carlo`] is the same decision within a policy.
//!
//! # Problem
//! Every arrival and every completion asks for new rounds. Most coflows have not moved since the last ones, since those
//! who wait behind others do not move at all.
//!
//! # Approach
//! Draws stay the same from event to event: round n of a decision maker draws what its seed and n say. So the end of a
//! node of the graph (see [`super::graph`]) holds for as long as nothing of what it is made of changes, draw by draw.
//! What changed is computed anew, and costs are added up from the ends of nodes.
//!
//! # Terminology
//! * kept: of a node, that its end is taken over from before the event.
//!
//! # Pseudo-code
//! ```text
//! event:
//!     sort coflows by rank
//!     for each node of the graph:
//!         if each of its coflows was among those with nodes before, with the same bytes:
//!             keep its end, for every draw so far
//! round n: as in super::monte_carlo, with the n-th draw; ends are computed where none is kept
//! ```
//!
//! # Properties
//! * Exact: the tally is that of a decision maker that sees these coflows for the first time, to the last bit.
//! * When a coflow is complete, what is left is the subtree below it. Its nodes are kept as far as the coflows in them
//!   did not move meanwhile: those that waited for the one that ended did not.
//! * When one arrives, the nodes it is part of are new; so are those of the coflow that it pushes out of the breadth
//!   gone. All others are kept.
//! * A new measurement of a link changes draws, and nothing is kept then.
//! * Two seeds, two sequences of draws: what decision makers with different seeds find adds up ([`Tally::add`]).
//!
//! # Departures
//! The paper says that useful results are preserved when the graph is pruned or grows, and not which or how. Scores of
//! branches are not preserved here: the cost of every branch changes with every event, by what moved, and by who is
//! new among those that follow.

use super::bandwidth::{Bandwidths, Estimate};
use super::branches::{Branches, Reach};
use super::graph::Node;
use super::monte_carlo::cheapest;
use super::tally::Tally;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::ops::Range;
use weir_model::{CoflowId, Time};

/// Draws whose ends of nodes are kept for the next event, at most.
const MAX_KEPT_DRAWS: usize = 256;

/// A coflow that waits, as far as a decision maker knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// Id of the coflow that waits.
    pub id: CoflowId,
    /// Time at which the coflow arrived.
    pub arrival: Time,
    /// What is left of it, by link.
    pub bytes: Vec<f64>,
}

/// Bandwidths drawn for one round, and the ends of nodes as far as they are known.
#[derive(Debug, Default)]
struct Draw {
    inverse: Vec<f64>,
    ends: Vec<f64>,
}

/// A decision maker's rounds.
#[derive(Debug)]
pub struct Simulation {
    reach: Reach,
    seed: u64,
    bandwidths: Bandwidths,
    /// Coflows that wait, by rank.
    waiting: Vec<Waiting>,
    branches: Branches,
    /// Branches as they were before the last event: their graph is likely the next one's.
    previous: Branches,
    draws: Vec<Draw>,
    kept: usize,
}

impl Simulation {
    /// Branches of this reach, draws of this seed; no coflows yet.
    pub fn new(reach: Reach, seed: u64) -> Simulation {
        Simulation {
            reach,
            seed,
            bandwidths: Bandwidths::default(),
            waiting: Vec::new(),
            branches: Branches::default(),
            previous: Branches::default(),
            draws: Vec::new(),
            kept: 0,
        }
    }

    /// Something arrived, ended or moved: these coflows wait now, on links of these bandwidths. A coflow's bytes that
    /// name fewer links have none on the others.
    pub fn update(&mut self, bandwidths: Bandwidths, mut waiting: Vec<Waiting>) {
        let medians = bandwidths.inverse(Estimate::Median);
        let alone = |of: &Waiting| of.bytes.iter().zip(&medians).map(|(b, m)| b * m).fold(0.0, f64::max);
        waiting.sort_by(|a, b| {
            alone(a).total_cmp(&alone(b)).then_with(|| (a.arrival, a.id).cmp(&(b.arrival, b.id)))
        });
        // The graph of depth and breadth is mostly the same at every event: swapped rather than built anew.
        std::mem::swap(&mut self.branches, &mut self.previous);
        self.branches.set(waiting.len(), bandwidths.links(), self.reach, |rank, bytes| {
            bytes.iter_mut().zip(&waiting[rank].bytes).for_each(|(to, from)| *to = *from);
        });
        if self.bandwidths == bandwidths {
            self.keep(&waiting);
        } else {
            self.draws.clear();
            self.kept = 0;
        }
        (self.bandwidths, self.waiting) = (bandwidths, waiting);
    }

    /// Takes over ends of nodes for coflows that now come in this order.
    fn keep(&mut self, waiting: &[Waiting]) {
        let before = &self.waiting[..self.previous.graph().breadth()];
        // Compared with its bytes: an end that is kept must be that of exactly these bytes.
        let had_rank = |of: &Waiting| before.iter().position(|before| before == of);
        let had_ranks: Vec<Option<usize>> =
            waiting[..self.branches.graph().breadth()].iter().map(had_rank).collect();
        let previous = |node: &Node| {
            let mut set = 0;
            for (rank, had) in had_ranks.iter().enumerate().filter(|(rank, _)| node.before & (1 << rank) != 0)
            {
                debug_assert!(rank < 16, "a set has 16 bits");
                set |= 1 << (*had)?;
            }
            let next = had_ranks[usize::from(node.next)]?;
            self.previous.graph().number(Node { before: set, next: next as u8 })
        };
        let numbers: Vec<Option<usize>> = self.branches.graph().nodes().iter().map(previous).collect();
        self.kept = numbers.iter().flatten().count();
        for draw in &mut self.draws {
            let end = |number: &Option<usize>| number.map_or(f64::NAN, |number| draw.ends[number]);
            draw.ends = numbers.iter().map(end).collect();
        }
    }

    /// Number of branches to choose from; none without coflows.
    pub fn branches(&self) -> usize {
        self.branches.count()
    }

    /// Nodes of the graph that were kept at the last event, and how many there are.
    pub fn kept(&self) -> (usize, usize) {
        (self.kept, self.branches.graph().nodes().len())
    }

    /// The cheapest branch at the mean bandwidth: what to do until there were rounds. None without coflows.
    pub fn first(&mut self) -> Option<usize> {
        (self.branches() > 0).then(|| cheapest(&mut self.branches, &self.bandwidths.inverse(Estimate::Mean)))
    }

    /// Counts these rounds of this decision maker's sequence. Branches that are out take no part.
    pub fn run(&mut self, rounds: Range<u32>, out: &[bool], tally: &mut Tally) {
        let mut costs = vec![0.0; self.branches()];
        if costs.is_empty() {
            return;
        }
        for round in rounds {
            let kept = round as usize;
            while self.draws.len() <= kept.min(MAX_KEPT_DRAWS - 1) {
                let draw = self.draw(self.draws.len() as u32);
                self.draws.push(draw);
            }
            // Beyond the bound a round is drawn, used and dropped: memory stays bounded and the sequence of draws is the same.
            let mut beyond = if kept < MAX_KEPT_DRAWS { Draw::default() } else { self.draw(round) };
            let Draw { inverse, ends } = self.draws.get_mut(kept).unwrap_or(&mut beyond);
            self.branches.costs_with(inverse, out, ends, &mut costs);
            tally.note(&costs, out);
        }
    }

    fn draw(&self, round: u32) -> Draw {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        // A stream per round: round n draws the same whatever rounds ran before it, which is what lets ends of nodes be kept.
        random.set_stream(u64::from(round));
        let mut inverse = Vec::new();
        self.bandwidths.draw_inverse(&mut random, &mut inverse);
        Draw { inverse, ends: vec![f64::NAN; self.branches.graph().nodes().len()] }
    }

    /// The coflows in the order that a branch stands for.
    pub fn order(&self, branch: usize) -> Vec<CoflowId> {
        self.branches.order(branch).map(|rank| self.waiting[rank].id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CoflowTable;
    use crate::order::Order;
    use crate::order::monte_carlo::{Draw as PolicyDraw, Lookahead};
    use proptest::prelude::*;
    use weir_model::{Bytes, CoflowSpec, Fabric, FlowId, FlowSpec, HostId, LinkId, Rate, SiteSpec};

    const REACH: Reach = Reach { depth: 3, breadth: 6 };

    fn bandwidths(first: f64) -> Bandwidths {
        let measured: [&[f64]; 3] = [&[first, 2.0, 5.0], &[1.0, 4.0], &[3.0]];
        Bandwidths::measured(measured, Rate::from_bytes_per_sec(1.0))
    }

    fn waiting(id: u64, bytes: [u32; 3]) -> Waiting {
        Waiting { id: CoflowId(id), arrival: Time::ZERO, bytes: bytes.map(f64::from).to_vec() }
    }

    fn tally(simulation: &mut Simulation, rounds: Range<u32>) -> Tally {
        let (mut tally, out) = (Tally::new(simulation.branches()), vec![false; simulation.branches()]);
        simulation.run(rounds, &out, &mut tally);
        tally
    }

    proptest! {
        /// Whatever arrives, ends, moves or is measured: what is kept changes no score, not by a bit.
        #[test]
        fn a_decision_maker_that_remembers_finds_what_a_new_one_finds(
            events in prop::collection::vec((0u64..9, prop::array::uniform3(0u32..4), 0u32..20), 1..12),
        ) {
            let mut live: Vec<Waiting> = (20..24).map(|id| waiting(id, [1, id as u32 % 3, 2])).collect();
            let mut first = 1.0;
            let mut remembering = Simulation::new(REACH, 7);
            for (id, bytes, measured) in events {
                // An id that is there ends or moves, another arrives; now and then a link is measured.
                let had = live.iter().position(|of| of.id.0 == id);
                had.map(|at| live.remove(at));
                if had.is_none() || bytes[0] > 0 {
                    live.push(waiting(id, bytes));
                }
                if measured == 0 {
                    first += 1.0;
                }
                remembering.update(bandwidths(first), live.clone());
                let mut fresh = Simulation::new(REACH, 7);
                fresh.update(bandwidths(first), live.clone());
                prop_assert_eq!(tally(&mut remembering, 0..20), tally(&mut fresh, 0..20));
                prop_assert_eq!(remembering.first(), fresh.first());
            }
        }
    }

    #[test]
    fn a_completion_keeps_what_waited_behind_and_an_arrival_changes_only_its_own() {
        let mut simulation = Simulation::new(Reach { depth: 2, breadth: 3 }, 1);
        let three: Vec<Waiting> = (1..4).map(|id| waiting(id, [id as u32, 0, 0])).collect();
        simulation.update(bandwidths(1.0), three.clone());
        assert_eq!(simulation.kept(), (0, 12));
        // The first is complete; what waited has not moved. Both nodes of each of the two are known.
        simulation.update(bandwidths(1.0), three[1..].to_vec());
        assert_eq!(simulation.kept(), (4, 4));
        // One arrives: of 12 nodes 3 * 4 / 3 = 4 are of others only.
        simulation.update(bandwidths(1.0), [&three[1..], &[waiting(9, [1, 1, 1])]].concat());
        assert_eq!(simulation.kept(), (4, 12));
        // One of these three moved.
        simulation.update(bandwidths(1.0), [&three[1..], &[waiting(9, [1, 0, 1])]].concat());
        assert_eq!(simulation.kept(), (4, 12));
        // A measurement leaves nothing.
        simulation.update(bandwidths(2.0), three);
        assert_eq!(simulation.kept(), (0, 12));
    }

    #[test]
    fn rounds_of_several_seeds_and_in_several_parts_add_up() {
        let coflows: Vec<Waiting> = (1..6).map(|id| waiting(id, [id as u32, 6 - id as u32, 1])).collect();
        let mut makers = [1, 2].map(|seed| Simulation::new(REACH, seed));
        makers.iter_mut().for_each(|maker| maker.update(bandwidths(1.0), coflows.clone()));
        let [one, other] = &mut makers;
        let mut parts = tally(one, 0..30);
        assert!(parts.add(&tally(one, 30..300)));
        let whole = tally(one, 0..300);
        let wins = |of: &Tally| of.scores().iter().map(|score| score.wins).collect::<Vec<_>>();
        assert_eq!((parts.rounds(), wins(&parts)), (300, wins(&whole)));
        let others = tally(other, 0..300);
        assert_ne!(wins(&whole), wins(&others), "draws of another seed");
        assert!(parts.add(&others));
        let both: Vec<u32> = wins(&whole).iter().zip(wins(&others)).map(|(one, other)| one + other).collect();
        assert_eq!((parts.rounds(), wins(&parts)), (600, both));
    }

    /// A decision maker's first order is that of the policy that knows what it knows.
    #[test]
    fn the_first_order_is_that_of_lookahead() {
        let rate = |rate: f64| Rate::from_bytes_per_sec(rate);
        let rates = vec![vec![rate(9.0), rate(1.0)], vec![rate(2.0), rate(9.0)]];
        let fabric = Fabric::sites(&SiteSpec { hosts_per_site: vec![1, 1], host_rate: None, rates });
        let fabric = fabric.expect("a fabric");
        let mut table = CoflowTable::new(&fabric);
        let mut coflows = Vec::new();
        // Bytes from site 0 to site 1, and back. The first needs least, 20 s, and holds up the next two on a link each:
        // 20 + 41 + 41.5 s; behind them 21 + 21.5 + 41.5 s.
        for (id, there, back) in [(1, 20, 40), (2, 21, 0), (3, 0, 43), (4, 90, 2)] {
            let flow = |source, destination, size| FlowSpec {
                source: HostId(source),
                destination: HostId(destination),
                size: Bytes(size),
                group: 0,
            };
            let spec = CoflowSpec::new(CoflowId(id), Time::ZERO, vec![flow(0, 1, there), flow(1, 0, back)]);
            table.insert(&spec, FlowId(id * 10), &fabric);
            let slot = table.coflows().find(|(_, coflow)| coflow.id() == CoflowId(id)).expect("a coflow").0;
            let links = 0..fabric.links().len() as u32;
            let bytes = links.map(|link| table.demand(slot, LinkId(link))).collect();
            coflows.push(Waiting { id: CoflowId(id), arrival: Time::ZERO, bytes });
        }
        let mut policy = Lookahead::new(REACH, PolicyDraw::Mean);
        policy.set_fabric(&fabric);
        let mut sorted = Vec::new();
        policy.sort(&table, &mut sorted);
        let expected: Vec<CoflowId> = sorted.iter().map(|&slot| table.coflow(slot).id()).collect();

        let measured: Vec<Vec<f64>> =
            fabric.links().iter().map(|link| vec![link.capacity.bytes_per_sec()]).collect();
        let mut simulation = Simulation::new(REACH, 1);
        simulation.update(Bandwidths::measured(measured.iter().map(Vec::as_slice), rate(1.0)), coflows);
        let first = simulation.first().expect("coflows");
        assert_eq!(simulation.order(first), expected);
        assert_ne!(first, 0, "it is not the order of ranks");
    }

    #[test]
    fn without_coflows_there_is_no_order() {
        let mut simulation = Simulation::new(REACH, 1);
        simulation.update(bandwidths(1.0), Vec::new());
        assert_eq!((simulation.branches(), simulation.first()), (0, None));
        assert_eq!(tally(&mut simulation, 0..5).rounds(), 0);
    }
}

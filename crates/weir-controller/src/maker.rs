//! What a decision maker does with a state, step by step (Siphon, USENIX ATC 2018, sections 3.1 and 3.3).
//!
//! # Problem
//! Relays wait for an order; rounds of simulation take time, and several decision makers can share them.
//!
//! # Approach
//! Something usable goes out first: the best order at the mean bandwidths. Then rounds, a batch at a time. After each
//! batch a decision maker makes its scores known, and takes those of the others into account. Whoever sees enough
//! rounds proposes the order they speak for.
//!
//! # Pseudo-code
//! ```text
//! state of an epoch:
//!     splits = converged water-filling of all demands at the mean bandwidths
//!     propose the cheapest branch at the mean bandwidths                        (provisional)
//!     until the rounds of all are enough, or the best branch is told from the second:
//!         run a batch of rounds with own draws; make own tally known; take the sum of all
//!         after 50 rounds of all: give up branches without hope
//!     propose the best branch                                                   (final)
//! a proposal or a tally on another epoch than the store's is refused: on to the next state
//! ```
//!
//! # Properties
//! * All decision makers rank coflows of one state alike, so branches have the same numbers at all of them.
//! * A decision maker that dies leaves its rounds to the others, and none to be waited for.
//! * At a site that passes on bytes for others to some destination, own bytes for that destination go directly: no
//!   byte meets more than one relay between its site and the last.
//!
//! # Departures
//! * Links of which nothing was measured are taken to have the mean of those that were.
//! * The paper gives no order between splitting and ordering. Splits here are of all that is to be moved; orders are
//!   chosen as if everything went directly.

use crate::decision::{Finality, Proposal, Split};
use crate::records::State;
use weir_model::{Bytes, CoflowId, Rate, Time};
use weir_policy::order::bandwidth::{Bandwidths, Estimate};
use weir_policy::order::branches::Reach;
use weir_policy::order::simulation::{Simulation, Waiting};
use weir_policy::order::tally::{Decide, FIRST_ROUNDS, Tally};
use weir_policy::route::{MAX_SITES, Rule, SiteDemand};

/// Rounds between two looks at what others found.
pub const BATCH_ROUNDS: u32 = 25;
/// What a link is taken to have where nothing at all was measured, in bytes per second.
const NOTHING_MEASURED: f64 = 125e6;
/// Shares of a pair's bytes that are not worth a detour.
const LEAST_SHARE: f64 = 0.01;

/// How decisions are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MakerSettings {
    /// How far branches go.
    pub reach: Reach,
    /// Rounds of all decision makers together, at most (and what they do at the same time).
    pub rounds: u32,
    /// What decides between branches.
    pub decide: Decide,
    /// Whether rounds end once the best is told from the second, and branches are given up.
    pub early: bool,
}

impl Default for MakerSettings {
    fn default() -> MakerSettings {
        MakerSettings {
            reach: Reach { depth: 3, breadth: 10 },
            rounds: 200,
            decide: Decide::Wins,
            early: true,
        }
    }
}

/// What a decision maker does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Offers this to the store.
    Propose(Proposal),
    /// Makes its tally known, and asks for those of all: [`Maker::totals`].
    Share(Tally),
    /// Nothing more on this state.
    Done,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    First,
    Rounds,
    Final,
    Done,
}

/// A decision maker.
pub struct Maker {
    name: String,
    settings: MakerSettings,
    simulation: Simulation,
    epoch: u64,
    splits: Vec<Split>,
    phase: Phase,
    out: Vec<bool>,
    own: Tally,
    total: Tally,
}

impl Maker {
    /// A decision maker with draws of its own seed. Its name is its own, too: tallies are told apart by it.
    pub fn new(name: String, seed: u64, settings: MakerSettings) -> Maker {
        Maker {
            name,
            settings,
            simulation: Simulation::new(settings.reach, seed),
            epoch: 0,
            splits: Vec::new(),
            phase: Phase::Done,
            out: Vec::new(),
            own: Tally::default(),
            total: Tally::default(),
        }
    }

    /// Who it is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes over the state of an epoch; what was under way on another is over.
    pub fn begin(&mut self, epoch: u64, state: &State) {
        let links = Links::of(state);
        self.epoch = epoch;
        self.splits = links.splits(state);
        self.simulation.update(links.bandwidths.clone(), links.waiting(state));
        let branches = self.simulation.branches();
        self.out = vec![false; branches];
        self.own = Tally::new(branches);
        self.total = Tally::new(branches);
        // With one branch there is nothing to find out.
        self.phase = if branches > 1 { Phase::First } else { Phase::Final };
    }

    /// What to do next. Steps that the store refuses as stale end the work on this state: call [`Maker::begin`].
    pub fn step(&mut self) -> Step {
        match self.phase {
            Phase::First => {
                self.phase = Phase::Rounds;
                let branch = self.simulation.first().unwrap_or(0);
                Step::Propose(self.proposal(Finality::Provisional, branch))
            }
            Phase::Rounds => {
                let rounds = self.own.rounds()..self.own.rounds() + BATCH_ROUNDS;
                self.simulation.run(rounds, &self.out, &mut self.own);
                Step::Share(self.own.clone())
            }
            Phase::Final => {
                self.phase = Phase::Done;
                let branch = self.total.best(&self.out, self.settings.decide);
                Step::Propose(self.proposal(Finality::Final, branch))
            }
            Phase::Done => Step::Done,
        }
    }

    /// The tallies of all decision makers on this state so far. Those that do not fit it are left out.
    pub fn totals(&mut self, tallies: &[Tally]) {
        self.total = Tally::new(self.out.len());
        let strangers = tallies.iter().filter(|tally| !self.total.add(tally)).count();
        if strangers > 0 {
            tracing::warn!(
                strangers,
                epoch = self.epoch,
                "tallies of other branches: other settings elsewhere?"
            );
        }
        let enough = self.total.rounds() >= self.settings.rounds;
        let mut clear = false;
        if self.settings.early && self.total.rounds() >= FIRST_ROUNDS {
            self.total.give_up(&mut self.out);
            clear = self.total.is_clear(&self.out, self.settings.decide);
        }
        if enough || clear {
            self.phase = Phase::Final;
        }
    }

    /// Nodes of the execution graph that were kept from the state before, and how many there are.
    pub fn kept(&self) -> (usize, usize) {
        self.simulation.kept()
    }

    fn proposal(&self, finality: Finality, branch: usize) -> Proposal {
        let order = if self.simulation.branches() == 0 { Vec::new() } else { self.simulation.order(branch) };
        Proposal {
            epoch: self.epoch,
            finality,
            maker: self.name.clone(),
            rounds: self.total.rounds(),
            order: order.into_iter().map(|CoflowId(id)| id).collect(),
            splits: self.splits.clone(),
        }
    }
}

/// Sites of a state, the links between them, and what these are taken to have.
struct Links {
    sites: Vec<u32>,
    bandwidths: Bandwidths,
}

impl Links {
    fn of(state: &State) -> Links {
        let mut sites = state.sites();
        if sites.len() > MAX_SITES {
            tracing::warn!(sites = sites.len(), MAX_SITES, "too many sites; the last are not planned for");
            sites.truncate(MAX_SITES);
        }
        let usable = |samples: &&f64| samples.is_finite() && **samples > 0.0;
        let all: Vec<f64> = state.samples.values().flatten().filter(usable).copied().collect();
        let unknown =
            if all.is_empty() { NOTHING_MEASURED } else { all.iter().sum::<f64>() / all.len() as f64 };
        let of_link = |(from, to): (usize, usize)| {
            state.samples.get(&(sites[from], sites[to])).map_or(&[][..], Vec::as_slice)
        };
        let bandwidths =
            Bandwidths::measured(pairs(sites.len()).map(of_link), Rate::from_bytes_per_sec(unknown));
        Links { sites, bandwidths }
    }

    /// The number of the link between two sites.
    fn number(&self, from: u32, to: u32) -> Option<usize> {
        let (from, to) = (self.sites.binary_search(&from).ok()?, self.sites.binary_search(&to).ok()?);
        (from != to).then(|| from * (self.sites.len() - 1) + if to > from { to - 1 } else { to })
    }

    fn waiting(&self, state: &State) -> Vec<Waiting> {
        let of_coflow = |(&id, coflow): (&u64, &crate::records::CoflowState)| {
            let mut bytes = vec![0.0; self.bandwidths.links()];
            for (&(from, to), left) in &coflow.left {
                if let Some(link) = self.number(from, to) {
                    bytes[link] += left;
                }
            }
            Waiting { id: CoflowId(id), arrival: Time::from_nanos(coflow.arrival_ns), bytes }
        };
        state.coflows.iter().map(of_coflow).collect()
    }

    /// Converged water-filling of what all coflows have left.
    fn splits(&self, state: &State) -> Vec<Split> {
        let sites = self.sites.len();
        let (mut capacity, mut left) = (vec![vec![Rate::ZERO; sites]; sites], vec![vec![0.0; sites]; sites]);
        let mean = self.bandwidths.inverse(Estimate::Mean);
        for ((from, to), inverse) in pairs(sites).zip(mean) {
            capacity[from][to] = Rate::from_bytes_per_sec(1.0 / inverse);
        }
        for (&(from, to), bytes) in state.coflows.values().flat_map(|coflow| &coflow.left) {
            if let (Ok(from), Ok(to)) = (self.sites.binary_search(&from), self.sites.binary_search(&to)) {
                left[from][to] += bytes;
            }
        }
        let bytes: Vec<Vec<Bytes>> =
            left.iter().map(|row| row.iter().map(|bytes| Bytes(*bytes as u64)).collect()).collect();
        // Refused where there are fewer than two sites: then nothing can be split.
        let Ok(demand) = SiteDemand::new(&capacity, &bytes) else { return Vec::new() };
        let routes = Rule::Converged.route(&demand);
        let mut splits = Vec::new();
        for (from, to) in pairs(sites) {
            let all = demand.bytes(from, to).0 as f64;
            let share = |hop: usize| routes.split_bytes(from, to, hop) / all;
            let hops = (0..sites).filter(|&hop| hop != from && hop != to && all > 0.0);
            let worth = hops.filter(|&hop| share(hop) >= LEAST_SHARE);
            let via: Vec<(u32, f64)> = worth.map(|hop| (self.sites[hop], share(hop))).collect();
            if !via.is_empty() {
                splits.push(Split { from: self.sites[from], to: self.sites[to], via });
            }
        }
        one_relay_at_most(&mut splits);
        splits
    }
}

/// Has sites that pass on bytes for some destination send their own there directly.
fn one_relay_at_most(splits: &mut Vec<Split>) {
    let passes_on: Vec<(u32, u32)> =
        splits.iter().flat_map(|split| split.via.iter().map(|&(via, _)| (via, split.to))).collect();
    splits.retain(|split| !passes_on.contains(&(split.from, split.to)));
}

/// Ordered pairs of different sites, by number.
fn pairs(sites: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..sites).flat_map(move |from| (0..sites).filter(move |&to| to != from).map(move |to| (from, to)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::CoflowState;

    /// Coflows of `(id, bytes)` from site 0 to site 1, on a link that was seen at 1 and at 3 bytes a second.
    fn state(coflows: &[(u64, f64)]) -> State {
        let coflow = |&(id, bytes): &(u64, f64)| {
            let left = [((0, 1), bytes)].into_iter().collect();
            (id, CoflowState { arrival_ns: id, left, ..CoflowState::default() })
        };
        State {
            coflows: coflows.iter().map(coflow).collect(),
            samples: [((0, 1), vec![1.0, 3.0])].into_iter().collect(),
            ..State::default()
        }
    }

    fn maker(seed: u64, early: bool) -> Maker {
        let settings = MakerSettings { early, ..MakerSettings::default() };
        Maker::new(format!("maker {seed}"), seed, settings)
    }

    fn proposed(step: Step) -> Proposal {
        let Step::Propose(proposal) = step else { panic!("{step:?} is no proposal") };
        proposal
    }

    fn shared(step: Step) -> Tally {
        let Step::Share(tally) = step else { panic!("{step:?} is no tally") };
        tally
    }

    #[test]
    fn an_order_comes_before_any_round_and_a_final_one_after_enough() {
        let mut maker = maker(1, false);
        maker.begin(8, &state(&[(1, 30.0), (2, 10.0), (3, 20.0)]));
        let first = proposed(maker.step());
        assert_eq!((first.epoch, first.finality, first.rounds), (8, Finality::Provisional, 0));
        assert_eq!(first.order, [2, 3, 1]);
        let mut batches = 0;
        let last = loop {
            match maker.step() {
                Step::Share(tally) => maker.totals(&[tally]),
                step => break proposed(step),
            }
            batches += 1;
        };
        assert_eq!((batches, last.rounds, last.finality), (200 / BATCH_ROUNDS, 200, Finality::Final));
        assert_eq!((last.order, maker.step()), (vec![2, 3, 1], Step::Done));
    }

    #[test]
    fn rounds_of_others_count_and_what_is_plain_ends_them_early() {
        let coflows = state(&[(1, 30.0), (2, 10.0)]);
        let mut makers = [1, 2].map(|seed| maker(seed, false));
        makers.iter_mut().for_each(|maker| {
            maker.begin(8, &coflows);
            proposed(maker.step());
        });
        let mut tallies = makers.each_mut().map(|maker| shared(maker.step()));
        for _ in 0..3 {
            makers.iter_mut().for_each(|maker| maker.totals(&tallies));
            tallies = makers.each_mut().map(|maker| shared(maker.step()));
        }
        // 2 * 4 * 25 rounds.
        makers[0].totals(&tallies);
        assert_eq!(proposed(makers[0].step()).rounds, 200);
        // The shorter first is always better: 50 wins to none.
        let mut early = maker(1, true);
        early.begin(9, &coflows);
        proposed(early.step());
        for _ in 0..2 {
            let tally = shared(early.step());
            early.totals(&[tally, Tally::new(5)]);
        }
        let last = proposed(early.step());
        assert_eq!((last.rounds, last.order), (50, vec![2, 1]));
    }

    #[test]
    fn where_there_is_nothing_to_choose_the_first_order_is_the_last() {
        for (coflows, order) in [(&[][..], vec![]), (&[(4, 10.0)][..], vec![4])] {
            let mut maker = maker(1, true);
            maker.begin(3, &state(coflows));
            let only = proposed(maker.step());
            assert_eq!((only.finality, only.order, maker.step()), (Finality::Final, order, Step::Done));
        }
    }

    #[test]
    fn sites_that_pass_bytes_on_send_their_own_directly() {
        let split = |from, to, via| Split { from, to, via: vec![(via, 0.5)] };
        let mut splits = vec![split(0, 2, 1), split(1, 2, 3), split(1, 0, 3), split(3, 0, 2)];
        one_relay_at_most(&mut splits);
        // Site 1 passes on for site 2, and 3 for 0.
        assert_eq!(splits, [split(0, 2, 1), split(1, 0, 3)]);
    }
}

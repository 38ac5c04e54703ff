//! What a decision maker does with a state, step by step (Siphon, USENIX ATC 2018, sections 3.1 and 3.3).
//!
//! # Problem
//! Relays wait for an order; rounds of simulation take time, and several decision makers can share them.
//!
//! # Approach
//! Something usable goes out first: the best order at the mean bandwidths. Then rounds, a batch at a time. After each
//! batch a decision maker makes its scores known, and takes those of the others into account. The first that sees enough
//! rounds proposes the order they speak for.
//!
//! # Pseudo-code
//! ```text
//! state of an epoch:
//!     splits = converged water-filling of each coflow's demands at the mean bandwidths
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
//! * What is divided at the site where it enters goes on directly from there: no byte meets more than one relay between
//!   its site and the last, whatever else that site sends to the same place.
//!
//! # Departures
//! * Links of which hardly anything was measured are taken to have the mean of those that were.
//! * The paper gives no order between splitting and ordering. Splits here are of each coflow as if it were alone, as
//!   of the policy `siphon`; orders are chosen as if everything went directly.
//! * In place of all this another policy for links between sites can decide, as it does in simulations.

mod planner;

use crate::decision::{Finality, Proposal, Split};
use crate::records::{CoflowState, State};
use planner::Planner;
use weir_model::{Bytes, CoflowId, Rate, Time};
use weir_policy::Chosen;
use weir_policy::order::bandwidth::{Bandwidths, Estimate};
use weir_policy::order::branches::Reach;
use weir_policy::order::simulation::{Simulation, Waiting};
use weir_policy::order::tally::{Decide, FIRST_ROUNDS, Tally};
use weir_policy::route::{MAX_SITES, Rule, SiteDemand};

/// Rounds between two looks at what others found.
pub const BATCH_ROUNDS: u32 = 25;
/// What a link is taken to have where nothing at all was measured, in bytes per second.
const NOTHING_MEASURED: f64 = 125e6;
/// A link with fewer measurements is as good as not measured: one may have come of anything.
const LEAST_SAMPLES: usize = 3;
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
    /// How traffic is divided over detours.
    pub routes: Rule,
    /// Whether the flow groups of a coflow go one after the other, the largest first; else they share.
    pub largest_group_first: bool,
}

impl Default for MakerSettings {
    fn default() -> MakerSettings {
        MakerSettings {
            reach: Reach { depth: 3, breadth: 10 },
            rounds: 200,
            decide: Decide::Wins,
            early: true,
            routes: Rule::Converged,
            largest_group_first: true,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    First,
    Rounds,
    Final,
    Done,
}

/// A decision maker: rounds of simulation on one state after the other, or a policy in their place.
pub struct Maker {
    name: String,
    settings: MakerSettings,
    simulation: Simulation,
    /// What decides in place of rounds.
    planner: Option<Planner>,
    planned: Vec<u64>,
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
            planner: None,
            planned: Vec::new(),
            epoch: 0,
            splits: Vec::new(),
            phase: Phase::Done,
            out: Vec::new(),
            own: Tally::default(),
            total: Tally::default(),
        }
    }

    /// A decision maker that does as a policy does in simulations: at once, and without rounds.
    pub fn of_policy(name: String, policy: Chosen, settings: MakerSettings) -> Maker {
        Maker { planner: Some(Planner::new(policy)), ..Maker::new(name, 0, settings) }
    }

    /// Name of the decision maker, unique among all.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes over the state of an epoch; what was under way on another is over.
    pub fn begin(&mut self, epoch: u64, state: &State) {
        let links = Links::of(state);
        self.epoch = epoch;
        if let Some(planner) = &self.planner {
            (self.planned, self.splits) = planner.plan(&links, state);
            self.phase = Phase::Final;
            return;
        }
        self.splits = links.splits(state, self.settings.routes);
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
        // Anew from all tallies: each sums up all rounds of its maker so far, and was part of the
        // last total too.
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
        let order = match (&self.planner, self.simulation.branches()) {
            (Some(_), _) => self.planned.clone(),
            (None, 0) => Vec::new(),
            (None, _) => self.simulation.order(branch).into_iter().map(|CoflowId(id)| id).collect(),
        };
        Proposal {
            epoch: self.epoch,
            finality,
            maker: self.name.clone(),
            rounds: self.total.rounds(),
            order,
            splits: self.splits.clone(),
            largest_group_first: self.settings.largest_group_first,
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
            let samples = state.samples.get(&(sites[from], sites[to])).map_or(&[][..], Vec::as_slice);
            if samples.len() < LEAST_SAMPLES { &[] } else { samples }
        };
        let bandwidths =
            Bandwidths::measured(pairs(sites.len()).map(of_link), Rate::from_bytes_per_sec(unknown));
        Links { sites, bandwidths }
    }

    /// The number of the link between two sites.
    fn number(&self, from: u32, to: u32) -> Option<usize> {
        let (from, to) = (self.sites.binary_search(&from).ok()?, self.sites.binary_search(&to).ok()?);
        // The number of a pair in `pairs`: each site has a row without itself.
        (from != to).then(|| from * (self.sites.len() - 1) + if to > from { to - 1 } else { to })
    }

    fn waiting(&self, state: &State) -> Vec<Waiting> {
        let of_coflow = |(&id, coflow): (&u64, &CoflowState)| {
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

    /// Mean bandwidths, from and to each site.
    fn mean(&self) -> Vec<Vec<Rate>> {
        let sites = self.sites.len();
        let mut mean = vec![vec![Rate::ZERO; sites]; sites];
        for ((from, to), inverse) in pairs(sites).zip(self.bandwidths.inverse(Estimate::Mean)) {
            mean[from][to] = Rate::from_bytes_per_sec(1.0 / inverse);
        }
        mean
    }

    /// Water-filling of what each coflow has left, as if it were alone.
    fn splits(&self, state: &State, rule: Rule) -> Vec<Split> {
        let capacity = self.mean();
        let of_coflow = |(&id, coflow)| self.splits_of(id, coflow, &capacity, rule);
        state.coflows.iter().flat_map(of_coflow).collect()
    }

    fn splits_of(&self, id: u64, coflow: &CoflowState, capacity: &[Vec<Rate>], rule: Rule) -> Vec<Split> {
        let sites = self.sites.len();
        let mut bytes = vec![vec![Bytes(0); sites]; sites];
        for (&(from, to), left) in &coflow.left {
            if let (Ok(from), Ok(to)) = (self.sites.binary_search(&from), self.sites.binary_search(&to)) {
                bytes[from][to] += Bytes(*left as u64);
            }
        }
        // Refused where there are fewer than two sites: then nothing can be split.
        let Ok(demand) = SiteDemand::new(capacity, &bytes) else { return Vec::new() };
        let routes = rule.route(&demand);
        let mut splits = Vec::new();
        for (from, to) in pairs(sites) {
            let all = demand.bytes(from, to).0 as f64;
            let share = |hop: usize| routes.split_bytes(from, to, hop) / all;
            let hops = (0..sites).filter(|&hop| hop != from && hop != to && all > 0.0);
            let worth = hops.filter(|&hop| share(hop) >= LEAST_SHARE);
            let via: Vec<(u32, f64)> = worth.map(|hop| (self.sites[hop], share(hop))).collect();
            if !via.is_empty() {
                splits.push(Split { coflow: id, from: self.sites[from], to: self.sites[to], via });
            }
        }
        splits
    }
}

/// Ordered pairs of different sites, by number.
fn pairs(sites: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..sites).flat_map(move |from| (0..sites).filter(move |&to| to != from).map(move |to| (from, to)))
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// All links carry 10 bytes a second. The shorter coflow goes first, and half of it by site 2; the other has to wait,
    /// and so has no detour yet.
    #[test]
    fn a_policy_decides_at_once_on_order_and_detours() {
        let mut both = state(&[(1, 30.0), (2, 10.0)]);
        both.samples = pairs(3).map(|(from, to)| ((from as u32, to as u32), vec![10.0])).collect();
        both.relays = (0..3)
            .map(|site| {
                let record = crate::records::RelayRecord { site, data_address: String::new(), session: 0 };
                (format!("relay {site}"), record)
            })
            .collect();
        let policy = weir_policy::find("sebf-routed").expect("a policy");
        let mut maker = Maker::of_policy("planner".to_owned(), policy, MakerSettings::default());
        maker.begin(4, &both);
        let proposal = proposed(maker.step());
        assert_eq!(
            (proposal.finality, proposal.order, maker.step()),
            (Finality::Final, vec![2, 1], Step::Done)
        );
        assert_eq!(proposal.splits, [Split { coflow: 2, from: 0, to: 1, via: vec![(2, 0.5)] }]);
    }

    /// What a policy remembers of one state is not of the next: coflows of the same number, other links and bytes.
    #[test]
    fn a_policy_decides_each_state_as_if_it_were_the_first() {
        for name in ["siphon", "sebf-routed", "scf", "open-shop", "fair"] {
            let policy = weir_policy::find(name).expect("a policy");
            let maker =
                |name: &str| Maker::of_policy(name.to_owned(), policy.clone(), MakerSettings::default());
            let mut old = maker("old");
            let states = [
                state(&[(1, 30.0), (2, 10.0), (3, 20.0)]),
                state(&[(1, 5.0), (2, 10.0), (3, 20.0)]),
                state(&[(4, 5.0), (5, 1.0), (6, 20.0)]),
                state(&[(4, 5.0)]),
            ];
            for (epoch, state) in (1..).zip(&states) {
                let mut fresh = maker("fresh");
                let [one, other] = [&mut old, &mut fresh].map(|maker| {
                    maker.begin(epoch, state);
                    proposed(maker.step())
                });
                assert_eq!((one.order, one.splits), (other.order, other.splits), "{name}, epoch {epoch}");
            }
        }
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
}

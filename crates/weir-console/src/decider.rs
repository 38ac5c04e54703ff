//! Options of decision makers between sites.

use crate::Failure;
use crate::policies::find_between_sites;
use clap::{Args, ValueEnum};
use weir_controller::decider::DeciderSettings;
use weir_controller::maker::MakerSettings;
use weir_policy::order::branches::Reach;
use weir_policy::order::tally::Decide;
use weir_policy::route::Rule;

/// How a decision maker decides.
#[derive(Args)]
pub struct DeciderArgs {
    /// Seed of this decision maker's draws; each has its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Rounds per decision, of all decision makers together
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rounds: u32,
    /// Coflows whose order is looked at. As breadth, the same for all decision makers
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub depth: u8,
    /// Coflows that they are taken from, first by remaining time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub breadth: u8,
    /// What decides: the order that was best most often, or the one that was best on average
    #[arg(long, value_name = "HOW", default_value = "wins")]
    pub decide: DecideBy,
    /// How far traffic is divided over detours by water-filling. As groups, the same for all decision makers
    #[arg(long, value_name = "HOW", default_value = "converged")]
    pub routes: Routes,
    /// Another policy for links between sites, such as sebf-routed: its plans decide, without rounds, on order and detours
    #[arg(long, value_name = "NAME", conflicts_with_all = ["rounds", "depth", "breadth", "decide", "routes"])]
    pub policy: Option<String>,
    /// How the flow groups of a coflow go: one after the other, or in turn
    #[arg(long, value_name = "HOW", default_value = "largest-first")]
    pub groups: Groups,
}

/// How far traffic is divided over detours.
#[derive(Clone, Copy, ValueEnum)]
pub enum Routes {
    /// No detours: the link between the two sites alone
    Direct,
    /// One detour, for the slowest link
    OneIteration,
    /// Until the slowest link's traffic cannot be moved (Siphon)
    Published,
    /// Until no link's can
    Converged,
}

/// How the flow groups of a coflow go.
#[derive(Clone, Copy, ValueEnum)]
pub enum Groups {
    /// The largest first (LFGF)
    LargestFirst,
    /// All groups of a coflow share its links
    Together,
}

/// Which of the orders that were simulated is taken.
#[derive(Clone, Copy, ValueEnum)]
pub enum DecideBy {
    /// The one that was best in the most rounds.
    Wins,
    /// The one whose mean over all rounds is best.
    Mean,
}

impl DeciderArgs {
    /// How it decides without a policy.
    pub fn maker(&self) -> MakerSettings {
        MakerSettings {
            reach: Reach { depth: self.depth.into(), breadth: self.breadth.into() },
            rounds: self.rounds,
            decide: match self.decide {
                DecideBy::Wins => Decide::Wins,
                DecideBy::Mean => Decide::Mean,
            },
            early: true,
            routes: match self.routes {
                Routes::Direct => Rule::Direct,
                Routes::OneIteration => Rule::OneIteration,
                Routes::Published => Rule::Published,
                Routes::Converged => Rule::Converged,
            },
            largest_group_first: matches!(self.groups, Groups::LargestFirst),
        }
    }

    /// Settings of a decision maker of this name.
    ///
    /// # Errors
    /// The policy is unknown, or is none for links between sites.
    pub fn settings(&self, name: String) -> Result<DeciderSettings, Failure> {
        self.policy.as_deref().map(find_between_sites).transpose()?;
        let (seed, maker) = (self.seed, self.maker());
        Ok(DeciderSettings { name, seed, maker, policy: self.policy.clone(), metrics: None })
    }
}

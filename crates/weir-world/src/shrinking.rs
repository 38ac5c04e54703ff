//! A smaller run that fails in the same way, for a person to read.

use crate::{Settings, Violation, run};

/// Seeds that are tried for each smaller size: other sizes draw everything anew.
const SEEDS: u64 = 60;
/// Characters of a violation that tell its kind.
const KIND: usize = 40;

/// A run that fails.
#[derive(Clone, Debug)]
pub struct Failing {
    /// Seed of the run that fails.
    pub seed: u64,
    /// What it is like.
    pub settings: Settings,
    /// The rule that it breaks, and when.
    pub violation: Violation,
}

impl Failing {
    /// What it is like in the words of the command line.
    pub fn arguments(&self) -> String {
        let Settings { hosts, relays, controllers, coflows, flows, block_bytes, policy, .. } = &self.settings;
        let mut words = format!(
            "--seed {} --hosts {hosts} --relays {relays} --controllers {controllers} --coflows {coflows} --flows {flows} --block-bytes {block_bytes} --policy {policy}",
            self.seed
        );
        words += &format!(" --loses-machines {}", self.settings.loses_machines);
        words += &format!(" --durable {}", self.settings.durable);
        words += &format!(" --kills-coordinators {}", self.settings.kills_coordinators);
        if self.settings.faults.is_none() {
            words += " --no-faults";
        }
        if !self.settings.skip_faults.is_empty() {
            let numbers: Vec<String> = self.settings.skip_faults.iter().map(u64::to_string).collect();
            words += &format!(" --skip-faults {}", numbers.join(","));
        }
        words
    }

    /// How much there is to read.
    fn size(&self) -> u64 {
        self.violation.report.events
    }

    fn try_with(&self, seed: u64, settings: &Settings) -> Option<Failing> {
        let violation = run(seed, settings).err()?;
        let same = kind(&violation) == kind(&self.violation);
        same.then(|| Failing { seed, settings: settings.clone(), violation })
    }
}

/// A violation without its numbers and names.
fn kind(violation: &Violation) -> String {
    violation.what.chars().filter(|c| !c.is_ascii_digit()).take(KIND).collect()
}

/// Halves what there is of hosts, coflows, flows and bytes as long as some seed still fails in the same way, and then leaves out
/// faults that it does not take.
pub fn shrink(failing: Failing) -> Failing {
    let mut smallest = failing;
    let halves: [fn(&mut Settings); 6] = [
        |settings| settings.controllers /= 2,
        |settings| settings.relays /= 2,
        |settings| settings.coflows = (settings.coflows / 2).max(1),
        |settings| settings.hosts = (settings.hosts / 2).max(2),
        |settings| settings.flows = (settings.flows / 2).max(1),
        |settings| settings.block_bytes = (settings.block_bytes / 2).max(1),
    ];
    for halve in halves {
        while let Some(smaller) = halved(&smallest, halve) {
            smallest = smaller;
        }
    }
    let drawn = smallest.violation.report.faults_drawn;
    for number in (0..drawn).rev() {
        let mut settings = smallest.settings.clone();
        settings.skip_faults.insert(number);
        let tried = smallest.try_with(smallest.seed, &settings);
        if let Some(smaller) = tried.filter(|smaller| smaller.size() <= smallest.size()) {
            smallest = smaller;
        }
    }
    smallest
}

fn halved(failing: &Failing, halve: fn(&mut Settings)) -> Option<Failing> {
    let mut settings = failing.settings.clone();
    halve(&mut settings);
    let sizes = |of: &Settings| (of.controllers, of.hosts, of.relays, of.coflows, of.flows, of.block_bytes);
    if sizes(&settings) == sizes(&failing.settings) {
        return None;
    }
    let seeds = failing.seed..failing.seed.saturating_add(SEEDS);
    seeds
        .into_iter()
        .find_map(|seed| failing.try_with(seed, &settings))
        .filter(|smaller| smaller.size() < failing.size())
}

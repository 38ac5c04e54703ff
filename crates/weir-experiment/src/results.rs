//! What an experiment gave, and what it was run with: the numbers beside `experiment.toml`.

use crate::sites::LinkUse;
use crate::spec::WORKLOAD;
use crate::{Experiment, Measures, Point, Probe};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers of an experiment on one workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of this format.
    pub schema: u32,
    /// What made the numbers; none in files of versions that did not write it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<MadeBy>,
    /// Name of the workload, with its parameters if it was generated.
    pub workload: String,
    /// The policy that others are compared with, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// What measures are means over.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// In the order of the experiment.
    pub points: Vec<PointResult>,
    /// What the code that made these numbers gives on very little work; empty in files of before there were probes.
    #[serde(default, skip_serializing_if = "Probe::is_empty")]
    pub probe: Probe,
}

/// What has to be run, with which program, to get numbers again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeBy {
    /// The command line after the program's name. Files are named without their folders: nothing in results depends on
    /// the machine.
    pub command: Vec<String>,
    /// Version of the program.
    pub version: String,
    /// Commit that it was built from; `unknown` outside of a repository.
    pub commit: String,
}

impl MadeBy {
    /// One line for people, with the seeds that means are over.
    pub fn line(&self, seeds: &[u64]) -> String {
        let MadeBy { command, version, commit } = self;
        let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
        let plural = if seeds.len() == 1 { "" } else { "s" };
        format!(
            "Made by: `weir {}`, seed{plural} {} (version {version}, commit {commit}).",
            command.join(" "),
            seeds.join(", ")
        )
    }
}

/// Numbers of one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PointResult {
    /// Name of the point, as in the experiment.
    pub name: String,
    /// What it was run with: the experiment's setup and what differs at this point, without what neither says.
    #[serde(default)]
    pub setup: toml::Table,
    /// In the order of the experiment.
    pub policies: Vec<PolicyResult>,
}

/// Numbers of one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyResult {
    /// Its name, with settings; `workload` where the workload itself is measured.
    pub policy: String,
    /// Means over seeds, to six significant digits.
    pub measures: Measures,
    /// What the experiment shows, seed by seed in their order, where there are several; rows of one seed had the same work, so
    /// they compare in pairs. None in files of versions that did not keep it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_seed: BTreeMap<String, Vec<f64>>,
    /// The use of every link between sites, where the experiment asks for it; means likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkUse>,
}

impl Results {
    pub(crate) fn of(experiment: &Experiment, workload: &str, points: Vec<PointResult>) -> Results {
        let (baseline, seeds) = (experiment.baseline.clone(), experiment.seeds.clone());
        let (made_by, workload) = (None, workload.to_owned());
        Results { schema: 1, made_by, workload, baseline, seeds, points, probe: Probe::new() }
    }

    /// Every number of `self`, as computed, that is another than the `stored` one, or stands only in one of them.
    pub fn differences(&self, stored: &Results) -> Vec<Difference> {
        let numbers = |results: &Results| {
            let mut numbers = BTreeMap::new();
            for (point, result) in pairs(results) {
                let mut note = |measure: String, value: f64| {
                    numbers.insert((point.name.clone(), result.policy.clone(), measure), value);
                };
                result.measures.iter().for_each(|(name, value)| note(name.clone(), *value));
                for link in &result.links {
                    note(format!("link {} to {}, GB", link.from, link.to), link.gb);
                    note(format!("link {} to {}, used", link.from, link.to), link.used);
                }
            }
            numbers
        };
        let (own, stored) = (numbers(self), numbers(stored));
        let keys: BTreeSet<_> = own.keys().chain(stored.keys()).collect();
        let differ = keys.into_iter().filter(|key| own.get(*key) != stored.get(*key));
        let difference = |key: &(String, String, String)| {
            let (point, policy, measure) = key.clone();
            Difference {
                point,
                policy,
                measure,
                stored: stored.get(key).copied(),
                computed: own.get(key).copied(),
            }
        };
        differ.map(difference).collect()
    }

    /// Whether these are numbers of the experiment as it is now: its seeds, baseline, points, their setups and
    /// policies. Files that it names are not looked at, nor is its live part.
    ///
    /// # Errors
    /// What differs, in words.
    pub fn check_settings(&self, experiment: &Experiment) -> Result<(), String> {
        if self.seeds != experiment.seeds {
            return Err(format!("made with seeds {:?}, not {:?}", self.seeds, experiment.seeds));
        }
        if self.baseline != experiment.baseline {
            let name = |baseline: &Option<String>| baseline.clone().unwrap_or_else(|| "none".to_owned());
            return Err(format!(
                "made with baseline {}, not {}",
                name(&self.baseline),
                name(&experiment.baseline)
            ));
        }
        let names = |names: &mut dyn Iterator<Item = &String>| names.cloned().collect::<Vec<_>>().join(", ");
        let own = names(&mut self.points.iter().map(|point| &point.name));
        let asked = names(&mut experiment.point.iter().map(|point| &point.name));
        if own != asked {
            return Err(format!("made of points {own}, not {asked}"));
        }
        for (own, point) in self.points.iter().zip(&experiment.point) {
            let asked = point.setup.over(&experiment.setup).as_table();
            if own.setup != asked {
                let line = |table: &toml::Table| toml::Value::Table(table.clone()).to_string();
                return Err(format!(
                    "point {}: made with {}, not {}",
                    point.name,
                    line(&own.setup),
                    line(&asked)
                ));
            }
            let policies = names(&mut own.policies.iter().map(|result| &result.policy));
            let asked = match experiment.policies_of(point) {
                [] => WORKLOAD.to_owned(),
                policies => names(&mut policies.iter()),
            };
            if policies != asked {
                return Err(format!("point {}: made of {policies}, not {asked}", point.name));
            }
        }
        Ok(())
    }
}

/// A number that was computed otherwise than it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Name of the row's point.
    pub point: String,
    /// Name of the row's policy.
    pub policy: String,
    /// Name of the column's measure.
    pub measure: String,
    /// None if it is not in the file.
    pub stored: Option<f64>,
    /// None if it is only in the file.
    pub computed: Option<f64>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = |value: Option<f64>| value.map_or("nothing".to_owned(), |value| value.to_string());
        let Difference { point, policy, measure, stored, computed } = self;
        write!(
            f,
            "point {point}, {policy}, {measure}: stored {}, computed {}",
            value(*stored),
            value(*computed)
        )
    }
}

/// Every run's numbers with their point.
fn pairs(results: &Results) -> impl Iterator<Item = (&PointResult, &PolicyResult)> {
    results.points.iter().flat_map(|point| point.policies.iter().map(move |policy| (point, policy)))
}

impl PointResult {
    pub(crate) fn of(experiment: &Experiment, point: &Point, policies: Vec<PolicyResult>) -> PointResult {
        let setup = point.setup.over(&experiment.setup).as_table();
        PointResult { name: point.name.clone(), setup, policies }
    }
}

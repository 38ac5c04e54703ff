//! What an experiment gave, and what it was run with: the numbers beside `experiment.toml`.

use crate::sites::LinkUse;
use crate::spec::WORKLOAD;
use crate::{Experiment, Measures, Point};
use serde::{Deserialize, Serialize};

/// Numbers of an experiment on one workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of this format.
    pub schema: u32,
    /// The workload's name.
    pub workload: String,
    /// The policy that others are compared with, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// What measures are means over.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// In the order of the experiment.
    pub points: Vec<PointResult>,
}

/// Numbers of one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PointResult {
    /// Its name.
    pub name: String,
    /// What it was run with: the experiment's setup and what differs at this point, without what neither says.
    #[serde(default)]
    pub setup: toml::Table,
    /// In the order of the experiment.
    pub policies: Vec<PolicyResult>,
}

/// Numbers of one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyResult {
    /// Its name, with settings; `workload` where the workload itself is measured.
    pub policy: String,
    /// Means over seeds, to six significant digits.
    pub measures: Measures,
    /// The use of every link between sites, where the experiment asks for it; means likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkUse>,
}

impl Results {
    pub(crate) fn of(experiment: &Experiment, workload: &str, points: Vec<PointResult>) -> Results {
        let (baseline, seeds) = (experiment.baseline.clone(), experiment.seeds.clone());
        Results { schema: 1, workload: workload.to_owned(), baseline, seeds, points }
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

impl PointResult {
    pub(crate) fn of(experiment: &Experiment, point: &Point, policies: Vec<PolicyResult>) -> PointResult {
        let setup = point.setup.over(&experiment.setup).as_table();
        PointResult { name: point.name.clone(), setup, policies }
    }
}

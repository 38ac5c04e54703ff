//! Scenario files: a small network, explicit coflows, and the completion times each policy must give.
//!
//! TOML, for cases that can be worked out by hand. Sizes, rates and times are in units: a link of rate 1
//! moves one unit of data in one unit of time. The same file therefore runs simulated at any rate and live
//! with real bytes: [`Scenario::at`] says how many bytes a unit is and how fast rate 1 is.
//!
//! ```toml
//! name = "two-flows-one-link"
//! about = "Two coflows want the same uplink."
//! source = "own derivation"
//! unit_bytes = 1000000        # 1000000 unless said
//! first_host = 1              # the number of the first host in `flows`; 0 unless said
//!
//! [fabric]
//! kind = "big-switch"         # or "racks", "sites"
//! hosts = 3
//! rate = 1                    # of every host link; 1 unless said
//!
//! [[coflow]]
//! id = 1
//! arrival = 0                 # 0 unless said
//! flows = ["1->2:1", "1->3:1/2"]
//! weight = 1                  # 1 unless said
//! deadline = 4                # none unless said
//! after = [2]                 # stages: earlier coflows of the file that must be complete; none unless said
//! compute = "1/2"             # and how long the stage computes then; 0 unless said
//! parents = [3]               # pipelines: earlier coflows that it descends from and may be live with
//!
//! [[change]]                  # the capacity of a link changes; any number of times
//! at = 2
//! out = 1                     # of host 1 into the network; or in = 1, or, between sites, link = [0, 1]
//! capacity = "1/2"            # from then on
//!
//! [expect.varys]              # completion time of every coflow, from its arrival, or "refused"
//! 1 = "3/2"
//! ```
//!
//! Numbers may be written as fractions in quotes. `racks` takes `racks`, `hosts_per_rack`, `rate` and
//! `oversubscription`; `sites` takes `hosts_per_site = [..]`, `rates = [[..], ..]` and, where host links
//! limit too, `rate`. Links of racks to the core do not change. Unknown keys are errors. The format has no
//! version of its own: a scenario is checked by running it.

mod file;
mod number;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weir_model::{
    Bytes, CapacityChange, CoflowId, CoflowSpec, Dependencies, Fabric, FabricError, FlowSpec, HostId, JobId,
    LinkId, RackSpec, Rate, SiteSpec, Span, Time,
};

/// A network in units.
#[derive(Clone, Debug, PartialEq)]
pub enum FabricUnits {
    /// All hosts at one non-blocking switch.
    BigSwitch {
        /// Number of hosts at the switch.
        hosts: u32,
        /// Rate of every host link.
        rate: f64,
    },
    /// Racks below a core.
    Racks {
        /// Number of racks below the core.
        racks: u32,
        /// Number of hosts in each rack.
        hosts_per_rack: u32,
        /// Rate of every host link.
        rate: f64,
        /// How many times more host capacity a rack has than capacity to the core.
        oversubscription: f64,
    },
    /// Sites, each with a link to each other one.
    Sites {
        /// Hosts in each site.
        hosts_per_site: Vec<u32>,
        /// Rate of every host link; `None` leaves hosts unconstrained.
        rate: Option<f64>,
        /// `rates[from][to]` of the link from one site to another.
        rates: Vec<Vec<f64>>,
    },
}

/// A flow in units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowUnits {
    /// Sending host, counted from 0.
    pub source: HostId,
    /// Receiving host, counted from 0.
    pub destination: HostId,
    /// Size in units of data (see [`Scenario::unit_bytes`]).
    pub size: f64,
}

/// A coflow in units.
#[derive(Clone, Debug, PartialEq)]
pub struct CoflowUnits {
    /// Number of the coflow, unique in its scenario.
    pub id: CoflowId,
    /// Arrival, in units of time after the start.
    pub arrival: f64,
    /// Its flows, in the order of the file.
    pub flows: Vec<FlowUnits>,
    /// Share relative to other coflows.
    pub weight: f64,
    /// Time allowed from arrival.
    pub deadline: Option<f64>,
    /// Coflows that must be complete before its stage begins.
    pub after: Vec<CoflowId>,
    /// How long its stage computes before its flows may start.
    pub compute: f64,
    /// Coflows that it descends from and that may be live when it is.
    pub ancestors: Vec<CoflowId>,
    /// The first coflow of its job; `None` for a bare coflow.
    pub root: Option<CoflowId>,
}

/// A change of a link's capacity, in units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangeUnits {
    /// When it happens, in units of time after the start.
    pub at: f64,
    /// Which link of the network.
    pub link: LinkId,
    /// Its capacity from then on, above 0.
    pub capacity: f64,
}

/// What becomes of a coflow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expected {
    /// It is complete so long after its arrival, in units of time.
    CompletesAfter(f64),
    /// It is not let in.
    Refused,
}

/// A small case with known answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What it is called.
    pub name: String,
    /// What the scenario shows, for people.
    pub about: String,
    /// Where its numbers come from.
    pub source: String,
    /// Bytes that one unit of data stands for, unless [`Scenario::at`] is told otherwise.
    pub unit_bytes: Bytes,
    /// The network, with its rates in units.
    pub fabric: FabricUnits,
    /// The coflows, in the order of the file.
    pub coflows: Vec<CoflowUnits>,
    /// How the network changes, in the order of the file.
    pub changes: Vec<ChangeUnits>,
    /// Per policy, what becomes of every coflow.
    pub expect: BTreeMap<String, Vec<(CoflowId, Expected)>>,
}

/// Why a scenario could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// There is no such file, or it may not be read, or it is no text.
    #[error("{}: {source}", path.display())]
    Open {
        /// As it was given.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The file says something that cannot be.
    #[error("{}: line {line}: {reason}", path.display())]
    Malformed {
        /// As it was given.
        path: PathBuf,
        /// Line at fault, counted from 1.
        line: usize,
        /// What is wrong in that line.
        reason: String,
    },
}

/// Why a scenario has no form at some rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// There is no such network.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// Capacities change, and what is to run the scenario cannot change them.
    #[error("{0}: capacities of its links change, which only a simulation follows: use weir sim")]
    Changes(String),
}

/// A scenario at a rate: what runs, and what a unit of time is.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaledScenario {
    /// The network, with its rates in bytes per second.
    pub fabric: Fabric,
    /// The coflows, in the order of the file.
    pub coflows: Vec<CoflowSpec>,
    /// How the network changes, in the order of the file.
    pub changes: Vec<CapacityChange>,
    /// Seconds that one unit of time takes.
    pub unit_secs: f64,
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// The file cannot be read, or it is not a scenario: the error says in which line, and why.
    pub fn load(path: &Path) -> Result<Scenario, ScenarioError> {
        let text =
            crate::read_text(path).map_err(|source| ScenarioError::Open { path: path.to_owned(), source })?;
        Scenario::parse(path, &text)
    }

    /// Reads the text of a scenario file; `path` is for errors.
    ///
    /// # Errors
    /// The text is not a scenario: the error says in which line, and why.
    pub fn parse(path: &Path, text: &str) -> Result<Scenario, ScenarioError> {
        file::parse(text).map_err(|(line, reason)| ScenarioError::Malformed {
            path: path.to_owned(),
            line,
            reason,
        })
    }

    /// Number of hosts, of all racks or sites together.
    pub fn hosts(&self) -> u32 {
        match &self.fabric {
            FabricUnits::BigSwitch { hosts, .. } => *hosts,
            FabricUnits::Racks { racks, hosts_per_rack, .. } => racks * hosts_per_rack,
            FabricUnits::Sites { hosts_per_site, .. } => hosts_per_site.iter().sum(),
        }
    }

    /// [`Scenario::changing_at`] for networks that stay as they are; scenarios in which capacities change are refused.
    ///
    /// # Errors
    /// Capacities change in the scenario, or [`Scenario::changing_at`] fails.
    pub fn at(&self, link_rate: Rate, unit_bytes: Bytes) -> Result<ScaledScenario, ScaleError> {
        if !self.changes.is_empty() {
            return Err(ScaleError::Changes(self.name.clone()));
        }
        Ok(self.changing_at(link_rate, unit_bytes)?)
    }

    /// The scenario where rate 1 is `link_rate` and one unit of data is `unit_bytes`. Sizes are rounded to
    /// whole bytes (at least 1), times to the nanosecond.
    ///
    /// # Errors
    /// There is no such network, for instance because a rate is not a finite number above 0: see [`FabricError`].
    pub fn changing_at(&self, link_rate: Rate, unit_bytes: Bytes) -> Result<ScaledScenario, FabricError> {
        let unit_secs = unit_bytes.0 as f64 / link_rate.bytes_per_sec();
        // The nearest nanosecond: `from_secs_ceil` alone would push exact times up by rounding errors.
        let span = |units: f64| Span::from_nanos((units * unit_secs * 1e9).round() as u64);
        let coflow = |coflow: &CoflowUnits| {
            let mut groups: Vec<HostId> = Vec::new();
            let flow = |flow: &FlowUnits| {
                // Scenario files name hosts and no tasks: each receiving host is one flow group.
                let group = groups.iter().position(|&host| host == flow.destination).unwrap_or_else(|| {
                    groups.push(flow.destination);
                    groups.len() - 1
                });
                let size = Bytes(((flow.size * unit_bytes.0 as f64).round() as u64).max(1));
                FlowSpec { source: flow.source, destination: flow.destination, size, group: group as u32 }
            };
            let flows = coflow.flows.iter().map(flow).collect();
            let mut spec = CoflowSpec::new(coflow.id, Time::ZERO + span(coflow.arrival), flows);
            spec.weight = coflow.weight;
            spec.deadline = coflow.deadline.map(span);
            spec.dependencies = Dependencies {
                job: coflow.root.map(|root| JobId(root.0)),
                after: coflow.after.clone(),
                compute: span(coflow.compute),
                ancestors: coflow.ancestors.clone(),
                ..Dependencies::default()
            };
            spec
        };
        let coflows = self.coflows.iter().map(coflow).collect();
        let change = |change: &ChangeUnits| CapacityChange {
            at: Time::ZERO + span(change.at),
            link: change.link,
            capacity: link_rate.scaled(change.capacity),
        };
        let changes = self.changes.iter().map(change).collect();
        Ok(ScaledScenario { fabric: self.fabric_at(link_rate)?, coflows, changes, unit_secs })
    }

    fn fabric_at(&self, link_rate: Rate) -> Result<Fabric, FabricError> {
        let scaled = |rate: f64| link_rate.scaled(rate);
        match &self.fabric {
            FabricUnits::BigSwitch { hosts, rate } => Fabric::big_switch(*hosts, scaled(*rate)),
            FabricUnits::Racks { racks, hosts_per_rack, rate, oversubscription } => {
                Fabric::racks(&RackSpec {
                    hosts_per_rack: *hosts_per_rack,
                    racks: *racks,
                    host_rate: scaled(*rate),
                    oversubscription: *oversubscription,
                })
            }
            FabricUnits::Sites { hosts_per_site, rate, rates } => Fabric::sites(&SiteSpec {
                hosts_per_site: hosts_per_site.clone(),
                host_rate: rate.map(scaled),
                rates: rates.iter().map(|row| row.iter().copied().map(scaled).collect()).collect(),
            }),
        }
    }
}
